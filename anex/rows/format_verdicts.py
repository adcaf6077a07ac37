"""The ``response_format``s that the rows of one file bring along: each distinct one is judged once, and not without end.

A format may take a second to judge, a row a microsecond: so a file may bring a bounded number of them, and take a bounded time over
them. Both bounds are far above what files of people hold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from anex.rows.response_format import find_format_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORMATS_MAX = 1000
SECONDS_MAX = 300.0

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(slots=True)
class FormatVerdicts:
    """Judges the formats of one file. ``find_grammar_fault`` says why the grammar backend can't compile a well-formed one."""

    find_grammar_fault: Callable[[Mapping[str, Any]], str | None]
    now: Callable[[], float] = time.monotonic
    _verdicts: dict[bytes, str | None] = field(default_factory=dict)
    _used_seconds: float = 0.0

    def judge(self, response_format: Mapping[str, Any]) -> str | None:
        """Return why a format can't be served, None where it can. Raises what ``find_grammar_fault`` raises."""
        digest = xxhash.xxh3_128_digest(_encode(response_format))
        if digest in self._verdicts:
            return self._verdicts[digest]
        if len(self._verdicts) >= FORMATS_MAX:
            return (
                f"response_format is one of more than {FORMATS_MAX:,} different ones in this file; use fewer"
            )
        if self._used_seconds >= SECONDS_MAX:
            return "response_format can't be checked any more: those before it took too long; use fewer or simpler ones"
        began = self.now()
        verdict = find_format_fault(response_format) or self.find_grammar_fault(response_format)
        self._used_seconds += self.now() - began
        self._verdicts[digest] = verdict
        return verdict
