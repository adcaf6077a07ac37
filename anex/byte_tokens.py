"""The byte rule: a token count that needs no tokenizer files.

The fake engine reports by it and the core counts by it for catalog models whose tokenizer is ``bytes``, so
"counted up front" and "reported by the engine" agree without a tokenizer: one rule, two readers. One token is
one UTF-8 byte, which is also the most that any byte-level tokenizer makes of a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MESSAGE_OVERHEAD_TOKENS = 4
"""Stands for the role and the two turn markers that a chat template writes around each message."""

GENERATION_PROMPT_TOKENS = 3
"""Stands for the opening of the assistant's turn at the end of a conversation."""

BYTE_MARK = "[MASK]"
"""Stands for the token that marks a decision model's options."""

TEXT_OVERHEAD_TOKENS = 2
"""Stands for the start and end markers that an embedding model reads around a text."""


def count_byte_tokens(messages: Sequence[Mapping[str, Any]], *, opens_answer: bool = True) -> int:
    """Count a conversation's tokens, by default with the generation prompt; parts that are not text count nothing."""
    text_bytes = sum(byte_length(text) for message in messages for text in _texts(message.get("content")))
    opening = GENERATION_PROMPT_TOKENS if opens_answer else 0
    return text_bytes + MESSAGE_OVERHEAD_TOKENS * len(messages) + opening


def count_byte_text(text: str) -> int:
    """Count the tokens of one text as an embedding engine reads it, markers included."""
    return byte_length(text) + TEXT_OVERHEAD_TOKENS


def _texts(content: Any) -> Iterator[str]:
    """Yield a message's texts: its content is null, one string, or a list of typed parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and _is_text(part))


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def byte_length(text: str) -> int:
    """Count the tokens of a text with nothing around it."""
    # A lone surrogate has no UTF-8 form; counting must not raise where only the row is at fault.
    return len(text.encode("utf-8", "surrogatepass"))
