"""``anex freeze``: on, off, status; each may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anex.orgs.authenticate import admit

if TYPE_CHECKING:
    from anex.db import Database
    from tests.support.cli import CommandLine

THAWED = {"frozen": False, "reason": None, "since": None}


def test_it_freezes_and_thaws_the_api(anex: CommandLine, api: Database) -> None:
    organization = anex.read("org", "create", "Acme")
    key = anex.read("key", "create", organization["id"])["key"]
    assert anex.read("freeze", "status") == THAWED
    assert not admit(api, key).is_frozen

    frozen = anex.read("freeze", "on", "--reason", "new disks")

    assert (frozen["frozen"], frozen["reason"]) == (True, "new disks")
    assert frozen["since"].endswith("+00:00")
    assert anex.read("freeze", "status") == frozen
    assert admit(api, key).is_frozen

    assert anex.read("freeze", "off") == THAWED
    assert not admit(api, key).is_frozen


def test_each_command_may_be_repeated(anex: CommandLine) -> None:
    assert anex.read("freeze", "off") == THAWED
    first = anex.read("freeze", "on", "--reason", "new disks")

    assert anex.read("freeze", "on") == first
    assert anex.read("freeze", "on", "--reason", "more disks") == first | {"reason": "more disks"}

    assert anex.read("freeze", "off") == THAWED
    assert anex.read("freeze", "off") == THAWED


def test_people_read_sentences(anex: CommandLine) -> None:
    assert anex.run("freeze", "status").stdout == "the API is not frozen\n"

    told = anex.run("freeze", "on", "--reason", "steer\x1b[31m").stdout

    assert "steer\\x1b[31m" in told
    assert " UTC" in told
    assert anex.run("freeze", "off").stdout == "the API is not frozen\n"


@pytest.mark.parametrize("arguments", [("freeze", "on", "--reason", "x" * 201), ("freeze", "perhaps")])
def test_a_wrong_command_line_is_status_2(anex: CommandLine, arguments: tuple[str, ...]) -> None:
    assert anex.run(*arguments).exit_code == 2
