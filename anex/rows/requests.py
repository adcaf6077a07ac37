"""What an engine is asked for one row: exactly these fields, whatever the row's body held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from anex.estimating.bound import room_for_output
from anex.rows.chat import URL
from anex.rows.settings import row_format, row_thinks, template_kwargs
from anex.services import EngineRequest

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.rows.chat import ChatRow
    from anex.rows.settings import RowSettings

PRIORITY_REALTIME, PRIORITY_SAMPLE, PRIORITY_SMALL, PRIORITY_RUN = range(4)
"""What the engine's scheduler serves first: lower before higher."""

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ChatTerms:
    """What all rows of a run share. ``budget`` None or 0 sets no thinking budget."""

    spec: ModelSpec
    settings: RowSettings
    cap: int
    budget: int | None
    priority: int


def chat_request(terms: ChatTerms, row: ChatRow, input_tokens: int) -> EngineRequest:
    """Return the request for one row, whose prompt counts ``input_tokens``.

    The row's own cap is what its input leaves of the context; a thinking budget shrinks with it, so that
    notice and answer keep a place. The effort goes in as a top-level field: the engine refuses it in two
    places.
    """
    spec, settings, own = terms.spec, terms.settings, row.chat_template_kwargs
    cap = max(1, room_for_output(terms.cap, input_tokens, spec.context_tokens))
    body: dict[str, Any] = {
        "model": spec.id,
        "messages": row.messages,
        "max_tokens": cap,
        "priority": terms.priority,
    }
    kwargs = template_kwargs(spec, settings, own)
    effort = kwargs.pop("reasoning_effort", None)
    if kwargs:
        body["chat_template_kwargs"] = kwargs
    if effort is not None:
        body["reasoning_effort"] = effort
    if spec.reasoning is not None and terms.budget and row_thinks(spec, settings, own):
        body["thinking_token_budget"] = max(1, min(terms.budget, cap - spec.reasoning.notice_tokens - 1))
    wanted = row_format(settings, row.response_format)
    if wanted is not None:
        body["response_format"] = wanted
    return EngineRequest(URL, _encode(body))
