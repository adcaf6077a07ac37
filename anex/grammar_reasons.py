"""What the grammar backend says of a schema, as sentences of ours: its options and its dumps mean nothing to a caller."""

from __future__ import annotations

import re

from anex.rows.faults import quote

_FIXED = (
    ("NoExtension", "no answer can satisfy it"),  # its word for a grammar that allows no first token
    ("oneOf constraints", "oneOf is supported only where no two of its schemas overlap; use anyOf"),
    ("Unable to determine if regex is empty", "its patterns are too complex together"),
    ("lookarounds", "look-around and word boundaries in a pattern are not supported"),
    ("circular references with sibling keys", "a circular $ref with keywords beside it is not supported"),
    ("unknown field", "its x-guidance is not supported"),
)
"""How a reason begins, and the sentence for it."""
_QUOTING = (
    (re.compile(r"Unimplemented keys: \[(.*)\]"), "it uses keywords that are not supported: {}"),
    (re.compile(r"Unknown format: (.*)"), "it uses a format that is not supported: {}"),
    (re.compile(r"Pointer '(.*)' does not exist"), "it has a $ref that leads nowhere: {}"),
    (re.compile(r"Invalid URI reference '(.*)"), "it has a $ref that is no reference: {}"),
    (re.compile(r"Resource '(.*)' is not present"), "it has a $ref to a schema elsewhere: {}"),
    (re.compile(r"regex parse error: .*error: (.*)"), "it has a pattern that is not supported: {}"),
    (re.compile(r"Unsatisfiable schema: (.*)"), "no answer can satisfy it: {}"),
)
"""Reasons with a piece worth telling. What a caller wrote may stand in it, so it is cut."""


def describe_reason(reason: str) -> str:
    """Return a reason of the backend's as one printable line, with at most 64 characters of the schema's."""
    text = " ".join(reason.partition("<state>")[0].split())
    for beginning, sentence in _FIXED:
        if text.startswith(beginning):
            return sentence
    for expression, sentence in _QUOTING:
        if found := expression.match(text):
            return sentence.format(quote(found[1].replace('"', "")))
    return f"the grammar backend says {quote(text)}"
