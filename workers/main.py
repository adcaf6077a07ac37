"""A GPU unit: ``python -m workers.main --model ID [--gpus 0,1]``.

A small parent that owns one engine child and two Celery workers beside it, run and quick, which reach the engine over its Unix
socket. An engine's crash is never the workers', nor theirs the engine's: the parent starts again whatever ended. It takes the
signals: the first SIGTERM or SIGINT drains (rows in flight finish, chunks go back with checkpoints), a second one gives back
without waiting.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from anex.errors import AnexError
from anex.units.model import Unit
from config.log import configure_logging
from config.stack.layout import DataFolder
from config.stack.weights import prepare_model_files
from config.wiring import build_services, child_environment, read_settings
from tasks.dispatch import CeleryDispatcher
from workers.engine_child import EngineChild, EngineCommand
from workers.engines.fake_command import fake_command
from workers.engines.vllm import vllm_command
from workers.parent import Parent
from workers.pin import detect_gpus, pick_gpus, pin_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anex.catalog import ModelSpec
    from config.settings import Settings

SLOTS = 3
"""Chunks open on one engine: the tail of one overlaps the body of the next; a barrier between them costs a fifth and more."""

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a unit until it is told to stop or, where that is set, has been idle for long enough."""
    parser = argparse.ArgumentParser(description="Serve one model of the catalog.")
    parser.add_argument("--model", required=True, help="id of the model in the catalog")
    parser.add_argument(
        "--gpus", help="the GPUs to pin the engine to, such as 0,1 (default: the first that it needs)"
    )
    options = parser.parse_args(arguments)
    settings = read_settings()
    configure_logging(settings.log_level, settings.log_format)
    try:
        return _serve(settings, options.model, options.gpus)
    except AnexError as error:
        log.error("unit_refused", model=options.model, reason=error.message)  # noqa: TRY400 - a fact, not a fault of the program
        return 1


def _serve(settings: Settings, model_id: str, gpus: str | None) -> int:
    services = build_services(settings, "work", CeleryDispatcher(settings.require("redis_url")))
    spec = services.catalog.get(model_id)
    unit = Unit(f"{spec.queue}-{uuid4().hex[:12]}", spec.id, spec.queue, spec.revision, SLOTS)
    folder = DataFolder(settings.data_dir)
    folder.create()
    socket_path = folder.run / f"{spec.queue[:12]}.sock"
    environment = child_environment()
    command = _engine_command(settings, spec, socket_path, environment | _pin(spec, gpus))
    parent = Parent(
        services,
        unit,
        EngineChild(command),
        socket_path,
        environment,
        idle_seconds=settings.engine_idle_seconds,
    )
    return parent.run()


def _engine_command(
    settings: Settings, spec: ModelSpec, socket_path: Path, environment: dict[str, str]
) -> EngineCommand:
    if spec.engine.kind == "fake":
        argv, added = fake_command(spec, socket_path)
    else:
        files = prepare_model_files(
            spec, settings.data_dir, settings.engine_python, lambda line: log.info("model_files", detail=line)
        )
        argv, added = vllm_command(spec, socket_path, files, settings.engine_python)
    log_path = DataFolder(settings.data_dir).logs / f"engine-{spec.queue}.log"
    return EngineCommand(tuple(argv), environment | added, socket_path, log_path)


def _pin(spec: ModelSpec, gpus: str | None) -> dict[str, str]:
    """Return the variables that pin the engine, set before any GPU library loads; none on a machine without a GPU."""
    if gpus is not None:
        return pin_environment([int(number) for number in gpus.split(",")])
    available = detect_gpus()
    return pin_environment(pick_gpus(available, spec.engine.tensor_parallel)) if available else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
