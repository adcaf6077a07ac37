"""A decision model on tiny checkpoints: its catalog, its files, and its engine as a child process."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config.catalog import load_catalog
from config.stack.weights import prepare_model_files
from tests.support.engines import EngineUnderTest, find_engine_python, short_folder
from tests.support.wait import wait_until
from workers.engines.laya_command import laya_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from anex.catalog import ModelSpec

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0

_CATALOG = """
[laya]
kind = "decide"
context_tokens = 1024
minimum_cents = 5
realtime = true
tokenizer = "hf"
decide = { option_budget_tokens = 192, max_questions = 64, state_max_characters = 50000 }
prices = { input_dollars_per_million = "0.005", realtime_factor = "3/2" }
engine = { kind = "laya", max_num_seqs = 16, stall_seconds = 180 }
throughput = { prefill_tokens_per_second = 10000, startup_seconds = 10 }
"""
_CHECKPOINT = """
[[laya.checkpoints]]
name = "%s"
context_tokens = %d
weights = { source = "folder", location = "%s", revision = "1", dtype = "fp32" }
"""


def make_tiny_model(folder: Path) -> Path:
    """Make tiny checkpoints in ``folder`` and return the catalog that serves them as ``laya``."""
    run_in_engine(["tests.support.laya_checkpoints", str(folder)])
    catalog = folder / "models.toml"
    catalog.write_text(
        _CATALOG
        + _CHECKPOINT % ("english", 512, folder / "english")
        + _CHECKPOINT % ("multilingual", 1024, folder / "multilingual")
    )
    return catalog


def answer_directly(checkpoints: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the package itself answers to each row, or ``{"error": …}``."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    answers = run_in_engine(["tests.support.laya_answers", str(checkpoints)], lines)
    return [json.loads(line) for line in answers.splitlines()]


def run_in_engine(module: Sequence[str], given: str = "") -> str:
    """Run a module in the engine's environment and return what it prints."""
    done = subprocess.run(
        [str(find_engine_python()), "-m", *module],
        input=given,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def start_laya(
    spec: ModelSpec, data_dir: Path, socket_path: Path, *, on_gpu: bool = False
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the engine for a model; return its process and its log."""
    files = prepare_model_files(spec, data_dir, find_engine_python(), print)
    argv, variables = laya_command(spec, socket_path, files, find_engine_python(), on_gpu=on_gpu)
    log_path = data_dir / "laya.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            argv, cwd=ROOT, env=os.environ | variables, stdout=log, stderr=log, start_new_session=True
        )
    return process, log_path


@contextmanager
def run_laya(catalog: Path, data_dir: Path) -> Iterator[EngineUnderTest]:
    """Run the engine of the model ``laya`` of a catalog."""
    spec = load_catalog(catalog).get("laya")
    with short_folder() as folder:
        socket_path = folder / "engine.sock"
        process, log = start_laya(spec, data_dir, socket_path)
        engine = EngineUnderTest(spec, socket_path, process)
        try:
            wait_until(engine.is_healthy, timeout_seconds=START_SECONDS, what=f"laya serves ({log})")
            yield engine
        finally:
            engine.kill()
