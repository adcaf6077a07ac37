"""Rules of the whole repository that no linter knows: the environment, sizes, what the documents promise."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from config.environment import SettingsInvalid
from config.settings import load_settings
from config.stack.postgres import API, OWNER, WORK

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("anex", "api", "config", "tasks", "workers")
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
DEPLOYMENT = [ROOT / name for name in ("Procfile", "docker-compose.yml", "Makefile", ".ci/run")]
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50
ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv"}


def list_sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def reads_environment(node: ast.AST) -> bool:
    """Tell ``os.environ`` and ``from os import environ`` from a parameter that is called so."""
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr in ENVIRONMENT_NAMES
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and bool({alias.name for alias in node.names} & ENVIRONMENT_NAMES)
    return False


def test_config_alone_reads_the_environment() -> None:
    readers = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for path in list_sources("anex", "api", "tasks", "workers")
        for node in ast.walk(parse(path))
        if reads_environment(node)
    ]

    assert not readers


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['A']", "import os\nos.getenv('A')", "from os import environ"]
)
def test_a_reader_of_the_environment_would_be_seen(source: str) -> None:
    assert any(reads_environment(node) for node in ast.walk(ast.parse(source)))


def test_modules_and_functions_stay_within_their_sizes() -> None:
    too_long = []
    for path in list_sources(*PACKAGES, "tests"):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > MODULE_LINES_MAX:
            too_long.append(f"{path.relative_to(ROOT)}: {lines} lines")
        too_long += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
            for node in ast.walk(parse(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.end_lineno is not None
            and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
        ]

    assert not too_long


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text("utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_every_setting_that_is_named_anywhere_exists() -> None:
    files = [*DOCUMENTS, *DEPLOYMENT, *(path for path in (ROOT / "deploy").iterdir() if path.is_file())]
    named = {name for path in files for name in re.findall(r"\bANEX_[A-Z0-9_]+\b", path.read_text("utf-8"))}
    assert "ANEX_S3_ENDPOINT" in named

    with pytest.raises(SettingsInvalid) as caught:
        load_settings({**dict.fromkeys(named, "?"), "ANEX_NO_SUCH_SETTING": "?"})

    unknown = [fault for fault in caught.value.faults if "is not a setting" in fault]
    assert [fault.partition(" ")[0] for fault in unknown] == ["ANEX_NO_SUCH_SETTING"]


def list_make_targets() -> set[str]:
    """Return what ``make help`` offers; run with an environment that cannot lend it anything."""
    environment = {"PATH": os.environ["PATH"]}
    run = subprocess.run(
        ["make", "help"],  # noqa: S607 - whichever make is installed is the one people use
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(re.findall(r"^make (\S+)", run.stdout, re.MULTILINE))


def test_every_make_command_that_is_named_anywhere_exists() -> None:
    text = "\n".join(path.read_text("utf-8") for path in [*DOCUMENTS, ROOT / ".ci/run"])
    named = set(re.findall(r"^(?: {4})?make ([a-z-]+)", text, re.MULTILINE)) | set(
        re.findall(r"`make ([a-z-]+)", text)
    )

    assert {"demo", "up", "test", "check"} <= named
    assert named <= list_make_targets()


def test_ci_runs_the_checks_and_the_tests_and_stops_at_the_first_failure() -> None:
    script = ROOT / ".ci/run"
    commands = [line for line in script.read_text("utf-8").splitlines() if line and line[0] != "#"]

    assert os.access(script, os.X_OK)
    assert commands[0] == "set -euo pipefail"
    assert commands[-2:] == ["make check", "make test"]


@pytest.mark.parametrize("role", [OWNER, API, WORK])
def test_the_roles_of_a_server_of_ones_own_have_no_more_rights_than_the_embedded_ones(role: str) -> None:
    script = (ROOT / "deploy/roles.sql").read_text("utf-8")
    rights = re.search(rf"^CREATE ROLE {role} (.+) PASSWORD :'\w+';$", script, re.MULTILINE)

    assert rights is not None
    assert {"NOSUPERUSER", "NOBYPASSRLS", "NOCREATEDB", "NOCREATEROLE"} <= set(rights[1].split())
