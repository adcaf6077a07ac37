"""The grammar check on real children: what compiles, what is refused, and what no schema can break."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anex.errors import GrammarBusy
from anex.grammar import GrammarChildren
from anex.rows.response_format import find_format_fault
from anex.waiting import PLACES, waiting_place
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOO_COSTLY = (
    "response_format could not be compiled within its limits of time and memory; make the schema smaller"
)
ENDLESS = {"anyOf": [{"type": "integer", "multipleOf": 9973 - 2 * number} for number in range(40)]}
"""Passes validation in no time and keeps a matcher busy for minutes, in little memory."""
SMALL = {"type": "object", "properties": {"a": {"type": "string"}}}
REALISTIC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "price": {"type": "number", "multipleOf": 0.01},
        "kind": {"enum": ["a", "b", None, 3]},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20},
        "address": {"$ref": "#/$defs/address"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "code": {"anyOf": [{"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, {"type": "null"}]},
        "at": {"type": "string", "format": "date-time"},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street"],
        }
    },
}


def wrap(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def read_status(pid: int, field: str) -> str:
    """Return a field of a process's status, "" when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            if line.startswith(f"{field}:"):
                return line.split()[1]
    return ""


def has_ended(pid: int) -> bool:
    """Whether a process that is not ours has ended; whoever adopted it may be slow to reap it."""
    return read_status(pid, "State") in {"", "Z"}


