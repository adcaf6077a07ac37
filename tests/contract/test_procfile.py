"""The Procfile, the compose file and the one-machine stack run the same roles.

A queue that nobody consumes is work that never happens, and nothing else would say so.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import load_settings
from config.stack.layout import DataFolder
from config.stack.processes import CELERY_QUEUES, describe_gpu_unit, list_processes
from tasks import names

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("api", "planner", "control", "ingest", "webhooks", "beat")
UNIT = ["python", "-m", "workers.main", "--model"]


def read_procfile() -> dict[str, list[str]]:
    """Return each process's words, shell defaults (``${NAME:-default}``) filled in, PYTHONPATH first."""
    lines = (ROOT / "Procfile").read_text("utf-8").splitlines()
    entries = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {name: shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", command)) for name, _, command in entries}


def read_services() -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    services: dict[str, dict[str, Any]] = document["services"]
    return services


def list_queues(command: list[str]) -> list[str]:
    return command[command.index("--queues") + 1].split(",") if "--queues" in command else []


def named_queues() -> list[str]:
    return [value for name, value in vars(names).items() if name.endswith("_QUEUE")]


def catalog_models() -> list[str]:
    return list(tomllib.loads((ROOT / "config/models.toml").read_text("utf-8")))


def test_every_named_queue_has_one_consumer_and_no_other_queue_is_consumed() -> None:
    consumed = [queue for command in read_procfile().values() for queue in list_queues(command)]

    assert Counter(consumed) == Counter(named_queues())
    assert len(consumed) >= 4


def test_every_model_of_the_catalog_has_one_gpu_unit_and_no_other_model_has() -> None:
    units = [command[-1] for command in read_procfile().values() if command[1:-1] == UNIT]

    assert sorted(units) == sorted(catalog_models())


def test_every_process_reads_the_packages_from_its_own_folder() -> None:
    for name, (path, *command) in read_procfile().items():
        assert path == "PYTHONPATH=.", name
        assert command, name


def test_process_names_are_ones_that_every_procfile_runner_takes() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in read_procfile())


@pytest.mark.parametrize("role", ROLES)
def test_compose_starts_a_role_with_the_same_words_as_the_procfile(role: str) -> None:
    assert read_services()[role]["command"] == read_procfile()[role][1:]


def drop_settings(command: list[str]) -> Counter[str]:
    """Return a command's words without those that settings decide: the address, how many processes."""
    decided = {command.index(option) + 1 for option in ("--bind", "--workers") if option in command}
    return Counter(word for place, word in enumerate(command) if place not in decided)


def test_the_one_machine_stack_starts_the_same_roles_with_the_same_words(tmp_path: Path) -> None:
    settings = load_settings({"ANEX_DATA_DIR": str(tmp_path)})
    stack = {spec.name: spec.command for spec in list_processes(settings, DataFolder(tmp_path), {})}

    assert set(stack) == set(ROLES)
    for role, (interpreter, module, *command) in stack.items():
        assert [interpreter, module] == [sys.executable, "-m"]
        assert drop_settings(command) == drop_settings(read_procfile()[role][1:]), role


def test_the_one_machine_stack_consumes_every_named_queue() -> None:
    consumed = [queue for queues in CELERY_QUEUES.values() for queue in queues]

    assert Counter(consumed) == Counter(named_queues())


def test_the_one_machine_stack_starts_a_gpu_unit_as_the_procfile_does() -> None:
    unit = describe_gpu_unit("qwen3-14b", environment={})

    assert unit.command[1:] == [*UNIT[1:], "qwen3-14b"]
    assert read_procfile()[unit.name][1:] == [*UNIT, "qwen3-14b"]


def test_composes_gpu_example_serves_a_model_of_the_catalog() -> None:
    units = [service for name, service in read_services().items() if name.startswith("gpu-")]

    assert units
    for unit in units:
        assert unit["command"][0] == "--model"
        assert unit["command"][1] in catalog_models()
        assert unit["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_each_container_holds_the_database_role_it_works_as_and_no_other() -> None:
    held = {
        name: [variable for variable in service.get("environment", {}) if "DATABASE" in variable]
        for name, service in read_services().items()
    }

    assert held.pop("api") == ["ANEX_DATABASE_API_URL"]
    assert held.pop("migrate") == ["ANEX_DATABASE_OWNER_URL"]
    assert {name: roles for name, roles in held.items() if roles} == {
        name: ["ANEX_DATABASE_WORK_URL"]
        for name in read_services()
        if name in {"planner", "control", "ingest", "webhooks", "beat", "flower"} or name.startswith("gpu-")
    }


def test_what_compose_asks_for_is_what_its_example_file_lists() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?\}", (ROOT / "docker-compose.yml").read_text("utf-8")))
    example = (ROOT / "deploy/compose.env.example").read_text("utf-8")

    assert set(re.findall(r"^(\w+)=", example, re.MULTILINE)) == asked
