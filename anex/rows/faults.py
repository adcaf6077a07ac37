"""What is wrong with an input, as sentences: the text of a job's ``failure_reason``.

An input may hold ten million faults. The first twenty are told, the others are counted, so that a report is
as useful for a slip in one line as for a file of another kind, and never grows with the file. Payload-derived
text in a sentence is cut to 64 characters: these sentences are stored longer than the payload is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from anex.catalog import Modality, ModelSpec

QUOTED_MAX_CHARACTERS = 64

_UNSPEAKABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class RowRefused(Exception):
    """One line breaks the contract; ``message`` says how. It names the row itself, or leaves it to ``describe``."""

    def __init__(self, message: str, *, names_row: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.names_row = names_row

    def describe(self, line: int) -> str:
        """Return the whole sentence for a fault in ``line``."""
        return self.message if self.names_row else describe_line(line, self.message)


def quote(text: str) -> str:
    """Return ``text`` in quotes, cut to what may be kept of a payload.

    Control characters and line separators become U+FFFD: Postgres stores no NUL, and a sentence is one line.
    """
    text = "".join(_REPLACEMENT if category(character) in _UNSPEAKABLE else character for character in text)
    kept = text if len(text) <= QUOTED_MAX_CHARACTERS else text[: QUOTED_MAX_CHARACTERS - 1] + "…"
    return f"'{kept}'"


def describe_row(custom_id: str, message: str) -> str:
    """Return the sentence for a fault in what a row asks for, as it is named by its owner."""
    return f"Row {quote(custom_id)}: {message}"


def describe_line(line: int, message: str) -> str:
    """Return the sentence for a fault in a line (1-based, blank lines counted, as editors count)."""
    return f"Line {line}: {message}"


def find_length_fault(
    custom_id: str, input_tokens: int, spec: ModelSpec, media: AbstractSet[Modality] = frozenset()
) -> str | None:
    """Return the sentence for a row whose input leaves no room for an answer, None where it fits.

    ``input_tokens`` includes what its ``media`` encode to. A decision model cuts a long text, and reads it once a question.
    """
    if spec.kind == "decide":
        return None
    limits = spec.context_for(media)
    if input_tokens <= min(limits.input_tokens, limits.total_tokens - 1):
        return None
    return describe_length(custom_id, f"{input_tokens:,}", spec, media)


def describe_length(
    custom_id: str, input_tokens: str, spec: ModelSpec, media: AbstractSet[Modality] = frozenset()
) -> str:
    """Return the sentence for a row that is too long by ``input_tokens``, a number in words."""
    included = " (including media)" if media else ""
    beside = f" with {' and '.join(sorted(media))} input" if media else ""
    return (
        f"Row {quote(custom_id)} is too long: {input_tokens} input tokens{included} exceeds the"
        f" {spec.context_for(media).input_tokens:,}-token maximum that model '{spec.id}' can serve{beside}."
        " Shorten or split this row."
    )


@dataclass(slots=True)
class FaultList:
    """The first ``reported_max`` faults in the order they were added, and how many more there were."""

    reported_max: int
    messages: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, message: str) -> None:
        """Keep ``message``, or count it when enough are kept."""
        if len(self.messages) < self.reported_max:
            self.messages.append(message)
        else:
            self.more += 1

    def add_unnamed(self, count: int) -> None:
        """Count faults whose sentences were never made."""
        self.more += count

    def __bool__(self) -> bool:
        return bool(self.messages) or self.more > 0

    def sentences(self) -> list[str]:
        """Return the kept sentences, closed by "and N more" where there were more."""
        return [*self.messages, f"and {self.more:,} more"] if self.more else list(self.messages)
