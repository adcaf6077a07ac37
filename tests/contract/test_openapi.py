"""The OpenAPI document: valid, the same as the reviewed copy, and true of every operation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from flask import Flask
from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.batch.input_schemas import InputRequestSchema
from api.batch.submit_schema import SubmitRequestSchema
from api.errors import REGION_ORIGINS
from api.openapi import register_documented_routes

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    register_documented_routes(app, REGION_ORIGINS)
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
    scheme = document["components"]["securitySchemes"]["bearer"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert {"200", "401", "422", "429", "500", "503", "default"} <= set(operation["responses"])
    for status, response in operation["responses"].items():
        if status == "default":
            continue
        assert response["description"]
        name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert (name == "ErrorBody") == (int(status) >= 400)
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


def test_the_document_says_where_the_api_is(document: dict[str, Any]) -> None:
    urls = [server["url"] for server in document["servers"]]

    assert urls == ["/", "https://api.anex.sh", "https://api-eu.anex.sh"]
    assert all(server["description"] for server in document["servers"])
    assert document["info"]["description"]


@pytest.mark.parametrize(("path", "method"), OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_is_explained(document: dict[str, Any], path: str, method: str) -> None:
    operation = document["paths"][path][method]
    parameters = document["paths"][path].get("parameters", [])

    assert operation["summary"]
    assert len(operation["description"]) > len(operation["summary"])
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    assert [bool(tags[name]) for name in operation["tags"]] == [True]
    assert [parameter["name"] for parameter in parameters] == re.findall(r"{(\w+)}", path)
    for parameter in parameters:
        assert parameter["description"]
        assert parameter["example"]


@pytest.mark.parametrize(("path", "method"), OPERATIONS.values(), ids=OPERATIONS)
def test_every_answer_names_its_headers(document: dict[str, Any], path: str, method: str) -> None:
    more = {"401": {"WWW-Authenticate"}, "429": {"Retry-After"}, "503": {"Retry-After"}}

    for status, answer in document["paths"][path][method]["responses"].items():
        response = resolve(document, answer)
        assert set(response["headers"]) == {"X-Request-Id"} | more.get(status, set())
        for header in response["headers"].values():
            assert resolve(document, header)["description"]
            assert resolve(document, header)["required"]


LINKS = {
    "createInput": {"getInput", "submitJob by input_id", "submitJob by input_s3_uri"},
    "getInput": {"submitJob by input_id", "submitJob by input_s3_uri"},
    "submitJob": {"getJob", "approveJob", "cancelJob", "getResult", "deleteData"},
    "getJob": {"approveJob", "cancelJob", "getResult", "deleteData"},
    "approveJob": {"getJob", "cancelJob", "getResult", "deleteData"},
    "cancelJob": {"getJob", "getResult", "deleteData"},
    "getResult": {"deleteData"},
    "deleteData": {"getJob", "getResult"},
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_success_leads_on(document: dict[str, Any], name: str) -> None:
    """A link takes a field that the answer has, and gives it to a parameter or a body's field of the operation it names."""
    path, method = OPERATIONS[name]
    responses = document["paths"][path][method]["responses"]

    for status, answer in responses.items():
        links = answer.get("links", {})
        assert {describe_link(link) for link in links.values()} == (LINKS[name] if status < "3" else set())
        for link in links.values():
            assert link["description"]
            answered = resolve(document, answer["content"]["application/json"]["schema"])["properties"]
            target_path, target_method = OPERATIONS[link["operationId"]]
            target = document["paths"][target_path]
            for field, source in {**link.get("parameters", {}), **link.get("requestBody", {})}.items():
                assert source.removeprefix("$response.body#/") in answered
                assert field in name_what_is_taken(document, target, target_method)


def describe_link(link: dict[str, Any]) -> str:
    return " by ".join([link["operationId"], *link.get("requestBody", ())])


def name_what_is_taken(document: dict[str, Any], path: dict[str, Any], method: str) -> set[str]:
    parameters = {parameter["name"] for parameter in path.get("parameters", [])}
    if "requestBody" not in path[method]:
        return parameters
    body = path[method]["requestBody"]["content"]["application/json"]["schema"]
    return parameters | set(resolve(document, body)["properties"])


def resolve(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Follow a part of the document that stands elsewhere."""
    if "$ref" not in part:
        return part
    found: Any = document
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return dict(found)


def walk_examples(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield where each example stands, its schema, and the example."""
    for path, methods in document["paths"].items():
        for parameter in methods.get("parameters", []):
            yield path, parameter["schema"], parameter["example"]
        for operation in (each for method, each in methods.items() if method != "parameters"):
            body = operation.get("requestBody", {"content": {}})["content"].get("application/json", {})
            for name, example in body.get("examples", {}).items():
                yield f"{operation['operationId']}, {name}", body["schema"], example["value"]
    for name, header in document["components"]["headers"].items():
        yield name, header["schema"], header["example"]
    for name, schema in document["components"]["schemas"].items():
        for field, field_schema in schema.get("properties", {}).items():
            for example in field_schema.get("examples", []):
                yield f"{name}.{field}", field_schema, example


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    examples = list(walk_examples(document))
    assert {"createInput, upload", "submitJob, plain", "Job.status", "Retry-After"} <= {
        place for place, *_ in examples
    }

    for place, schema, example in examples:
        # References lead into the document, so it is the root of each schema.
        validator = Draft202012Validator({**document, **schema}, format_checker=FormatChecker())
        assert [error.message for error in validator.iter_errors(example)] == [], place


def test_every_body_has_an_example_that_the_api_takes(document: dict[str, Any]) -> None:
    bodies = {"createInput": InputRequestSchema(), "submitJob": SubmitRequestSchema()}
    for methods in document["paths"].values():
        for operation in (each for method, each in methods.items() if method != "parameters"):
            if "requestBody" not in operation:
                continue
            examples = operation["requestBody"]["content"]["application/json"]["examples"]
            assert examples
            for example in examples.values():
                assert bodies[operation["operationId"]].load(example["value"])


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
