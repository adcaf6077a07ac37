"""Request bodies: strict JSON within a bound, ``null`` the same as absent, and faults in the contract's shape.

orjson reads them: it refuses what is not UTF-8, lone surrogates, NaN, and nesting that would exhaust the stack. The NUL
character is refused here: Postgres stores no text that holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import orjson
from gunicorn.http.errors import ParseException
from webargs.flaskparser import FlaskParser
from werkzeug.exceptions import BadRequest, RequestEntityTooLarge

from api.errors import ShapeInvalid
from api.request_frame import BODY_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Request
    from marshmallow import Schema, ValidationError

BODY_READ_BYTES = BODY_MAX_BYTES + 1
"""What is read of a body at most. werkzeug cuts a chunked one there without a word: the byte more tells that there is more."""

_LOCATION = "body"


class BodyParser(FlaskParser):
    """Reads the body as JSON whatever its declared type: ``curl -d`` declares a form."""

    def load_json(self, req: Request, schema: Schema) -> Any:  # noqa: ARG002 - webargs' signature
        """Return the body's object without its null fields; an empty body is an empty object."""
        raw = _read(req)
        declared_bytes = req.content_length or 0
        if max(len(raw), declared_bytes) > BODY_MAX_BYTES:
            raise RequestEntityTooLarge
        if len(raw) < declared_bytes:  # what never came must not count as nothing to say
            raise BadRequest
        if not raw.strip():
            return {}
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise ShapeInvalid({_LOCATION: [f"not valid JSON: {error}"]}) from error
        if not isinstance(value, dict):
            raise ShapeInvalid({_LOCATION: ["must be a JSON object"]})
        if any("\x00" in text for text in _walk_texts(value)):
            raise ShapeInvalid({_LOCATION: ["must not hold the NUL character (\\u0000)"]})
        return {name: each for name, each in value.items() if each is not None}

    def handle_error(
        self,
        error: ValidationError,
        req: Request,  # noqa: ARG002
        schema: Schema,  # noqa: ARG002
        *,
        error_status_code: int | None,  # noqa: ARG002
        error_headers: Any,  # noqa: ARG002
    ) -> NoReturn:
        """Raise ``ShapeInvalid`` with each field's messages."""
        messages = error.normalized_messages()["json"]  # type: ignore[no-untyped-call] # the library ships none
        raise ShapeInvalid({name: _flatten(told) for name, told in messages.items()}) from error


def _read(req: Request) -> bytes:
    """Return the body's bytes. gunicorn reads chunks only now, and says in its own way that they are none."""
    try:
        return req.get_data()
    except ParseException as error:
        raise BadRequest from error


def _walk_texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value, keys included, without recursion."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            yield from each
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)


def _flatten(told: Any) -> list[str]:
    """Return one list of messages for a field, those of its parts included."""
    if isinstance(told, dict):
        return [message for part in told.values() for message in _flatten(part)]
    return [str(each) for each in told] if isinstance(told, list) else [str(told)]
