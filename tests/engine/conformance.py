"""What the service relies on in any engine: one suite for the fake engine and for real model servers.

A test module makes a fixture ``engine`` (module-scoped where starting is dear; for ``EndsByForce`` one of its own)
and subclasses the classes that suit its model. Sizes fit a slow CPU and a context of 1,024 tokens; nothing here
expects sense or determinism of an answer.
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import CancelledError, wait
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from anex.errors import EngineGone
from anex.services import EngineRequest
from tests.support.engines import (
    ASK_TIMEOUT_SECONDS,
    CHAT,
    DECIDE,
    EMBED,
    CuttingRelay,
    EngineUnderTest,
    chat_request,
    open_client,
    short_folder,
)
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anex.services import EngineAnswer
    from workers.engine_client import EngineClient

PATHS = {"chat": CHAT, "embed": EMBED, "decide": DECIDE}
CONCURRENCY = 32
LONG_TOKENS = 600
"""More than any engine makes before a test has acted on it."""

SCHEMA = {
    "type": "object",
    "properties": {"fits": {"type": "boolean"}, "color": {"enum": ["red", "blue"]}},
    "required": ["fits", "color"],
    "additionalProperties": False,
}
URGENT = {"type": "noul", "instructions": "Is it urgent?"}
OPPOSITES = ["It is warm.", "Quarterly revenue fell by 3 %.", ""]


class Serves:
    """Of every engine."""

    def test_it_is_healthy_and_names_its_model(self, engine: EngineUnderTest) -> None:
        assert engine.ask("/health")[0] == 200
        status, content = engine.ask("/v1/models")
        assert status == 200
        assert engine.spec.id in [model["id"] for model in json.loads(content)["data"]]

    def test_an_unknown_model_is_refused(self, engine: EngineUnderTest) -> None:
        path = PATHS[engine.spec.kind]
        body = {"model": "no-such", "input": "x", "messages": [{"role": "user", "content": "x"}]}
        status, content = engine.ask(path, body)
        assert status in {400, 404}
        assert read_error(content)

    def test_bytes_that_are_not_json_are_refused_and_harm_nothing(self, engine: EngineUnderTest) -> None:
        path = PATHS[engine.spec.kind]
        with open_client(engine.socket_path) as client:
            answer = client.submit(EngineRequest(path, b'{"messages": [')).result(ASK_TIMEOUT_SECONDS)
        assert 400 <= answer.status < 500
        assert engine.is_healthy()


class Chats(Serves):
    """Of an engine that completes conversations."""

    def test_an_answer_has_text_usage_and_a_reason(self, engine: EngineUnderTest) -> None:
        answer = engine.chat("Say hello.", max_tokens=64, **without_thinking(engine))
        choice, usage = answer["choices"][0], answer["usage"]
        assert answer["model"] == engine.spec.id
        assert choice["message"]["role"] == "assistant"
        assert choice["message"]["content"]
        assert choice["finish_reason"] in {"stop", "length"}
        assert usage["prompt_tokens"] > 0
        assert 1 <= usage["completion_tokens"] <= 64
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]

    def test_an_answer_ends_at_its_cap(self, engine: EngineUnderTest) -> None:
        answer = engine.chat("Tell a long story.", max_tokens=5, ignore_eos=True)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 5

    def test_the_counters_grow_by_what_the_answers_say(self, engine: EngineUnderTest) -> None:
        names = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
        before = [engine.read_metric(name) for name in names]
        usage = engine.chat("Count to three.", max_tokens=12)["usage"]
        grown = [usage["prompt_tokens"], usage["completion_tokens"], 1]
        wait_until(
            lambda: (
                [engine.read_metric(name) for name in names]
                == [old + more for old, more in zip(before, grown, strict=True)]
            ),
            what=f"the counters grew by {grown}",
        )

    @pytest.mark.parametrize("priority", [0, 3])
    def test_a_priority_is_taken(self, engine: EngineUnderTest, priority: int) -> None:
        assert engine.chat("Hello", max_tokens=4, priority=priority)["usage"]["completion_tokens"] > 0

    def test_a_prompt_over_the_context_is_refused_with_words(self, engine: EngineUnderTest) -> None:
        body = {
            "messages": [{"role": "user", "content": "word " * engine.spec.context_tokens}],
            "max_tokens": 1,
        }
        status, content = engine.ask(CHAT, {"model": engine.spec.id, **body})
        assert status == 400
        assert "context" in read_error(content)

    def test_a_cap_over_the_whole_context_is_refused(self, engine: EngineUnderTest) -> None:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": engine.spec.context_tokens + 1}
        status, content = engine.ask(CHAT, {"model": engine.spec.id, **body})
        assert status == 400
        assert read_error(content)

    def test_a_schema_is_kept(self, engine: EngineUnderTest) -> None:
        wanted = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
        answer = engine.chat("A thing?", max_tokens=64, response_format=wanted, **without_thinking(engine))
        value = json.loads(answer["choices"][0]["message"]["content"])
        assert set(value) == {"fits", "color"}
        assert isinstance(value["fits"], bool)
        assert value["color"] in {"red", "blue"}

    def test_many_rows_are_answered_together_each_its_own(self, engine: EngineUnderTest) -> None:
        texts = ["x" * (index + 1) * 7 for index in range(CONCURRENCY)]
        with open_client(engine.socket_path) as client:
            futures = [client.submit(chat_request(engine.spec, text, max_tokens=4)) for text in texts]
            answers = [read_answer(future) for future in futures]
        counts = [answer["usage"]["prompt_tokens"] for answer in answers]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1]

    def test_an_aborted_row_frees_the_engine(self, engine: EngineUnderTest) -> None:
        made = engine.read_metric("generation_tokens_total")
        with open_client(engine.socket_path) as client:
            future = start_long_row(engine, client)
            client.abort([future])
            with pytest.raises(CancelledError):
                future.result(ASK_TIMEOUT_SECONDS)
            assert client.in_flight() == 0
            wait_until_idle(engine)
        assert engine.read_metric("generation_tokens_total") < made + LONG_TOKENS

    def test_a_cut_connection_is_the_engines_end_to_the_client_and_frees_the_engine(
        self, engine: EngineUnderTest
    ) -> None:
        made = engine.read_metric("generation_tokens_total")
        with short_folder() as folder:
            relay = CuttingRelay(engine.socket_path, folder / "relay.sock")
            with open_client(relay.path) as client:
                future = start_long_row(engine, client)
                relay.cut()
                with pytest.raises(EngineGone):
                    future.result(ASK_TIMEOUT_SECONDS)
                assert client.in_flight() == 0
            relay.close()
        wait_until_idle(engine)
        assert engine.read_metric("generation_tokens_total") < made + LONG_TOKENS
        assert engine.is_healthy()

    def test_progress_moves_while_one_row_is_decoded(self, engine: EngineUnderTest) -> None:
        with open_client(engine.socket_path) as client:
            future = start_long_row(engine, client)
            seen = client.progress()
            wait_until(
                lambda: client.progress() > seen,
                timeout_seconds=ASK_TIMEOUT_SECONDS,
                what="progress is counted",
            )
            assert not future.done()
            client.abort([future])
        wait_until_idle(engine)


class Reasons:
    """Of an engine that thinks before it answers."""

    def test_thinking_stands_apart_from_the_answer(self, engine: EngineUnderTest) -> None:
        answer = engine.chat("Think.", max_tokens=300, thinking_token_budget=16)
        message, usage = answer["choices"][0]["message"], answer["usage"]
        assert message["reasoning"]
        assert message["reasoning"] not in (message["content"] or "")
        assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] <= usage["completion_tokens"]

    def test_thinking_ends_at_its_budget(self, engine: EngineUnderTest) -> None:
        assert engine.spec.reasoning is not None
        answer = engine.chat("Think.", max_tokens=300, thinking_token_budget=8)
        thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert thought <= 8 + engine.spec.reasoning.notice_tokens

    def test_thinking_can_be_turned_off(self, engine: EngineUnderTest) -> None:
        answer = engine.chat("Answer.", max_tokens=32, **without_thinking(engine))
        assert not answer["choices"][0]["message"].get("reasoning")
        assert answer["choices"][0]["message"]["content"]

    def test_an_effort_is_taken(self, engine: EngineUnderTest) -> None:
        assert engine.chat("Think.", max_tokens=16, reasoning_effort="low")["usage"]["completion_tokens"] > 0


class Embeds(Serves):
    """Of an engine that makes vectors."""

    def test_vectors_have_length_one_and_come_in_order(self, engine: EngineUnderTest) -> None:
        assert engine.spec.dimensions is not None
        answer = engine.post(EMBED, input=OPPOSITES)
        assert [item["index"] for item in answer["data"]] == [0, 1, 2]
        vectors = np.array([item["embedding"] for item in answer["data"]])
        assert vectors.shape == (3, engine.spec.dimensions.max_width)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1.0] * 3, abs=1e-3)
        assert vectors[0] @ vectors[1] < 0.99
        assert answer["usage"]["prompt_tokens"] > 0

    def test_fewer_dimensions_have_length_one_too(self, engine: EngineUnderTest) -> None:
        assert engine.spec.dimensions is not None
        width, native = engine.spec.dimensions.min_width, engine.spec.dimensions.max_width
        # A model with one width only refuses the field, even when it names that width.
        asked = {"dimensions": width} if width < native else {}
        vector = engine.post(EMBED, input=OPPOSITES[0], **asked)["data"][0]["embedding"]
        assert len(vector) == width
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-3)

    def test_base64_holds_the_same_numbers(self, engine: EngineUnderTest) -> None:
        plain = engine.post(EMBED, input=OPPOSITES[0])["data"][0]["embedding"]
        packed = engine.post(EMBED, input=OPPOSITES[0], encoding_format="base64")["data"][0]["embedding"]
        assert np.frombuffer(base64.b64decode(packed), "<f4") == pytest.approx(plain, abs=1e-3)

    def test_the_counters_grow_by_what_the_answer_says(self, engine: EngineUnderTest) -> None:
        names = ("prompt_tokens_total", "request_success_total")
        before = [engine.read_metric(name) for name in names]
        read = engine.post(EMBED, input=OPPOSITES[0])["usage"]["prompt_tokens"]
        wait_until(
            lambda: [engine.read_metric(name) for name in names] == [before[0] + read, before[1] + 1],
            what=f"the counters grew by {read} tokens and one request",
        )

    def test_a_text_over_the_context_is_refused_with_words(self, engine: EngineUnderTest) -> None:
        text = "word " * engine.spec.context_tokens
        status, content = engine.ask(EMBED, {"model": engine.spec.id, "input": text})
        assert status == 400
        assert "context" in read_error(content)


class Decides(Serves):
    """Of an engine that answers typed questions."""

    def test_each_row_gets_its_answers_or_its_refusal(self, engine: EngineUnderTest) -> None:
        rows: list[dict[str, Any]] = [
            {"state": "The customer would like to have the money back."},
            {"state": {"body": "退款"}},
        ]
        taken, other = decide(engine, {"urgent": URGENT}, *rows)
        assert taken["answers"]["urgent"]["type"] == "noul"
        assert 0 <= taken["answers"]["urgent"]["noul"] <= 1
        assert taken["usage"]["input_tokens"] > 0 == taken["usage"]["output_tokens"]
        assert [each["routing"]["model"] for each in (taken, other)] == ["english", "multilingual"]
        [refused] = decide(engine, {"urgent": URGENT, "late": {"type": "noul"}}, rows[0])
        assert "'late'" in refused["error"]["message"]
        assert refused["error"]["code"] == 422

    def test_options_that_only_the_wider_checkpoint_takes_fail_one_row(self, engine: EngineUnderTest) -> None:
        wide = {"type": "choice", "instructions": "Which?", "criteria": [f"option {n}" for n in range(150)]}
        rows = [{"state": "x", "lang": "en"}, {"state": "x", "lang": "de"}]
        assert ["error" in each for each in decide(engine, {"wide": wide}, *rows)] == [True, False]

    def test_the_counters_grow_by_what_the_answers_say(self, engine: EngineUnderTest) -> None:
        names = ("prompt_tokens_total", "request_success_total")
        before = [engine.read_metric(name) for name in names]
        answers = decide(engine, {"urgent": URGENT}, {"state": "a"}, {"state": "b", "lang": "en"})
        read = sum(answer["usage"]["input_tokens"] for answer in answers)
        wait_until(
            lambda: [engine.read_metric(name) for name in names] == [before[0] + read, before[1] + 1],
            what=f"the counters grew by {read} tokens and one request",
        )


class EndsByForce:
    """Of an engine that may be killed: the fixture ``engine`` is this class's own."""

    def test_rows_in_flight_learn_of_the_engines_death(self, engine: EngineUnderTest) -> None:
        with open_client(engine.socket_path) as client:
            futures = [
                client.submit(chat_request(engine.spec, "x", max_tokens=LONG_TOKENS, ignore_eos=True))
                for _ in range(8)
            ]
            wait_until(lambda: engine.read_metric("num_requests_running") > 0, what="a row is decoded")
            engine.kill()
            done, _ = wait(futures, ASK_TIMEOUT_SECONDS)
            assert [type(future.exception()) for future in done] == [EngineGone] * 8
            assert client.in_flight() == 0
            assert not client.is_ready()


