"""Put a model's files where its engine and its token counter read them: ``<data>/models/<id>/<revision>/``.

Files are made once, in a folder beside the final one that is renamed when complete: a folder that exists is a
folder that is whole. Two processes that want the same model don't make it twice. Only the source ``hub``
touches the network; an engine always starts offline.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from config.stack.errors import StackError
from config.stack.folder_lock import hold_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from anex.catalog import ModelSpec, Weights

_PROJECT = Path(__file__).resolve().parents[2]


class ModelFilesUnavailable(StackError):
    """A model's files can't be made here; the message says why and what to do."""

    code = "model_files_unavailable"


def model_folder(spec: ModelSpec, data_dir: Path) -> Path:
    """Return where the files of the model's revision stand, whether they were made or not.

    A decision model with several checkpoints has one folder in there for each, by the checkpoint's name.
    """
    return data_dir / "models" / spec.id / spec.revision


def prepare_model_files(
    spec: ModelSpec, data_dir: Path, engine_python: Path, report: Callable[[str], None]
) -> Path:
    """Make the model's files unless they stand, and return their folder.

    ``engine_python`` is the interpreter of the engine's environment. ``report`` gets a line when there is
    work. Raises ``ModelFilesUnavailable``.
    """
    folder = model_folder(spec, data_dir)
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_folder(folder.parent):
        if not folder.exists():
            _make(spec, folder, engine_python, report)
    return folder


def _make(spec: ModelSpec, folder: Path, engine_python: Path, report: Callable[[str], None]) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    _remove(partial)
    if spec.checkpoints:
        partial.mkdir()
        for checkpoint in spec.checkpoints:
            report(f"Preparing {spec.id}, checkpoint {checkpoint.name}")
            _make_one(checkpoint.weights, partial / checkpoint.name, engine_python)
    else:
        report(f"Preparing the files of {spec.id}")
        _make_one(spec.weights, partial, engine_python)
    partial.rename(folder)


def _make_one(weights: Weights, target: Path, engine_python: Path) -> None:
    if weights.source == "folder":
        _link_folder(Path(weights.location), target)
        return
    target.mkdir()
    if weights.source != "none":
        _run_in_engine_environment(weights, target, engine_python)


def _link_folder(location: Path, target: Path) -> None:
    """Link, not copy: the folder is the operator's and may hold a hundred gigabytes."""
    if not location.is_absolute() or not location.is_dir():
        raise ModelFilesUnavailable(
            f"The catalog's weights folder '{location}' is not an absolute path of a folder: "
            "correct it in the catalog."
        )
    target.symlink_to(location, target_is_directory=True)


def _run_in_engine_environment(weights: Weights, target: Path, engine_python: Path) -> None:
    if not engine_python.exists():
        raise ModelFilesUnavailable(
            f"There is no engine environment: {engine_python} does not exist. "
            "Run 'python -m config.stack.engine_env .venv-engine', or point ANEX_ENGINE_PYTHON at one."
        )
    command = [str(engine_python), "-m", "config.stack.model_files"]
    command += [weights.source, weights.location, weights.revision, str(target.resolve())]
    made = subprocess.run(command, cwd=_PROJECT, stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        raise ModelFilesUnavailable(made.stderr.strip()[-2000:])


def _remove(partial: Path) -> None:
    """Clear what a killed process left; a link is removed, never what it points to."""
    if partial.is_symlink():
        partial.unlink()
    elif partial.exists():
        shutil.rmtree(partial)
