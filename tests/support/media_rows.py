"""Rows with media for tests: parts, lines and what a check or a count says of them."""

from __future__ import annotations

import base64
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

from anex.rows.chat import ChatFormat
from anex.rows.check import RowChecker, Summary
from anex.rows.decode import iterate_rows
from anex.rows.media import MediaTerms, RowMedia, measure_media
from anex.rows.settings import RowSettings
from config.catalog import load_catalog
from tests.support.containers import chunk, riff, wav_format
from tests.support.row_samples import chat_line, compile_anything, join_lines

CATALOG = load_catalog(Path(__file__).parents[2] / "config" / "models.toml")
QWEN, NEMOTRON, GEMMA = (
    CATALOG.get(name) for name in ("qwen3.8-27b", "nemotron-3-nano-omni-30b", "gemma4-12b")
)
TEXT_ONLY = CATALOG.get("qwen3-14b")
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def wav(seconds: float, rate: int = 100) -> bytes:
    return riff(b"WAVE", wav_format(rate=rate), chunk(b"data", bytes(2 * round(seconds * rate))))


def inline(mime: str, data: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def audio(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "audio_url", "audio_url": {"url": url, **more}}


def video(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": url, **more}}


def speech(data: bytes, named: str = "wav", **more: Any) -> dict[str, Any]:
    return {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(data).decode(), "format": named, **more},
    }


def line(*parts: dict[str, Any], row_id: str = "x") -> bytes:
    return chat_line(row_id, body={"messages": [{"role": "user", "content": list(parts)}]})


def check(*lines: bytes, spec: Any = NEMOTRON, fps: str | None = None) -> Summary:
    terms = MediaTerms(spec, None if fps is None else Fraction(fps))
    return RowChecker(spec, RowSettings(), "etag", compile_anything, media=terms).check_stream(
        [join_lines(*lines)]
    )


def fault_of(*parts: dict[str, Any], spec: Any = NEMOTRON, fps: str | None = None) -> str:
    (fault,) = check(line(*parts), spec=spec, fps=fps).faults.sentences()
    return fault


def measure(*parts: dict[str, Any], spec: Any = NEMOTRON, text_tokens: int = 10, **terms: Any) -> RowMedia:
    (row,) = iterate_rows([line(*parts)], ChatFormat(spec), start_byte=0, first_line=1, first_row=1)
    return measure_media(MediaTerms(spec, **terms), row.list_media(), text_tokens)


def avi(frames: int, fps: int) -> bytes:
    main = struct.pack("<IIIIIIIIII", 1_000_000 // fps, 0, 0, 0, frames, 0, 1, 0, 8, 8) + bytes(16)
    stream = b"vids" + bytes(16) + struct.pack("<IIIII", 1, fps, 0, frames, 0) + bytes(20)
    streams = chunk(b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", bytes(40)))
    return riff(b"AVI ", chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + streams), chunk(b"LIST", b"movi"))
