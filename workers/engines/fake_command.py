"""The command that starts the fake engine for one model of the catalog: the twin of ``workers.engines.vllm``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from config.stack.layout import PROJECT_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from anex.catalog import ModelSpec


class NotAFakeModel(ValueError):
    """The catalog gives this model another engine: the fake one is never a stand-in that nobody asked for."""


def fake_command(spec: ModelSpec, socket: Path) -> tuple[list[str], dict[str, str]]:
    """Return the engine child's argument list and the variables to add to its environment.

    ``spec.engine.args`` come last, so that the catalog's laws, speeds and switches win. Raises ``NotAFakeModel``.
    """
    if spec.engine.kind != "fake":
        raise NotAFakeModel(f"model '{spec.id}' is served by {spec.engine.kind}, not by the fake engine")
    argv = [sys.executable, "-m", "workers.engines.fake", "--socket", str(socket), "--model", spec.id]
    argv += ["--context-tokens", str(spec.served_context_tokens)]
    argv += ["--max-num-seqs", str(spec.engine.max_num_seqs)]
    if spec.dimensions is not None:
        argv += ["--embedding-width", str(spec.dimensions.max_width)]
    if spec.decide is not None:
        argv += ["--option-budget", str(spec.decide.option_budget_tokens)]
        for checkpoint in spec.checkpoints:
            argv += ["--checkpoint", f"{checkpoint.name}:{checkpoint.context_tokens}"]
    return [*argv, *spec.engine.args], {"PYTHONPATH": str(PROJECT_FOLDER), **dict(spec.engine.environment)}