def spent_seconds(pid: int) -> float:
    """Return how much of a processor a process has used; its start takes a tenth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def list_our_processes() -> set[int]:
    """Return what this process started and has not reaped."""
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return {pid for pid in pids if read_status(pid, "PPid") == str(os.getpid())}


def idle_pid(children: GrammarChildren) -> int:
    [child] = children._idle
    return child.process.pid


def taken_pids(children: GrammarChildren) -> list[int]:
    return [child.process.pid for child in list(children._taken)]


@pytest.fixture(scope="module")
def shared() -> Iterator[GrammarChildren]:
    children = GrammarChildren()
    yield children
    children.close()


@pytest.fixture
def single() -> Iterator[GrammarChildren]:
    children = GrammarChildren(children=1)
    yield children
    children.close()


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "text"},
        {"type": "json_object"},
        wrap({}),
        wrap(SMALL),
        wrap(REALISTIC),
        wrap({"type": "array", "maxItems": 10_000, "items": {"type": "integer"}}),
        wrap({"enum": [f"value {number}" for number in range(4000)]}),
        wrap({"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(300)}}),
        wrap({"const": "\N{SNOWMAN} \U0001f600"}),
        wrap({"title": "t", "description": "d", "default": 1, "examples": [1], "type": "string"}),
    ],
)
def test_what_compiles(shared: GrammarChildren, response_format: dict[str, Any]) -> None:
    assert shared.find_fault(response_format) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"not": {"type": "string"}}, "keywords that are not supported: 'not'"),
        ({"if": {}, "then": {}}, "keywords that are not supported: 'if, then'"),
        ({"type": "array", "uniqueItems": True}, "keywords that are not supported: 'uniqueItems'"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "oneOf is supported only where"),
        ({"type": "string", "format": "zz"}, "a format that is not supported: 'zz'"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around, including look-ahead"),
        ({"type": "string", "pattern": "("}, "a pattern that is not supported: 'unclosed group'"),
        ({"type": "string", "minLength": 2, "maxLength": 1}, "minLength (2) is greater than maxLength (1)"),
        ({"$ref": "#/$defs/missing"}, "a $ref that leads nowhere: '/$defs/missing'"),
        (
            {"$ref": "https://example.invalid/schema.json"},
            "a $ref to a schema elsewhere: 'https://example.invalid/schema.json'",
        ),
        ({"$ref": "#"}, "no answer can satisfy it"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
            "no answer",
        ),
        ({"allOf": [{"$ref": "#"}, {"type": "object"}]}, "a circular $ref with keywords beside it"),
        (
            {"allOf": [{"type": "string", "pattern": f".*{letter}.{{20}}x"} for letter in "abcdefgh"]},
            "patterns are too complex together",
        ),
    ],
)
def test_a_refusal_gives_the_backends_reason(
    shared: GrammarChildren, schema: dict[str, Any], reason: str
) -> None:
    fault = shared.find_fault(wrap(schema))

    assert fault is not None
    assert fault.startswith("response_format.json_schema.schema can't be compiled: ")
    assert reason in fault
    assert fault.isprintable()
    assert "<state>" not in fault
    assert "json-schema:///" not in fault


def test_what_a_reason_quotes_is_cut(shared: GrammarChildren) -> None:
    fault = shared.find_fault(wrap({"$ref": "https://example.invalid/" + "a\x07" * 5000}))

    assert fault is not None
    assert len(fault.rpartition(": ")[2]) == 66
    assert fault.isprintable()


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"(?<year>\d{4})", r"\z", r"\x{41}"])
def test_a_pattern_that_only_the_backend_knows_compiles(shared: GrammarChildren, pattern: str) -> None:
    response_format = wrap({"type": "string", "pattern": pattern})

    assert find_format_fault(response_format) is None
    assert shared.find_fault(response_format) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 1_000_000_000},
        {"type": "array", "maxItems": 1_000_000},
        {"type": "integer", "multipleOf": 9_999_991},
        {"type": "integer", "multipleOf": 199_999},
        ENDLESS,
        {"patternProperties": {f"^p{number}_[a-z]*$": {} for number in range(300)}},
        {"enum": ["x" * (1 << 20)]},
    ],
)
def test_a_schema_that_costs_too_much_ends_as_a_fault_and_the_next_one_is_served(
    schema: dict[str, Any],
) -> None:
    children = GrammarChildren(children=1, time_limit_seconds=2.0)
    try:
        assert children.find_fault(wrap(schema)) == TOO_COSTLY
        assert children.find_fault(wrap(SMALL)) is None
    finally:
        children.close()


@pytest.mark.parametrize(
    "pattern",
    ["^(a|b)*a(a|b){40}$", "^(((a?){1000}){1000}){1000}$", "a{1000000000}", r"(\w+\s?)+$", "(.*)*x"],
)
def test_a_pattern_that_explodes_elsewhere_is_answered(shared: GrammarChildren, pattern: str) -> None:
    assert shared.find_fault(wrap({"type": "string", "pattern": pattern})) is None


def test_a_child_killed_between_two_questions_is_replaced(single: GrammarChildren) -> None:
    assert single.find_fault(wrap(SMALL)) is None
    killed = idle_pid(single)
    os.kill(killed, signal.SIGKILL)

    assert single.find_fault(wrap({**SMALL, "title": "another"})) is None
    assert idle_pid(single) != killed


def test_a_question_outlives_one_death_of_its_child_and_ends_with_the_second() -> None:
    children = GrammarChildren(children=1, time_limit_seconds=120.0)
    assert children.find_fault(wrap(SMALL)) is None
    first = idle_pid(children)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(children.find_fault, wrap(ENDLESS))
        wait_until(lambda: taken_pids(children) == [first], what="a child at work")
        os.kill(first, signal.SIGKILL)
        [second] = wait_until(lambda: set(taken_pids(children)) - {first}, what="another child")
        # One that dies while it starts says nothing about a schema: the answer would be "try again".
        wait_until(lambda: spent_seconds(second) > 1, what="it is past its start")
        os.kill(second, signal.SIGKILL)

        assert asked.result(timeout=60) == TOO_COSTLY
    assert children.find_fault(wrap(SMALL)) is None
    children.close()


def test_a_child_that_hangs_is_killed_at_the_limit() -> None:
    children = GrammarChildren(children=1, time_limit_seconds=0.2)
    try:
        assert children.find_fault(wrap(SMALL)) is None
        stopped = idle_pid(children)
        os.kill(stopped, signal.SIGSTOP)

        assert children.find_fault(wrap({**SMALL, "title": "another"})) == TOO_COSTLY
        assert read_status(stopped, "State") == ""
        assert children.find_fault({"type": "json_object"}) is None
    finally:
        children.close()


def test_where_every_child_is_taken_a_question_waits_no_longer_than_it_may() -> None:
    children = GrammarChildren(children=2, time_limit_seconds=120.0, wait_seconds=0.05)
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(children.find_fault, wrap(ENDLESS)) for _ in range(2)]
        wait_until(lambda: len(taken_pids(children)) == 2, what="both children at work")

        with pytest.raises(GrammarBusy):
            children.find_fault(wrap(SMALL))
        assert children.find_fault({"type": "text"}) is None

        children.close()
        for asked in slow:
            with pytest.raises(GrammarBusy):
                asked.result(timeout=60)


def test_no_more_questions_wait_than_there_are_threads_to_spare() -> None:
    """Clients with slow schemas and slow sources took all threads of the API, and polls of others waited for seconds."""
    children = GrammarChildren()
    with ExitStack() as waiting:
        assert all(waiting.enter_context(waiting_place()) for _ in range(PLACES))
        with pytest.raises(GrammarBusy):
            children.find_fault(wrap(SMALL))
        assert children.find_fault({"type": "text"}) is None
    assert children.find_fault(wrap(SMALL)) is None
    children.close()


def test_a_verdict_is_remembered() -> None:
    children = GrammarChildren(children=1)
    try:
        assert children.find_fault(wrap(SMALL)) is None
        refused = children.find_fault(wrap({"not": {}}))
        assert refused is not None
    finally:
        children.close()
    assert children.find_fault(wrap(SMALL)) is None  # no child is left to ask
    assert children.find_fault(wrap({"not": {}})) == refused


def test_a_child_that_cant_start_is_no_fault_of_the_schema() -> None:
    children = GrammarChildren(memory_limit_bytes=16 << 20)
    try:
        with pytest.raises(GrammarBusy):
            children.find_fault(wrap(SMALL))
    finally:
        children.close()


def test_many_threads_share_two_children_and_close_leaves_no_process() -> None:
    before = list_our_processes()
    children = GrammarChildren(wait_seconds=60.0)
    seen: set[int] = set()

    def ask(number: int) -> str | None:
        fault = children.find_fault(wrap({**(SMALL if number % 2 else {"not": {}}), "title": str(number)}))
        seen.update(list_our_processes() - before)
        return fault

    with ThreadPoolExecutor(PLACES) as pool:
        faults = list(pool.map(ask, range(160)))
    children.close()

    assert [fault is None for fault in faults] == [bool(number % 2) for number in range(160)]
    assert len(seen) == 2
    assert not list_our_processes() - before
    with pytest.raises(GrammarBusy):
        children.find_fault(wrap(SMALL))


def test_a_child_that_grew_is_replaced_so_that_idle_ones_stay_small(single: GrammarChildren) -> None:
    assert single.find_fault(wrap({"type": "array", "maxItems": 10_000})) is None
    assert single._idle == []

    assert single.find_fault(wrap(SMALL)) is None
    assert int(read_status(idle_pid(single), "VmRSS")) < 48 << 10


def test_a_child_holds_nothing_of_ours_and_is_limited(
    single: GrammarChildren, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started from a folder with an ``anex`` of its own, with a secret in the environment and an open door."""
    (tmp_path / "anex").mkdir()
    (tmp_path / "anex/__init__.py").write_text("raise SystemExit", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANEX_SECRET_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.set_inheritable(True)
        assert single.find_fault(wrap(SMALL)) is None
    pid = idle_pid(single)

    assert {entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()} == {"0", "1", "2"}
    assert Path(f"/proc/{pid}/environ").read_bytes().rstrip(b"\0").split(b"\0") == [
        f"PYTHONPATH={Path(__file__).parents[2]}".encode()
    ]
    assert os.getsid(pid) == pid
    assert resource.prlimit(pid, resource.RLIMIT_AS) == (512 << 20, 512 << 20)
    assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
    os.kill(pid, signal.SIGINT)
    assert single.find_fault(wrap(SMALL)) is None
    assert idle_pid(single) == pid


@pytest.mark.parametrize("busy", [False, True])
def test_a_child_ends_after_the_process_that_started_it_was_killed(busy: bool) -> None:
    """An idle one at once, as its socket closes; a busy one by its own alarm."""
    script = (
        "import threading, sys\n"
        "from anex.grammar import GrammarChildren\n"
        "from tests.integration.test_grammar import ENDLESS, SMALL, idle_pid, taken_pids, wait_until, wrap\n"
        "children = GrammarChildren(children=1, time_limit_seconds=1.0)\n"
        "children.find_fault(wrap(SMALL))\n"
        "pid = idle_pid(children)\n"
        "if sys.argv[1] == 'True':\n"
        "    threading.Thread(target=children.find_fault, args=(wrap(ENDLESS),), daemon=True).start()\n"
        "    wait_until(lambda: taken_pids(children), what='a child at work')\n"
        "print(pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(busy)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()

    wait_until(lambda: has_ended(pid), what="the child's end")
