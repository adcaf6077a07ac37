"""What counts as a JSON Schema is what the metaschema says, its patterns and formats left to the grammar backend."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anex.rows.response_format import find_format_fault
from anex.rows.schema_keywords import find_invalid_place

METASCHEMA = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
KEYWORDS = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "$vocabulary",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "default",
    "definitions",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "deprecated",
    "description",
    "else",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "readOnly",
    "required",
    "then",
    "title",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "writeOnly",
]
keywords = st.sampled_from([*KEYWORDS, "unknown"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([0.5, 2.0, -0.0])
    | st.sampled_from(["string", "object", "a", "", "#", "x#y"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | st.just("a"), inner, max_size=3),
    max_leaves=10,
)
schemas = st.dictionaries(keywords, values, max_size=3)


@settings(derandomize=True, max_examples=1000)
@given(schema=schemas)
def test_a_schema_is_valid_where_the_metaschema_says_so(schema: dict[str, Any]) -> None:
    assert (find_invalid_place(schema) is None) == METASCHEMA.is_valid(schema)


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize(
    "value", [None, True, 0, 1.5, "", "string", [], ["a", "a"], [{}], {}, {"a": 5}, {"a": {}}]
)
def test_every_keyword_takes_what_the_metaschema_says(keyword: str, value: Any) -> None:
    assert (find_invalid_place({keyword: value}) is None) == METASCHEMA.is_valid({keyword: value})


@settings(derandomize=True, max_examples=200)
@given(pattern=st.text("ab.*+?(){}|[]^$\\19,:<=!pLzx", max_size=30) | st.text(max_size=10))
@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_no_pattern_is_looked_at(keyword: str, pattern: str) -> None:
    value = pattern if keyword == "pattern" else {pattern: {}}
    definition = {"name": "n", "schema": {keyword: value}}
    fault = find_format_fault({"type": "json_schema", "json_schema": definition})

    assert fault is None or "NUL" in fault or "surrogate" in fault


@pytest.mark.parametrize(
    "pattern",
    ["(?i)" + "[!-\uffff]" * 9000, "(" * 5000, "a{99999999999999999999}", r"^\p{L}+$", r"\z", r"\x{41}"],
)
def test_python_compiles_no_pattern_of_a_caller(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    def compile_nothing(*_: Any) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(re, "_compile", compile_nothing)
    schema = {"format": "regex", "pattern": pattern, "patternProperties": {pattern: {"pattern": pattern}}}
    definition = {"name": "n", "schema": {**schema, "default": pattern}}
    fault = find_format_fault({"type": "json_schema", "json_schema": definition})

    assert fault is None or "over 64 KiB" in fault
