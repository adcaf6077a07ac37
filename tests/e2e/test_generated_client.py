"""A client that a generator makes of the served document: nothing is left out, its types hold, and a whole job runs with it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.live_stack import MODEL, LiveStack
from tests.support.spine import chat_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAM = SUPPORT / "clients" / "generated_job.py"
PACKAGE = "anex_batch_api_client"
OPERATIONS = {
    "inputs": {"create_input", "get_input"},
    "jobs": {"approve_job", "cancel_job", "delete_data", "get_job", "get_result", "submit_job"},
}
ANSWERS = {
    "create_input": "CreatedInput",
    "get_input": "Input",
    "submit_job": "ChangedJob",
    "get_job": "Job",
    "approve_job": "ChangedJob",
    "cancel_job": "ChangedJob",
    "get_result": "Result",
    "delete_data": "Deletion",
}
ROWS = 7


pytestmark = pytest.mark.outside


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    running = LiveStack(tmp_path_factory.mktemp("live"), SUPPORT / "models.test.toml")
    running.start()
    running.become_customer()
    yield running
    running.end()


@pytest.fixture(scope="module")
def origin(stack: LiveStack) -> str:
    return stack.base.removesuffix("/batch/v1")


@pytest.fixture(scope="module")
def package(origin: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate the client from the running API; any warning of the generator is a failure."""
    folder = tmp_path_factory.mktemp("generated") / "client"
    command = ["generate", "--url", f"{origin}/openapi.json", "--output-path", str(folder)]
    made = run([bin_file("openapi-python-client"), *command, "--fail-on-warning"], folder.parent)
    assert made.returncode == 0, made.stdout
    return folder / PACKAGE


def bin_file(name: str) -> str:
    """Return a command of the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, the environment's commands on its path (the generator formats with ruff)."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


def read_types(file: Path) -> dict[str, str]:
    """Return the type of each field of a generated model, but of its room for unknown fields."""
    found = re.findall(r"^    (\w+): ([^=\n]+)", file.read_text("utf-8"), re.MULTILINE)
    return {name: told.strip() for name, told in found if name != "additional_properties"}


def test_every_operation_has_its_function(package: Path) -> None:
    found = {
        folder.name: {file.stem for file in folder.glob("[a-z]*.py")}
        for folder in (package / "api").iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    }

    assert found == OPERATIONS


def test_every_answer_has_a_type(package: Path) -> None:
    kinds = {
        file.stem: re.findall(r"-> Response\[(.+?)\]:", file.read_text("utf-8"))
        for file in package.glob("api/*/[a-z]*.py")
    }

    assert {name: {frozenset(each.split(" | ")) for each in told} for name, told in kinds.items()} == {
        name: {frozenset({answer, "ErrorBody"})} for name, answer in ANSWERS.items()
    }


def test_every_field_has_one_type(package: Path) -> None:
    """No field is ``Any``; beside null and absence a field has one type, never several made for the same values."""
    for file in (package / "models").glob("[a-z]*.py"):
        for name, told in read_types(file).items():
            kinds = {kind.strip() for kind in told.split("|")} - {"None", "Unset"}
            assert len(kinds) == 1, (file.stem, name, told)
            assert "Any" not in told, (file.stem, name, told)


def test_the_types_of_the_poll_are_of_use(package: Path) -> None:
    job = read_types(package / "models" / "job.py")

    assert (job["status"], job["task_type"], job["data_residency"]) == ("JobStatus", "TaskType", "Region")
    assert job["failure_code"] == "FailureCode | None"
    assert job["created_at"] == "datetime.datetime"
    assert job["data_deleted_at"] == "datetime.datetime | None"
    assert job["cost_cents"] == "int | None"
    assert job["video_fps"] == "float | None"


def test_it_and_a_program_over_it_pass_a_strict_type_checker(package: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}"]

    checked = run([*command, str(package), str(PROGRAM)], package.parent, MYPYPATH=str(package.parent))

    assert checked.returncode == 0, checked.stdout


def test_a_whole_job_runs_with_it_and_refusals_are_parsed(
    stack: LiveStack, origin: str, package: Path, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"".join(chat_rows(ROWS)))
    key = stack.headers["Authorization"].removeprefix("Bearer ")
    command = [sys.executable, "-W", "error", str(PROGRAM), origin, key, MODEL, str(rows)]

    ran = run(command, tmp_path, PYTHONPATH=str(package.parent))

    assert ran.returncode == 0, ran.stdout
    seen = json.loads(ran.stdout)
    assert seen["job"].pop("seconds") > 0
    assert seen["job"] == {
        "approved": True,
        "task": True,
        "within_estimate": True,
        "nulls": [None, None, None, None],
        "rows": [ROWS, ROWS, False],
        "deleted": [200, True],
    }
    assert seen["refusals"] == {
        "no key": [422, "invalid_request_shape", ["Authorization"]],
        "bad key": [401, "invalid_api_key", []],
        "bad id": [404, "job_not_found", []],
        "bad model": [422, "unknown_model", ["model"]],
        "bad state": [409, "job_state_conflict", []],
        "gone": [410, "data_deleted", []],
        "no format": [400, "invalid_request", []],
        "awaited": [404, "input_not_found", []],
    }
