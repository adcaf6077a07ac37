"""Which checkpoint reads a row: the rule of ``laya.Router`` (0.4.15) with neither a model nor a task asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anex.decisions.language import reads_as_english

if TYPE_CHECKING:
    from anex.rows.decide import State

ENGLISH, MULTILINGUAL = "english", "multilingual"
"""The router's own names of the two checkpoints."""

_ENGLISH_CODES = frozenset({"en", "eng", "english"})
_CODES_OF_NO_LANGUAGE = frozenset({"", "c", "posix", "und", "zxx", "mul"})


def choose_checkpoint(state: State, language: str | None) -> str:
    """Return the name of the checkpoint that reads a row: by its language code, else by its text."""
    named = _primary_code(language or "")
    is_english = reads_as_english(state) if named in _CODES_OF_NO_LANGUAGE else named in _ENGLISH_CODES
    return ENGLISH if is_english else MULTILINGUAL


def _primary_code(language: str) -> str:
    """Return the language itself of a code: ``en`` of ``en-US``, ``en_US`` and ``en_US.UTF-8``."""
    return language.strip().lower().partition(".")[0].replace("_", "-").partition("-")[0]
