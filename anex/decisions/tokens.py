"""How many tokens a decision model reads of a row: its text once a question, cut to what the question leaves of the context.

One sequence a question: a start, type and instructions, a separator, a mark and a text for each option, a separator, the state, a
separator. The options share a budget: where they leave nothing of it to the instructions each is cut shorter. All of it is what
``laya.common.build_head`` and ``build_sequence`` (0.4.15) do.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

from anex.byte_tokens import BYTE_MARK, byte_length
from anex.decisions.questions import find_question_fault, read_question
from anex.decisions.routing import choose_checkpoint
from anex.rows.decide import render_state
from anex.rows.long_lines import TOKEN_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from anex.rows.decide import DecideRow

OPTION_MAX_TOKENS = 48
OPTION_MIN_TOKENS = 4
INSTRUCTIONS_MIN_TOKENS = 8
INSTRUCTIONS_WANTED_TOKENS = 16
"""Options that leave less to the instructions are cut."""

QUESTION_SETS_KEPT = 256


class CheckpointReader(NamedTuple):
    """What counts for one checkpoint: its tokenizer, its context, and the budget that options share."""

    count_texts: Callable[[list[str]], list[int]]
    """Tokens of each text, special tokens not added."""
    mask_token: str
    """What marks an option: in a text it is read as a space."""
    context_tokens: int
    option_budget_tokens: int


def byte_reader(context_tokens: int, option_budget_tokens: int) -> CheckpointReader:
    """Return a reader by the byte rule of ``anex.byte_tokens``, for planners and for the fake engine."""
    return CheckpointReader(_count_bytes, BYTE_MARK, context_tokens, option_budget_tokens)


class DecisionTokenCounter:
    """Counts what the rows of one decision model read; see ``anex.services.DecisionCounter``."""

    def __init__(self, readers: Mapping[str, CheckpointReader]) -> None:
        """Take a reader for each checkpoint, by the router's names."""
        self._readers = readers
        self._heads: dict[tuple[str, bytes], tuple[int, ...] | None] = {}

    @property
    def checkpoints(self) -> int:
        """How many there are, each with a tokenizer."""
        return len(self._readers)

    def count_decisions(self, rows: Sequence[DecideRow]) -> list[int]:
        """Count each row's tokens, 0 for one that the model refuses."""
        names = [choose_checkpoint(row.state, row.lang) for row in rows]
        counts = [0] * len(rows)
        for name, reader in self._readers.items():
            places = [place for place, chosen in enumerate(names) if chosen == name]
            states = [render_state(rows[place].state) for place in places]
            for place, tokens in zip(places, _count_clean(reader, states), strict=True):
                counts[place] = self._count_row(name, rows[place], tokens)
        return counts

    def _count_row(self, name: str, row: DecideRow, state_tokens: int) -> int:
        heads = self._read_heads(name, row.questions)
        context_tokens = self._readers[name].context_tokens
        return sum(_count_sequence(head, state_tokens, context_tokens) for head in heads or ())

    def _read_heads(self, name: str, questions: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Return ``count_heads``, remembered: most files ask all of their rows the same."""
        key = (name, xxhash.xxh3_128_digest(json.dumps(questions).encode()))
        if key not in self._heads:
            if len(self._heads) >= QUESTION_SETS_KEPT:
                self._heads.clear()
            self._heads[key] = count_heads(self._readers[name], questions)
        return self._heads[key]


def _count_bytes(texts: list[str]) -> list[int]:
    return [byte_length(text) for text in texts]


def count_heads(reader: CheckpointReader, questions: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return how many tokens stand before the state, for each question; None where the model refuses one."""
    if any(find_question_fault(name, question) for name, question in questions.items()):
        return None
    heads = [_count_head(reader, question) for question in questions.values()]
    return None if None in heads else tuple(head for head in heads if head is not None)


def _count_head(reader: CheckpointReader, question: Mapping[str, Any]) -> int | None:
    """Return the length of a question's part, None where its options don't all begin within the context."""
    texts = read_question(question)
    budget = reader.option_budget_tokens
    asked_text = f"{texts.kind} question: {_clean(reader, texts.instructions)}"
    [asked] = reader.count_texts([_begin(asked_text, budget)])
    option_texts = [_begin(f" {_clean(reader, text)}", OPTION_MAX_TOKENS) for text in texts.options]
    options = [1 + min(tokens, OPTION_MAX_TOKENS) for tokens in reader.count_texts(option_texts)]
    if budget - sum(options) < INSTRUCTIONS_WANTED_TOKENS:
        share = max(OPTION_MIN_TOKENS, (budget - INSTRUCTIONS_WANTED_TOKENS) // len(options))
        options = [min(tokens, share) for tokens in options]
    asked = min(asked, max(INSTRUCTIONS_MIN_TOKENS, budget - sum(options)))
    length = 1 + asked + 1 + sum(options) + 1
    last_mark = length - 1 - options[-1]
    return length if last_mark < reader.context_tokens else None


def _begin(text: str, tokens: int) -> str:
    """Return a beginning that makes ``tokens`` tokens at least: nothing bounds a question's texts but the line."""
    return text[: tokens * TOKEN_MAX_BYTES]


def _count_sequence(head: int, state_tokens: int, context_tokens: int) -> int:
    room = max(0, context_tokens - head - 1)
    return min(context_tokens, head + min(state_tokens, room) + 1)


def _count_clean(reader: CheckpointReader, texts: Sequence[str]) -> list[int]:
    return reader.count_texts([_clean(reader, text) for text in texts]) if texts else []


def _clean(reader: CheckpointReader, text: str) -> str:
    return text.replace(reader.mask_token, " ")
