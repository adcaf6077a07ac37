"""The fake engine's chat completions and embeddings: a request in, the planned answer out, no I/O.

Shapes are those of vLLM's OpenAI-compatible server, the null fields that its answers are full of included,
since the row writer has to drop them. Token counts follow ``anex.byte_tokens``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from anex.byte_tokens import count_byte_text, count_byte_tokens
from workers.engines.fake_answers import (
    EFFORT_FACTORS,
    LengthLaw,
    make_json_text,
    make_text,
    make_vector,
    seed_random,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


MEDIA_TOKENS = 7
"""What each item of media counts: less than any model's catalog says, as with a real engine."""

_MEDIA_PARTS = frozenset({"image_url", "audio_url", "video_url", "input_audio"})


class RequestRefused(Exception):
    """The engine answers 400 with this message."""


@dataclass(frozen=True, slots=True)
class FakeModel:
    """What the fake engine pretends to serve."""

    name: str
    seed: int
    context_tokens: int
    reasoning: bool
    width: int
    """Components of an embedding."""
    answer_law: LengthLaw
    thinking_law: LengthLaw
    checkpoints: tuple[tuple[str, int], ...] = ()
    """Of a decision model: names and contexts."""
    option_budget_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """An answer before it is decoded: how many tokens it takes and what is sent when they are made."""

    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Generated:
    """Texts of one answer after the cut at ``max_tokens``; ``thinking`` is None when it was off."""

    thinking: str | None
    content: str
    finish_reason: str

    @property
    def thinking_tokens(self) -> int:
        return len(self.thinking or "")

    @property
    def output_tokens(self) -> int:
        return self.thinking_tokens + len(self.content.encode())


