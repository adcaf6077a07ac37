"""The smallest service that answers what the load asks: Flask, a pool, one statement a request.

No keys, no checks, no log, no files. It answers with the API's fields, from tables of the same columns in a schema of their own
(``prepare_tables``). gunicorn serves it with the API's own settings: ``bench.support.bare_gunicorn``.
"""

from __future__ import annotations

import os
import secrets
from typing import Any

import psycopg
from flask import Flask, request
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

DATABASE_URL = "BARE_DATABASE_URL"
"""The variable that holds the database's address."""

_MAKE_TABLES = """
CREATE SCHEMA bare;
GRANT USAGE ON SCHEMA bare TO anex_work;
CREATE TABLE bare.jobs (LIKE jobs INCLUDING DEFAULTS INCLUDING INDEXES);
CREATE TABLE bare.inputs (LIKE inputs INCLUDING DEFAULTS INCLUDING INDEXES);
GRANT ALL ON bare.jobs, bare.inputs TO anex_work;
"""

_FILL_TABLES = """
INSERT INTO bare.jobs SELECT * FROM jobs;
INSERT INTO bare.inputs SELECT * FROM inputs;
"""

_GET_JOB = """
SELECT id, status, est_input_tok, est_output_tok, est_cost_cents, est_processing_seconds, max_output_tokens, reasoning_budget,
       success_rows, error_rows, format_error_rows, truncated_rows, pending_rows, created_at, approved_at, finished_at,
       data_expires_at, data_deleted_at, failure_code, failure_reason, cost_cents, model, reasoning, reasoning_effort, task_type,
       response_format, dimensions, video_fps, region
FROM bare.jobs WHERE id = %s
"""
_GET_INPUT = "SELECT id, status, object_uri, error, data_expires_at FROM bare.inputs WHERE id = %s"
_SUBMIT = """
INSERT INTO bare.jobs (id, org_id, region, input_id, status, model, model_queue, task_type, samples_rows, created_at, rung_at)
VALUES (%s, 'org_bare', 'world', %s, 'submitted', %s, 'bare', 'chat', true, now(), now()) RETURNING id, status
"""
_CANCEL = "UPDATE bare.jobs SET status = 'cancelled' WHERE id = %s RETURNING id, status"


def prepare_tables(owner_url: str, work_url: str) -> None:
    """Make the tables and fill them with what the service's hold now."""
    with psycopg.connect(owner_url) as connection:
        connection.execute(_MAKE_TABLES)
    with psycopg.connect(work_url) as connection:
        connection.execute(_FILL_TABLES)


def make_app() -> Flask:
    """Return the application; its pool connects as the service's own does."""
    app = Flask("bare", static_folder=None)
    pool = ConnectionPool(
        os.environ[DATABASE_URL], min_size=0, max_size=8, kwargs={"row_factory": dict_row}, open=True
    )

    def answer(statement: str, *values: str) -> dict[str, Any]:
        with pool.connection() as connection:
            found: Any = connection.execute(statement, values).fetchone()
        return found or {}

    def submit() -> dict[str, Any]:
        asked = request.get_json()
        return answer(_SUBMIT, f"job_{secrets.token_hex(13)}", asked["input_id"], asked["model"])

    prefix = "/batch/v1"
    app.add_url_rule(f"{prefix}/jobs/<job_id>", "job", lambda job_id: answer(_GET_JOB, job_id))
    app.add_url_rule(f"{prefix}/inputs/<input_id>", "input", lambda input_id: answer(_GET_INPUT, input_id))
    app.add_url_rule(f"{prefix}/jobs", "submit", submit, methods=["POST"])
    app.add_url_rule(
        f"{prefix}/jobs/<job_id>/cancel", "cancel", lambda job_id: answer(_CANCEL, job_id), methods=["POST"]
    )
    return app
