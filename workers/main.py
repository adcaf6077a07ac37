"""A GPU unit: ``python -m workers.main --model ID [--gpus 0,1]``.

A small parent that owns one engine child and two Celery workers beside it, run and quick, which reach the engine over its Unix
socket. An engine's crash is never the workers', nor theirs the engine's: the parent starts again whatever ended. It takes the
signals: the first SIGTERM or SIGINT drains (rows in flight finish, chunks go back with checkpoints), a second one gives back
without waiting.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from anex.errors import AnexError
from anex.units.model import Unit
from config.log import configure_logging
from config.stack.layout import DataFolder
from config.stack.weights import prepare_model_files
from config.wiring import build_services, child_environment, read_settings
from tasks.dispatch import CeleryDispatcher
from workers.engine_child import EngineChild, EngineCommand, SocketPathTooLong
from workers.engines.fake_command import fake_command
from workers.engines.laya_command import laya_command
from workers.engines.vllm import vllm_command
from workers.parent import Parent
from workers.pin import GpusMissing, detect_gpus, pick_gpus, pin_environment
from workers.places import take_place
from workers.slots import slots_arguments
from workers.unit_record import UnitRecord
from workers.unit_worker import UnitWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import ModelSpec
    from config.settings import Settings
    from workers.places import Place

SLOTS = 3
"""Chunks open on one engine: the tail of one overlaps the body of the next; a barrier between them costs a fifth and more."""

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run a unit until it is told to stop or, where that is set, has been idle for long enough."""
    parser = argparse.ArgumentParser(description="Serve one model of the catalog.")
    parser.add_argument("--model", required=True, help="id of the model in the catalog")
    parser.add_argument(
        "--gpus",
        type=_parse_gpus,
        help="the GPUs to pin the engine to, such as 0,1 (default: the next free ones of this model's units)",
    )
    options = parser.parse_args(arguments)
    # Until the parent's loop has the signals: by raising, which also ends a download or conversion under way.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        settings = read_settings()
        configure_logging(settings.log_level, settings.log_format)
        return _serve(settings, options.model, options.gpus)
    except (AnexError, GpusMissing, SocketPathTooLong) as error:
        log.error("unit_refused", model=options.model, reason=str(error))  # noqa: TRY400 - a fact, not a fault of the program
        return 1


def _serve(settings: Settings, model_id: str, gpus: Sequence[int] | None) -> int:
    services = build_services(settings, "work", CeleryDispatcher(settings.require("redis_url")))
    spec = services.catalog.get(model_id)
    unit = Unit(
        f"{spec.queue}-{uuid4().hex[:12]}", services.region, spec.id, spec.queue, spec.revision, SLOTS
    )
    folder = DataFolder(settings.data_dir)
    folder.create()
    place = take_place(folder, spec.queue)
    environment = child_environment()
    command = _engine_command(settings, spec, place, environment | _pin(spec, place, gpus))
    arguments = slots_arguments(unit, place.socket_path, spec.engine.max_num_seqs)
    parent = Parent(
        services,
        unit,
        UnitRecord(services, unit),
        EngineChild(command),
        run_worker=UnitWorker("workers.run", arguments, environment),
        quick_worker=UnitWorker("workers.quick", arguments, environment),
        idle_seconds=settings.engine_idle_seconds,
    )
    return parent.run()


def _engine_command(
    settings: Settings, spec: ModelSpec, place: Place, environment: dict[str, str]
) -> EngineCommand:
    if spec.engine.kind == "fake":
        argv, added = fake_command(spec, place.socket_path)
    else:
        python = settings.engine_python
        files = prepare_model_files(
            spec, settings.data_dir, python, lambda line: log.info("model_files", detail=line)
        )
        if spec.engine.kind == "vllm":
            argv, added = vllm_command(spec, place.socket_path, files, python)
        else:
            on_gpu = bool(environment.get("CUDA_VISIBLE_DEVICES"))
            argv, added = laya_command(spec, place.socket_path, files, python, on_gpu=on_gpu)
    return EngineCommand(tuple(argv), environment | added, place.socket_path, place.log_path)


def _pin(spec: ModelSpec, place: Place, gpus: Sequence[int] | None) -> dict[str, str]:
    """Return the variables that pin the engine, set before any GPU library loads; none on a machine without a GPU."""
    needed = spec.engine.tensor_parallel
    if gpus is None:
        available = detect_gpus()
        return pin_environment(pick_gpus(available, needed, place.number)) if available else {}
    if len(gpus) != needed:
        raise GpusMissing(f"{spec.id} runs on {needed} GPUs and --gpus names {len(gpus)}: name {needed}")
    return pin_environment(gpus)


def _parse_gpus(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _leave(_number: int, _frame: Any) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
