"""Shapes of ``/inputs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marshmallow import post_load
from marshmallow.fields import Dict, String
from marshmallow.validate import Length, OneOf

from anex.inputs.model import InputRequest, InputStatus
from anex.regions import REGIONS
from api.fields import Text, Timestamp
from api.schema import INPUT_ID, INPUT_URI, TIME, AnswerSchema, RequestSchema, about

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_CHARACTERS_MAX = 8192


class InputRequestSchema(RequestSchema):
    """Body of ``POST /inputs``."""

    format = Text(
        validate=OneOf(["jsonl"], error="must be 'jsonl'"),
        allow_none=True,
        metadata=about("The file's format. Needed for a direct upload.", example="jsonl"),
    )
    source_url = Text(
        validate=Length(max=URL_CHARACTERS_MAX, error="must have at most {max} characters"),
        allow_none=True,
        metadata=about(
            "An https:// address to copy the file from. Without it, the answer is an upload form.",
            example="https://bucket.example.com/input.jsonl",
        ),
    )
    callback_url = Text(
        validate=Length(max=URL_CHARACTERS_MAX, error="must have at most {max} characters"),
        allow_none=True,
        metadata=about(
            "An https:// address that is told when the copy ends; with source_url only.",
            example="https://hooks.example.com/ingest",
        ),
    )
    data_residency = Text(
        validate=OneOf(REGIONS, error="must be 'world' or 'eu'"),
        allow_none=True,
        metadata=about(
            "Where the file is stored; by default the organization's own region.", example="world"
        ),
    )

    @post_load
    def make(self, data: Mapping[str, Any], **_kwargs: Any) -> InputRequest:
        """Return what the core takes."""
        return InputRequest(**data)


class CreatedInputSchema(AnswerSchema):
    """Answer of ``POST /inputs``: a form to send the file with, or a copy that is about to begin."""

    id = String(attribute="input.id", metadata=about("The input's id.", example=INPUT_ID))
    status = String(
        attribute="input.reported_status",
        validate=OneOf([status.value for status in InputStatus]),
        metadata=about(
            "`awaiting_upload`, or `pending` when it is copied from a source_url.", example="awaiting_upload"
        ),
    )
    upload_url = String(
        allow_none=True,
        metadata=about(
            "Uploads only: POST a multipart form here, every entry of `fields`, then the file as `file`, last.",
            example="https://s3.example.com/anex-world",
        ),
    )
    form_fields = Dict(
        data_key="fields",
        attribute="fields",
        keys=String(),
        values=String(),
        allow_none=True,
        metadata=about("Uploads only: the form's fields, in order.", example={"key": "inputs/…"}),
    )
    expires_at = Timestamp(
        attribute="input.expires_at",
        allow_none=True,
        metadata=about("Uploads only: the upload must begin before this time.", example=TIME),
    )
    callback_secret = String(
        allow_none=True,
        metadata=about(
            "What callbacks are signed with, when there is a callback_url. It is never shown again.",
            example="whsec_…",
        ),
    )
    input_s3_uri = String(
        attribute="input.object_uri", metadata=about("Another name of the input.", example=INPUT_URI)
    )


class InputSchema(AnswerSchema):
    """Answer of ``GET /inputs/{id}``."""

    id = String(metadata=about("The input's id.", example=INPUT_ID))
    status = String(
        attribute="reported_status",
        validate=OneOf([status.value for status in InputStatus]),
        metadata=about("A job can be submitted once it is `ready`.", example="ready"),
    )
    input_s3_uri = String(
        attribute="object_uri", metadata=about("Another name of the input.", example=INPUT_URI)
    )
    error = String(allow_none=True, metadata=about("Why the input failed."))
    expires_at = Timestamp(
        allow_none=True,
        metadata=about(
            "While awaiting the upload: when it must have begun. While ready: until when the file is kept.",
            example=TIME,
        ),
    )
