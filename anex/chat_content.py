"""A conversation's messages in the shape in which the engine hands them to a chat template.

The rules are vLLM's (``vllm/renderers/chat_utils.py`` and ``hf.py``, 0.32): content becomes one string or a list
of parts, whichever the template reads; a tool's answer is always a string; a tool call's arguments are an object;
developer turns become system turns where a template knows no developers. Of media a template reads only what they are.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Message = dict[str, Any]


def shape_message(message: Mapping[str, Any], *, as_parts: bool) -> Message:
    """Return one message as a template reads it, content as a list of parts or as one string."""
    role, content = message["role"], message.get("content")
    shaped: Message = {
        "role": role,
        "content": _list_parts(content) if as_parts and role != "tool" else "\n".join(_list_texts(content)),
    }
    if role == "assistant" and message.get("tool_calls"):
        shaped["tool_calls"] = [_shape_call(call) for call in message["tool_calls"]]
    if role == "tool" and "tool_call_id" in message:
        shaped["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        shaped["name"] = message["name"]
    return shaped


def merge_developer_turns(messages: Sequence[Message]) -> list[Message]:
    """Make developer turns system turns, and several system turns one at the front; else change nothing."""
    if all(message["role"] != "developer" for message in messages):
        return list(messages)
    turns = [{**each, "role": "system"} if each["role"] == "developer" else each for each in messages]
    system = [each for each in turns if each["role"] == "system"]
    if len(system) == 1 and turns[0] is system[0]:
        return turns
    texts = [text for each in system if (text := "\n".join(_list_texts(each["content"])))]
    others = [each for each in turns if each["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def _list_texts(content: str | Iterable[Mapping[str, Any]] | None) -> list[str]:
    """Return a content's texts: it is null, one string, or a list of typed parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part.get("type") == "text"]


def _list_parts(content: str | Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    """Return a content's parts as templates know them: ``{"type": "text", …}``, ``{"type": "image"}`` and so on."""
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": text} for text in _list_texts(content)]
    return [dict(part) for part in content]


def _shape_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict):
        return dict(call)
    return {**call, "function": {**function, "arguments": _parse_arguments(function.get("arguments"))}}


def _parse_arguments(arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object; what is none becomes an empty one, as the engine has it."""
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return {}
    return arguments if isinstance(arguments, dict) else {}
