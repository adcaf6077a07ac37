"""Doorbells on a real Valkey, on one that is gone, and on one that accepts and never answers."""

from __future__ import annotations

import base64
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis
from structlog.testing import capture_logs

from anex.errors import BrokerUnavailable
from anex.jobs.model import Step
from tasks import names
from tasks.dispatch import BREAKER_SECONDS, CeleryDispatcher

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = "job_1"
MODEL = "test-model"

FAR_BELOW_KOMBUS_OWN_SECONDS = 10.0
"""Without bounds, kombu waits over 30 s for a broker that hangs."""


@pytest.fixture
def valkey(valkey_url: str) -> Iterator[redis.Redis]:
    """Return this worker's database, emptied."""
    client = redis.Redis.from_url(valkey_url)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def dispatcher(valkey_url: str) -> Iterator[CeleryDispatcher]:
    dispatcher = CeleryDispatcher(valkey_url)
    yield dispatcher
    dispatcher.close()


@pytest.fixture
def black_hole() -> Iterator[socket.socket]:
    """Return a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


@pytest.fixture
def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return port_of(server)


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


def url_of(port: int) -> str:
    return f"redis://127.0.0.1:{port}/0"


def count_callers(server: socket.socket) -> int:
    """Return how many connections were made to a server since the last look."""
    callers = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return callers
        callers += 1


class Clock:
    """Seconds that a test moves on."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def read_messages(valkey: redis.Redis, queue: str) -> list[dict[str, Any]]:
    """Return a queue's messages, oldest first: task, keyword arguments, and the tasks that follow."""
    raw = valkey.lrange(queue, 0, -1)
    assert isinstance(raw, list)
    messages = []
    for each in reversed(raw):
        message = json.loads(each)
        args, kwargs, embed = json.loads(base64.b64decode(message["body"]))
        assert args == []
        following = [(link["task"], link["options"].get("queue")) for link in embed["chain"] or []]
        messages.append({"task": message["headers"]["task"], "kwargs": kwargs, "then": following})
    return messages


@pytest.mark.parametrize(
    ("step", "queue", "task"),
    [
        (Step.VALIDATE, names.PLAN_QUEUE, names.VALIDATE),
        (Step.COUNT, names.COUNT_QUEUE, names.COUNT),
        (Step.ESTIMATE, names.PLAN_QUEUE, names.ESTIMATE),
        (Step.FINALIZE, names.FINALIZE_QUEUE, names.FINALIZE),
    ],
)
def test_a_step_is_rung_on_the_queue_of_its_task(
    dispatcher: CeleryDispatcher, valkey: redis.Redis, step: Step, queue: str, task: str
) -> None:
    dispatcher.ring_step(JOB, step, MODEL)

    assert read_messages(valkey, queue) == [{"task": task, "kwargs": {"job_id": JOB}, "then": []}]


def test_a_sample_is_rung_at_its_model_and_the_estimate_follows(
    dispatcher: CeleryDispatcher, valkey: redis.Redis
) -> None:
    dispatcher.ring_step(JOB, Step.SAMPLE, MODEL)

    (message,) = read_messages(valkey, f"gpu.{MODEL}.quick")
    assert message["task"] == names.SAMPLE
    assert [task for task, _ in message["then"]] == [names.ESTIMATE]
    assert not valkey.exists(names.PLAN_QUEUE)


def test_each_span_gets_its_own_message(dispatcher: CeleryDispatcher, valkey: redis.Redis) -> None:
    dispatcher.ring_spans(JOB, 3)

    assert [each["kwargs"] for each in read_messages(valkey, names.COUNT_QUEUE)] == [{"job_id": JOB}] * 3


def test_a_models_rings_can_be_counted(dispatcher: CeleryDispatcher, valkey: redis.Redis) -> None:
    assert dispatcher.run_queue_length(MODEL) == 0

    dispatcher.ring_model(MODEL, 2)

    assert dispatcher.run_queue_length(MODEL) == 2
    assert [each["task"] for each in read_messages(valkey, f"gpu.{MODEL}")] == [names.RUN_CHUNK] * 2


