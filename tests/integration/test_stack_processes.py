"""The table of processes against the names of the queues and the Procfile: no queue without a consumer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from config.settings import load_settings
from config.stack.layout import PROJECT_FOLDER, DataFolder
from config.stack.processes import CELERY_QUEUES, LogSays, describe_gpu_unit, list_processes
from tasks import names

if TYPE_CHECKING:
    from pathlib import Path

    from config.stack.spec import ServiceSpec


def make_processes(root: Path, **variables: str) -> dict[str, ServiceSpec]:
    folder = DataFolder(root)
    settings = load_settings({"ANEX_DATA_DIR": str(root), **variables})
    return {spec.name: spec for spec in list_processes(settings, folder, {})}


def read_procfile() -> dict[str, str]:
    lines = (PROJECT_FOLDER / "Procfile").read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def test_every_queue_has_one_consumer() -> None:
    consumed = sorted(queue for queues in CELERY_QUEUES.values() for queue in queues)
    assert consumed == sorted(value for name, value in vars(names).items() if name.endswith("_QUEUE"))


def test_the_procfile_runs_the_same_roles_on_the_same_queues(tmp_path: Path) -> None:
    procfile = read_procfile()
    processes = make_processes(tmp_path)
    assert set(processes) == {role for role in procfile if not role.startswith("gpu-")}
    for worker, queues in CELERY_QUEUES.items():
        assert re.search(r"--queues (\S+)", procfile[worker]) is not None
        assert f"--queues {','.join(queues)} " in procfile[worker]
        command = processes[worker].command
        assert command[command.index("--queues") + 1] == ",".join(queues)
        assert command[command.index("--hostname") + 1] == f"{worker}@%h"


def test_the_procfile_runs_a_gpu_unit_as_the_stack_does() -> None:
    for role, line in read_procfile().items():
        if role.startswith("gpu-"):
            model = line.rpartition(" ")[2]
            command = describe_gpu_unit(model, {}).command
            assert line.endswith(" ".join(["python", *command[1:]]))


def test_a_gpu_unit_that_ends_well_is_not_started_again() -> None:
    assert describe_gpu_unit("some-model", {}).until_success


def test_the_api_listens_where_the_settings_say(tmp_path: Path) -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - named, not bound
    variables = {"ANEX_API_HOST": everywhere, "ANEX_API_PORT": "18123"}
    api = make_processes(tmp_path, **variables)["api"]
    assert api.command[api.command.index("--bind") + 1] == "0.0.0.0:18123"
    assert api.url == "http://127.0.0.1:18123"


def test_a_log_says_ready_once_for_each_start(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_bytes(b"worker@host ready.\n")
    is_ready = LogSays(log, b" ready.")
    assert not is_ready(), "a line of an earlier run counted"
    with log.open("ab") as file:
        file.write(b"worker@host ready.\n")
    assert is_ready()
    assert not is_ready(), "one line counted twice"
    log.write_bytes(b"a ready.\n")  # the log was moved aside and begun anew
    assert is_ready()
