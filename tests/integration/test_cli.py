"""The ``anex`` command against real servers: what it answers, to people and to programs, and how it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from anex import __version__
from anex.errors import KeyInvalid
from anex.money import cents_to_nanos
from anex.object_keys import model_prefix
from anex.objects import ObjectStore
from anex.orgs.authenticate import authenticate
from anex.orgs.model import Caller
from config.catalog import load_catalog
from config.cli import NOT_RUNNING, cli
from config.cli_output import format_nanos
from config.stack.layout import PROJECT_FOLDER, DataFolder, FolderLock
from config.stack.status import ServiceStatus, Status, write_status
from config.stack.weights import model_folder
from tests.support.factories import (
    make_caller,
)

if TYPE_CHECKING:
    from pathlib import Path

    from anex.catalog import ModelSpec
    from anex.db import Database
    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls

from tests.support.cli import CATALOG, REFUSED, CommandLine, make_running_job

MISUSED = 2


def test_a_first_customer_is_made_with_three_commands(anex: CommandLine, api: Database) -> None:
    organization = anex.read("org", "create", "Acme")
    granted = anex.read("credits", "grant", organization["id"], "500")
    key = anex.read("key", "create", organization["id"], "--name", "laptop")
    assert authenticate(api, key["key"]) == Caller(organization["id"], key["id"])
    assert granted == {
        "org_id": organization["id"],
        "available_nanos": cents_to_nanos(500),
        "held_nanos": 0,
    }
    assert anex.read("credits", "balance", organization["id"]) == granted


def test_a_key_is_shown_once(anex: CommandLine, api: Database) -> None:
    org_id = anex.read("org", "create", "Acme")["id"]
    shown = anex.run("key", "create", org_id)
    (secret,) = re.findall(r"sk-[\w-]{43}", shown.stdout)
    assert authenticate(api, secret).org_id == org_id
    assert secret not in shown.stderr
    for arguments in (["key", "list", org_id], ["key", "list", org_id, "--json"], ["org", "show", org_id]):
        assert secret not in anex.run(*arguments).output
    (key,) = anex.read("key", "list", org_id)["keys"]
    assert set(key) == {"id", "org_id", "name", "hint", "created_at", "revoked_at"}
    assert key["hint"] == secret[:8]


def test_a_revoked_key_opens_nothing(anex: CommandLine, api: Database) -> None:
    org_id = anex.read("org", "create", "Acme")["id"]
    key = anex.read("key", "create", org_id)
    assert anex.read("key", "revoke", key["id"])["revoked_at"] is not None
    with pytest.raises(KeyInvalid):
        authenticate(api, key["key"])


def test_settings_change_one_by_one(anex: CommandLine) -> None:
    org_id = anex.read("org", "create", "Acme")["id"]
    changes: list[tuple[list[str], dict[str, Any]]] = [
        (["--auto-approve", "on"], {"auto_approve": True}),
        (["--auto-approve-ceiling-cents", "0"], {"auto_approve_ceiling_cents": 0}),
        (["--eu-routing", "on", "--auto-approve", "off"], {"eu_routing": True, "auto_approve": False}),
        (["--auto-approve-ceiling-cents", "none"], {"auto_approve_ceiling_cents": None}),
    ]
    expected = anex.read("org", "show", org_id)
    for arguments, changed in changes:
        expected |= changed
        assert anex.read("org", "set", org_id, *arguments) == expected
    assert anex.read("org", "show", org_id) == expected
    assert anex.read("org", "list") == {"organizations": [expected]}


def test_a_grant_with_a_key_of_its_own_is_granted_once(anex: CommandLine) -> None:
    org_id = anex.read("org", "create", "Acme")["id"]
    grant = ["credits", "grant", org_id, "5", "--idempotency-key", "invoice 1"]
    assert anex.read(*grant) == anex.read(*grant)
    assert "take a new one" in anex.refuse("credits", "grant", org_id, "6", *grant[4:])
    assert anex.read("credits", "balance", org_id)["available_nanos"] == cents_to_nanos(5)


@pytest.mark.parametrize(
    "arguments",
    [
        ["org", "create", ""],
        ["org", "create", "x" * 201],
        ["org", "set", "org_1"],
        ["org", "set", "org_1", "--auto-approve", "perhaps"],
        ["org", "set", "org_1", "--auto-approve-ceiling-cents", "-1"],
        ["credits", "grant", "org_1", "0"],
        ["credits", "grant", "org_1", "1.5"],
        ["credits", "grant", "org_1", "1000000001"],
        ["nonsense"],
    ],
)
def test_a_wrong_command_line_changes_nothing(anex: CommandLine, arguments: list[str]) -> None:
    result = anex.run(*arguments)
    assert (result.exit_code, result.stdout) == (MISUSED, "")
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["org", "show", "org_1"], "no organization has the id org_1"),
        (["org", "set", "org_1", "--eu-routing", "on"], "no organization has the id org_1"),
        (["key", "create", "org_1"], "no organization has the id org_1"),
        (["key", "list", "org_1"], "no organization has the id org_1"),
        (["key", "revoke", "key_1"], "no key has the id key_1"),
        (["credits", "grant", "org_1", "5"], "no organization has this id"),
        (["credits", "balance", "org_1"], "no organization has this id"),
        (["job", "show", "job_1"], "no job has this id"),
        (["models", "pull", "gpt"], "unknown model 'gpt'"),
    ],
)
def test_what_does_not_exist_is_told_in_one_sentence(
    anex: CommandLine, arguments: list[str], sentence: str
) -> None:
    assert sentence in anex.refuse(*arguments)
    assert sentence in anex.refuse(*arguments, "--json")


def test_a_setting_that_is_missing_is_named_with_its_fix(anex: CommandLine) -> None:
    told = anex.refuse("org", "list", ANEX_DATABASE_WORK_URL="")
    assert "ANEX_DATABASE_WORK_URL is not set" in told
    assert "anex up" in told


def test_a_stacks_addresses_are_found_in_its_data_folder(anex: CommandLine, tmp_path: Path) -> None:
    address = anex.environment["ANEX_DATABASE_WORK_URL"]
    (tmp_path / "stack.env").write_text(f"ANEX_DATABASE_WORK_URL={address}\n", "utf-8")
    result = anex.run("org", "list", "--json", ANEX_DATABASE_WORK_URL="")
    assert json.loads(result.stdout) == {"organizations": []}


def test_an_older_schema_is_refused_until_it_is_migrated(
    anex: CommandLine, fresh_database_urls: DatabaseUrls
) -> None:
    with psycopg.connect(fresh_database_urls.owner) as connection:
        connection.execute("DROP OWNED BY anex_owner")
        connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    assert "run: anex migrate" in anex.refuse("org", "list")
    revision = anex.read("migrate")["revision"]
    assert anex.run("migrate").stdout == f"the schema is at {revision}\n"
    assert anex.read("org", "list") == {"organizations": []}


def test_a_database_that_is_away_changes_no_schema(anex: CommandLine) -> None:
    gone = "postgresql://anex_owner:x@127.0.0.1:1/anex"
    assert "the schema was not changed" in anex.refuse("migrate", ANEX_DATABASE_OWNER_URL=gone)


def test_a_database_that_is_away_is_told_in_one_sentence(anex: CommandLine) -> None:
    """In a process of its own: what libraries log there would be read as the command's answer."""
    gone = {"ANEX_DATABASE_WORK_URL": "postgresql://anex_work:secret@127.0.0.1:1/anex"}
    result = subprocess.run(
        [sys.executable, "-m", "config.cli", "org", "list", "--json"],
        cwd=PROJECT_FOLDER,
        env=dict(os.environ) | anex.environment | gone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (REFUSED, "")
    assert result.stderr == "Error: the database cannot be reached; try again in a few seconds\n"


def test_a_stack_that_does_not_run_is_told(anex: CommandLine, tmp_path: Path) -> None:
    told, as_json = anex.run("status"), anex.run("status", "--json")
    assert (told.exit_code, as_json.exit_code) == (NOT_RUNNING, NOT_RUNNING)
    assert told.stdout == f"nothing runs in {tmp_path}; `anex up` starts it\n"
    assert json.loads(as_json.stdout)["running"] is False


def test_a_stack_that_runs_is_shown_service_by_service(anex: CommandLine, tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    services = (
        ServiceStatus("postgres", "ready", 12, "postgresql://127.0.0.1:5433"),
        ServiceStatus("gpu-m", "waiting", detail="another model runs"),
    )
    write_status(
        folder, Status(running=True, data_folder=str(tmp_path), supervisor_pid=11, services=services)
    )
    with FolderLock(folder):
        told, as_json = anex.run("status"), anex.read("status")
    assert as_json["services"][1]["detail"] == "another model runs"
    assert told.stdout.splitlines() == [
        f"anex runs in {tmp_path} as process 11",
        "",
        "service   state    pid  address                      restarts  detail",
        "postgres  ready     12  postgresql://127.0.0.1:5433         0  -",
        "gpu-m     waiting    -  -                                   0  another model runs",
    ]


def test_books_that_are_wrong_end_the_check_with_1(
    anex: CommandLine, work: Database, fresh_database_urls: DatabaseUrls
) -> None:
    caller, _ = make_caller(work, 5)
    assert anex.run("ledger", "check").stdout == "the books are right\n"
    assert anex.read("ledger", "check") == {"violations": []}
    with psycopg.connect(fresh_database_urls.superuser) as connection:
        connection.execute("UPDATE accounts SET available_nanos = 6")
    found = anex.run("ledger", "check", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout) == {
        "violations": [f"the balance of {caller.org_id} is not the sum of its transfers"]
    }


def test_the_transfers_of_an_organization_are_shown_newest_first(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = make_running_job(work, caller)
    shown = anex.read("ledger", "show", caller.org_id)
    assert (shown["available_nanos"], shown["held_nanos"]) == (cents_to_nanos(75), cents_to_nanos(25))
    assert [transfer["kind"] for transfer in shown["transfers"]] == ["hold", "grant"]
    assert shown["transfers"][0]["job_id"] == job_id
    told = anex.run("ledger", "show", caller.org_id).stdout
    assert re.search(rf"hold +\$0\.25 +available +held +{job_id} +{caller.key_id}", told)


def test_models_are_listed_from_the_catalog_alone(anex: CommandLine) -> None:
    anex.environment = {name: anex.environment[name] for name in ("ANEX_CATALOG", "ANEX_ALLOW_FAKE_ENGINE")}
    models = {model["id"]: model for model in anex.read("models", "list")["models"]}
    assert models["fake-chat"]["input_nanos_per_million"] == 60_000_000
    assert "fake-reasoner" in anex.run("models", "list").stdout


@pytest.fixture
def chat_model(tmp_path: Path) -> tuple[str, ModelSpec]:
    """Write a catalog of one model whose weights lie in a folder; return its path and the model."""
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "tokenizer.json").write_text('{"version": "1.0"}', "utf-8")
    (weights / "chat_template.jinja").write_text("{{ messages }}", "utf-8")
    (weights / "model.safetensors").write_bytes(b"heavy")
    text = CATALOG.read_text("utf-8").split("\n\n")[1]
    text = text.replace("fake-chat", "folder-chat").replace('"bytes"', '"hf"')
    text = text.replace('kind = "fake"', 'kind = "vllm"')
    text = text.replace('source = "none"', f'source = "folder", location = "{weights}"')
    path = tmp_path / "catalog.toml"
    path.write_text(text, "utf-8")
    return str(path), load_catalog(path, allow_fake_engine=True).get("folder-chat")


def test_a_pull_stores_the_tokenizer_and_nothing_heavy(
    anex: CommandLine, s3_location: S3Location, chat_model: tuple[str, ModelSpec]
) -> None:
    anex.environment["ANEX_CATALOG"], spec = chat_model
    prefix = model_prefix(spec.id, spec.revision)
    keys = [f"{prefix}chat_template.jinja", f"{prefix}tokenizer.json"]
    for _ in range(2):
        assert anex.read("models", "pull") == {"pulled": {spec.id: keys}}
    objects = ObjectStore(s3_location)
    assert sorted(objects.list_keys(prefix)) == keys
    head = objects.head(keys[1])
    assert head is not None
    assert objects.read_range(keys[1], 0, head.size_bytes) == b'{"version": "1.0"}'


def test_a_folder_without_a_tokenizer_is_refused_with_the_fix(
    anex: CommandLine, chat_model: tuple[str, ModelSpec], tmp_path: Path
) -> None:
    anex.environment["ANEX_CATALOG"], spec = chat_model
    (tmp_path / "weights" / "tokenizer.json").unlink()
    anex.run("models", "pull", spec.id)  # says first that it prepares the folder
    told = anex.refuse("models", "pull", spec.id)
    assert f"{model_folder(spec, tmp_path)} holds no tokenizer.json" in told
    assert f"anex models pull {spec.id}" in told


def test_a_model_that_counts_by_bytes_has_nothing_to_pull(anex: CommandLine) -> None:
    assert anex.read("models", "pull", "fake-chat") == {"pulled": {"fake-chat": []}}


@pytest.mark.parametrize(
    "command", ["org", "key", "credits", "ledger", "models", "job", "up", "demo", "migrate"]
)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"], prog_name="anex")
    assert result.exit_code == 0
    assert f"Usage: anex {command}" in result.stdout


@pytest.mark.parametrize(
    ("nanos", "shown"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (cents_to_nanos(123), "$1.23"),
        (-cents_to_nanos(5), "-$0.05"),
        (1_500_000_000, "$1.50"),
        (1_234_500_000, "$1.2345"),
    ],
)
def test_an_amount_is_shown_exactly(nanos: int, shown: str) -> None:
    assert format_nanos(nanos) == shown


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(cli, ["--version"], prog_name="anex")
    assert (result.exit_code, result.stdout) == (0, f"anex, version {__version__}\n")
