"""Whether a JSON object is a JSON Schema: draft 2020-12's own schema for schemas, told to msgspec.

It says what the metaschema says, far faster than walking that, and without its ``format``s: a pattern of
a caller is compiled nowhere in Python, only by the grammar backend. The work is linear in the schema; depth and
size are bounded before (``anex.rows.response_format``). Numbers that no float can hold are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Path = tuple[str | int, ...]

_ONE = frozenset(
    [
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
"""Keywords whose value is a schema."""
_MANY = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords whose value is an array of schemas."""
NAMED = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose objects hold schemas under names: a property may be called ``enum``."""
_DEPENDENCIES = "dependencies"
"""The old keyword whose object holds schemas and arrays of names."""

_Schema = dict[str, Any] | bool
_Schemas = Annotated[list[Any], msgspec.Meta(min_length=1)]
_Type = Literal["array", "boolean", "integer", "null", "number", "object", "string"]
_Count = Annotated[float, msgspec.Meta(ge=0, multiple_of=1)]
_Anchor = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][-A-Za-z0-9._]*$")]
_TYPES: dict[str, Any] = {
    **dict.fromkeys(_ONE, _Schema),
    **dict.fromkeys(_MANY, _Schemas),
    **dict.fromkeys((*NAMED, _DEPENDENCIES), dict[str, Any]),
    **dict.fromkeys(["maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"], float),
    **dict.fromkeys(
        [
            "maxContains",
            "maxItems",
            "maxLength",
            "maxProperties",
            "minContains",
            "minItems",
            "minLength",
            "minProperties",
        ],
        _Count,
    ),
    **dict.fromkeys(["deprecated", "readOnly", "uniqueItems", "writeOnly"], bool),
    **dict.fromkeys(
        [
            "$comment",
            "$dynamicRef",
            "$recursiveRef",
            "$ref",
            "$schema",
            "contentEncoding",
            "contentMediaType",
            "description",
            "format",
            "pattern",
            "title",
        ],
        str,
    ),
    **dict.fromkeys(["$anchor", "$dynamicAnchor", "$recursiveAnchor"], _Anchor),
    "$id": Annotated[str, msgspec.Meta(pattern=r"^[^#]*#?$")],
    "$vocabulary": dict[str, bool],
    "dependentRequired": dict[str, list[str]],
    "enum": list[Any],
    "examples": list[Any],
    "multipleOf": Annotated[float, msgspec.Meta(gt=0)],
    "required": list[str],
    "type": _Type | Annotated[list[_Type], msgspec.Meta(min_length=1)],
}
_Keywords = msgspec.defstruct(
    "_Keywords",
    [
        (f"keyword_{number}", kind | msgspec.UnsetType, msgspec.UNSET)
        for number, kind in enumerate(_TYPES.values())
    ],
    rename={f"keyword_{number}": keyword for number, keyword in enumerate(_TYPES)},
)


def find_invalid_place(schema: Mapping[str, Any]) -> str | None:
    """Return where a schema breaks the metaschema, as ``$.items.type``; None where it is valid."""
    open_schemas: list[tuple[Any, _Path]] = [(schema, ())]
    while open_schemas:
        value, path = open_schemas.pop()
        if isinstance(value, bool) or value == {}:  # twenty thousand of these fit into a schema
            continue
        if not isinstance(value, dict):
            return _join(path)
        if not _holds(value):
            return _join((*path, *_find_keyword(value)))
        open_schemas += _list_inner(value, path)
    return None


def _holds(schema: Mapping[str, Any]) -> bool:
    """Whether every keyword has a value of its kind; the schemas within are looked at one by one."""
    try:
        msgspec.convert(schema, _Keywords)
    except msgspec.ValidationError:
        return False
    lists = [schema.get("required"), schema.get("type"), *schema.get("dependentRequired", {}).values()]
    return all(_is_distinct(names) for names in lists if isinstance(names, list))


def _find_keyword(schema: Mapping[str, Any]) -> list[str]:
    return [keyword for keyword, value in schema.items() if not _holds({keyword: value})][:1]


def _list_inner(schema: Mapping[str, Any], path: _Path) -> Iterator[tuple[Any, _Path]]:
    for keyword, value in schema.items():
        if keyword in _ONE:
            yield value, (*path, keyword)
        elif keyword in _MANY:
            yield from ((inner, (*path, keyword, number)) for number, inner in enumerate(value))
        elif keyword in NAMED:
            yield from ((inner, (*path, keyword, name)) for name, inner in value.items())
        elif keyword == _DEPENDENCIES:
            yield from (
                (inner, (*path, keyword, name)) for name, inner in value.items() if not _are_names(inner)
            )


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value) and _is_distinct(value)


def _is_distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _join(path: _Path) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
