"""The OpenAPI document: valid, the same as the reviewed copy, and true of every operation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.openapi import register_documented_routes

ROOT = Path(__file__).parents[2]
SNAPSHOT = ROOT / "docs" / "openapi.json"

OPERATIONS = {
    "createInput": ("/batch/v1/inputs", "post"),
    "getInput": ("/batch/v1/inputs/{input_id}", "get"),
    "submitJob": ("/batch/v1/jobs", "post"),
    "getJob": ("/batch/v1/jobs/{job_id}", "get"),
    "approveJob": ("/batch/v1/jobs/{job_id}/approve", "post"),
    "cancelJob": ("/batch/v1/jobs/{job_id}/cancel", "post"),
    "getResult": ("/batch/v1/jobs/{job_id}/result", "get"),
    "deleteData": ("/batch/v1/jobs/{job_id}/data", "delete"),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = Flask("anex")
    register_documented_routes(app)
    served: dict[str, Any] = app.test_client().get("/openapi.json").get_json()
    return served


def test_the_reviewed_copy_is_what_is_served(document: dict[str, Any]) -> None:
    """After a wanted change: ``python -m api.openapi > docs/openapi.json``, and review what differs."""
    assert json.loads(SNAPSHOT.read_text("utf-8")) == document


def test_the_command_writes_the_reviewed_copy() -> None:
    written = subprocess.run(
        [sys.executable, "-m", "api.openapi"], cwd=ROOT, capture_output=True, timeout=60, check=True
    )

    assert written.stdout == SNAPSHOT.read_bytes()


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(document).validate()


def test_there_are_the_eight_endpoints_and_no_other(document: dict[str, Any]) -> None:
    found = {
        operation["operationId"]: (path, method)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
    }

    assert found == OPERATIONS


@pytest.mark.parametrize(("path", "method"), OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_types_its_answers_and_errors(
    document: dict[str, Any], path: str, method: str
) -> None:
    operation = document["paths"][path][method]

    assert document["security"] == [{"bearer": []}]
    assert document["components"]["securitySchemes"]["bearer"] == {"type": "http", "scheme": "bearer"}
    assert {"200", "401", "422", "500", "503"} <= set(operation["responses"])
    for status, response in operation["responses"].items():
        if status == "default":
            continue
        name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert (name == "Error") == (int(status) >= 400)
        assert name in document["components"]["schemas"]


def test_every_field_of_the_poll_is_always_there(document: dict[str, Any]) -> None:
    """The reference's fields, and those that the rulings add."""
    job = document["components"]["schemas"]["Job"]
    reference = {
        *("id", "status", "est_input_tok", "est_output_tok", "est_cost_cents", "est_processing_seconds"),
        *("max_output_tokens", "reasoning_budget", "success_rows", "error_rows", "format_error_rows"),
        *("truncated_rows", "pending_rows", "created_at", "approved_at", "data_expires_at", "partial"),
        *("failure_code", "failure_reason", "model", "reasoning", "reasoning_effort", "task_type", "format"),
        *("response_format", "dimensions", "video_fps", "data_residency", "data_deleted_at"),
    }

    assert set(job["required"]) == reference | {"cost_cents", "finished_at", "max_tokens"}
    assert set(job["properties"]) == set(job["required"])


def test_examples_fit_their_types(document: dict[str, Any]) -> None:
    kinds: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
    }
    for schema in document["components"]["schemas"].values():
        for name, field in schema["properties"].items():
            types = (
                [field.get("type", "object")] if isinstance(field.get("type"), str) else field.get("type", [])
            )
            for example in field.get("examples", []):
                assert any(isinstance(example, kinds[kind]) for kind in types if kind != "null"), name


def test_the_api_imports_no_task_queue_and_no_model_library() -> None:
    code = (
        "import sys, api.app;"
        "print([name for name in ('celery', 'kombu', 'tasks', 'torch', 'transformers', 'vllm', 'workers')"
        " if name in sys.modules])"
    )

    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert found.stdout.strip() == "[]"
