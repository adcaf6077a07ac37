"""The shape of response_format."""

from __future__ import annotations

from typing import Any

import pytest

from anex.rows.response_format import find_answer_fault, find_format_fault


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
        schema({"const": "x" * (60 << 10)}),
        schema({"minItems": 10_000, "enum": [1] * 10_000}),
        schema({"const": {"minItems": 10_001}, "properties": {"minItems": {}, "enum": {"type": "null"}}}),
        schema({"pattern": "a{1000000}"}),
        schema({"maximum": 10**30}),
        schema({"pattern": "\\\\u0000"}),
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
        (schema({}, **{"z" * 65 + "\x00": 1}), f"unknown field '{'z' * 63}…'"),
        (schema({}, description=[]), ".description must be a string"),
        (schema({"required": 5}), "not a valid JSON Schema at $.required"),
        (schema({"type": "nothing"}), "not a valid JSON Schema at $.type"),
        (schema(nest(33)), "nests deeper than 32 levels"),
        (schema(nest(100_000)), "nests deeper than 32 levels"),
        (schema({"const": "x" * (64 << 10)}), ".json_schema is over 64 KiB"),
        (schema({"const": "\N{SNOWMAN}" * (22 << 10)}), ".json_schema is over 64 KiB"),
        (schema({}, description="x" * (64 << 10)), ".json_schema is over 64 KiB"),
        (schema({"const": "a\x00"}), "holds a NUL character"),
        (schema({"const": "a\\\x00"}), "holds a NUL character"),
        (schema({"const": "\ud800"}), "holds half of a surrogate pair"),
        (schema({"const": float("nan")}), "holds a number that JSON can't carry"),
        (schema({"const": 10**5000}), "holds a number that JSON can't carry"),
        (schema({"enum": [1] * 10_001}), ".schema.enum is over 10000"),
        (schema({"items": {"minItems": 1e9}}), ".schema.items.minItems is over 10000"),
        (schema({"properties": {"enum": {"maxLength": 10_001}}}), ".properties.enum.maxLength is over 10000"),
        (schema({"anyOf": [{}, {"not": {"maxContains": 10_001}}]}), ".anyOf.not.maxContains is over 10000"),
        (schema({"$defs": {"d\n" + "d" * 99: {"minItems": 10_001}}}), "ddd….minItems is over 10000"),
        (schema({"properties": {"p" * 999: {"type": 5}}}), "not a valid JSON Schema at $.properties.pppp"),
    ],
)
def test_malformed(malformed: Any, told: str) -> None:
    fault = find_format_fault(malformed)
    assert fault is not None
    assert told in fault
    assert len(fault) < 200
    assert fault.isprintable()


@pytest.mark.parametrize("count", ["Items", "Length", "Properties", "Contains"])
@pytest.mark.parametrize("bound", ["min", "max"])
def test_every_count_is_bounded(bound: str, count: str) -> None:
    keyword = bound + count
    place = f"response_format.json_schema.schema.{keyword}"

    assert find_format_fault(schema({keyword: 10_000})) is None
    assert find_format_fault(schema({keyword: 10_001})) == f"{place} is over 10000"


def test_a_body_of_nested_lists_or_of_many_names_is_told_apart_early() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    wide: dict[str, Any] = {f"name{number}": [] for number in range(80_000)}

    assert "nests deeper" in str(find_format_fault(schema({"const": deep})))
    assert "over 64 KiB" in str(find_format_fault(schema({"const": wide})))


@pytest.mark.parametrize(
    ("value", "answer"),
    [({"multipleOf": 0.5}, "1" + "0" * 400), ({"multipleOf": 10**400}, "0.5")],
)
def test_an_answer_whose_number_overflows_is_told_not_raised(value: Any, answer: str) -> None:
    assert find_answer_fault(schema(value), answer) == "the answer could not be checked against the schema"


def test_options_of_the_grammar_backend_are_not_a_callers_to_set() -> None:
    """They turned a schema that nothing satisfies into one that anything does."""
    schema = {"x-guidance": {"lenient": True}, "not": {}}
    fault = find_format_fault({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}})
    assert fault is not None
    assert "'x-guidance', which is no keyword of JSON Schema" in fault
