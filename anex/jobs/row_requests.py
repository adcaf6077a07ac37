"""The request of one conversation, its cap lowered to what its input leaves of the context, its media within it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from anex.rows.inputs import count_chat_rows
from anex.rows.media_requests import check_items, encode_long, engine_parts
from anex.rows.requests import chat_request
from anex.usage import Usage

if TYPE_CHECKING:
    from anex.media.fetch import MediaFetcher
    from anex.rows.chat import ChatMessage, ChatRow
    from anex.rows.inputs import InputTerms
    from anex.rows.requests import ChatTerms
    from anex.services import EngineRequest

TEMPLATE_TOKENS_MAX = 1024
"""More than any chat template writes around a conversation's own words, beside what it writes around each message."""
SWITCHES = frozenset({"enable_thinking", "reasoning_effort"})
"""Options of a template that add no text of the caller's."""

MESSAGE_TOKENS_MAX = 32

_encode = msgspec.json.Encoder(enc_hook=encode_long).encode


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What the engine is asked for a row, and what of its media is billed with the answer."""

    request: EngineRequest
    media: Usage


def make_chat_request(
    terms: ChatTerms, inputs: InputTerms, row: ChatRow, fetcher: MediaFetcher
) -> ChatRequest:
    """Return a row's request. Raises ``MediaUnavailable`` and ``TooManyItems``.

    The tokens of a row of text are counted only where they might leave less than the cap.
    """
    media = row.list_media()
    if not media and _fits_anyhow(terms, row):
        return ChatRequest(chat_request(terms, row, 0), Usage())
    check_items(terms.spec, media)
    found = count_chat_rows(inputs, [row])[0]
    if not media:
        return ChatRequest(chat_request(terms, row, found.usage.input_tokens), Usage())
    messages = [_with_bytes(message, fetcher) for message in row.messages]
    return ChatRequest(chat_request(terms, row, found.usage.input_tokens, messages), found.usage)


def _fits_anyhow(terms: ChatTerms, row: ChatRow) -> bool:
    """Whether the whole cap fits whatever the count is: a byte-level tokenizer never makes more tokens than bytes.

    Not where the row has options of its own: a template may write them out (tools, say), at any length.
    """
    if set(row.chat_template_kwargs or ()) - SWITCHES:
        return False
    bound = len(_encode(row.messages)) + TEMPLATE_TOKENS_MAX + MESSAGE_TOKENS_MAX * len(row.messages)
    return bound + terms.cap <= terms.spec.context_tokens


def _with_bytes(message: ChatMessage, fetcher: MediaFetcher) -> ChatMessage:
    if not isinstance(message.content, list):
        return message
    parts: Any = engine_parts(message.content, fetcher)
    return msgspec.structs.replace(message, content=parts)
