"""Models and lines for tests of rows."""

from __future__ import annotations

import json
from typing import Any

from anex.catalog import EngineSpec, ModelSpec, Prices, Throughput, Weights


def chat_spec() -> ModelSpec:
    """Return a chat model that takes text alone and doesn't think."""
    return ModelSpec(
        id="test-chat",
        kind="chat",
        queue="test-chat",
        modalities=frozenset(),
        context_tokens=1000,
        output_max_tokens=800,
        media_context=None,
        reasoning=None,
        image=None,
        audio=None,
        video=None,
        dimensions=None,
        decide=None,
        prices=Prices(0, 0, 0, 0, 0, 0, 3, 2),
        minimum_cents=1,
        realtime=False,
        weights=Weights("none", "", "1", "float32"),
        checkpoints=(),
        engine=EngineSpec("fake", (), (), 8, 1, 180),
        tokenizer="bytes",
        throughput=Throughput(1000, 100, 1),
    )


def chat_line(row_id: str, **changes: Any) -> bytes:
    """Return a line's bytes, without a newline: a small good one with ``changes`` to its fields."""
    line = {
        "custom_id": row_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": [{"role": "user", "content": "hi"}]},
        **changes,
    }
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()


def join_lines(*lines: bytes) -> bytes:
    """Return a file of these lines."""
    return b"".join(line + b"\n" for line in lines)


def compile_anything(_response_format: object) -> None:
    """Stand for a grammar backend that takes every format."""
