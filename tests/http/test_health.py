"""The probes: alive, and ready part by part; the document without a key; and what the workers count, at a port of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from anex.db import Database
from anex.errors import BrokerUnavailable
from config.environment import SettingsInvalid
from config.settings import load_settings
from tests.support.served_api import GUNICORN, ROOT, free_port, serve_api
from tests.support.spine import RecordingDispatcher
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from flask import Flask

    from tests.support.servers import DatabaseUrls


class DeafDispatcher(RecordingDispatcher):
    """A broker that does not answer."""

    def run_queue_length(self, model_queue: str) -> int:
        raise BrokerUnavailable(f"no answer about {model_queue} from 10.0.0.1")


def readiness_of(app: Flask) -> tuple[int, dict[str, str]]:
    response = app.test_client().get("/readyz")
    assert "10.0.0.1" not in response.get_data(as_text=True)
    return response.status_code, response.get_json()["parts"]


def test_a_process_that_answers_is_alive(app: Flask) -> None:
    response = app.test_client().get("/healthz")

    assert (response.status_code, response.get_json()) == (200, {"status": "ok"})


def test_ready_means_that_every_part_answers(app: Flask) -> None:
    assert readiness_of(app) == (
        200,
        {"database": "ok", "schema": "ok", "broker": "ok", "storage": "ok"},
    )


def test_each_part_that_is_away_is_named(make_app: Callable[..., Flask], unreachable_objects: Any) -> None:
    away = Database("postgresql://anex_api@127.0.0.1:1/anex", connect_timeout_seconds=1).open()
    try:
        assert readiness_of(make_app(database=away)) == (
            503,
            {"database": "unavailable", "schema": "unavailable", "broker": "ok", "storage": "ok"},
        )
    finally:
        away.close()
    assert readiness_of(make_app(dispatcher=DeafDispatcher()))[1]["broker"] == "unavailable"
    assert readiness_of(make_app(objects=unreachable_objects))[1]["storage"] == "unavailable"


def test_an_older_schema_is_not_ready(
    make_app: Callable[..., Flask], fresh_database_urls: DatabaseUrls
) -> None:
    with psycopg.connect(fresh_database_urls.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    database = Database(fresh_database_urls.api).open()
    try:
        assert readiness_of(make_app(database=database)) == (
            503,
            {"database": "ok", "schema": "unavailable", "broker": "ok", "storage": "ok"},
        )
    finally:
        database.close()


class HangingDispatcher(RecordingDispatcher):
    """A broker that is asked and keeps silent until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.let_go = threading.Event()

    def run_queue_length(self, model_queue: str) -> int:
        self.asked += 1
        self.let_go.wait(60)
        return len(model_queue)


