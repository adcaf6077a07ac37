"""The shape of ``response_format``, a job's or a row's, and whether an answer keeps to it.

Whether the grammar backend can compile a schema is asked elsewhere, in a bounded process; this is what can be
said without it. Schemas and answers are a stranger's: checking one fetches nothing, runs no regular
expression and is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA_DEPTH_MAX = 32
STEPS_MAX = 100_000
"""Keywords looked at in one check: references to references can double the work at each level."""
STEP_DEPTH_MAX = 100
"""Keywords within keywords in one check."""

_TYPES = ("json_object", "json_schema", "text")
_SCHEMA_KEYS = frozenset({"name", "schema", "strict", "description"})
_decode = msgspec.json.Decoder().decode


def find_format_fault(response_format: Any) -> str | None:
    """Return the sentence for a malformed ``response_format``, None for a well-formed one."""
    if not isinstance(response_format, dict):
        return "response_format must be an object"
    if response_format.get("type") not in _TYPES:
        return "response_format.type must be 'json_object', 'json_schema' or 'text'"
    extra = set(response_format) - {"type", "json_schema"}
    if extra:
        return f"response_format has the unknown field '{min(extra)[:64]}'"
    if response_format["type"] == "json_schema":
        return _find_schema_fault(response_format.get("json_schema"))
    if response_format.get("json_schema") is not None:
        return "response_format.json_schema goes with type 'json_schema' only"
    return None


def _find_schema_fault(definition: Any) -> str | None:
    if not isinstance(definition, dict):
        return "response_format.json_schema must be an object with a name and a schema"
    extra = set(definition) - _SCHEMA_KEYS
    if extra:
        return f"response_format.json_schema has the unknown field '{min(extra)[:64]}'"
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        return "response_format.json_schema.name must be a non-empty string"
    if not isinstance(definition.get("strict"), bool | None):
        return "response_format.json_schema.strict must be true or false"
    return _find_content_fault(definition.get("schema"))


def _find_content_fault(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return "response_format.json_schema.schema must be an object"
    if _measure_depth(schema) > SCHEMA_DEPTH_MAX:
        return f"response_format.json_schema.schema nests deeper than {SCHEMA_DEPTH_MAX} levels"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"response_format.json_schema.schema is not a valid JSON Schema at {error.json_path[:64]}"
    return None


def _measure_depth(value: Any) -> int:
    """Return how deep objects and arrays nest; level by level, so that no depth can overflow the stack."""
    depth = 0
    level = [value]
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        level = [item for inner in level for item in (inner.values() if isinstance(inner, dict) else inner)]
    return depth


def find_answer_fault(response_format: Mapping[str, Any] | None, text: str | None) -> str | None:
    """Return why an answer breaks the format it was asked for; None when it keeps to it or none was asked."""
    if response_format is None:
        return None
    try:
        value = _decode((text or "").encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return "the answer is not valid JSON"
    if response_format["type"] == "json_object":
        return None if isinstance(value, dict) else "the answer is not a JSON object"
    return _find_mismatch(response_format["json_schema"]["schema"], value)


def _find_mismatch(schema: Mapping[str, Any], value: Any) -> str | None:
    _work.steps_left, _work.depth = STEPS_MAX, 0
    try:
        _make_validator(msgspec.json.encode(schema)).validate(value)
    except ValidationError as error:
        return f"the answer does not satisfy the schema at {error.json_path}"
    except (_TooMuchWork, Unresolvable, RecursionError):
        return "the answer could not be checked against the schema"
    return None


class _TooMuchWork(Exception):
    """A check takes more steps, or goes deeper, than it may."""


class _Work(threading.local):
    """What the check that this thread runs has used up."""

    steps_left = 0
    depth = 0


_work = _Work()
_Keyword = Callable[[Any, Any, Any, Any], "Iterator[Any] | None"]


def _bounded(keyword: _Keyword) -> _Keyword:
    """Wrap a keyword's check so that it counts; depth stays far below the interpreter's recursion limit."""

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _work.steps_left -= 1
        if _work.steps_left < 0 or _work.depth >= STEP_DEPTH_MAX:
            raise _TooMuchWork
        _work.depth += 1
        try:
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            _work.depth -= 1

    return check


def _accept(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> Iterator[Any]:
    """Accept: patterns are the grammar's; Python's backtracking engine runs no caller's expression."""
    return iter(())


def _check_additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if "patternProperties" not in schema:
        yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, value, instance, schema)


_KEYWORDS: dict[str, _Keyword] = {
    **Draft202012Validator.VALIDATORS,
    "pattern": _accept,
    "patternProperties": _accept,
    "unevaluatedProperties": _accept,
    "additionalProperties": _check_additional,
}
_AnswerValidator = validators.extend(  # type: ignore[no-untyped-call] # its stubs leave it bare
    Draft202012Validator, {name: _bounded(keyword) for name, keyword in _KEYWORDS.items()}
)


@lru_cache(maxsize=256)
def _make_validator(schema: bytes) -> Any:
    """One validator a schema: a job's rows share theirs. The empty registry fetches nothing from anywhere."""
    return _AnswerValidator(_decode(schema), registry=Registry())
