"""The decision model's engine on tiny checkpoints: its answers are the package's own, and so are the tokens counted up front."""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from anex.decisions.language import reads_as_english
from anex.objects import ObjectStore
from anex.rows.decide import DecideRow
from anex.token_counters import StoredTokenCounters
from config.catalog import load_catalog
from config.pull import store_tokenizer_files
from tests.engine.conformance import Decides, decide
from tests.support.decision_rows import DecisionRows
from tests.support.engines import DECIDE, find_engine_python, short_folder
from tests.support.laya_unit import (
    ROOT,
    START_SECONDS,
    answer_directly,
    make_tiny_model,
    run_in_engine,
    run_laya,
    start_laya,
)
from tests.support.live_stack import LiveStack
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anex.s3 import S3Location
    from tests.support.engines import EngineUnderTest

pytestmark = pytest.mark.engine

ROWS = 90
JOB_ROWS = 30
SEED = 11
SURROGATE = "\ud83d"
YES = {"yes": {"type": "noul", "instructions": "Is it so?"}}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def laya(catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineUnderTest]:
    with run_laya(catalog, tmp_path_factory.mktemp("data")) as engine:
        yield engine


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return DecisionRows(SEED).make(ROWS)


@pytest.fixture(scope="module")
def direct(catalog: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return answer_directly(catalog.parent, rows)


class TestConformance(Decides):
    """It keeps what the service relies on in any engine."""

    @pytest.fixture
    def engine(self, laya: EngineUnderTest) -> EngineUnderTest:
        return laya


def test_what_the_engine_takes_of_the_package_is_there() -> None:
    """The engine checks rows by private functions of one version; another needs another look."""
    found = json.loads(run_in_engine(["tests.support.laya_parts"]))
    assert found == {
        "version": "0.4.15",
        "_check_question": ["qid", "qdef"],
        "_to_internal": ["qdef"],
        "_encode_state": ["self", "state", "ids", "internal", "max_len", "head_max_len"],
        "fallback": [0, None],
    }


def test_tokens_counted_up_front_are_the_packages(
    catalog: Path,
    rows: list[dict[str, Any]],
    direct: list[dict[str, Any]],
    s3_location: S3Location,
    tmp_path: Path,
) -> None:
    spec, objects = load_catalog(catalog).get("laya"), ObjectStore(s3_location)
    for each in spec.checkpoints:
        store_tokenizer_files(spec, objects, catalog.parent / each.name / "tokenizer", each.name)
    counter = StoredTokenCounters(objects, tmp_path).for_decisions(spec)
    read = [DecideRow(row_number=number, custom_id="", **row) for number, row in enumerate(rows)]
    assert counter.count_decisions(read) == [
        0 if "error" in answer else answer["usage"]["input_tokens"] for answer in direct
    ]
    answered = [answer for answer in direct if "error" not in answer]
    routed = {(answer["routing"]["model"], answer["usage"]["truncated"]) for answer in answered}
    assert routed == {(name, cut) for name in ("english", "multilingual") for cut in (True, False)}
    assert 0 < len(answered) < len(direct)


def test_the_router_chooses_by_language_as_the_planner_does() -> None:
    source = DecisionRows(SEED + 1)
    states: list[Any] = [source.make_text(words % 60) for words in range(900)]
    states += [{"subject": one, "body": two} for one, two in zip(states[:450], states[450:], strict=True)]
    chosen = run_in_engine(["tests.support.laya_routes"], json.dumps(states)).split()
    assert chosen == ["english" if reads_as_english(state) else "multilingual" for state in states]
    assert set(chosen) == {"english", "multilingual"}


def test_answers_are_the_packages_own_however_rows_are_put_together(
    laya: EngineUnderTest, rows: list[dict[str, Any]], direct: list[dict[str, Any]]
) -> None:
    read = laya.read_metric("prompt_tokens_total")
    expected: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    pairs = sorted(zip(rows, direct, strict=True), key=lambda pair: json.dumps(pair[0]["questions"]))
    for _, group in groupby(pairs, key=lambda pair: json.dumps(pair[0]["questions"])):
        together = list(group)
        # Each twice, with a state beside it that the other checkpoint reads.
        asked = [row for row, _ in together] + [{"state": "与", "lang": "zh"}] + [row for row, _ in together]
        given = decide(laya, together[0][0]["questions"], *asked)
        answers += given[: len(together)] + given[len(together) + 1 :]
        expected += [answer for _, answer in together] * 2
    for answer, wanted in zip(answers, expected, strict=True):
        if "error" in wanted:
            assert answer["error"]["message"] == wanted["error"]
            continue
        tokens = wanted["usage"]["input_tokens"]
        assert answer["usage"] == {"input_tokens": tokens, "output_tokens": 0}
        assert answer["routing"] == {key: wanted["routing"][key] for key in ("model", "reason")}
        assert answer["model"] == "laya"
        assert flatten(answer["answers"]) == pytest.approx(flatten(wanted["answers"]), abs=5e-4)
    assert laya.read_metric("prompt_tokens_total") > read


def flatten(answers: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of answers by where they stand; which option won may turn on the last digit."""
    return {
        f"{name}.{field}.{key}": number
        for name, answer in answers.items()
        for field, value in answer.items()
        for key, number in (value if isinstance(value, dict) else {"": value}).items()
        if isinstance(number, float)
    }


def test_half_a_surrogate_pair_fails_its_row_alone(laya: EngineUnderTest) -> None:
    whole = {"state": "a text"}
    given = decide(laya, YES, whole, {"state": SURROGATE}, {"state": {"body": ["x", {SURROGATE: 1}]}}, whole)
    assert ["error" in each for each in given] == [False, True, True, False]
    assert "surrogate" in given[1]["error"]["message"]
    [refused] = decide(laya, {"q": {"type": "noul", "instructions": SURROGATE}}, whole)
    assert refused["error"]["code"] == 422


def test_an_engine_that_would_go_on_without_its_gpu_ends_and_says_so(catalog: Path, tmp_path: Path) -> None:
    """The CPU build stands for a driver that fails: the package would warn and go on."""
    with short_folder() as folder:
        process, log = start_laya(load_catalog(catalog).get("laya"), tmp_path, folder / "e.sock", on_gpu=True)
        wait_until(
            lambda: process.poll() is not None, timeout_seconds=START_SECONDS, what="the engine has ended"
        )
    assert process.returncode == 3
    assert "fell back from cuda to cpu" in log.read_text().splitlines()[-1]


def test_an_engine_whose_model_left_its_gpu_ends_and_says_so(catalog: Path) -> None:
    """What the package notes of a retry on the CPU is set from outside: there is no GPU here to fill."""
    noted = "Agent.cpu_fallback_count = 1; Agent.last_fallback_reason = 'CUDA out of memory'"
    code = f"from laya.agent import Agent; {noted}; import sys; from workers.engines.laya import main; main(sys.argv[1:])"
    folders = [f"english:512:{catalog.parent}/english", f"multilingual:1024:{catalog.parent}/multilingual"]
    arguments = ["--socket", "never.sock", "--model", "laya", "--device", "cpu"]
    for folder in folders:
        arguments += ["--checkpoint", folder]
    done = subprocess.run(
        [str(find_engine_python()), "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith("CUDA out of memory")


def test_a_whole_job_is_counted_run_and_charged(catalog: Path, tmp_path: Path) -> None:
    bodies = DecisionRows(SEED + 2).make(JOB_ROWS)
    shared = bodies[0]["questions"]
    for place, body in enumerate(bodies):
        if place % 2:
            body["questions"] = shared
    lines = [
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": DECIDE, "body": body}).encode() + b"\n"
        for n, body in enumerate(bodies)
    ]
    expected = answer_directly(catalog.parent, bodies)
    stack = LiveStack(tmp_path, catalog)
    stack.start()
    try:
        stack.become_customer()
        job_id = stack.submit(lines, model="laya")
        stack.approve(job_id)
        job, result = stack.wait_for(job_id, "done"), stack.lines(job_id)
    finally:
        stack.end()
    assert [line["custom_id"] for line in result] == [f"{n}" for n in range(JOB_ROWS)]
    for line, wanted in zip(result, expected, strict=True):
        refused = "error" in wanted
        assert line["error"] == wanted.get("error")
        assert line["error_type"] == ("invalid_request_error" if refused else None)
        assert line["usage"]["input_tokens"] == (0 if refused else wanted["usage"]["input_tokens"])
    total = sum(line["usage"]["input_tokens"] for line in result)
    refusals = sum("error" in wanted for wanted in expected)
    assert (job["est_input_tok"], job["est_output_tok"], job["max_output_tokens"]) == (total, 0, 0)
    assert (job["success_rows"], job["error_rows"]) == (JOB_ROWS - refusals, refusals)
    assert (job["cost_cents"], job["est_cost_cents"]) == (5, 5)
