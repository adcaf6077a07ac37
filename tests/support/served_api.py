"""The API as it is run: gunicorn with its configuration, in a process of its own, until the block's end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
from cryptography.fernet import Fernet

from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls

ROOT = Path(__file__).parents[2]
GUNICORN = [sys.executable, "-m", "gunicorn", "--config", "python:api.gunicorn_conf", "api.wsgi:app"]


@dataclass(frozen=True, slots=True)
class ServedApi:
    """A running API: its parent process and its address."""

    process: subprocess.Popen[bytes]
    address: str

    def get(self, path: str, key: str | None = None) -> requests.Response:
        """Ask, by default without a key."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return requests.get(f"{self.address}{path}", headers=headers, timeout=60)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serve_api(environment: dict[str, str], log: Path) -> Iterator[ServedApi]:
    """Run gunicorn; yield once it answers; end it as a deploy does, and fail unless it ends well."""
    port = environment.get("ANEX_API_PORT") or str(free_port())
    variables = {**os.environ, **environment, "ANEX_API_PORT": port, "PYTHONPATH": str(ROOT)}
    with (
        log.open("wb") as output,
        subprocess.Popen(GUNICORN, cwd=ROOT, env=variables, stderr=output) as process,
    ):
        api = ServedApi(process, f"http://127.0.0.1:{port}")
        try:
            wait_until(lambda: answers(api) or process.poll() is not None, what="the API answers")
            assert process.poll() is None, log.read_text("utf-8")
            yield api
        finally:
            process.terminate()
            code = process.wait(timeout=30)
    assert code == 0, log.read_text("utf-8")


def answers(api: ServedApi) -> bool:
    """Whether it is alive."""
    with suppress(requests.ConnectionError):
        return api.get("/healthz").ok
    return False


@pytest.fixture
def api_environment(
    database_urls: DatabaseUrls, s3_location: S3Location, valkey_url: str, tmp_path: Path
) -> dict[str, str]:
    """Return the settings of an API of one worker over the tests' servers."""
    return {
        "ANEX_DATA_DIR": str(tmp_path),
        "ANEX_DATABASE_API_URL": database_urls.api,
        "ANEX_REDIS_URL": valkey_url,
        "ANEX_S3_ENDPOINT": s3_location.endpoint or "",
        "ANEX_S3_BUCKET": s3_location.bucket,
        "ANEX_S3_ACCESS_KEY": s3_location.access_key,
        "ANEX_S3_SECRET_KEY": s3_location.secret_key,
        "ANEX_SECRET_KEY": Fernet.generate_key().decode(),
        "ANEX_CATALOG": str(ROOT / "tests" / "support" / "models.test.toml"),
        "ANEX_ALLOW_FAKE_ENGINE": "1",
        "ANEX_API_WORKERS": "1",
        "ANEX_LOG_FORMAT": "json",
    }
