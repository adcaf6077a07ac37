"""The command that starts the laya engine for one model of the catalog: the twin of ``workers.engines.vllm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from anex.catalog import ModelSpec

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def laya_command(
    spec: ModelSpec, socket: Path, files: Path, engine_python: Path, *, on_gpu: bool
) -> tuple[list[str], dict[str, str]]:
    """Return the engine child's argument list and the variables to add to its environment.

    ``files`` holds a folder for each checkpoint, by its name; ``engine_python`` is the interpreter that has laya, and runs in the
    project's folder. With ``on_gpu`` the engine ends rather than go on without one.
    """
    if spec.decide is None:
        raise TypeError(f"{spec.id} is no decision model")
    argv = [str(engine_python), "-m", "workers.engines.laya", "--socket", str(socket), "--model", spec.id]
    argv += ["--device", "cuda" if on_gpu else "cpu", "--max-num-seqs", str(spec.engine.max_num_seqs)]
    argv += ["--option-budget", str(spec.decide.option_budget_tokens)]
    for each in spec.checkpoints:
        argv += ["--checkpoint", f"{each.name}:{each.context_tokens}:{files / each.name}"]
    return [*argv, *spec.engine.args], _OFFLINE | dict(spec.engine.environment)