def plan_chat(model: FakeModel, request: Mapping[str, Any], length_factor: float) -> Planned:
    """Plan the answer to one chat request. Raises ``RequestRefused``."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise RequestRefused("messages: a non-empty list of messages is required")
    if "reasoning_effort" in request and "reasoning_effort" in (request.get("chat_template_kwargs") or {}):
        raise RequestRefused(
            "reasoning_effort: stands at the top level and in chat_template_kwargs; give it once"
        )
    prompt_tokens = _count_conversation(messages)
    room = model.context_tokens - prompt_tokens
    max_tokens = request.get("max_completion_tokens") or request.get("max_tokens") or max(room, 0)
    _check_context(model, prompt_tokens, max_tokens)
    random = seed_random(model.seed, orjson.dumps(messages, option=orjson.OPT_SORT_KEYS))
    generated = _generate(model, request, random, max_tokens, length_factor)
    body = _chat_body(model, generated, prompt_tokens, f"chatcmpl-{random.getrandbits(128):032x}")
    return Planned(prompt_tokens, generated.output_tokens, generated.finish_reason, body)


def plan_embeddings(model: FakeModel, request: Mapping[str, Any]) -> Planned:
    """Plan the vectors of one request. Raises ``RequestRefused``."""
    dimensions = request.get("dimensions") or model.width
    if not isinstance(dimensions, int) or not 1 <= dimensions <= model.width:
        raise RequestRefused(f"dimensions: {dimensions!r} is not between 1 and {model.width}")
    items = _embedding_items(request)
    counts = [
        _count_conversation(item, opens_answer=False) if isinstance(item, list) else count_byte_text(item)
        for item in items
    ]
    for count in counts:
        _check_context(model, count, 0)
    as_base64 = request.get("encoding_format") == "base64"
    data = [
        {"index": index, "object": "embedding", "embedding": _embedding(model, item, dimensions, as_base64)}
        for index, item in enumerate(items)
    ]
    usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts), "completion_tokens": 0}
    body = {
        "id": f"embd-{seed_random(model.seed, orjson.dumps(items)).getrandbits(128):032x}",
        "object": "list",
        "created": 0,
        "model": model.name,
        "data": data,
        "usage": {**usage, "prompt_tokens_details": None},
    }
    return Planned(sum(counts), 0, "stop", body)


def _count_conversation(messages: list[Any], *, opens_answer: bool = True) -> int:
    """Count a conversation with its media. Raises ``RequestRefused`` for an address: engines fetch nothing."""
    parts = [
        part
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if part.get("type") in _MEDIA_PARTS
    ]
    for part in parts:
        address = part[part["type"]].get("url")
        if address is not None and not address.startswith("data:"):
            raise RequestRefused("media are taken as data: URIs only")
    return count_byte_tokens(messages, opens_answer=opens_answer) + MEDIA_TOKENS * len(parts)


def _check_context(model: FakeModel, prompt_tokens: int, max_tokens: int) -> None:
    """Refuse what does not fit.

    Stricter than vLLM 0.32 on purpose, which lowers a cap that stands over what the prompt leaves and refuses only one
    over the whole context: the core computes that room itself, and here a wrong sum shows.
    """
    limit = model.context_tokens
    if prompt_tokens >= limit or prompt_tokens + max_tokens > limit:
        raise RequestRefused(
            f"This model's maximum context length is {limit} tokens. The request holds {prompt_tokens} input "
            f"tokens and asks for {max_tokens} output tokens. Shorten the input or ask for less output."
        )


def _generate(
    model: FakeModel, request: Mapping[str, Any], random: Random, max_tokens: int, length_factor: float
) -> _Generated:
    """Think, answer, and cut both at ``max_tokens``, thinking first: it is decoded first."""
    thinking_length = round(model.thinking_law.draw(random) * length_factor)
    answer_length = max(1, round(model.answer_law.draw(random) * length_factor))
    thinking = None
    if _thinks(model, request):
        thinking = make_text(random, _cut_thinking(request, thinking_length))[:max_tokens]
    room = max_tokens - len(thinking or "")
    if request.get("ignore_eos"):
        answer_length = room
    answer_length = max(answer_length, request.get("min_tokens") or 0)
    content = make_json_text(request.get("response_format") or {}, random)
    content = make_text(random, answer_length) if content is None else content
    if len(content) > room or request.get("ignore_eos"):
        return _Generated(thinking, content[:room], "length")
    return _Generated(thinking, content, "stop")


def _thinks(model: FakeModel, request: Mapping[str, Any]) -> bool:
    template = request.get("chat_template_kwargs") or {}
    return model.reasoning and template.get("enable_thinking", True) is not False


def _cut_thinking(request: Mapping[str, Any], length: int) -> int:
    template = request.get("chat_template_kwargs") or {}
    effort = request.get("reasoning_effort") or template.get("reasoning_effort") or "xhigh"
    length = max(1, round(length * EFFORT_FACTORS.get(effort, 1.0)))
    budget = request.get("thinking_token_budget")
    return length if budget is None else min(length, budget)


def _chat_body(model: FakeModel, generated: _Generated, prompt_tokens: int, answer_id: str) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": generated.content or None,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": [],
        "reasoning": generated.thinking,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": generated.finish_reason,
        "stop_reason": None,
        "token_ids": None,
    }
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + generated.output_tokens,
        "completion_tokens": generated.output_tokens,
        "prompt_tokens_details": None,
    }
    if generated.thinking is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": generated.thinking_tokens}
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": 0,
        "model": model.name,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": usage,
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def _embedding_items(request: Mapping[str, Any]) -> list[Any]:
    """Return what gets a vector each: texts, or one conversation of a multimodal row."""
    if isinstance(request.get("messages"), list):
        return [request["messages"]]
    given = request.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise RequestRefused("input: a string or a non-empty list of strings is required")
    return texts


def _embedding(model: FakeModel, item: Any, dimensions: int, as_base64: bool) -> Any:
    random = seed_random(model.seed, orjson.dumps(item, option=orjson.OPT_SORT_KEYS))
    vector = make_vector(random, model.width, dimensions)
    if as_base64:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector
