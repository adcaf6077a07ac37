"""A TLS host of media files: it answers HEAD and ranges as a test says, and counts what it sends and how many wait at once.

with run_media_host(tmp_path) as host:
    host.files["/clip.wav"] = MediaFile(wav_head(seconds=10), "audio/wav", size_bytes=160_044)
    probe_clips(Outbound(host.server.policy), [HostedClip(host.server.url("/clip.wav"), "audio", "wav")], ...)
"""

from __future__ import annotations

import re
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from anex.media.durations import read_clip
from anex.media.hosted import HostedClip, Probed, ProbeLimits, Stated, probe_clips
from anex.media.model import Clip
from anex.media.ranges import BLOCK_BYTES
from anex.outbound import Outbound
from tests.support.containers import wav_format
from tests.support.outbound_calls import WAIT_SECONDS
from tests.support.tls_server import run_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from anex.media.hosted import ReadClip
    from anex.media.model import ByteSource, MediaFormat
    from tests.support.tls_server import Exchange, TlsServer

SECONDS = 10
"""Of the WAV file that most tests serve."""
PATIENT = ProbeLimits(seconds_each=WAIT_SECONDS)
"""Limits of which no test waits for that on time."""

_PIECE_BYTES = 16 << 10
_GIVE_UP_SECONDS = 30.0
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(frozen=True)
class MediaFile:
    """A file, and how its host serves it."""

    content: bytes
    content_type: str | None = None
    size_bytes: int | None = None
    """With it, zeros follow the content up to here, less the tail: nobody has the memory for them."""
    tail: bytes = b""
    head_status: int = 200
    status: int = 200
    """Of a GET."""
    knows_ranges: bool = True
    tells_size: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole_bytes(self) -> int:
        return len(self.content) + len(self.tail) if self.size_bytes is None else self.size_bytes

    def cut(self, begin: int, end: int) -> bytes:
        """Return the bytes of a place, of which there are few."""
        tail_begin = self.whole_bytes - len(self.tail)
        zeros = max(0, min(end, tail_begin) - max(begin, len(self.content)))
        return (
            self.content[begin:end]
            + bytes(zeros)
            + self.tail[max(0, begin - tail_begin) : max(0, end - tail_begin)]
        )


class MediaHost:
    """Files by path; one may be a function that writes its own answer. What is counted is counted before it is sent."""

    server: TlsServer

    def __init__(self) -> None:
        self.files: dict[str, MediaFile | Callable[[Exchange], None]] = {}
        self.sent_bytes = 0
        """Of bodies."""
        self.at_once_max = 0
        """Requests that came before an earlier one had its answer."""
        self._lock = threading.Lock()
        self._waiting = 0
        self._opens_at = 1
        self._open = threading.Event()

    def hold_until(self, waiting: int) -> None:
        """Answer nobody before so many wait; from then on everybody at once."""
        self._opens_at = waiting

    def answer(self, exchange: Exchange) -> None:
        """Answer a request."""
        with self._lock:
            self._waiting += 1
            self.at_once_max = max(self.at_once_max, self._waiting)
            if self._waiting >= self._opens_at:
                self._open.set()
        self._open.wait(_GIVE_UP_SECONDS)
        with self._lock:
            self._waiting -= 1
        file = self.files.get(
            exchange.request.path.partition("?")[0], MediaFile(b"", status=404, head_status=404)
        )
        if isinstance(file, MediaFile):
            self.serve(exchange, file)
        else:
            file(exchange)

    def serve(self, exchange: Exchange, file: MediaFile) -> None:
        """Answer with a file, or the part of it that is asked for."""
        is_head = exchange.request.method == "HEAD"
        status = file.head_status if is_head else file.status
        begin, end, whole_bytes = 0, file.whole_bytes, file.whole_bytes
        headers = dict(file.headers)
        if file.content_type is not None:
            headers["Content-Type"] = file.content_type
        asked = _RANGE.fullmatch(exchange.request.headers.get("range", ""))
        if asked is not None and file.knows_ranges and status == 200:
            begin, end = int(asked[1]), min(int(asked[2]) + 1, whole_bytes)
            status, headers = (206, headers) if begin < whole_bytes else (416, {})
            span = f"{begin}-{end - 1}" if status == 206 else "*"
            headers["Content-Range"] = f"bytes {span}/{whole_bytes if file.tells_size else '*'}"
        begin = min(begin, end)
        chunked = status == 200 and not file.tells_size
        headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(end - begin)}
        self.write_head(exchange, status, headers)
        if not is_head:
            self._write_body(exchange, file, begin, end, chunked=chunked)

    def write_head(self, exchange: Exchange, status: int, headers: Mapping[str, str]) -> None:
        """Write a status and headers, and nothing of a body."""
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers.items())]
        exchange.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def send(self, exchange: Exchange, data: bytes, *, chunked: bool = False) -> None:
        """Write a piece of a body."""
        with self._lock:
            self.sent_bytes += len(data)
        exchange.send(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)

    def methods(self) -> list[str]:
        """Return the methods of all requests, in order."""
        return [request.method for request in self.server.requests]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the first and last place of each range that was asked for, in order."""
        found = (_RANGE.fullmatch(request.headers.get("range", "")) for request in self.server.requests)
        return [(int(each[1]), int(each[2])) for each in found if each is not None]

    def _write_body(
        self, exchange: Exchange, file: MediaFile, begin: int, end: int, *, chunked: bool
    ) -> None:
        while begin < end:
            piece = file.cut(begin, min(begin + _PIECE_BYTES, end))
            self.send(exchange, piece, chunked=chunked)
            begin += len(piece)
        if chunked:
            exchange.send(b"0\r\n\r\n")


def redirect(location: str) -> Callable[[Exchange], None]:
    """Return an answer that leads elsewhere."""
    return lambda exchange: exchange.respond(302, headers={"Location": location})


@contextmanager
def run_media_host(folder: Path, names: Sequence[str] = ()) -> Iterator[MediaHost]:
    """Run a host, with a certificate for ``localhost`` and ``names``, until the context ends."""
    host = MediaHost()
    with run_tls_server(folder, host.answer, names) as host.server:
        yield host


def make_wav(seconds: int) -> MediaFile:
    """Return a WAV file of silence."""
    rate = 8000
    data_bytes = 2 * rate * seconds
    heads = b"WAVE" + wav_format(rate=rate) + struct.pack("<4sI", b"data", data_bytes)
    content = struct.pack("<4sI", b"RIFF", len(heads) + data_bytes) + heads
    return MediaFile(content, "audio/wav", len(content) + data_bytes)


WAV = make_wav(SECONDS)
STATED_WAV = Stated(Clip(Fraction(SECONDS)), "wav")


def probe(
    host: MediaHost,
    path: str,
    named: MediaFormat | None = "wav",
    *,
    limits: ProbeLimits = PATIENT,
    read: ReadClip = read_clip,
) -> Probed:
    """Return what is learnt about one file."""
    clip = HostedClip(host.server.url(path), "audio", named)
    (found,) = probe_clips(Outbound(host.server.policy), [clip], limits, read).values()
    return found


def read_through(_: MediaFormat, source: ByteSource) -> Clip | None:
    """Read block by block to the end: a reader that knows no bounds but the source's."""
    offset = 0
    while offset < source.size_bytes and (found := source.read(offset, BLOCK_BYTES)):
        offset += len(found)
    return None