def test_a_part_that_hangs_is_named_and_asked_once_however_often_probes_come(
    make_app: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.health.PARTS_TIMEOUT_SECONDS", 0.01)
    hanging = HangingDispatcher()
    app = make_app(dispatcher=hanging)
    wait_until(lambda: readiness_of(app)[1]["storage"] == "ok", what="the other parts answer")
    try:
        for _ in range(5):
            status, parts = readiness_of(app)
            assert (status, parts["broker"]) == (503, "unavailable")
        assert hanging.asked == 1
    finally:
        hanging.let_go.set()

    monkeypatch.setattr("api.health.PARTS_TIMEOUT_SECONDS", 30.0)
    wait_until(lambda: readiness_of(app)[0] == 200, what="it is ready once the part answers")


def test_the_document_is_the_same_as_json_and_as_yaml(app: Flask) -> None:
    as_json = app.test_client().get("/openapi.json")
    as_yaml = app.test_client().get("/openapi.yaml")

    assert as_json.get_json() == yaml.safe_load(as_yaml.get_data(as_text=True))
    assert as_json.get_json()["openapi"].startswith("3.1")


@pytest.fixture
def environment(api_environment: dict[str, str]) -> dict[str, str]:
    """Return the settings of an API of two workers whose Redis is away."""
    return {
        **api_environment,
        "ANEX_REDIS_URL": "redis://127.0.0.1:1/0",
        "ANEX_API_WORKERS": "2",
        "ANEX_API_PORT": str(free_port()),
        "ANEX_METRICS_PORT": str(free_port()),
    }


def read_count(environment: dict[str, str], name: str, **labels: str) -> float:
    """Return the sum of a counter's samples that carry ``labels``."""
    page = requests.get(f"http://127.0.0.1:{environment['ANEX_METRICS_PORT']}/metrics", timeout=30).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def list_workers(parent: int) -> set[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("utf-8")
    return {int(child) for child in children.split()}


def test_the_sum_of_what_workers_count_is_served_at_a_port_of_its_own_and_outlives_them(
    environment: dict[str, str], tmp_path: Path
) -> None:
    files = tmp_path / "metrics" / f"api-{environment['ANEX_API_PORT']}"
    files.mkdir(parents=True)
    (files / "counter_77.db").write_bytes(b"left by an earlier start")
    sent = 0

    def knock() -> None:
        nonlocal sent
        assert api.get("/batch/v1/jobs/x", key="sk-unknown").status_code == 401
        sent += 1

    def have_both_counted() -> bool:
        knock()
        return {file.name for file in files.iterdir()} == {"counter_0.db", "counter_1.db"}

    with serve_api(environment, tmp_path / "log") as api:
        parent = api.process.pid
        wait_until(have_both_counted, what="both workers have counted")
        assert api.get("/metrics").status_code == 404

        before = list_workers(parent)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: len(list_workers(parent) - before) == 1, what="another worker takes the place")
        for _ in range(20):
            knock()

        refused = {"method": "GET", "route": "/batch/v1/jobs/<job_id>", "status": "401"}
        assert read_count(environment, "anex_http_requests_total", **refused) == sent
        # Once before a key is looked up, and once to count that it was a bad one. A counter that gunicorn's parent had made, by
        # loading the application with its worker class, would count for nobody.
        assert read_count(environment, "anex_rate_limits_skipped_total") == 2 * sent
        assert len(list(files.iterdir())) == 2


def test_a_port_that_is_taken_is_told_at_the_start(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", int(environment["ANEX_METRICS_PORT"]))):
        ended = subprocess.run(
            GUNICORN,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert ended.returncode != 0
    assert "set ANEX_METRICS_HOST and ANEX_METRICS_PORT" in ended.stderr


def test_without_a_port_nothing_is_served_and_no_file_is_written(
    environment: dict[str, str], tmp_path: Path
) -> None:
    port = environment["ANEX_METRICS_PORT"]
    with serve_api(environment | {"ANEX_METRICS_PORT": ""}, tmp_path / "log"):
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)

        assert not (tmp_path / "metrics").exists()


def test_the_limit_is_a_setting(tmp_path: Path) -> None:
    folder = {"ANEX_DATA_DIR": str(tmp_path)}

    assert load_settings(folder).rate_limit == "20 per 2 second"
    assert load_settings(folder | {"ANEX_RATE_LIMIT": "off"}).rate_limit is None
    assert load_settings(folder | {"ANEX_RATE_LIMIT": "5/minute"}).rate_limit == "5/minute"
    assert load_settings(folder).trusted_proxies == 0
    assert load_settings(folder | {"ANEX_TRUSTED_PROXIES": "2"}).trusted_proxies == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("RATE_LIMIT", value) for value in ("fast", "0 per second", "-1 per second", "1/second; 2/minute")),
        *(("TRUSTED_PROXIES", value) for value in ("-1", "1.5", "all")),
        *(("METRICS_PORT", value) for value in ("0", "70000")),
    ],
)
def test_an_unusable_setting_is_told(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings({"ANEX_DATA_DIR": str(tmp_path), f"ANEX_{name}": value})

    assert [fault.startswith(f"ANEX_{name} holds {value!r}") for fault in caught.value.faults] == [True]
