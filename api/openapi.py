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
from api.batch.inputs import inputs
from api.batch.jobs import jobs
from api.fields import StrictBoolean, StrictInteger, StrictNumber, Timestamp
from api.schema import ErrorSchema

if TYPE_CHECKING:
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
        "carries `detail` and `error.code`; every answer carries `X-Request-Id`."
    )
}


class _Api(Api):  # type: ignore[misc] # see the import
    """flask-smorest without its error handlers (``api.errors`` answers every fault) and without parts not used here."""

    ERROR_SCHEMA = ErrorSchema

    def _register_error_handlers(self) -> None:
        pass

    def _register_pagination_header(self) -> None:
        pass

    def _register_etag_headers(self) -> None:
        pass


def register_documented_routes(app: Flask) -> None:
    """Register the routes of the contract and the document that describes them."""
    app.config.update(
        API_TITLE="anex batch API", API_VERSION=anex.__version__, OPENAPI_VERSION=OPENAPI_VERSION
    )
    api = _Api(app, spec_kwargs={"info": _INFO, "servers": [{"url": "/"}], "security": [{"bearer": []}]})
    for field, (json_type, json_format) in _TYPES.items():
        api.register_field(field, json_type, json_format)
    api.spec.components.security_scheme("bearer", {"type": "http", "scheme": "bearer"})
    for blueprint in (inputs, jobs):
        api.register_blueprint(blueprint)
    app.register_blueprint(_make_document_routes(_sort_answers(api.spec.to_dict())))


def _sort_answers(document: dict[str, Any]) -> dict[str, Any]:
    """Put each operation's answers in the order of their statuses."""
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict):
                operation["responses"] = dict(sorted(operation["responses"].items()))
    return document


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
    register_documented_routes(bare)
    sys.stdout.write(bare.test_client().get("/openapi.json").get_data(as_text=True))
