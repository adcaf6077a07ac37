"""The API as it is run: gunicorn with its configuration, real settings, the Celery dispatcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from tests.support.row_samples import chat_line, join_lines
from tests.support.tenant import send_form
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls
    from tests.support.tenant import Tenant

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "tests" / "support" / "models.test.toml"
LINES = join_lines(chat_line("a"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run gunicorn; yield the API's address once it answers; end it as a deploy does."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_conf", "api.wsgi:app"]
    variables = {**os.environ, **environment, "ANEX_API_PORT": str(port), "PYTHONPATH": str(ROOT)}
    with (
        log.open("wb") as output,
        subprocess.Popen(command, cwd=ROOT, env=variables, stderr=output) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(address) or process.poll() is not None, what="the API answers")
            assert process.poll() is None, log.read_text("utf-8")
            yield address
        finally:
            process.terminate()
            code = process.wait(timeout=30)
    assert code == 0, log.read_text("utf-8")


def answers(address: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(f"{address}/healthz", timeout=5).ok
    return False


@pytest.fixture
def environment(
    database_urls: DatabaseUrls, s3_location: S3Location, valkey_url: str, tmp_path: Path
) -> dict[str, str]:
    return {
        "ANEX_DATA_DIR": str(tmp_path),
        "ANEX_DATABASE_API_URL": database_urls.api,
        "ANEX_REDIS_URL": valkey_url,
        "ANEX_S3_ENDPOINT": s3_location.endpoint,
        "ANEX_S3_BUCKET": s3_location.bucket,
        "ANEX_S3_ACCESS_KEY": s3_location.access_key,
        "ANEX_S3_SECRET_KEY": s3_location.secret_key,
        "ANEX_CATALOG": str(CATALOG),
        "ANEX_ALLOW_FAKE_ENGINE": "1",
        "ANEX_API_WORKERS": "1",
        "ANEX_LOG_FORMAT": "json",
    }


def test_a_job_is_submitted_over_http(environment: dict[str, str], tmp_path: Path, tenant: Tenant) -> None:
    with served(environment, tmp_path / "log") as address, requests.Session() as client:
        client.headers["Authorization"] = f"Bearer {tenant.key}"
        form = client.post(f"{address}/batch/v1/inputs", json={"format": "jsonl"}, timeout=30).json()
        assert send_form(form["upload_url"], form["fields"], LINES).ok

        body = {"input_id": form["id"], "model": "fake-chat", "max_output_tokens": 5}
        submitted = client.post(f"{address}/batch/v1/jobs", json=body, timeout=30)

        assert submitted.status_code == 200
        job = client.get(f"{address}/batch/v1/jobs/{submitted.json()['id']}", timeout=30).json()
        assert job["status"] == "submitted"
        ready = requests.get(f"{address}/readyz", timeout=30)
        assert (ready.status_code, ready.json()["status"]) == (200, "ok")
    assert tenant.key not in (tmp_path / "log").read_text("utf-8")


def test_a_chunked_body_over_the_bound_is_413(
    environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with served(environment, tmp_path / "log") as address:
        response = requests.post(
            f"{address}/batch/v1/jobs",
            data=iter([b'{"model": "'] + [b"x" * 65_536] * 32 + [b'"}']),
            headers={"Authorization": f"Bearer {tenant.key}"},
            timeout=30,
        )

        assert response.status_code == 413


def test_it_starts_while_its_servers_are_away_and_says_so(
    environment: dict[str, str], tmp_path: Path
) -> None:
    away = {
        "ANEX_DATABASE_API_URL": "postgresql://anex_api@127.0.0.1:1/anex",
        "ANEX_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    with served({**environment, **away}, tmp_path / "log") as address:
        ready = requests.get(f"{address}/readyz", timeout=60)

        assert ready.status_code == 503
        assert ready.json()["parts"] == {"database": "unavailable", "broker": "unavailable", "storage": "ok"}


def test_an_unusable_setting_is_told_at_the_start(environment: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_conf", "api.wsgi:app"],
        cwd=ROOT,
        env={**os.environ, **environment, "ANEX_API_PORT": "many", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode != 0
    assert "ANEX_API_PORT holds 'many'" in result.stderr


def test_the_process_imports_no_model_library(environment: dict[str, str]) -> None:
    code = (
        "import sys, api.wsgi; print(sorted({'torch', 'transformers', 'vllm', 'workers'} & set(sys.modules)))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert result.stdout.strip() == "[]"
