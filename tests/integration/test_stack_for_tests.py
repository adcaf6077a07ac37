"""The servers that the tests share: one set a run, apart for each worker, gone with the run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from config.stack.layout import PROJECT_FOLDER
from config.stack.proc import find_members, unit_mark
from tests.support.wait import wait_until

INNER = """
import json, os, pytest

pytest_plugins = ["tests.support.servers"]

@pytest.mark.parametrize("n", range(4))
def test_inner(n, servers, valkey_url, s3_location, tmp_path):
    path = os.environ["REPORT"] + os.environ["PYTEST_XDIST_WORKER"]
    with open(path, "w") as file:
        json.dump([str(servers.folder), valkey_url, s3_location.bucket], file)
"""


@pytest.fixture
def reports(tmp_path: Path) -> list[list[str]]:
    """Run four tests on two workers and return what each worker was given."""
    test = tmp_path / "test_inner.py"
    test.write_text(INNER, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--dist=each", f"--rootdir={tmp_path}"]
    result = subprocess.run(
        [*command, "-c", str(PROJECT_FOLDER / "setup.cfg"), str(test)],
        cwd=PROJECT_FOLDER,
        env={"PATH": "/usr/bin:/bin", "REPORT": f"{tmp_path}/report-"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return [json.loads(path.read_text("utf-8")) for path in sorted(tmp_path.glob("report-*"))]


def test_workers_share_servers_but_no_data_and_leave_nothing(reports: list[list[str]]) -> None:
    (folder, *mine), (other_folder, *theirs) = reports
    assert folder == other_folder
    assert not set(mine) & set(theirs)
    wait_until(lambda: not Path(folder).exists(), what="the folder of the run is removed")
    assert find_members(unit_mark(Path(folder) / "data")) == set()
