"""What an engine is asked for one row: exactly these fields, whatever the row's body held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from anex.estimating.bound import room_for_output
from anex.rows.chat import URL
from anex.rows.media_requests import encode_long, media_options
from anex.rows.parts import modality_of
from anex.rows.settings import row_format, row_thinks, template_kwargs
from anex.services import EngineRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from anex.catalog import ModelSpec
    from anex.rows.chat import ChatMessage, ChatRow
    from anex.rows.settings import RowSettings

PRIORITY_REALTIME, PRIORITY_SAMPLE, PRIORITY_SMALL, PRIORITY_RUN = range(4)
"""What the engine's scheduler serves first: lower before higher."""

_encode = msgspec.json.Encoder(enc_hook=encode_long).encode


@dataclass(frozen=True, slots=True)
class ChatTerms:
    """What all rows of a run share. ``budget`` None or 0 sets no thinking budget."""

    spec: ModelSpec
    settings: RowSettings
    cap: int
    budget: int | None
    priority: int
    video_fps: Fraction | None = None


def chat_request(
    terms: ChatTerms, row: ChatRow, input_tokens: int, messages: Sequence[ChatMessage] | None = None
) -> EngineRequest:
    """Return the request for one row, whose prompt counts ``input_tokens``.

    The row's own cap is what its input leaves of the context; a thinking budget shrinks with it, so that
    notice and answer keep a place. The effort goes in as a top-level field: the engine refuses it in two
    places. ``messages`` are the row's with their media as the engine takes them, where it has any.
    """
    spec, settings, own = terms.spec, terms.settings, row.chat_template_kwargs
    media = row.list_media()
    context = spec.context_for({modality_of(part) for part in media})
    cap = max(1, room_for_output(terms.cap, input_tokens, context.total_tokens))
    body: dict[str, Any] = {
        "model": spec.id,
        "messages": row.messages if messages is None else messages,
        "max_tokens": cap,
        "priority": terms.priority,
        **media_options(spec, terms.video_fps, media),
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
