"""Whatever a source does, cuts, lies and changes of the file, what is taken for a whole copy is one version of it."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from anex.inputs.ingest import PASSES_MAX
from anex.inputs.source import SourceCutShort, SourceFault, SourceLimits, SourceReader
from anex.outbound import Outbound
from tests.support.sources import chunked, say
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.tls_server import Exchange

HISTORIES = 300
SIZE_MIN, SIZE_MAX = 200_000, 600_000
LIMITS = SourceLimits(
    size_max_bytes=SIZE_MAX * 2, deadline_seconds=60.0, idle_seconds=10.0, retry_seconds=0.001
)


@dataclass
class Source:
    """A file that changes, behind a server that cuts and lies, all by one seed. Only its strong validators never lie."""

    chance: random.Random
    versions: list[bytes] = field(default_factory=list)
    rests_sent: int = 0

    def __post_init__(self) -> None:
        self.is_tagged = self.chance.random() < 0.8
        self.lies_often = self.chance.random() * 0.4
        self.cuts_often = 0.3 + self.chance.random() * 0.5
        self.heeds_if_range = self.chance.random() < 0.5
        self.change()

    def change(self) -> None:
        """Begin a new version, often of the same size."""
        size = (
            len(self.versions[-1])
            if self.versions and self.is_likely(0.7)
            else self.chance.randrange(SIZE_MIN, SIZE_MAX)
        )
        self.versions.append(self.chance.randbytes(size))

    def is_likely(self, chance: float) -> bool:
        return self.chance.random() < chance

    def answer(self, exchange: Exchange) -> None:
        if self.is_likely(0.3):
            self.change()
        data, etag = self.versions[-1], f'"{len(self.versions)}"'
        asked = exchange.request.headers.get("range")
        is_heeded = not self.heeds_if_range or exchange.request.headers.get("if-range") == etag
        headers: dict[str, object] = {"ETag": etag if self.is_tagged else 'W/"same"'}
        if self.is_likely(self.lies_often * 0.2):
            del headers["ETag"]
        if asked is None or not is_heeded or self.is_likely(0.05):
            self.send(exchange, 200, headers, data)
            return
        start = int(asked.removeprefix("bytes=").partition("-")[0])
        if start >= len(data):
            exchange.respond(416, b"", {"Content-Range": f"bytes */{self.bend(len(data))}"})
            return
        start = min(self.bend(start), len(data) - 1)  # it may go on elsewhere, and say so
        end = len(data) if self.is_likely(0.6) else self.chance.randint(start + 1, len(data))
        total = "*" if self.is_likely(0.2) else self.bend(len(data))
        headers["Content-Range"] = f"bytes {start}-{self.bend(end - 1)}/{total}"
        self.rests_sent += 1
        self.send(exchange, 206, headers, data[start:end])

    def bend(self, number: int) -> int:
        """Return a number, or a lie near by."""
        return (
            max(0, number + self.chance.choice([-1, 1, 1000])) if self.is_likely(self.lies_often) else number
        )

    def send(self, exchange: Exchange, status: int, headers: dict[str, object], body: bytes) -> None:
        """Send a body, or a part of it, in one of the framings; its end may be a lie too."""
        cut_at = (
            self.chance.randrange(len(body) // 2, len(body) + 1) if self.is_likely(self.cuts_often) else None
        )
        # Only a part may lie about its end: where nothing but the framing tells it, that is the truth.
        ends = cut_at is None or (status == HTTPStatus.PARTIAL_CONTENT and self.is_likely(self.lies_often))
        framing = self.chance.choice(["length", "chunked", "close"])
        if framing == "length":
            say(exchange, status, {**headers, "Content-Length": len(body)}, body[:cut_at])
        elif framing == "chunked":
            told = {**headers, "Transfer-Encoding": "chunked"}
            say(exchange, status, told, chunked(body[:cut_at], ends=ends))
        else:
            say(exchange, status, headers, body[:cut_at])
            if ends:
                exchange.say_goodbye()


@contextmanager
def open_reader(folder: Path, source: Source) -> Iterator[SourceReader]:
    with run_tls_server(folder, source.answer) as server:
        yield SourceReader(Outbound(server.policy), server.url(), LIMITS)


def read_all(reader: SourceReader) -> bytes | None:
    """Read as a copy does; None is a failed one."""
    for _ in range(PASSES_MAX):
        blocks: list[bytes] = []
        try:
            reader.send_to(blocks.append, threading.Event())
        except SourceCutShort:
            reader.start_over()
        except SourceFault:
            return None
        else:
            return b"".join(blocks)
    return None


@pytest.mark.parametrize("seeds", [range(at, at + 100) for at in range(0, HISTORIES, 100)], ids=str)
def test_a_whole_copy_is_one_version_of_the_file(tmp_path: Path, seeds: range) -> None:
    whole = asked = 0
    for seed in seeds:
        source = Source(random.Random(seed))  # noqa: S311 - a seeded history
        with open_reader(tmp_path, source) as reader:
            data = read_all(reader)
        assert data is None or data in source.versions, f"seed {seed}"
        whole += data is not None
        asked += source.rests_sent > 0 and data is not None
    # Sources that never serve a whole file, or none in parts, would prove nothing.
    assert whole > len(seeds) // 4
    assert asked > len(seeds) // 10
