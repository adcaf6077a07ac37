"""The shape of response_format."""

from __future__ import annotations

from typing import Any

import pytest

from anex.rows.response_format import find_format_fault


def schema(value: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": value, **fields}}


def nest(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"not": value}
    return value


@pytest.mark.parametrize(
    "well_formed",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "json_object", "json_schema": None},
        schema({}),
        schema({"type": "object"}, strict=True, description="d"),
        schema({"type": "object"}, strict=None),
        schema(nest(32)),
    ],
)
def test_well_formed(well_formed: dict[str, Any]) -> None:
    assert find_format_fault(well_formed) is None


@pytest.mark.parametrize(
    ("malformed", "told"),
    [
        (5, "must be an object"),
        ({}, ".type must be"),
        ({"type": "grammar"}, ".type must be"),
        ({"type": "text", "zz": 1}, "unknown field 'zz'"),
        ({"type": "text", "json_schema": {}}, "goes with type 'json_schema' only"),
        ({"type": "json_schema"}, "must be an object with a name and a schema"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, ".schema must be an object"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, ".name must be a non-empty string"),
        (schema({}, name=""), ".name must be a non-empty string"),
        (schema({}, strict="yes"), ".strict must be true or false"),
        (schema({}, zz=1), "unknown field 'zz'"),
        (schema({"required": 5}), "not a valid JSON Schema at $.required"),
        (schema({"type": "nothing"}), "not a valid JSON Schema at $.type"),
        (schema(nest(33)), "nests deeper than 32 levels"),
        (schema(nest(100_000)), "nests deeper than 32 levels"),
    ],
)
def test_malformed(malformed: Any, told: str) -> None:
    fault = find_format_fault(malformed)
    assert fault is not None
    assert told in fault
