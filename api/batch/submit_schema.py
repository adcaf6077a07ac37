"""Shape of ``POST /jobs``: everything that can be said about a submit without knowing its model or its input."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from marshmallow import ValidationError, post_load, validates_schema
from marshmallow.validate import Length, OneOf, Range

from anex.jobs.submit_rules import SubmitRequest
from anex.regions import REGIONS
from api.fields import Object, StrictBoolean, StrictInteger, StrictNumber, Text
from api.schema import INPUT_ID, INPUT_URI, NAME_CHARACTERS_MAX, RequestSchema, about

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTPUT_TOKENS_MAX = 32_768
"""The accepted range of a request; a model's own context may allow less."""


class SubmitRequestSchema(RequestSchema):
    """Body of ``POST /jobs``."""

    input_id = Text(
        allow_none=True,
        metadata=about("The input's id. Give exactly one of input_id and input_s3_uri.", example=INPUT_ID),
    )
    input_s3_uri = Text(allow_none=True, metadata=about("The input's other name.", example=INPUT_URI))
    model = Text(
        required=True,
        validate=Length(min=1, max=NAME_CHARACTERS_MAX, error="must have {min} to {max} characters"),
        error_messages={"required": "this field is required"},
        metadata=about("The id of a model on offer.", example="qwen3.8-27b"),
    )
    max_output_tokens = StrictInteger(
        validate=Range(1, OUTPUT_TOKENS_MAX, error="must be from 1 to 32768"),
        allow_none=True,
        metadata=about(
            "Output cap of each row, thinking included. Estimated when it is left out.", example=600
        ),
    )
    max_tokens = StrictInteger(
        validate=Range(1, OUTPUT_TOKENS_MAX, error="must be from 1 to 32768"),
        allow_none=True,
        metadata={**about("The former name of max_output_tokens.", example=600), "deprecated": True},
    )
    reasoning = StrictBoolean(
        allow_none=True, metadata=about("Whether rows think that don't say so themselves.", example=True)
    )
    reasoning_budget = StrictInteger(
        validate=Range(0, OUTPUT_TOKENS_MAX, error="must be from 0 to 32768"),
        allow_none=True,
        metadata=about(
            "Most thinking tokens of a row; 0 for no cap. Estimated when it is left out.", example=0
        ),
    )
    reasoning_effort = Text(
        validate=Length(min=1, max=NAME_CHARACTERS_MAX, error="must have {min} to {max} characters"),
        allow_none=True,
        metadata=about("How hard the model thinks: one of its levels.", example="low"),
    )
    video_fps = StrictNumber(
        validate=Range(0, min_inclusive=False, error="must be above 0"),
        allow_none=True,
        metadata={
            **about("Video frames sampled per second, on models that take a rate.", example=2),
            "exclusiveMinimum": 0,
        },
    )
    response_format = Object(
        allow_none=True,
        metadata=about("Structured output of every row.", example={"type": "json_object"}),
    )
    dimensions = StrictInteger(
        validate=Range(1, error="must be 1 or more"),
        allow_none=True,
        metadata=about("Width of the vectors; embedding models only.", example=1024),
    )
    data_residency = Text(
        validate=OneOf(REGIONS, error="must be 'world' or 'eu'"),
        allow_none=True,
        metadata=about(
            "Where the job's payload is stored and processed; the same as its input's.", example="world"
        ),
    )

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def check_pairs(self, data: Mapping[str, Any], original: Mapping[str, Any], **_kwargs: Any) -> None:
        """Refuse two names of the input, none, and two different caps, whatever else is wrong."""
        if ("input_id" in original) == ("input_s3_uri" in original):
            raise ValidationError("give exactly one of input_id and input_s3_uri", "input_id")
        caps = {data[name] for name in ("max_output_tokens", "max_tokens") if name in data}
        if len(caps) > 1:
            raise ValidationError("differs from max_output_tokens; give one of the two", "max_tokens")

    @post_load
    def make(self, data: Mapping[str, Any], **_kwargs: Any) -> SubmitRequest:
        """Return what the core takes; the cap goes by its present name."""
        cap = data.get("max_output_tokens", data.get("max_tokens"))
        known = {field.name: data.get(field.name) for field in fields(SubmitRequest)}
        return SubmitRequest(**{**known, "max_output_tokens": cap})
