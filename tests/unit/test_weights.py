"""Making a model's files, once."""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from anex.catalog import ModelSpec, Weights
from config.catalog import load_catalog
from config.stack.weights import ModelFilesUnavailable, prepare_model_files

CATALOG = Path(__file__).resolve().parents[2] / "config" / "models.local.toml"
PACKAGED = Weights(source="package", location="tiny-model==1.0", revision="1.0", dtype="float32")


@pytest.fixture(scope="module")
def minilm() -> ModelSpec:
    return load_catalog(CATALOG).get("all-minilm-l6-v2")


@pytest.fixture
def engine_python(tmp_path: Path) -> Path:
    """Return an interpreter whose environment has tiny-model 1.0, a package with an archive of files."""
    site = tmp_path / "site"
    info = site / "tiny_model-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
    (info / "RECORD").write_text("tiny_model/__init__.py,,\ntiny_model/model.zip,,\n")
    (site / "tiny_model").mkdir()
    (site / "tiny_model" / "__init__.py").write_text("raise SystemExit('never imported')")
    with zipfile.ZipFile(site / "tiny_model" / "model.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("1_Pooling/config.json", "{}")
    return write_interpreter(tmp_path / "python", f'PYTHONPATH="{site}" exec "{sys.executable}" "$@"')


def write_interpreter(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\necho started >> '{path}.log'\n{script}\n")
    path.chmod(0o755)
    return path


def count_starts(engine_python: Path) -> int:
    log = Path(f"{engine_python}.log")
    return len(log.read_text().splitlines()) if log.exists() else 0


def ignore(_line: str) -> None:
    """Take a line of progress."""


def test_a_package_with_an_archive_becomes_a_folder(
    minilm: ModelSpec, tmp_path: Path, engine_python: Path
) -> None:
    said: list[str] = []
    spec = replace(minilm, weights=PACKAGED)
    folder = prepare_model_files(spec, tmp_path / "data", engine_python, said.append)
    assert folder == tmp_path / "data" / "models" / "all-minilm-l6-v2" / "1.0"
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert said == ["Preparing the files of all-minilm-l6-v2"]


def test_files_are_made_once(minilm: ModelSpec, tmp_path: Path, engine_python: Path) -> None:
    spec = replace(minilm, weights=PACKAGED)
    callers = [
        threading.Thread(target=prepare_model_files, args=(spec, tmp_path / "data", engine_python, ignore))
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert count_starts(engine_python) == 1


def test_what_a_killed_process_left_is_not_taken_for_a_model(
    minilm: ModelSpec, tmp_path: Path, engine_python: Path
) -> None:
    partial = tmp_path / "data" / "models" / "all-minilm-l6-v2" / ".1.0.partial"
    partial.mkdir(parents=True)
    (partial / "half").write_text("")
    folder = prepare_model_files(replace(minilm, weights=PACKAGED), tmp_path / "data", engine_python, ignore)
    assert sorted(file.name for file in folder.iterdir()) == ["1_Pooling", "config.json"]
    assert [folder] == list(folder.parent.iterdir())


def test_a_failure_leaves_no_folder(minilm: ModelSpec, tmp_path: Path) -> None:
    broken = write_interpreter(tmp_path / "broken", "echo 'the disk is full' >&2; exit 1")
    with pytest.raises(ModelFilesUnavailable, match="the disk is full"):
        prepare_model_files(replace(minilm, weights=PACKAGED), tmp_path / "data", broken, ignore)
    assert not (tmp_path / "data" / "models" / "all-minilm-l6-v2" / "1.0").exists()


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("absent-model==1.0", "absent-model==1.0 is not installed"),
        ("tiny-model==2.0", "tiny-model is 1.0, not 2.0"),
    ],
)
def test_a_package_that_is_not_there_is_named_with_the_fix(
    minilm: ModelSpec, tmp_path: Path, engine_python: Path, location: str, message: str
) -> None:
    spec = replace(minilm, weights=replace(PACKAGED, location=location))
    with pytest.raises(ModelFilesUnavailable, match=message) as refused:
        prepare_model_files(spec, tmp_path / "data", engine_python, ignore)
    assert "config.stack.engine_env" in refused.value.message


def test_a_missing_engine_environment_is_named_with_the_fix(minilm: ModelSpec, tmp_path: Path) -> None:
    with pytest.raises(ModelFilesUnavailable, match="ANEX_ENGINE_PYTHON"):
        prepare_model_files(minilm, tmp_path / "data", tmp_path / "nowhere" / "python", ignore)


def test_a_folder_is_linked_not_copied(minilm: ModelSpec, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text("{}")
    weights = Weights(source="folder", location=str(own), revision="mine", dtype="float32")
    folder = prepare_model_files(replace(minilm, weights=weights), tmp_path / "data", Path("none"), ignore)
    assert folder.is_symlink()
    assert (folder / "config.json").read_text() == "{}"


@pytest.mark.parametrize("location", ["relative/path", "/nonexistent/anex-weights"])
def test_a_folder_that_can_not_be_linked_is_refused(minilm: ModelSpec, tmp_path: Path, location: str) -> None:
    weights = Weights(source="folder", location=location, revision="mine", dtype="float32")
    with pytest.raises(ModelFilesUnavailable, match="correct it in the catalog"):
        prepare_model_files(replace(minilm, weights=weights), tmp_path / "data", Path("none"), ignore)


def test_the_hub_without_a_network_says_what_to_do(minilm: ModelSpec, tmp_path: Path) -> None:
    offline = write_interpreter(tmp_path / "python", f'HF_HUB_OFFLINE=1 exec "{sys.executable}" "$@"')
    weights = Weights(source="hub", location="example/absent", revision="main", dtype="float32")
    with pytest.raises(ModelFilesUnavailable) as refused:
        prepare_model_files(replace(minilm, weights=weights), tmp_path / "data", offline, ignore)
    assert "example/absent at revision main" in refused.value.message
    assert 'source = "folder"' in refused.value.message
    assert os.linesep not in refused.value.message.strip()
