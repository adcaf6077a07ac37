"""Chat lines: what is read of them, and what they may ask of a model.

``messages``, ``chat_template_kwargs`` and ``response_format`` of a body are used; the rest is not carried
through. Roles are OpenAI's. A message's ``name``, ``tool_calls`` and ``tool_call_id`` belong to the
conversation and go to the model with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from anex.rows.envelope import CustomId, Flat, OwnSettings, RowClass, read_envelope
from anex.rows.faults import RowRefused, quote
from anex.rows.long_lines import TextTooLong, as_plain
from anex.rows.parts import ContentPart, MediaPart, TextPart, as_text, plain_part, read_parts, refuse_text
from anex.rows.settings import row_effort, row_format, row_thinks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from anex.catalog import ModelSpec
    from anex.rows.settings import RowSettings

URL = "/v1/chat/completions"

RESERVED = frozenset(
    {
        "chat_template",
        "conversation",
        "max_length",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "truncation",
    }
)
"""Arguments of transformers' ``apply_chat_template`` that no template reads: an engine would cut or pad the prompt by them."""

Role = Literal["system", "user", "assistant", "developer", "tool"]
_ROLES = ("system", "user", "assistant", "developer", "tool")


class ChatMessage(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """One turn. ``content`` is None only where an assistant called tools instead of speaking."""

    role: Role
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[Any] | None = None


class ChatBody(msgspec.Struct, kw_only=True, gc=False):
    """What is used of a line's body; null equals absent."""

    messages: list[ChatMessage]
    chat_template_kwargs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None


class ChatLine(msgspec.Struct, kw_only=True, gc=False):
    """A checked line of a chat job."""

    custom_id: str
    body: ChatBody


class _OrdinaryMessage(ChatMessage, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    content: str | Annotated[list[TextPart], msgspec.Meta(min_length=1)]  # type: ignore[assignment] # narrower, only read
    tool_calls: None = None


class _MediaMessage(ChatMessage, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    content: str | Annotated[list[ContentPart], msgspec.Meta(min_length=1)]
    tool_calls: None = None


class _OrdinaryBody(ChatBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    # A subclass's list is narrower than the base's; it is only read. (mypy: lists are invariant.)
    messages: Annotated[list[_OrdinaryMessage], msgspec.Meta(min_length=1)]  # type: ignore[assignment]
    # Fields that many files carry and that nothing depends on. A field that msgspec skips goes unchecked, so
    # these are decoded.
    model: Flat = None
    max_tokens: Flat = None
    max_completion_tokens: Flat = None
    temperature: Flat = None
    top_p: Flat = None
    seed: Flat = None
    n: Flat = None
    stop: Flat | list[str] = None
    stream: Flat = None
    user: Flat = None


class _MediaBody(_OrdinaryBody, forbid_unknown_fields=True, kw_only=True, gc=False):
    messages: Annotated[list[_MediaMessage], msgspec.Meta(min_length=1)]  # type: ignore[assignment] # as above


class _OrdinaryLine(ChatLine, forbid_unknown_fields=True, kw_only=True, gc=False):
    custom_id: CustomId
    method: Literal["POST"]
    url: Literal["/v1/chat/completions"]
    body: _OrdinaryBody


class _MediaLine(_OrdinaryLine, forbid_unknown_fields=True, kw_only=True, gc=False):
    body: _MediaBody


class ChatRow(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """One row as a worker runs it; ``row_number`` counts rows of the input from 1."""

    row_number: int
    custom_id: str
    messages: list[ChatMessage]
    chat_template_kwargs: dict[str, Any] | None
    response_format: dict[str, Any] | None

    def plain_messages(self) -> list[dict[str, Any]]:
        """Return the messages as plain objects, as chat templates read them: of media, which kind stands where."""
        return [_plain_message(message) for message in self.messages]

    def list_media(self) -> list[MediaPart]:
        """Return the parts that carry media, in their order."""
        return list(_iterate_media(self.messages))


_ORDINARY = msgspec.json.Decoder(_OrdinaryLine)
_WITH_MEDIA = msgspec.json.Decoder(_MediaLine)


def _plain_message(message: ChatMessage) -> dict[str, Any]:
    if not isinstance(message.content, list):
        plain: dict[str, Any] = msgspec.to_builtins(message)
        return plain
    parts = [plain_part(part) for part in message.content]
    others: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(message, content=None))
    return {**others, "content": parts}


def _iterate_media(messages: Iterable[ChatMessage]) -> Iterator[MediaPart]:
    for message in messages:
        if isinstance(message.content, list):
            yield from (part for part in message.content if not isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Reads and judges the lines of a chat job for one model."""

    spec: ModelSpec

    def decode_lines(self, data: bytes | memoryview) -> list[ChatLine]:
        """Decode a block of ordinary lines. Raises ``msgspec.MsgspecError`` at the first that is not."""
        decoder = _WITH_MEDIA if self.spec.modalities else _ORDINARY
        return decoder.decode_lines(data)  # type: ignore[return-value]  # a list of the subclass, read only

    def may_nest(self, lines: Sequence[ChatLine]) -> bool:
        """Whether a row sets something by itself: a schema, or options of a template."""
        return bool(self.list_own_settings(lines))

    def read_line(self, value: dict[str, Any]) -> ChatLine:
        """Build a line from a parsed object. Raises ``RowRefused``."""
        custom_id, body = read_envelope(value, URL, self.spec)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise RowRefused("body.messages must be a non-empty list of messages")
        try:
            read = ChatBody(
                messages=[_read_message(entry, place, self.spec) for place, entry in enumerate(messages)],
                chat_template_kwargs=_read_object(body, "chat_template_kwargs"),
                response_format=_read_object(body, "response_format"),
            )
        except TextTooLong as text:
            raise refuse_text(custom_id, text, self.spec) from None
        return ChatLine(custom_id=custom_id, body=read)

    def make_row(self, row_number: int, line: ChatLine) -> ChatRow:
        """Return a line as a worker runs it."""
        body = line.body
        return ChatRow(
            row_number=row_number,
            custom_id=line.custom_id,
            messages=body.messages,
            chat_template_kwargs=body.chat_template_kwargs,
            response_format=body.response_format,
        )

    def list_media(self, lines: Sequence[ChatLine]) -> list[tuple[int, list[MediaPart]]]:
        """Return the places and the media of rows that carry some."""
        if not self.spec.modalities:
            return []
        found = ((place, list(_iterate_media(line.body.messages))) for place, line in enumerate(lines))
        return [(place, media) for place, media in found if media]

    def list_own_settings(self, lines: Sequence[ChatLine]) -> list[tuple[int, OwnSettings]]:
        """Return the places and settings of rows with ``chat_template_kwargs`` or a ``response_format``."""
        return [
            (place, OwnSettings(body.chat_template_kwargs, body.response_format))
            for place, line in enumerate(lines)
            if (body := line.body).chat_template_kwargs is not None or body.response_format is not None
        ]

    def classify(self, own: OwnSettings, settings: RowSettings) -> RowClass:
        """Check a row's thinking settings; its format is well-formed by now. Raises ``RowRefused``."""
        fault = own.template_kwargs and (
            _find_reserved(own.template_kwargs)
            or _find_thinking_fault(self.spec, settings, own.template_kwargs)
        )
        if fault:
            raise RowRefused(fault)
        wanted = row_format(settings, own.response_format)
        return RowClass(
            row_thinks(self.spec, settings, own.template_kwargs),
            row_effort(self.spec, settings, own.template_kwargs),
            wanted["type"] if wanted is not None else None,
        )


def _read_message(entry: Any, place: int, spec: ModelSpec) -> ChatMessage:
    where = f"body.messages[{place}]"
    if not isinstance(entry, dict):
        raise RowRefused(f"{where} must be an object with a role and a content")
    role = entry.get("role")
    if role not in _ROLES:
        found = f", not {quote(role)}" if isinstance(role, str) else ""
        raise RowRefused(f"{where}.role must be one of {', '.join(_ROLES)}{found}")
    tool_calls = as_plain(entry.get("tool_calls"))
    if tool_calls is not None and not (
        isinstance(tool_calls, list) and all(isinstance(c, dict) for c in tool_calls)
    ):
        raise RowRefused(f"{where}.tool_calls must be a list of objects")
    speechless = role == "assistant" and bool(tool_calls)
    return ChatMessage(
        role=role,
        content=_read_content(entry.get("content"), where, spec, speechless=speechless),
        name=_read_text(entry, "name", where),
        tool_call_id=_read_text(entry, "tool_call_id", where),
        tool_calls=tool_calls,
    )


def _read_content(
    content: Any, where: str, spec: ModelSpec, *, speechless: bool
) -> str | list[ContentPart] | None:
    text = as_text(content)
    if text is not None or (content is None and speechless):
        return text
    if isinstance(content, list) and content:
        return read_parts(content, f"{where}.content", spec)
    raise RowRefused(f"{where}.content must be a string or a non-empty list of content parts")


def _read_text(entry: dict[str, Any], field: str, where: str) -> str | None:
    value = as_plain(entry.get(field))
    if value is not None and not isinstance(value, str):
        raise RowRefused(f"{where}.{field} must be a string")
    return value


def _read_object(body: dict[str, Any], field: str) -> dict[str, Any] | None:
    value = as_plain(body.get(field))
    if value is not None and not isinstance(value, dict):
        raise RowRefused(f"body.{field} must be an object")
    return value


def _find_reserved(own: dict[str, Any]) -> str | None:
    """Return the sentence for an option that would change the prompt's tokens behind the template's back."""
    found = sorted(RESERVED & own.keys())
    if not found:
        return None
    return f"chat_template_kwargs.{found[0]} is an option of the tokenizer, not of the model's template. Remove it"


def _find_thinking_fault(spec: ModelSpec, settings: RowSettings, own: dict[str, Any]) -> str | None:
    """Return the sentence for ``chat_template_kwargs`` that the model or the job's settings don't allow."""
    flag = own.get("enable_thinking")
    if flag is not None and not isinstance(flag, bool):
        return "chat_template_kwargs.enable_thinking must be true or false"
    if flag and spec.reasoning is None:
        return (
            f"chat_template_kwargs.enable_thinking is true, but model '{spec.id}' produces no reasoning trace"
        )
    if flag is False and (settings.reasoning_budget or 0) >= 1:
        return (
            "chat_template_kwargs.enable_thinking is false, but the job sets a reasoning_budget, which needs"
            " thinking on. Remove the row's setting, or leave reasoning_budget out"
        )
    return _find_effort_fault(spec, own) or _find_idle_effort(spec, settings, own)


def _find_effort_fault(spec: ModelSpec, own: dict[str, Any]) -> str | None:
    effort = own.get("reasoning_effort")
    if effort is None:
        return None
    if not isinstance(effort, str):
        return "chat_template_kwargs.reasoning_effort must be a string"
    levels = spec.reasoning.efforts if spec.reasoning is not None else ()
    if not levels:
        return f"chat_template_kwargs.reasoning_effort is set, but model '{spec.id}' takes no effort level"
    if effort not in levels:
        return (
            f"chat_template_kwargs.reasoning_effort {quote(effort)} is not a level of model '{spec.id}':"
            f" it takes {', '.join(levels)}"
        )
    return None


def _find_idle_effort(spec: ModelSpec, settings: RowSettings, own: dict[str, Any]) -> str | None:
    if own.get("reasoning_effort") is None or row_thinks(spec, settings, own):
        return None
    return "chat_template_kwargs.reasoning_effort is set on a row whose thinking is off"
