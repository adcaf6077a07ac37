"""anex's own processes on one machine: the table that says who consumes which queue.

The queues stand here as text because ``config`` may not import ``tasks``; a test compares them with
``tasks.names`` and with the ``Procfile``.
"""

from __future__ import annotations

import http.client
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.stack.spec import ServiceSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from config.settings import Settings
    from config.stack.layout import DataFolder

CELERY_QUEUES: dict[str, tuple[str, ...]] = {
    "planner": ("plan", "count", "finalize"),
    "control": ("control",),
    "ingest": ("ingest",),
    "webhooks": ("webhooks", "webhooks.again"),
}
"""The queues of each Celery worker that always runs; a model's queues are its GPU unit's."""

_POOLS = {
    "planner": ("--pool", "prefork", "--concurrency", "2"),
    "control": ("--pool", "threads", "--concurrency", "2"),
    "ingest": ("--pool", "threads", "--concurrency", "4"),
    "webhooks": ("--pool", "threads", "--concurrency", "16"),
}

_CELERY_APP = "tasks.app:app"
_WSGI_APP = "api.wsgi:app"
_READY_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 30.0
_UNIT_STOP_TIMEOUT_SECONDS = 60.0
"""A GPU unit drains for 30 s, then writes its checkpoint and stops its engine."""

_HTTP_TIMEOUT_SECONDS = 2.0
_OK = 200


@dataclass
class LogSays:
    """Whether a log has grown a line with ``text`` since the last time it had."""

    log: Path
    text: bytes
    _read_bytes: int = 0

    def __post_init__(self) -> None:
        self._read_bytes = self.log.stat().st_size if self.log.exists() else 0

    def __call__(self) -> bool:
        """Look at what was written since the last match."""
        with self.log.open("rb") as file:
            if self.log.stat().st_size < self._read_bytes:  # it was moved aside
                self._read_bytes = 0
            file.seek(self._read_bytes)
            written = file.read()
        found = written.find(self.text)
        if found >= 0:
            self._read_bytes += found + len(self.text)
        return found >= 0


def list_processes(
    settings: Settings,
    folder: DataFolder,
    environment: Mapping[str, str],
    name_of: Callable[[str], str] = str,
) -> list[ServiceSpec]:
    """Return a region's API, Celery workers and beat; ``environment`` is their whole environment.

    ``name_of`` tells a region's process from its namesake of another one.
    """
    return [
        _describe_api(name_of("api"), settings, environment),
        *(_describe_worker(role, name_of(role), folder, environment) for role in CELERY_QUEUES),
        ServiceSpec(
            name=name_of("beat"),
            command=_celery("beat", "--scheduler", "celery.beat:Scheduler", "--pidfile="),
            environment=environment,
        ),
    ]


def describe_gpu_unit(
    model_id: str, environment: Mapping[str, str], name_of: Callable[[str], str] = str
) -> ServiceSpec:
    """Return the unit that serves one model until it has been idle for ``ANEX_ENGINE_IDLE_SECONDS``."""
    return ServiceSpec(
        name=name_of(f"gpu-{model_id}"),
        command=[sys.executable, "-m", "workers.main", "--model", model_id],
        environment=environment,
        stop_timeout_seconds=_UNIT_STOP_TIMEOUT_SECONDS,
        critical=False,
        until_success=True,
    )


def _describe_api(name: str, settings: Settings, environment: Mapping[str, str]) -> ServiceSpec:
    host, port = settings.api_host, settings.api_port
    reached_at = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    return ServiceSpec(
        name=name,
        command=[
            sys.executable,
            *("-m", "gunicorn", "--config", "python:api.gunicorn_conf", "--bind", f"{host}:{port}"),
            _WSGI_APP,
        ],
        environment=environment,
        stop_timeout_seconds=_STOP_TIMEOUT_SECONDS,
        ready=lambda: _answers(reached_at, port),
        ready_timeout_seconds=_READY_TIMEOUT_SECONDS,
        url=f"http://{reached_at}:{port}",
    )


def _describe_worker(role: str, name: str, folder: DataFolder, environment: Mapping[str, str]) -> ServiceSpec:
    queues = ",".join(CELERY_QUEUES[role])
    return ServiceSpec(
        name=name,
        command=_celery(
            *("worker", "--queues", queues, *_POOLS[role], "--hostname", f"{role}@%h"),
            *("--without-gossip", "--without-mingle"),  # workers that do not talk start a second sooner
        ),
        environment=environment,
        stop_timeout_seconds=_STOP_TIMEOUT_SECONDS,
        ready=LogSays(folder.logs / f"{name}.log", b" ready."),
        ready_timeout_seconds=_READY_TIMEOUT_SECONDS,
        critical=False,  # what it does not do now, it does after its restart
    )


def _celery(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "celery", "--app", _CELERY_APP, *arguments, "--loglevel", "INFO"]


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_HTTP_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/openapi.json")
        return connection.getresponse().status == _OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
