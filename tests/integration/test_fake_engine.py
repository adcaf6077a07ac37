from __future__ import annotations

import json
import subprocess
from concurrent.futures import CancelledError, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anex.byte_tokens import count_byte_text, count_byte_tokens
from anex.errors import EngineGone
from tests.engine.conformance import Chats, Decides, Embeds, EndsByForce, Reasons, Serves
from tests.support.engines import (
    CHAT,
    EMBED,
    EngineUnderTest,
    chat_request,
    find_test_model,
    open_client,
    run_fake_engine,
)
from tests.support.wait import wait_until
from workers.engines.fake_answers import LawInvalid, LengthLaw, make_json_text, make_text, seed_random
from workers.engines.fake_chat import MEDIA_TOKENS
from workers.engines.fake_command import NotAFakeModel, fake_command
from workers.engines.fake_switches import CRASH_EXIT_CODE, Switches, SwitchUnknown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from anex.services import EngineAnswer
    from workers.engine_client import EngineClient

SLOW = ("--step-base-seconds", "0.02")


@pytest.fixture(scope="module")
def chat() -> Iterator[EngineUnderTest]:
    with run_fake_engine("fake-chat", *SLOW, "--answer-law", "constant:20") as engine:
        yield engine


@pytest.fixture(scope="module")
def reasoner() -> Iterator[EngineUnderTest]:
    with run_fake_engine(
        "fake-reasoner", "--answer-law", "constant:20", "--thinking-law", "constant:100"
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def embedder() -> Iterator[EngineUnderTest]:
    with run_fake_engine("fake-embed") as engine:
        yield engine


@pytest.fixture(scope="module")
def decider() -> Iterator[EngineUnderTest]:
    with run_fake_engine("fake-decide") as engine:
        yield engine


@pytest.fixture
def instant() -> Iterator[EngineUnderTest]:
    with run_fake_engine() as engine:
        yield engine


@pytest.fixture
def slow() -> Iterator[EngineUnderTest]:
    with run_fake_engine("fake-chat", *SLOW) as engine:
        yield engine


class TestFakeChat(Chats):
    @pytest.fixture
    def engine(self, chat: EngineUnderTest) -> EngineUnderTest:
        return chat


class TestFakeReasoner(Serves, Reasons):
    @pytest.fixture
    def engine(self, reasoner: EngineUnderTest) -> EngineUnderTest:
        return reasoner


class TestFakeEmbedder(Embeds):
    @pytest.fixture
    def engine(self, embedder: EngineUnderTest) -> EngineUnderTest:
        return embedder


class TestFakeDecider(Decides):
    @pytest.fixture
    def engine(self, decider: EngineUnderTest) -> EngineUnderTest:
        return decider


class TestFakeEnd(EndsByForce):
    @pytest.fixture
    def engine(self, slow: EngineUnderTest) -> EngineUnderTest:
        return slow


def test_it_says_that_it_is_fake(chat: EngineUnderTest) -> None:
    assert json.loads(chat.ask("/v1/models")[1])["data"][0]["owned_by"] == "fake"
    assert "fake engine" in (chat.socket_path.parent / "engine.log").read_text().splitlines()[0]


def test_no_other_models_engine_is_replaced_by_it() -> None:
    spec = find_test_model("fake-chat")
    real = replace(spec, engine=replace(spec.engine, kind="vllm"))
    with pytest.raises(NotAFakeModel, match="served by vllm"):
        fake_command(real, Path("/nowhere/engine.sock"))


def test_prompt_tokens_follow_the_byte_rule(chat: EngineUnderTest, embedder: EngineUnderTest) -> None:
    parts = [{"type": "text", "text": "ü"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": parts},
    ]
    usage = chat.post(CHAT, messages=messages, max_tokens=1)["usage"]
    assert usage["prompt_tokens"] - MEDIA_TOKENS == count_byte_tokens(messages) == 9 + 2 + 2 * 4 + 3
    texts = ["你好", ""]
    usage = embedder.post(EMBED, input=texts)["usage"]
    assert usage["prompt_tokens"] == sum(map(count_byte_text, texts)) == 6 + 2 * 2


def test_a_cap_over_what_the_prompt_leaves_is_refused(chat: EngineUnderTest) -> None:
    body = {"messages": [{"role": "user", "content": "x"}]}
    room = chat.spec.context_tokens - count_byte_tokens([{"content": "x"}])
    assert chat.ask(CHAT, {**body, "max_tokens": room})[0] == 200
    assert chat.ask(CHAT, {**body, "max_tokens": room + 1})[0] == 400


def test_the_same_row_gets_the_same_answer_from_another_process(instant: EngineUnderTest) -> None:
    with run_fake_engine() as other, run_fake_engine("fake-chat", "--seed", "1") as reseeded:
        answers = [
            engine.chat("a row", priority=index) for index, engine in enumerate((instant, other, reseeded))
        ]
    assert answers[0] == answers[1]
    assert answers[0]["choices"] != answers[2]["choices"]


def test_completion_tokens_are_the_texts_bytes(reasoner: EngineUnderTest) -> None:
    answer = reasoner.chat("x")
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert (len(message["reasoning"]), len(message["content"])) == (100, 20)
    assert usage["completion_tokens"] == 120
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 100}


def test_an_answer_cut_while_thinking_has_no_content(reasoner: EngineUnderTest) -> None:
    choice = reasoner.chat("x", max_tokens=30)["choices"][0]
    assert (len(choice["message"]["reasoning"]), choice["message"]["content"]) == (30, None)
    assert choice["finish_reason"] == "length"


def test_a_lower_effort_thinks_less_and_stands_in_one_place(reasoner: EngineUnderTest) -> None:
    usage = reasoner.chat("x", reasoning_effort="low")["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 25
    twice = {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "low"}}
    body = {"messages": [{"role": "user", "content": "x"}], **twice}
    assert reasoner.ask(CHAT, body)[0] == 400


def test_as_many_rows_run_as_there_are_places_the_urgent_first() -> None:
    ended: list[int] = []

    def start(
        engine: EngineUnderTest, client: EngineClient, tokens: int, priority: int
    ) -> Future[EngineAnswer]:
        more = {"max_tokens": tokens, "ignore_eos": True, "priority": priority}
        future = client.submit(chat_request(engine.spec, "x", **more))
        future.add_done_callback(lambda _: ended.append(priority))
        return future

    with (
        run_fake_engine("fake-chat", *SLOW, "--max-num-seqs", "2") as engine,
        open_client(engine.socket_path) as client,
    ):
        running = [start(engine, client, 600, priority) for priority in (1, 1)]
        wait_until(lambda: engine.read_metric("num_requests_running") == 2, what="both places are taken")
        late = start(engine, client, 5, 3)
        wait_until(lambda: engine.read_metric("num_requests_waiting") == 1, what="a row waits")
        urgent = start(engine, client, 5, 0)
        wait_until(lambda: engine.read_metric("num_requests_waiting") == 2, what="two rows wait")
        client.abort(running[:1])
        assert not wait([late, urgent], 30).not_done
        assert engine.read_metric("num_requests_running") == 1
    assert ended[:3] == [1, 0, 3]


def test_a_crash_comes_at_the_request_asked_for(instant: EngineUnderTest) -> None:
    instant.set_switches(crash_at_request=3)
    with open_client(instant.socket_path) as client:
        statuses = [client.submit(chat_request(instant.spec, "x")).result(30).status for _ in range(2)]
        assert statuses == [200, 200]
        with pytest.raises(EngineGone):
            client.submit(chat_request(instant.spec, "x")).result(30)
    assert instant.process.wait(30) == CRASH_EXIT_CODE


def test_a_poison_row_ends_the_engine_and_its_neighbours(slow: EngineUnderTest) -> None:
    slow.set_switches(poison_text="POISON")
    with open_client(slow.socket_path) as client:
        neighbour = client.submit(chat_request(slow.spec, "x", max_tokens=600, ignore_eos=True))
        wait_until(lambda: slow.read_metric("num_requests_running") == 1, what="the neighbour is decoded")
        poison = client.submit(chat_request(slow.spec, "a POISON row"))
        for future in (neighbour, poison):
            with pytest.raises(EngineGone):
                future.result(30)
    assert slow.process.wait(30) == CRASH_EXIT_CODE


def test_a_hanging_engine_is_healthy_and_makes_no_progress(slow: EngineUnderTest) -> None:
    with open_client(slow.socket_path) as client:
        future = client.submit(chat_request(slow.spec, "x", max_tokens=50, ignore_eos=True))
        wait_until(lambda: slow.read_metric("generation_tokens_total") > 0, what="the row is decoded")
        slow.set_switches(hang=True)
        made = slow.read_metric("generation_tokens_total")
        late = client.submit(chat_request(slow.spec, "late"))
        wait_until(lambda: slow.read_metric("num_requests_waiting") == 1, what="the late row waits")
        assert slow.is_healthy()
        assert slow.read_metric("generation_tokens_total") == made
        assert not future.done()
        slow.set_switches(hang=False)
        assert {future.result(30).status, late.result(30).status} == {200}


def test_failures_and_cuts_are_used_up(instant: EngineUnderTest) -> None:
    instant.set_switches(fail_requests=1, cut_requests=1)
    with open_client(instant.socket_path) as client:
        with pytest.raises(EngineGone):
            client.submit(chat_request(instant.spec, "x")).result(30)
        statuses = [client.submit(chat_request(instant.spec, "x")).result(30).status for _ in range(2)]
    assert statuses == [500, 200]


def test_answers_grow_slow_down_and_wait_as_switched(instant: EngineUnderTest) -> None:
    usual = instant.chat("x")["usage"]["completion_tokens"]
    instant.set_switches(length_factor=10)
    assert instant.chat("x")["usage"]["completion_tokens"] == pytest.approx(10 * usual, abs=5)
    with open_client(instant.socket_path) as client:
        for switches in ({"slow_step_seconds": 60.0}, {"slow_step_seconds": 0.0, "delay_seconds": 60.0}):
            instant.set_switches(**switches)
            future = client.submit(chat_request(instant.spec, "x"))
            wait_until(lambda: client.in_flight() == 1, what="the row is in flight")
            instant.ask("/v1/models")
            assert not future.done()
            client.abort([future])
            with pytest.raises(CancelledError):
                future.result(30)


def test_health_can_fail_while_it_serves(instant: EngineUnderTest) -> None:
    instant.set_switches(unhealthy=True)
    assert instant.ask("/health")[0] == 503
    assert instant.chat("x")["choices"]


def test_a_switch_that_does_not_exist_is_named(chat: EngineUnderTest) -> None:
    status, content = chat.ask("/fake/switches", {"hangs": True})
    assert status == 400
    assert "no switch 'hangs'" in json.loads(content)["error"]["message"]


@pytest.mark.parametrize("changes", [{"hang": 1}, {"crash_at_request": True}, {"delay_seconds": "1"}])
def test_a_switch_takes_its_type_only_and_none_is_set_by_halves(changes: dict[str, Any]) -> None:
    switches = Switches()
    with pytest.raises(SwitchUnknown, match="takes"):
        switches.update({"poison_text": "x", **changes})
    assert switches == Switches()


def test_it_ends_cleanly_when_asked(instant: EngineUnderTest) -> None:
    instant.process.terminate()
    assert instant.process.wait(30) == 0


@pytest.mark.parametrize("law", ["constant", "constant:0", "lognormal:5", "bimodal:1:2:x", "zipf:1"])
def test_a_law_that_is_none_is_refused(law: str) -> None:
    with pytest.raises(LawInvalid):
        LengthLaw.parse(law)


def test_laws_draw_what_they_say() -> None:
    random = seed_random(1)
    assert {LengthLaw.parse("constant:7").draw(random) for _ in range(20)} == {7}
    assert {LengthLaw.parse("bimodal:2:900:0.3").draw(random) for _ in range(100)} == {2, 900}
    drawn = sorted(LengthLaw.parse("lognormal:100:0.5").draw(random) for _ in range(2001))
    assert 90 < drawn[1000] < 110
    assert len(set(drawn)) > 100


@given(length=st.integers(min_value=0, max_value=500), seed=st.integers())
def test_a_text_has_exactly_its_length(length: int, seed: int) -> None:
    text = make_text(seed_random(seed), length)
    assert len(text.encode()) == length
    assert text == text.rstrip()


def test_json_fits_its_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 2, "maxItems": 3},
            "many": {"type": "array", "minItems": 1_000_000_000},
            "none": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "size": {"type": "integer", "exclusiveMinimum": 3, "maximum": 4},
            "name": {"type": "string", "maxLength": 3},
            "fixed": {"const": "x"},
        },
        "$defs": {"item": {"type": ["number", "null"], "minimum": 0, "maximum": 1}},
    }
    text = make_json_text({"type": "json_schema", "json_schema": {"schema": schema}}, seed_random(1))
    assert text is not None
    value = json.loads(text)
    assert len(value["list"]) == 2
    assert all(0 <= item <= 1 for item in value["list"])
    assert len(value["many"]) <= 64
    assert (value["none"], value["size"], value["fixed"]) == (None, 4, "x")
    assert len(value["name"]) <= 3


def test_a_bad_command_line_ends_with_a_usage_line() -> None:
    argv, _ = fake_command(find_test_model("fake-chat"), Path("/nowhere/engine.sock"))
    ended = subprocess.run([*argv, "--answer-law", "zipf:1"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "usage: python -m workers.engines.fake" in ended.stderr
