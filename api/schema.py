"""What the shapes of bodies have in common, and the shape of an error.

A request schema checks types, bounds and which fields go together; whether a model takes a field is the core's to say. In an
answer every field is there: one without a value is null.
"""

from __future__ import annotations

from typing import Any

from marshmallow import INCLUDE, RAISE, Schema
from marshmallow.fields import Dict, Field, Nested, String
from marshmallow.validate import OneOf

from anex.regions import REGIONS

NAME_CHARACTERS_MAX = 256

JOB_ID = "job_01KBCDEFGHJKMNPQRSTVWXYZ01"
INPUT_ID = "inp_01KBCDEFGHJKMNPQRSTVWXYZ01"
INPUT_URI = f"s3://anex-world/inputs/org_01KBCDEFGHJKMNPQRSTVWXYZ01/{INPUT_ID}.jsonl"
TIME = "2026-12-01T10:30:00+00:00"
"""Examples, the same on every page."""


def about(description: str, *, example: Any = None) -> dict[str, Any]:
    """Return a field's metadata for the OpenAPI document."""
    return {"description": description, **({} if example is None else {"examples": [example]})}


class RequestSchema(Schema):
    """A request body: an unknown field is refused by its name."""

    class Meta:
        """Marshmallow's options."""

        unknown = RAISE

    error_messages = {"unknown": "unknown field"}  # noqa: RUF012 - marshmallow declares it as an instance's


class NothingSchema(RequestSchema):
    """The body of a request that takes none: empty, or an object without fields."""


class AnswerSchema(Schema):
    """A body that we send: every field is present, null where it has no value. More fields may come."""

    class Meta:
        """Marshmallow's options."""

        unknown = INCLUDE

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:  # noqa: ARG002
        """Document each field as always there and never sent to us."""
        field_obj.required = True
        field_obj.dump_only = True


class FaultSchema(AnswerSchema):
    """The machine's part of an error."""

    code = String(metadata=about("A stable name to match on.", example="job_not_found"))
    message = String(metadata=about("The same sentence as detail.", example="no job has this id"))


class ErrorBodySchema(Schema):
    """The body of every error."""

    class Meta:
        """Marshmallow's options."""

        unknown = INCLUDE

    detail = String(
        required=True, metadata=about("What is wrong, and the fix.", example="no job has this id")
    )
    error = Nested(FaultSchema, required=True)
    errors = Dict(
        metadata={
            **about("422 only: messages by field.", example={"model": ["this field is required"]}),
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        }
    )
    residency = String(
        validate=OneOf(REGIONS), metadata=about("421 only: the region that keeps the data.", example="eu")
    )
    api = String(metadata=about("421 only: where to send the request to.", example="https://api-eu.anex.sh"))
