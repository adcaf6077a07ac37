"""Count the tokens of a chunk's rows, against the tokenizer library encoding the very same prompts.

A seeded file of chat rows of some 2 KiB, SmolLM2's own tokenizer and chat template. Our side does all that a counting message does
but the download: cut lines, decode rows, render the template, encode, add up. The library's side is given the prompts as the
template renders them and encodes them 128 at a time with its fastest call; the time that rendering them took is not counted. Both
must find the same number of tokens. ``MB`` turns the size down. It needs the engine's environment (``make engine``), which holds
what turns the package's weights into a tokenizer file.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tokenizers import Tokenizer

from anex.chat_templates import ChatTemplate
from anex.clock import SystemClock
from anex.rows.chat import ChatFormat
from anex.rows.decode import iterate_rows
from anex.rows.inputs import InputTerms, count_inputs
from anex.rows.media import MediaTerms
from anex.rows.settings import RowSettings
from anex.token_counters import StoredTokenCounters
from anex.tokenizer_files import read_chat_template, read_special_tokens
from bench.support.rounds import print_figures, say, take_turns
from config.catalog import load_catalog
from config.stack.weights import prepare_model_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anex.catalog import ModelSpec
    from anex.rows.chat import ChatRow

T = TypeVar("T")

FULL_MB = 16
MB = int(os.environ.get("MB", str(FULL_MB)))
SEED = 20261201
ROW_WORDS = 350
ROWS_AT_ONCE = 128
PROJECT = Path(__file__).parent.parent
MODEL = "smollm2-135m"
ENGINE_PYTHON = Path(os.environ.get("ANEX_ENGINE_PYTHON", PROJECT / ".venv-engine" / "bin" / "python"))
WORDS = (
    *(
        "the",
        "of",
        "and",
        "to",
        "in",
        "is",
        "that",
        "for",
        "it",
        "as",
        "was",
        "with",
        "on",
        "are",
        "by",
        "this",
        "which",
    ),
    *(
        "Revenue",
        "grew",
        "quarterly",
        "because",
        "customers",
        "subscribed",
        "earlier",
        "than",
        "forecast",
        "café",
        "naïve",
    ),
    *("42", "3.14", "2026-12-01", "x = y + 1;", "don't", "https://example.com/a?b=c", "你好", "Привет", "🙂"),
)


def main() -> None:
    """Run the benchmark."""
    spec = load_catalog(PROJECT / "config" / "models.local.toml").get(MODEL)
    with tempfile.TemporaryDirectory(prefix="anex-bench-") as name:
        files = prepare_model_files(spec, Path(name), ENGINE_PYTHON, say)
        data = make_rows()
        measure(spec, Path(name), files, data)


def measure(spec: ModelSpec, folder: Path, files: Path, data: bytes) -> None:
    """Let both sides count in turn, and print the figures."""
    counters = StoredTokenCounters(None, folder / "models")  # type: ignore[arg-type] # the files are there already
    terms = InputTerms(RowSettings(), MediaTerms(spec), counters.for_model(spec))
    prompts = render(files, spec, data)
    tokenizer = Tokenizer.from_file(str(files / "tokenizer.json"))
    tokenizer.no_truncation()
    counts: dict[str, int] = {}

    def ours() -> float:
        began = time.process_time()
        counts["ours"] = sum(
            found.usage.input_tokens
            for batch in in_batches(read_rows(spec, data))
            for found in count_inputs(terms, batch)
        )
        return time.process_time() - began

    def library() -> float:
        began = time.process_time()
        counts["library"] = sum(
            len(each)
            for batch in in_batches(prompts)
            for each in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        )
        return time.process_time() - began

    ours_s, library_s = take_turns(ours, library)
    if counts["ours"] != counts["library"]:
        raise RuntimeError(f"the counts differ: {counts}")
    size_mb = len(data) / (1 << 20)
    say(
        f"{size_mb:.1f} MB of rows, {counts['ours']:,} tokens: {ours_s:.2f} CPU-s; the library alone {library_s:.2f}."
    )
    print_figures(
        mb_per_cpu_s=round(size_mb / ours_s, 2),
        x_library=round(library_s / ours_s, 3),
        tokens=counts["ours"],
        input=hashlib.sha256(data).hexdigest()[:16],
        settings={"mb": MB, "seed": SEED, "model": MODEL},
        quick=MB < FULL_MB,
    )


def make_rows() -> bytes:
    """Return the file."""
    generator = random.Random(SEED)  # noqa: S311 - seeded rows, no secret
    lines: list[bytes] = []
    size_bytes = 0
    while size_bytes < MB << 20:
        text = " ".join(generator.choices(WORDS, k=ROW_WORDS))
        body: dict[str, Any] = {
            "messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": text}]
        }
        line = {
            "custom_id": f"row-{len(lines)}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body,
        }
        lines.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        size_bytes += len(lines[-1])
    return b"".join(lines)


def read_rows(spec: ModelSpec, data: bytes) -> Any:
    """Return the rows as a planner reads them."""
    blocks = (data[begin : begin + (8 << 20)] for begin in range(0, len(data), 8 << 20))
    return iterate_rows(blocks, ChatFormat(spec), start_byte=0, first_line=1, first_row=1)


def in_batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items, so many at once."""
    left = iter(items)
    while batch := list(islice(left, ROWS_AT_ONCE)):
        yield batch


def render(files: Path, spec: ModelSpec, data: bytes) -> list[str]:
    """Return the rows' prompts."""
    source = read_chat_template(files)
    if source is None:
        raise RuntimeError("the model has no chat template")
    template = ChatTemplate(source, read_special_tokens(files), SystemClock())
    rows: Any = read_rows(spec, data)
    return [_render(template, row) for row in rows]


def _render(template: ChatTemplate, row: ChatRow) -> str:
    return template.render(row.plain_messages(), {})


if __name__ == "__main__":
    main()
