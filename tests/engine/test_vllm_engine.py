"""The real engine on a CPU: what the service relies on, against one vLLM server with SmolLM2-135M.

Needs the engine's environment: ``python -m config.stack.engine_env .venv-engine``. Without it these tests
fail; they never skip, or nobody would notice that the real engine is not tested.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anex.objects import ObjectStore
from anex.token_counters import StoredTokenCounters
from config.catalog import load_catalog
from config.pull import store_tokenizer_files
from config.stack.weights import model_folder, prepare_model_files
from tests.engine.conformance import Chats, Embeds
from tests.support.engines import EngineUnderTest, find_engine_python, short_folder
from tests.support.wait import wait_until
from workers.engines.vllm import vllm_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.s3 import S3Location
    from anex.services import TokenCounter

pytestmark = pytest.mark.engine

PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS = 300.0
CONVERSATIONS = {
    "one turn": [("user", "What is the capital of France?")],
    "many turns": [
        ("system", "Be terse."),
        ("user", "12345 + 67890 = ?"),
        ("assistant", "80235"),
        ("user", "Sure?"),
    ],
    "scripts": [("user", "Ünïcødé — 你好世界 🙂👩‍👩‍👧 \u200b\u00a0 Здравствуй مرحبا")],
    "code": [("user", 'def f(x):\n\treturn {"a": [x, 0x1F, 1_000]}  # cmt\n\n\n    pass\r\n')],
    "nothing": [("user", "")],
    "markers as text": [("user", "literal <|im_start|> and <|im_end|> and <|endoftext|> inside")],
    "spaces": [("system", ""), ("user", "I'm  we'll 2024's   spaces   \n\n\n tabs\t\t end ")],
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@contextmanager
def run_engine(model: str, data_dir: Path) -> Iterator[EngineUnderTest]:
    spec = load_catalog(PROJECT / "config" / "models.local.toml").get(model)
    python = find_engine_python()
    files = prepare_model_files(spec, data_dir, python, print)
    with short_folder() as folder:
        path = folder / "engine.sock"
        argv, variables = vllm_command(spec, path, files, python)
        with (data_dir / f"{model}.log").open("wb") as log:
            environment = os.environ | variables | {"TMPDIR": str(folder)}
            process = subprocess.Popen(
                argv, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        engine = EngineUnderTest(spec, path, process)
        try:
            wait_until(lambda: is_healthy(engine), timeout_seconds=START_SECONDS, what=f"vLLM serves {model}")
            yield engine
        finally:
            end_group(process)


def is_healthy(engine: EngineUnderTest) -> bool:
    code = engine.process.poll()
    assert code is None, f"vLLM ended with status {code} while starting"
    try:
        return engine.ask("/health")[0] == 200
    except OSError:
        return False


def find_group(leader: int) -> set[int]:
    """Return the processes of a group that are not just waiting to be reaped."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == leader and state != "Z":
            found.add(int(stat.parent.name))
    return found


def end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine-data")


@pytest.fixture(scope="module")
def chat(data_dir: Path) -> Iterator[EngineUnderTest]:
    with run_engine("smollm2-135m", data_dir) as engine:
        yield engine


@pytest.fixture(scope="module")
def vectors(chat: EngineUnderTest, data_dir: Path) -> Iterator[EngineUnderTest]:
    """Run after the chat engine: two of them do not fit two cores."""
    end_group(chat.process)
    with run_engine("all-minilm-l6-v2", data_dir) as engine:
        yield engine


@pytest.fixture(scope="module")
def counters(s3_location: S3Location, data_dir: Path) -> StoredTokenCounters:
    """Give the service's own counters, whose files come through the bucket as they do in production."""
    return StoredTokenCounters(ObjectStore(s3_location), data_dir / "counters")


def count_with(
    counters: StoredTokenCounters, engine: EngineUnderTest, data_dir: Path, s3: S3Location
) -> TokenCounter:
    store_tokenizer_files(engine.spec, ObjectStore(s3), model_folder(engine.spec, data_dir))
    return counters.for_model(engine.spec)


class TestChatConformance(Chats):
    """SmolLM2 keeps what the service relies on."""

    @pytest.fixture
    def engine(self, chat: EngineUnderTest) -> EngineUnderTest:
        return chat


def ask_question(engine: EngineUnderTest, question: str, **more: Any) -> Any:
    return engine.chat(question, **{"temperature": 0, "max_tokens": 24, **more})


def test_the_converted_weights_answer_sensibly(chat: EngineUnderTest) -> None:
    answer = ask_question(chat, "What is the capital of France?")
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["model"] == "smollm2-135m"


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_tokens_counted_up_front_are_the_engines(
    chat: EngineUnderTest,
    counters: StoredTokenCounters,
    data_dir: Path,
    s3_location: S3Location,
    conversation: list[tuple[str, str]],
) -> None:
    messages = [{"role": role, "content": content} for role, content in conversation]
    counted = count_with(counters, chat, data_dir, s3_location).count_chat(messages, {})
    answer = chat.post("/v1/chat/completions", messages=messages, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] == counted


def test_a_schema_is_kept_in_compact_json(chat: EngineUnderTest) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    answer = ask_question(chat, "Invent a person.", max_tokens=64, response_format=schema)
    content = answer["choices"][0]["message"]["content"]
    assert set(json.loads(content)) == {"name", "age"}
    assert "\n" not in content


# Last of this server's tests, for it ends the server.
def test_killing_the_group_leaves_no_process(chat: EngineUnderTest) -> None:
    assert len(find_group(chat.process.pid)) > 1
    end_group(chat.process)
    wait_until(lambda: not find_group(chat.process.pid), what="no process of the engine's group is left")


class TestEmbeddingConformance(Embeds):
    """MiniLM keeps what the service relies on."""

    @pytest.fixture
    def engine(self, vectors: EngineUnderTest) -> EngineUnderTest:
        return vectors


def test_embeddings_know_a_paraphrase(
    vectors: EngineUnderTest, counters: StoredTokenCounters, data_dir: Path, s3_location: S3Location
) -> None:
    texts = [
        "A cat sits on the mat.",
        "A feline rests on a rug.",
        "Quarterly revenue fell by 3%.",
        "Ünïcødé 你好 🙂",
    ]
    answer = vectors.post("/v1/embeddings", input=texts, priority=0)
    cat, feline, revenue, _ = [item["embedding"] for item in answer["data"]]
    assert multiply(cat, feline) > 0.5 > multiply(cat, revenue)
    counted = count_with(counters, vectors, data_dir, s3_location).count_texts(texts)
    assert answer["usage"]["prompt_tokens"] == sum(counted)


def multiply(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
