"""The OpenAPI 3.1 document, made from routes and schemas, served as JSON and as YAML.

``python -m api.openapi > docs/openapi.json`` writes the reviewed copy; a test compares the two.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import yaml
from flask import Blueprint, Flask, Response
from flask_smorest import Api  # type: ignore[import-untyped] # the library ships no types

import anex
from anex.inputs.model import InputStatus
from anex.jobs.transitions import Status
from anex.regions import REGIONS
from api.batch.inputs import inputs
from api.batch.jobs import jobs
from api.blueprint import refer_to_headers
from api.errors import REGION_ORIGINS
from api.fields import StrictBoolean, StrictInteger, StrictNumber, Timestamp
from api.schema import INPUT_ID, JOB_ID, ErrorBodySchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from marshmallow.fields import Field

OPENAPI_VERSION = "3.1.0"

_TYPES: dict[type[Field[Any]], tuple[str, str | None]] = {
    StrictBoolean: ("boolean", None),
    StrictInteger: ("integer", None),
    StrictNumber: ("number", None),
    Timestamp: ("string", "date-time"),
}

_INFO = {
    "description": (
        "Runs an open language model over a whole file of rows as one job. Every request needs an API key; every error body "
        "carries `detail` and `error.code`; every answer carries `X-Request-Id`: the request's own, if it sent one of up to 128 "
        "letters, digits, dots, dashes and underscores. A key may make 10 requests a second, with bursts of 20."
    )
}

_SECURITY = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key of the organization: `Authorization: Bearer sk-…`. Any of its keys may do everything here.",
}

_HEADERS = {
    "X-Request-Id": ("The request's id; name it when you report a fault.", "string", "req_2f1c9a4e5b6d7081"),
    "Retry-After": ("Whole seconds to wait before the next try.", "integer", 1),
    "WWW-Authenticate": ("The scheme to send the key with.", "string", "Bearer"),
}

_PARAMETERS = {"input_id": ("The input's id.", INPUT_ID), "job_id": ("The job's id.", JOB_ID)}

_DESCRIPTIONS = {
    "createInput": (
        "With `format` alone the answer is a form to upload the file with. With `source_url` the file is copied from there. "
        "Poll the input until it is `ready`."
    ),
    "getInput": (
        "A job can be submitted once `status` is `ready`. Polling costs nothing but requests: once in some seconds is enough."
    ),
    "submitJob": (
        "The settings and the first bytes of the file are checked at once; the rows are checked in the job. Nothing is charged "
        "before the approval. Not guarded against repetition: look up what a timed-out submit did before you repeat it."
    ),
    "getJob": "Every field is always there, null while it has no value. Counts are null until the job has ended.",
    "approveJob": (
        "Only a job that is `cost_ready` can be approved. A repeated approval answers 409 and holds nothing twice."
    ),
    "cancelJob": (
        "A job with no work in flight is `cancelled` at once. One that runs answers `cancelling`: its rows in flight finish, and "
        "what was delivered is charged and can be downloaded. Once it is `finalizing` it is too late. One that is `estimating` "
        "is not cancelled, unless its data is kept in the EU: don't approve it, and it costs nothing."
    ),
    "getResult": "The file holds one line a row, in the order of the input. Ask again when the link has expired.",
    "deleteData": (
        "200 when everything is gone, 202 with a `message` while something is still to come. The job's record stays. "
        "Repeating it is harmless."
    ),
}

_BODIES: dict[str, dict[str, dict[str, Any]]] = {
    "createInput": {
        "upload": {"summary": "Upload a file", "value": {"format": "jsonl"}},
        "copy": {
            "summary": "Copy a file from a URL, and be told",
            "value": {
                "source_url": "https://bucket.example.com/input.jsonl",
                "callback_url": "https://hooks.example.com/ingest",
            },
        },
    },
    "submitJob": {
        "plain": {"summary": "Everything estimated", "value": {"input_id": INPUT_ID, "model": "qwen3.8-27b"}},
        "capped": {
            "summary": "A cap on the output, no thinking, JSON answers",
            "value": {
                "input_id": INPUT_ID,
                "model": "qwen3.8-27b",
                "max_output_tokens": 600,
                "reasoning": False,
                "response_format": {"type": "json_object"},
            },
        },
    },
}

_ENUMS: dict[str, Sequence[str]] = {
    "JobStatus": [status.value for status in Status],
    "EndStatus": ["done", "failed", "cancelled"],
    "InputStatus": [status.value for status in InputStatus],
    "InputFormat": ["jsonl"],
    "Region": REGIONS,
    "TaskType": ["chat", "embed", "decide"],
    "FailureCode": ["invalid_input", "internal_error"],
}

_FOLLOWERS = {
    "createInput": ("getInput", "submitJob"),
    "getInput": ("submitJob",),
    "submitJob": ("getJob", "approveJob", "cancelJob", "getResult", "deleteData"),
    "getJob": ("approveJob", "cancelJob", "getResult", "deleteData"),
    "approveJob": ("getJob", "cancelJob", "getResult", "deleteData"),
    "cancelJob": ("getJob", "getResult", "deleteData"),
    "getResult": ("deleteData",),
    "deleteData": ("getJob", "getResult"),
}
"""Which operations take what an operation's success has named."""


