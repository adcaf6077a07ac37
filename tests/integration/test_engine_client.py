from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anex.errors import EngineGone
from anex.services import Engine, EngineRequest
from tests.support.engines import (
    CHAT,
    EngineUnderTest,
    chat_request,
    open_client,
    run_fake_engine,
    short_folder,
)
from tests.support.wait import wait_until
from workers.engine_budget import Budget, BudgetClosed
from workers.engine_client import EngineClient, MonotonicSum, sum_progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_SECONDS = 30.0

METRICS_PAGE = """\
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a}b"} 100.0
vllm:prompt_tokens_by_source_total{engine="0"} 7.0
vllm:generation_tokens_total{engine="0"} 1e+03
vllm:generation_tokens_created{engine="0"} 1.79e+09
vllm:request_success_total{engine="0",finished_reason="stop"} 3.0
vllm:request_success_total{engine="0",finished_reason="length"} 4.0
vllm:request_success_total 5
vllm:num_requests_running{engine="0"} 9.0
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineUnderTest]:
    with run_fake_engine("fake-chat", "--step-base-seconds", "0.02", "--max-num-seqs", "512") as engine:
        yield engine


@pytest.fixture
def client(engine: EngineUnderTest) -> Iterator[EngineClient]:
    with open_client(engine.socket_path) as client:
        yield client


@contextmanager
def raw_server(answer: bytes) -> Iterator[Path]:
    """Answer every connection with these bytes after its request's first piece, and close it."""
    with short_folder() as folder:
        listener = socket.socket(socket.AF_UNIX)
        path = folder / "raw.sock"
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with (
                    connection,
                    suppress(ConnectionError),
                ):  # the client's look at its metrics may be over by then
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()


def long_row(engine: EngineUnderTest) -> EngineRequest:
    return chat_request(engine.spec, "x", max_tokens=2000, ignore_eos=True)


def test_it_is_the_port(client: EngineClient) -> None:
    port: Engine = client
    assert port.is_ready()
    assert port.in_flight() == 0


def test_answers_are_raw_bytes_and_a_refusal_is_an_answer(
    engine: EngineUnderTest, client: EngineClient
) -> None:
    good = client.submit(chat_request(engine.spec, "x", max_tokens=2))
    bad = client.submit(EngineRequest(CHAT, b"[]"))
    unknown = client.submit(EngineRequest("/v1/nothing", b"{}"))
    assert json.loads(good.result(WAIT_SECONDS).body)["object"] == "chat.completion"
    assert [future.result(WAIT_SECONDS).status for future in (good, bad, unknown)] == [200, 400, 404]
    wait_until(lambda: client.in_flight() == 0, what="nothing is in flight")


def test_more_than_a_hundred_rows_are_at_the_engine_together(engine: EngineUnderTest) -> None:
    with open_client(engine.socket_path, rows_in_flight_max=300) as client:
        futures = [client.submit(long_row(engine)) for _ in range(300)]
        wait_until(lambda: engine.read_metric("num_requests_running") == 300, what="300 rows are decoded")
        assert client.is_ready()
        assert client.in_flight() == 300
        client.abort(futures)
        wait(futures, WAIT_SECONDS)
        assert client.in_flight() == 0
    wait_until(lambda: engine.read_metric("num_requests_running") == 0, what="the engine is free")


def test_submit_blocks_while_the_rows_are_used_up(engine: EngineUnderTest) -> None:
    with (
        open_client(engine.socket_path, rows_in_flight_max=2) as client,
        ThreadPoolExecutor() as threads,
    ):
        first = [client.submit(long_row(engine)) for _ in range(2)]
        third = threads.submit(client.submit, chat_request(engine.spec, "x", max_tokens=1))
        wait_until(lambda: len(client._budget._queue) == 1, what="the third row waits for a place")
        assert (client.in_flight(), third.done()) == (2, False)
        client.abort(first[:1])
        assert third.result(WAIT_SECONDS).result(WAIT_SECONDS).status == 200
        assert not first[1].done()


def test_a_row_over_the_whole_byte_budget_is_sent_alone(engine: EngineUnderTest) -> None:
    with (
        open_client(engine.socket_path, request_bytes_max=1000) as client,
        ThreadPoolExecutor() as threads,
    ):
        small = client.submit(long_row(engine))
        large = threads.submit(client.submit, chat_request(engine.spec, "x" * 3000, max_tokens=1))
        wait_until(lambda: len(client._budget._queue) == 1, what="the large row waits")
        client.abort([small])
        assert large.result(WAIT_SECONDS).result(WAIT_SECONDS).status == 200


def test_a_body_of_many_megabytes_arrives(engine: EngineUnderTest, client: EngineClient) -> None:
    answer = client.submit(chat_request(engine.spec, "x" * (8 << 20), max_tokens=1)).result(WAIT_SECONDS)
    assert answer.status == 400
    assert b"maximum context length" in answer.body


def test_an_aborted_row_raises_at_once_and_twice_is_no_harm(
    engine: EngineUnderTest, client: EngineClient
) -> None:
    done = client.submit(chat_request(engine.spec, "x", max_tokens=1))
    done.result(WAIT_SECONDS)
    futures = [client.submit(long_row(engine)) for _ in range(50)]
    client.abort([done, *futures])  # some were not even sent yet
    client.abort(futures)
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(WAIT_SECONDS)
    assert len(wait([done, *futures], WAIT_SECONDS).done) == 51
    assert client.in_flight() == 0
    assert done.result().status == 200


