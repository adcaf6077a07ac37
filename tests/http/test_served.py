"""The API as it is run: gunicorn with its configuration, real settings, the Celery dispatcher."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import requests

from tests.support.row_samples import chat_line, join_lines
from tests.support.served_api import GUNICORN, ROOT, serve_api
from tests.support.tenant import send_form

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tenant import Tenant

LINES = join_lines(chat_line("a"))


def test_a_job_is_submitted_over_http(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api, requests.Session() as client:
        client.headers["Authorization"] = f"Bearer {tenant.key}"
        form = client.post(f"{api.address}/batch/v1/inputs", json={"format": "jsonl"}, timeout=30).json()
        assert send_form(form["upload_url"], form["fields"], LINES).ok

        body = {"input_id": form["id"], "model": "fake-chat", "max_output_tokens": 5}
        submitted = client.post(f"{api.address}/batch/v1/jobs", json=body, timeout=30)

        assert submitted.status_code == 200
        job = client.get(f"{api.address}/batch/v1/jobs/{submitted.json()['id']}", timeout=30).json()
        assert job["status"] == "submitted"
        ready = api.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "ok")
    assert tenant.key not in (tmp_path / "log").read_text("utf-8")


def test_a_chunked_body_over_the_bound_is_413(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api:
        response = requests.post(
            f"{api.address}/batch/v1/jobs",
            data=iter([b'{"model": "'] + [b"x" * 65_536] * 32 + [b'"}']),
            headers={"Authorization": f"Bearer {tenant.key}"},
            timeout=30,
        )

        assert response.status_code == 413


def test_it_starts_while_its_servers_are_away_and_says_so(
    api_environment: dict[str, str], tmp_path: Path
) -> None:
    away = {
        "ANEX_DATABASE_API_URL": "postgresql://anex_api@127.0.0.1:1/anex",
        "ANEX_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    with serve_api({**api_environment, **away}, tmp_path / "log") as api:
        ready = api.get("/readyz")

        assert ready.status_code == 503
        assert ready.json()["parts"] == {
            "database": "unavailable",
            "schema": "unavailable",
            "broker": "unavailable",
            "storage": "ok",
        }


def test_an_unusable_setting_is_told_at_the_start(api_environment: dict[str, str]) -> None:
    result = subprocess.run(
        GUNICORN,
        cwd=ROOT,
        env={**os.environ, **api_environment, "ANEX_API_PORT": "many", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode != 0
    assert "ANEX_API_PORT holds 'many'" in result.stderr


def test_the_process_imports_no_model_library(api_environment: dict[str, str]) -> None:
    code = (
        "import sys, api.wsgi; print(sorted({'torch', 'transformers', 'vllm', 'workers'} & set(sys.modules)))"
    )

    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **api_environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "bad_request"),
    ],
)
def test_what_is_not_http_is_answered_in_the_same_shape(
    api_environment: dict[str, str], tmp_path: Path, raw: bytes, status: int, code: str
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api:
        host, _, port = api.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(raw)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            body = json.loads(answer.read())
    assert answer.status == status
    assert body["error"] == {"code": code, "message": body["detail"]}
    assert (answer.headers["X-Request-Id"] or "").startswith("req_")