def decide(engine: EngineUnderTest, questions: dict[str, Any], *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an engine answers to rows that are asked the same."""
    data: list[dict[str, Any]] = engine.post(DECIDE, questions=questions, rows=list(rows))["data"]
    return data


def without_thinking(engine: EngineUnderTest) -> dict[str, Any]:
    """Return what turns thinking off; nothing for a model that cannot think."""
    return {} if engine.spec.reasoning is None else {"chat_template_kwargs": {"enable_thinking": False}}


def start_long_row(engine: EngineUnderTest, client: EngineClient) -> Future[EngineAnswer]:
    """Return a row that is being decoded and far from its end."""
    future = client.submit(chat_request(engine.spec, "x", max_tokens=LONG_TOKENS, ignore_eos=True))
    wait_until(lambda: engine.read_metric("num_requests_running") > 0, what="the row is decoded")
    assert not future.done()
    assert client.in_flight() == 1
    return future


def wait_until_idle(engine: EngineUnderTest) -> None:
    """Wait until nothing is decoded and nothing waits."""
    wait_until(
        lambda: engine.read_metric("num_requests_running") + engine.read_metric("num_requests_waiting") == 0,
        what="the engine has nothing to do",
    )


def read_answer(future: Future[EngineAnswer]) -> Any:
    """Return the body of an answer that must be a success."""
    answer = future.result(ASK_TIMEOUT_SECONDS)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def read_error(content: bytes) -> str:
    """Return the message of an error body."""
    message = json.loads(content)["error"]["message"]
    assert isinstance(message, str)
    return message