class _Api(Api):  # type: ignore[misc] # see the import
    """flask-smorest without its error handlers (``api.errors`` answers every fault) and without parts not used here."""

    ERROR_SCHEMA = ErrorBodySchema

    def _register_error_handlers(self) -> None:
        pass

    def _register_pagination_header(self) -> None:
        pass

    def _register_etag_headers(self) -> None:
        pass


def register_documented_routes(app: Flask, origins: Mapping[str, str]) -> None:
    """Register the routes of the contract and the document that describes them; ``origins`` are the regions' addresses."""
    app.config.update(
        API_TITLE="anex batch API", API_VERSION=anex.__version__, OPENAPI_VERSION=OPENAPI_VERSION
    )
    servers = [{"url": "/", "description": "The installation that serves this document."}]
    servers += [{"url": url, "description": f"The region {region}."} for region, url in origins.items()]
    api = _Api(app, spec_kwargs={"info": _INFO, "servers": servers, "security": [{"bearer": []}]})
    for field, (json_type, json_format) in _TYPES.items():
        api.register_field(field, json_type, json_format)
    api.spec.components.security_scheme("bearer", _SECURITY)
    for name, (description, json_type, example) in _HEADERS.items():
        header = {"description": description, "required": True}
        header |= {"schema": {"type": json_type}, "example": example}
        api.spec.components.header(name, header)
    for blueprint in (inputs, jobs):
        api.register_blueprint(blueprint)
    app.register_blueprint(_make_document_routes(_describe(api.spec.to_dict())))


def _describe(document: dict[str, Any]) -> dict[str, Any]:
    """Add what readers need beside the shapes, and put each operation's answers in the order of their statuses."""
    for path in document["paths"].values():
        for parameter in path.get("parameters", []):
            parameter["description"], parameter["example"] = _PARAMETERS[parameter["name"]]
        for method, operation in path.items():
            if method != "parameters":
                _describe_operation(operation)
    _share_enums(document["components"]["schemas"])
    fallback = document["components"]["responses"]["DEFAULT_ERROR"]
    fallback |= {"description": "Any other fault, in the same shape.", "headers": refer_to_headers(0)}
    return document


def _describe_operation(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    operation["description"] = _DESCRIPTIONS[name]
    operation["responses"] = dict(sorted(operation["responses"].items()))
    if "requestBody" in operation:
        operation["requestBody"]["content"]["application/json"]["examples"] = _BODIES[name]
    links = _make_links(name)
    for status in operation["responses"].keys() & {"200", "202"}:
        operation["responses"][status]["links"] = links


def _share_enums(schemas: dict[str, Any]) -> None:
    """Give each closed set of values one schema of its own, so that a generator makes one type of it, by a name of use."""
    shared = {frozenset(values): name for name, values in _ENUMS.items()}
    for schema in list(schemas.values()):
        for field, held in schema.get("properties", {}).items():
            name = shared.get(frozenset(held.get("enum", ())) - {None})
            if name is not None:
                schema["properties"][field] = _refer_to_enum(name, held)
    schemas.update({name: {"type": "string", "enum": list(values)} for name, values in _ENUMS.items()})


def _refer_to_enum(name: str, field: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in field.items() if key not in {"type", "enum"}}
    reference = {"$ref": f"#/components/schemas/{name}"}
    return kept | ({"anyOf": [reference, {"type": "null"}]} if None in field["enum"] else reference)


def _make_links(name: str) -> dict[str, dict[str, Any]]:
    """Return what can be asked next with a success of this operation; a submit takes either name of its input."""
    links: dict[str, dict[str, Any]] = {}
    for follower in _FOLLOWERS[name]:
        if follower == "submitJob":
            for field, source in (("input_id", "id"), ("input_s3_uri", "input_s3_uri")):
                taken = {"requestBody": {field: f"$response.body#/{source}"}}
                text = f"`{source}` is the new job's `{field}`; a `model` goes with it."
                links[f"{follower}By_{field}"] = {"operationId": follower, **taken, "description": text}
        else:
            parameter = "input_id" if follower == "getInput" else "job_id"
            taken = {"parameters": {parameter: "$response.body#/id"}}
            links[follower] = {"operationId": follower, **taken, "description": f"`id` is the `{parameter}`."}
    return links


def render_json(document: dict[str, Any]) -> str:
    """Return the document as it is served and kept."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _make_document_routes(document: dict[str, Any]) -> Blueprint:
    """Return the routes of the finished document; rendered once, since it never changes."""
    as_json = render_json(document)
    as_yaml = yaml.safe_dump(json.loads(as_json), sort_keys=False, allow_unicode=True)
    routes = Blueprint("openapi", __name__)
    routes.add_url_rule(
        "/openapi.json", "json", lambda: Response(as_json, content_type="application/json; charset=utf-8")
    )
    routes.add_url_rule(
        "/openapi.yaml", "yaml", lambda: Response(as_yaml, content_type="application/yaml; charset=utf-8")
    )
    return routes


if __name__ == "__main__":
    bare = Flask("anex")
    register_documented_routes(bare, REGION_ORIGINS)
    sys.stdout.write(bare.test_client().get("/openapi.json").get_data(as_text=True))
