"""What the rows of a job read: tokens of text, exactly as the engine counts them, and of media, at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anex.rows.chat import ChatRow
from anex.rows.embed import EmbedRow
from anex.rows.media import NO_MEDIA, measure_media
from anex.rows.settings import template_kwargs
from anex.services import Conversation
from anex.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anex.catalog import Modality
    from anex.rows.decide import DecideRow
    from anex.rows.media import MediaTerms, RowMedia
    from anex.rows.settings import RowSettings
    from anex.services import DecisionCounter, TokenCounter


@dataclass(frozen=True, slots=True)
class InputTerms:
    """What the rows of a job are counted by."""

    settings: RowSettings
    media: MediaTerms
    counter: TokenCounter


@dataclass(frozen=True, slots=True)
class RowInput:
    """What one row reads, priced as input; ``media`` are the kinds of media among it."""

    usage: Usage
    media: frozenset[Modality]


def count_inputs(terms: InputTerms, rows: Sequence[ChatRow | EmbedRow]) -> list[RowInput]:
    """Return what each row reads. Rows of one job are all of one kind; what is text alone is counted together."""
    chats = [row for row in rows if isinstance(row, ChatRow)]
    if chats:
        return count_chat_rows(terms, chats)
    texts = [row.input for row in rows if isinstance(row, EmbedRow) and isinstance(row.input, str)]
    counted = iter(terms.counter.count_texts(texts) if texts else ())
    return [
        RowInput(Usage(input_tokens=next(counted)), frozenset())
        if isinstance(row.input, str)
        else _count_parts(terms, row)
        for row in rows
        if isinstance(row, EmbedRow)
    ]


def count_decisions(counter: DecisionCounter, rows: Sequence[DecideRow]) -> list[RowInput]:
    """Return what a decision model reads of each row: its text once a question."""
    return [RowInput(Usage(input_tokens=tokens), frozenset()) for tokens in counter.count_decisions(rows)]


def count_chat_rows(terms: InputTerms, rows: Sequence[ChatRow]) -> list[RowInput]:
    """Return what conversations read, the openings of their answers included."""
    spec, settings = terms.media.spec, terms.settings
    conversations = [
        Conversation(row.plain_messages(), template_kwargs(spec, settings, row.chat_template_kwargs))
        for row in rows
    ]
    counts = terms.counter.count_chats(conversations)
    return [_add_media(terms, row, tokens) for row, tokens in zip(rows, counts, strict=True)]


def _add_media(terms: InputTerms, row: ChatRow, tokens: int) -> RowInput:
    parts = row.list_media()
    media = measure_media(terms.media, parts, tokens) if parts else NO_MEDIA
    return RowInput(_use(tokens + media.tokens, media.tokens, media), media.kinds)


def _count_parts(terms: InputTerms, row: EmbedRow) -> RowInput:
    """Count a row that the engine reads as one user's message, through the chat template and without an answer's opening.

    All its tokens have the price of media, if it carries any.
    """
    tokens = terms.counter.count_chat([row.plain_message()], {}, opens_answer=False)
    parts = row.list_media()
    media = measure_media(terms.media, parts, tokens) if parts else NO_MEDIA
    total = tokens + media.tokens
    return RowInput(_use(total, total if parts else 0, media), media.kinds)


def _use(input_tokens: int, media_tokens: int, media: RowMedia) -> Usage:
    return Usage(
        input_tokens=input_tokens,
        media_tokens=media_tokens,
        images=media.images,
        clips=media.clips,
        clip_milliseconds=media.clip_milliseconds,
    )
