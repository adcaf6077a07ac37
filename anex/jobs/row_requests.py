"""The request of one row of a run, its cap lowered to what its input leaves of the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from anex.rows.requests import chat_request
from anex.rows.settings import template_kwargs

if TYPE_CHECKING:
    from anex.rows.chat import ChatRow
    from anex.rows.requests import ChatTerms
    from anex.services import EngineRequest, Services

TEMPLATE_TOKENS_MAX = 1024
"""More than any chat template writes around a conversation's own words, beside what it writes around each message."""
MESSAGE_TOKENS_MAX = 32

_encode = msgspec.json.Encoder().encode


def run_request(services: Services, terms: ChatTerms, row: ChatRow) -> EngineRequest:
    """Return a row's request; its tokens are counted only where they might leave less than the cap."""
    bound = len(_encode(row.messages)) + TEMPLATE_TOKENS_MAX + MESSAGE_TOKENS_MAX * len(row.messages)
    if bound + terms.cap <= terms.spec.context_tokens:
        # A byte-level tokenizer never makes more tokens than bytes: the whole cap fits, whatever the exact count is.
        return chat_request(terms, row, bound)
    kwargs = template_kwargs(terms.spec, terms.settings, row.chat_template_kwargs)
    exact = services.counters.for_model(terms.spec).count_chat(row.plain_messages(), kwargs)
    return chat_request(terms, row, exact)