@pytest.mark.parametrize(
    ("again", "queue", "task"),
    [
        (False, names.WEBHOOKS_QUEUE, names.DELIVER),
        (True, names.WEBHOOKS_AGAIN_QUEUE, names.DELIVER_AGAIN),
    ],
)
def test_each_lane_of_deliveries_has_a_queue_and_its_rings_a_time(
    dispatcher: CeleryDispatcher, valkey: redis.Redis, *, again: bool, queue: str, task: str
) -> None:
    dispatcher.ring_deliveries(again=again)
    dispatcher.ring_deliveries(again=again, after_seconds=5.0)

    assert dispatcher.deliveries_queue_length(again=again) == 2
    assert read_messages(valkey, queue) == [{"task": task, "kwargs": {}, "then": []}] * 2
    raw = valkey.lrange(queue, 0, -1)
    assert isinstance(raw, list)
    assert [json.loads(each)["headers"]["eta"] is None for each in reversed(raw)] == [True, False]


def test_a_connection_that_the_server_closed_while_it_was_idle_costs_no_ring(
    dispatcher: CeleryDispatcher, valkey: redis.Redis
) -> None:
    dispatcher.ring_model(MODEL)
    assert dispatcher.run_queue_length(MODEL) == 1

    close_other_connections(valkey)
    dispatcher.ring_model(MODEL)

    assert valkey.llen(f"gpu.{MODEL}") == 2
    assert dispatcher.run_queue_length(MODEL) == 2


def close_other_connections(valkey: redis.Redis) -> None:
    """Close all connections to this database but ``valkey``'s own."""
    own = valkey.client_id()
    database = valkey.connection_pool.connection_kwargs["db"]
    clients: Any = valkey.client_list()
    others = [each for each in clients if int(each["db"]) == database and int(each["id"]) != own]
    assert others
    for each in others:
        valkey.client_kill_filter(_id=each["id"])


def ring_everything(dispatcher: CeleryDispatcher) -> None:
    for step in Step:
        dispatcher.ring_step(JOB, step, MODEL)
    dispatcher.ring_spans(JOB, 1000)
    dispatcher.ring_model(MODEL, 6)


def test_rings_at_a_broker_that_hangs_cost_one_time_out_altogether(black_hole: socket.socket) -> None:
    dispatcher = CeleryDispatcher(url_of(port_of(black_hole)))

    ring_everything(dispatcher)

    assert count_callers(black_hole) == 1
    dispatcher.close()


def test_the_one_time_out_is_short(black_hole: socket.socket) -> None:
    dispatcher = CeleryDispatcher(url_of(port_of(black_hole)))
    ringer = threading.Thread(target=ring_everything, args=(dispatcher,), daemon=True)

    ringer.start()
    ringer.join(FAR_BELOW_KOMBUS_OWN_SECONDS)

    assert not ringer.is_alive()
    dispatcher.close()


def test_rings_at_a_broker_that_is_gone_do_not_raise(closed_port: int) -> None:
    dispatcher = CeleryDispatcher(url_of(closed_port))

    with capture_logs() as events:
        ring_everything(dispatcher)

    assert [each["event"] for each in events].count("ring_failed") == 1
    assert {each["event"] for each in events} == {"ring_failed", "ring_skipped"}
    dispatcher.close()


def test_a_broker_that_hangs_has_no_queue_length_and_is_asked_once(black_hole: socket.socket) -> None:
    dispatcher = CeleryDispatcher(url_of(port_of(black_hole)))

    for _ in range(3):
        with pytest.raises(BrokerUnavailable):
            dispatcher.run_queue_length(MODEL)

    assert count_callers(black_hole) == 1
    dispatcher.close()


def test_a_broker_that_is_gone_has_no_queue_length(closed_port: int) -> None:
    dispatcher = CeleryDispatcher(url_of(closed_port))

    with pytest.raises(BrokerUnavailable):
        dispatcher.run_queue_length(MODEL)
    dispatcher.close()


def test_rings_are_sent_again_once_the_breaker_has_closed(black_hole: socket.socket) -> None:
    clock = Clock()
    dispatcher = CeleryDispatcher(url_of(port_of(black_hole)), now=clock)
    dispatcher.ring_model(MODEL)
    assert count_callers(black_hole) == 1

    clock.seconds = BREAKER_SECONDS - 0.001
    dispatcher.ring_model(MODEL)
    assert count_callers(black_hole) == 0

    clock.seconds = BREAKER_SECONDS
    dispatcher.ring_model(MODEL)
    assert count_callers(black_hole) == 1
    dispatcher.close()