def test_no_engine_at_the_socket_is_a_gone_engine() -> None:
    with short_folder() as folder, open_client(folder / "none.sock") as client:
        assert not client.is_ready()
        with pytest.raises(EngineGone):
            client.submit(EngineRequest(CHAT, b"{}")).result(WAIT_SECONDS)
        assert client.in_flight() == 0


@pytest.mark.parametrize(
    "answer",
    [b"", b"not http\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"],
    ids=["cut before", "no http", "cut inside"],
)
def test_half_an_answer_is_none(answer: bytes) -> None:
    with raw_server(answer) as path, open_client(path) as client:
        with pytest.raises(EngineGone):
            client.submit(EngineRequest(CHAT, b"{}")).result(WAIT_SECONDS)
        assert client.in_flight() == 0


def test_an_answer_over_the_bound_is_that_rows_fault_alone() -> None:
    body = b"x" * 2001
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2001\r\n\r\n" + body
    with raw_server(raw) as path, open_client(path, response_max_bytes=2000) as client:
        answer = client.submit(EngineRequest(CHAT, b"{}")).result(WAIT_SECONDS)
    assert answer.status == 502
    assert "larger than 2000 bytes" in json.loads(answer.body)["error"]["message"]


def test_progress_is_what_the_answers_say_and_goes_on_over_a_restart() -> None:
    with run_fake_engine() as fresh, open_client(fresh.socket_path) as client:
        usage = fresh.chat("x")["usage"]
        expected = usage["total_tokens"] + 1
        wait_until(lambda: client.progress() == expected, what=f"progress is {expected}")
        fresh.kill()
    counter = MonotonicSum()
    for value in (10, 15, 2, 2, 5):
        counter.see(value)
    assert counter.total == 15 + 5


def test_progress_stands_still_while_the_engine_hangs() -> None:
    with (
        run_fake_engine("fake-chat", "--step-base-seconds", "0.02") as engine,
        open_client(engine.socket_path) as client,
    ):
        client.submit(long_row(engine))
        wait_until(lambda: client.progress() > 0, what="progress is counted")
        engine.set_switches(hang=True)
        made = engine.read_metric("generation_tokens_total")
        wait_until(lambda: client.progress() == made, what="the last progress is read")
        pages = engine.read_metric
        assert {(pages("generation_tokens_total"), client.progress()) for _ in range(50)} == {(made, made)}
        assert client.in_flight() == 1


def test_only_the_three_counters_are_progress() -> None:
    assert sum_progress(METRICS_PAGE) == 100 + 1000 + 3 + 4 + 5


def test_closing_ends_what_is_in_flight_and_who_waits(engine: EngineUnderTest) -> None:
    with ThreadPoolExecutor() as threads, open_client(engine.socket_path, rows_in_flight_max=1) as client:
        running = client.submit(long_row(engine))
        waiting = threads.submit(client.submit, long_row(engine))
        wait_until(lambda: len(client._budget._queue) == 1, what="a row waits for a place")
        client.close()
        with pytest.raises(CancelledError):
            running.result(WAIT_SECONDS)
        for late in (waiting, threads.submit(client.submit, long_row(engine))):
            with pytest.raises(EngineGone):
                late.result(WAIT_SECONDS)
        assert not client.is_ready()
        assert client.in_flight() == 0
        client.close()


def test_a_small_row_does_not_overtake_a_large_one_that_waits() -> None:
    budget = Budget(rows_max=10, bytes_max=100)
    budget.acquire(60)
    with ThreadPoolExecutor() as threads:
        large = threads.submit(budget.acquire, 90)
        wait_until(lambda: len(budget._queue) == 1, what="the large row waits")
        small = threads.submit(budget.acquire, 10)
        wait_until(lambda: len(budget._queue) == 2, what="the small row waits behind it")
        assert not small.done()
        budget.release(60)
        large.result(WAIT_SECONDS)
        small.result(WAIT_SECONDS)
        blocked = threads.submit(budget.acquire, 1)
        wait_until(lambda: len(budget._queue) == 1, what="the budget is used up")
        budget.close()
        with pytest.raises(BudgetClosed):
            blocked.result(WAIT_SECONDS)


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=150), max_size=40),
    rows_max=st.integers(min_value=1, max_value=5),
)
def test_the_budget_is_never_exceeded_but_by_a_row_alone(sizes: list[int], rows_max: int) -> None:
    budget = Budget(rows_max, bytes_max=100)
    held: list[int] = []
    for size in sizes:
        while not budget._fits(size, 1):
            budget.release(held.pop(0))
        budget.acquire(size)
        held.append(size)
        assert budget.rows == len(held) <= rows_max
        assert sum(held) <= 100 or len(held) == 1


def test_futures_of_many_threads_get_their_own_answers(engine: EngineUnderTest) -> None:
    with open_client(engine.socket_path, rows_in_flight_max=3) as client, ThreadPoolExecutor(8) as threads:

        def run(number: int) -> int:
            answer = client.submit(chat_request(engine.spec, "x" * number, max_tokens=1)).result(WAIT_SECONDS)
            tokens: int = json.loads(answer.body)["usage"]["prompt_tokens"]
            return tokens

        counts = list(threads.map(run, range(60)))
    assert counts == list(range(7, 67))
