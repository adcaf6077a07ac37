"""The probes: alive, and ready part by part; the document is served without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import yaml

from anex.db import Database
from anex.errors import BrokerUnavailable
from tests.support.spine import RecordingDispatcher

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
    assert readiness_of(app) == (200, {"database": "ok", "broker": "ok", "storage": "ok"})


def test_each_part_that_is_away_is_named(make_app: Callable[..., Flask], unreachable_objects: Any) -> None:
    away = Database("postgresql://anex_api@127.0.0.1:1/anex", connect_timeout_seconds=1).open()
    try:
        assert readiness_of(make_app(database=away)) == (
            503,
            {"database": "unavailable", "broker": "ok", "storage": "ok"},
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
        assert readiness_of(make_app(database=database))[1]["database"] == "unavailable"
    finally:
        database.close()


def test_the_document_is_the_same_as_json_and_as_yaml(app: Flask) -> None:
    as_json = app.test_client().get("/openapi.json")
    as_yaml = app.test_client().get("/openapi.yaml")

    assert as_json.get_json() == yaml.safe_load(as_yaml.get_data(as_text=True))
    assert as_json.get_json()["openapi"].startswith("3.1")
