"""Marshmallow fields that take a JSON value for what it is and convert nothing.

The library's own turn "5" into 5, 1 into true and 3 into "3": a client's mistake would pass until it costs money.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from marshmallow import ValidationError, fields


class Text(fields.String):
    """A JSON string."""

    default_error_messages = {"invalid": "must be a string"}  # noqa: RUF012 - as the library declares it


class Object(fields.Dict):
    """A JSON object of any content."""

    default_error_messages = {"invalid": "must be an object"}  # noqa: RUF012 - see above


class StrictBoolean(fields.Boolean):
    """``true`` or ``false``."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if not isinstance(value, bool):
            raise ValidationError("must be true or false")
        return super()._deserialize(value, attr, data, **kwargs)


class StrictNumber(fields.Float):
    """A finite JSON number, whole or not."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValidationError("must be a number")
        return super()._deserialize(value, attr, data, **kwargs)


class StrictInteger(fields.Integer):
    """A JSON number without a fraction: 5, and neither "5" nor 5.0."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strict=True, error_messages={"invalid": "must be a whole number"}, **kwargs)


class Timestamp(fields.DateTime):
    """A time in an answer: RFC 3339, in UTC, with its offset."""

    def _serialize(self, value: datetime | None, attr: str | None, obj: Any, **_kwargs: Any) -> Any:  # noqa: ARG002
        return None if value is None else value.astimezone(UTC).isoformat()
