"""The shape of ``response_format``, a job's or a row's, and whether an answer keeps to it.

Whether the grammar backend can compile a schema is asked elsewhere, in a bounded process (``anex.grammar``); this
is what can be said without it. Schemas and answers are a stranger's: checking one fetches nothing, runs no
regular expression of theirs and is bounded. Repetitions inside a pattern (``a{1000000}``) have no bound of their
own here: the backend unrolls none of them up front.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from anex.rows.faults import quote
from anex.rows.schema_keywords import NAMED, find_invalid_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMA_DEPTH_MAX = 32
DEFINITION_MAX_BYTES = 64 << 10
"""Of ``json_schema`` as JSON text: the schema with its name and its description."""
COUNT_MAX = 10_000
"""Of every count that a schema asks for, and of an enum's values."""
STEPS_MAX = 100_000
"""Keywords looked at in one check: references to references can double the work at each level."""
STEP_DEPTH_MAX = 100
"""Keywords within keywords in one check."""

_TYPES = ("json_object", "json_schema", "text")
_SCHEMA_KEYS = frozenset({"name", "schema", "strict", "description"})
_COUNTS = frozenset(
    bound + unit for bound in ("min", "max") for unit in ("Items", "Length", "Properties", "Contains")
)
_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are no schemas: a ``minItems`` in them asks for nothing."""
_BACKEND_OPTIONS = "x-guidance"
"""At a schema's root the grammar backend takes its own options from it: a caller has no business to set them."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL in JSON text; after an uneven number of backslashes it is one itself."""
_SCHEMA_PLACE = "response_format.json_schema.schema"
_decode = msgspec.json.Decoder().decode


def find_format_fault(response_format: Any) -> str | None:
    """Return the sentence for a malformed ``response_format``, None for a well-formed one."""
    if not isinstance(response_format, dict):
        return "response_format must be an object"
    if response_format.get("type") not in _TYPES:
        return "response_format.type must be 'json_object', 'json_schema' or 'text'"
    extra = set(response_format) - {"type", "json_schema"}
    if extra:
        return f"response_format has the unknown field {quote(min(extra))}"
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
        return f"response_format.json_schema has the unknown field {quote(min(extra))}"
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        return "response_format.json_schema.name must be a non-empty string"
    if not isinstance(definition.get("strict"), bool | None):
        return "response_format.json_schema.strict must be true or false"
    if not isinstance(definition.get("description"), str | None):
        return "response_format.json_schema.description must be a string"
    return _find_content_fault(definition)


def _find_content_fault(definition: Mapping[str, Any]) -> str | None:
    """Look at the schema, cheap questions first: each one bounds the work of the next."""
    schema = definition.get("schema")
    if not isinstance(schema, dict):
        return f"{_SCHEMA_PLACE} must be an object"
    if _is_too_deep(schema):
        return f"{_SCHEMA_PLACE} nests deeper than {SCHEMA_DEPTH_MAX} levels"
    if _BACKEND_OPTIONS in schema:
        return f"{_SCHEMA_PLACE} holds the field '{_BACKEND_OPTIONS}', which is no keyword of JSON Schema; remove it"
    if fault := _find_text_fault(definition) or _find_count_fault(schema):
        return fault
    place = find_invalid_place(schema)
    return None if place is None else f"{_SCHEMA_PLACE} is not a valid JSON Schema at {_cut(place)}"


def _is_too_deep(value: Any) -> bool:
    """Whether objects and arrays nest too deep; level by level, so that no depth can overflow the stack."""
    level = [value]
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [item for inner in level for item in (inner.values() if isinstance(inner, dict) else inner)]
    return True


def _find_text_fault(definition: Mapping[str, Any]) -> str | None:
    """Look at the definition as JSON text: its size, and what neither Postgres nor the engine would take."""
    try:
        text = json.dumps(definition, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "response_format.json_schema holds half of a surrogate pair"
    except ValueError:
        return "response_format.json_schema holds a number that JSON can't carry"
    if size_bytes > DEFINITION_MAX_BYTES:
        return f"response_format.json_schema is over {DEFINITION_MAX_BYTES >> 10} KiB"
    if _NUL.search(text):
        return "response_format.json_schema holds a NUL character"
    return None


def _find_count_fault(schema: Mapping[str, Any]) -> str | None:
    """Return the sentence for a count or an enum over the bound: each item asked for would be a piece of grammar."""
    open_schemas: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    while open_schemas:
        value, path = open_schemas.pop()
        if isinstance(value, list):
            open_schemas += ((inner, path) for inner in value)
        elif isinstance(value, dict):
            for keyword, inner in value.items():
                if _is_over(keyword, inner):
                    return f"{_SCHEMA_PLACE}{_cut(_join(path))}.{keyword} is over {COUNT_MAX}"
                if keyword in NAMED and isinstance(inner, dict):
                    open_schemas += ((named, (*path, keyword, name)) for name, named in inner.items())
                elif keyword not in _DATA:
                    open_schemas.append((inner, (*path, keyword)))
    return None


def _is_over(keyword: str, value: Any) -> bool:
    if keyword == "enum":
        return isinstance(value, list) and len(value) > COUNT_MAX
    return keyword in _COUNTS and isinstance(value, int | float) and value > COUNT_MAX


def _join(path: tuple[str, ...]) -> str:
    return "".join(f".{name}" for name in path)


def _cut(place: str) -> str:
    """Return a place as it may stand in a sentence: names in it are a stranger's."""
    return quote(place).removeprefix("'").removesuffix("'") if place else ""


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
    except (_TooMuchWork, Unresolvable, RecursionError, OverflowError):  # the last: 400 digits, divided
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
        _work.steps_left -= (
            len(value) if isinstance(value, list) else 1
        )  # an enum's values are compared one by one
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
