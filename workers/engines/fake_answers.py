"""What the fake engine says: lengths, texts, JSON values, vectors, each a pure function of seed and request.

The same request gets the same answer after a restart and in another process, so a row that is run twice (a
lost lease, a split chunk) can be compared byte for byte. Lengths are drawn from a chosen law, since the
estimate's statistics are only tested by lengths that have a distribution.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

WORDS = (
    "the",
    "model",
    "reads",
    "every",
    "row",
    "and",
    "writes",
    "a",
    "plain",
    "short",
    "answer",
    "to",
    "it",
)
EFFORT_FACTORS = {"none": 0.0, "minimal": 0.125, "low": 0.25, "medium": 0.5, "high": 1.0, "xhigh": 1.0}
"""Share of the drawn thinking length that an effort level uses; an unknown level thinks in full."""

ARRAY_ITEMS_MAX = 64
"""Items made for an array, whatever ``minItems`` asks."""

SCHEMA_DEPTH_MAX = 32
"""Nesting followed into a schema; deeper (or recursive) places become null."""


class LawInvalid(ValueError):
    """The text does not describe a law of lengths."""


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """A distribution of lengths in tokens.

    Written ``constant:N``, ``lognormal:MEDIAN:SIGMA`` or ``bimodal:SHORT:LONG:SHARE``; ``SHARE`` is the
    probability of ``LONG``, ``SIGMA`` the standard deviation of the logarithm.
    """

    name: str
    parameters: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> LengthLaw:
        """Read a law. Raises ``LawInvalid``."""
        name, *numbers = text.split(":")
        counts = {"constant": 1, "lognormal": 2, "bimodal": 3}
        if counts.get(name) != len(numbers):
            raise LawInvalid(f"{text!r}: use constant:N, lognormal:MEDIAN:SIGMA or bimodal:SHORT:LONG:SHARE")
        try:
            parameters = tuple(float(number) for number in numbers)
        except ValueError as fault:
            raise LawInvalid(f"{text!r}: {fault}") from fault
        if parameters[0] <= 0 or min(parameters) < 0:
            raise LawInvalid(f"{text!r}: lengths are positive, the other numbers not negative")
        return cls(name, parameters)

    def draw(self, random: Random) -> int:
        """Draw one length, at least 1."""
        if self.name == "constant":
            length = self.parameters[0]
        elif self.name == "lognormal":
            length = random.lognormvariate(math.log(self.parameters[0]), self.parameters[1])
        else:
            short, long, share = self.parameters
            length = long if random.random() < share else short
        return max(1, round(length))


def seed_random(seed: int, *key: bytes) -> Random:
    """Return a generator that depends on the seed and the key alone, in every process."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=16)
    for part in key:
        digest.update(len(part).to_bytes(8, "little") + part)
    return Random(int.from_bytes(digest.digest(), "little"))  # noqa: S311 - reproducible on purpose, guards nothing


def make_text(random: Random, length: int) -> str:
    """Return words of exactly ``length`` ASCII characters: that many tokens by the byte rule."""
    pieces: list[str] = []
    size = 0
    while size < length:
        piece = random.choice(WORDS) + " "
        pieces.append(piece)
        size += len(piece)
    text = "".join(pieces)[:length]
    return text[:-1] + "." if text.endswith(" ") else text


def make_json_text(response_format: Mapping[str, Any], random: Random) -> str | None:
    """Return a compact document that fits the response format, or None when free text is wanted."""
    kind = response_format.get("type")
    if kind == "json_object":
        return orjson.dumps({"answer": make_text(random, 12)}).decode()
    if kind != "json_schema":
        return None
    schema = response_format["json_schema"]["schema"]
    return orjson.dumps(_make_value(schema, schema, random, depth=0)).decode()


def make_vector(random: Random, width: int, dimensions: int) -> NDArray[np.float32]:
    """Return the first ``dimensions`` of ``width`` components, scaled to length 1 again (Matryoshka)."""
    generator = np.random.default_rng(random.getrandbits(64))
    vector = generator.standard_normal(width, dtype=np.float32)[:dimensions]
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def _make_value(schema: Any, root: Mapping[str, Any], random: Random, depth: int) -> Any:
    """Return a value for the common part of JSON Schema: types, items, enum, const, anyOf, local $ref."""
    if not isinstance(schema, dict) or depth > SCHEMA_DEPTH_MAX:
        return None
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    if "$ref" in schema:
        return _make_value(_resolve(schema["$ref"], root), root, random, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _make_value(schema[choice][0], root, random, depth + 1)
    return _make_typed(schema, root, random, depth)


def _make_typed(schema: Mapping[str, Any], root: Mapping[str, Any], random: Random, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _make_value(part, root, random, depth + 1) for name, part in properties.items()}
    if kind == "array":
        count = min(
            max(schema.get("minItems", 1), 1), schema.get("maxItems", ARRAY_ITEMS_MAX), ARRAY_ITEMS_MAX
        )
        return [_make_value(schema.get("items", {}), root, random, depth + 1) for _ in range(count)]
    return _make_scalar(kind, schema, random)


def _make_scalar(kind: str, schema: Mapping[str, Any], random: Random) -> Any:
    if kind == "boolean":
        return random.random() < 0.5  # noqa: PLR2004 - a fair coin
    if kind == "integer":
        low, high = _bounds(schema)
        return random.randint(math.ceil(low), math.floor(high))
    if kind == "number":
        low, high = _bounds(schema)
        return random.uniform(low, high)
    if kind == "null":
        return None
    length = min(max(schema.get("minLength", 1), 8), schema.get("maxLength", 1 << 20))
    return make_text(random, length)


def _bounds(schema: Mapping[str, Any]) -> tuple[float, float]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    return low, schema.get("maximum", schema.get("exclusiveMaximum", low + 101) - 1)


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """Follow a reference inside the document (``#/$defs/name``); anything else resolves to nothing."""
    place: Any = root
    for name in reference.removeprefix("#/").split("/"):
        place = place.get(name) if isinstance(place, dict) else None
    return place
