"""Whatever stands as a schema is answered: statically, or by a child that compiles it or refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anex.grammar import GrammarChildren
from anex.rows.response_format import find_format_fault

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
TYPES = ("string", "integer", "number", "object", "array", "boolean", "null")

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


def extend(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return schemas around schemas: each keyword may be there, most with a value that fits."""
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(["a", "b", "enum", "\x00", "ä"]), inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "properties": named,
            "patternProperties": named,
            "$defs": named,
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
            "additionalProperties": inner | st.booleans(),
            "items": inner | st.booleans(),
            "prefixItems": some,
            "anyOf": some,
            "allOf": some,
            "oneOf": some,
            "not": inner,
            "$ref": st.sampled_from(["#", "#/$defs/a", "#/items", "https://example.invalid/"]),
        },
    )


leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(TYPES),
        "enum": st.lists(scalars, max_size=5),
        "const": anything,
        "pattern": st.text("ab.*+?(){}|[]^$\\19,", max_size=20),
        "format": st.sampled_from(["date", "email", "uuid", "zz"]),
        "multipleOf": st.integers(1, 10**7) | st.floats(1e-9, 1e9),
        "minimum": st.integers() | st.floats(allow_nan=False),
        "maximum": st.integers() | st.floats(allow_nan=False),
        **{count: st.integers(0, 10_001) for count in COUNTS},
    },
)
schemas = st.recursive(leaves, extend, max_leaves=8)


@pytest.fixture(scope="module")
def children() -> Iterator[GrammarChildren]:
    children = GrammarChildren(time_limit_seconds=1.0)
    yield children
    children.close()


def wrap(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


@given(value=anything | st.builds(wrap, anything) | st.builds(wrap, schemas))
def test_a_format_is_well_formed_or_has_a_fault(value: Any) -> None:
    fault = find_format_fault(value)

    assert fault is None or (fault.isprintable() and len(fault) < 200)


@settings(derandomize=True, max_examples=100)
@given(schema=schemas)
def test_what_is_well_formed_compiles_or_has_a_fault(
    children: GrammarChildren, schema: dict[str, Any]
) -> None:
    if find_format_fault(wrap(schema)) is not None:
        return
    fault = children.find_fault(wrap(schema))

    assert fault is None or (fault.isprintable() and len(fault) < 400)
    assert children.find_fault({"type": "json_object"}) is None
