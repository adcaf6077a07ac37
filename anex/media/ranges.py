"""A file on somebody's host as a source of bytes: a HEAD and a few ranges through the guarded client, bounded together.

A host that goes down midway, or knows no ranges, takes nothing from what came before.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from anex.outbound import OutboundFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from anex.outbound import Outbound, OutboundAnswer

REDIRECTS_MAX = 3
BLOCK_BYTES = 64 << 10
"""Ranges begin and end at its multiples, so that two reads that overlap ask for nothing twice."""
ENDLESS_BYTES = 1 << 62
"""Stands for a size that a host doesn't tell: whatever would follow from it is longer than any clip."""

_CONTENT_RANGE = re.compile(r"bytes +(\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What a host said of a file, and the bytes that came with it."""

    url: str
    """Where redirects ended."""
    status: int
    content_type: str
    size_bytes: int | None
    """Of the whole file; None where the host doesn't tell."""
    version: str
    data: bytes = b""


@dataclass(slots=True)
class FileRequests:
    """The requests for one clip: what is left of its time, its requests and its bytes. Each has a connection of its own."""

    outbound: Outbound
    ends_at: float
    requests_left: int
    bytes_left: int

    def head(self, url: str) -> FileAnswer | None:
        """Return what a HEAD says, None where it is refused. Raises ``OutboundRefused``, ``OutboundFailed``."""
        with self._request("HEAD", url, {}) as answer:
            if not _is_success(answer.status):
                return None
            # Frameworks that make a GET of it without writing the body say 0.
            return _describe(answer, _read_length(answer) or None)

    def get(self, url: str, offset: int, count: int) -> FileAnswer | None:
        """Return what came of ``count`` bytes; None where the host gives nothing useful, or a bound is reached.

        Raises ``OutboundRefused``.
        """
        count = min(count, self.bytes_left)
        if self.requests_left == 0 or count <= 0:
            return None
        self.requests_left -= 1
        try:
            with self._request("GET", url, {"Range": f"bytes={offset}-{offset + count - 1}"}) as answer:
                return self._take(answer, offset, count)
        except OutboundFailed:
            return None

    def _request(
        self, method: str, url: str, headers: Mapping[str, str]
    ) -> AbstractContextManager[OutboundAnswer]:
        left_seconds = self.ends_at - time.monotonic()
        return self.outbound.request(
            method, url, headers=headers, deadline_seconds=left_seconds, redirects_max=REDIRECTS_MAX
        )

    def _take(self, answer: OutboundAnswer, offset: int, count: int) -> FileAnswer | None:
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            return self._take_range(answer, offset, count)
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset > 0:
            return _describe(answer, None)
        if not _is_success(answer.status):
            return None
        size_bytes = _read_length(answer)
        if offset > 0 or answer.status != HTTPStatus.OK or not _is_plain(answer):
            return _describe(answer, size_bytes)
        # The host knows no ranges. What it sends begins with the head, and this is the one chance to have some of it.
        data, is_whole = self._read_body(answer, self.bytes_left)
        return _describe(answer, len(data) if is_whole and size_bytes is None else size_bytes, data)

    def _take_range(self, answer: OutboundAnswer, offset: int, count: int) -> FileAnswer | None:
        found = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if found is None or int(found[1]) != offset or int(found[2]) < offset:
            return None
        if not _is_plain(answer):
            return _describe(answer, None)
        data, _ = self._read_body(answer, min(count, int(found[2]) - offset + 1))
        return _describe(answer, None if found[3] == "*" else int(found[3]), data)

    def _read_body(self, answer: OutboundAnswer, count: int) -> tuple[bytes, bool]:
        """Return the first ``count`` bytes, or what came of them, and whether the body ended by itself."""
        data = bytearray()
        try:
            for block in answer.iterate(count):
                data += block
                if len(data) == count:
                    return bytes(data), False
        except OutboundFailed:
            return bytes(data), False
        finally:
            self.bytes_left -= len(data)
        return bytes(data), True


class RangedSource:
    """A file on a host, read in ranges of whole blocks, all of which are kept: they are bounded by what may be asked.

    It never raises but for an address that is refused. What can't be had is missing, as if the file ended there; whether it
    ``changed`` underneath is for the caller to ask.
    """

    def __init__(self, requests: FileRequests, opened: FileAnswer, size_bytes: int | None) -> None:
        self.size_bytes = ENDLESS_BYTES if size_bytes is None else size_bytes
        self.changed = False
        self._requests = requests
        self._opened = opened
        self._gives_more = opened.status == HTTPStatus.PARTIAL_CONTENT
        self._blocks: dict[int, bytes] = {}
        self._keep(0, opened.data)

    def read(self, offset: int, count: int) -> bytes:
        """Return the ``count`` bytes from ``offset`` on; fewer at the end, or where the host or a bound says stop."""
        count = min(count, self.size_bytes - offset)
        if offset < 0 or count <= 0:
            return b""
        first, last = offset // BLOCK_BYTES, (offset + count - 1) // BLOCK_BYTES
        self._fill(first, last)
        found = bytearray()
        for number in range(first, last + 1):
            block = self._blocks.get(number, b"")
            found += block
            if len(block) < BLOCK_BYTES:
                break
        begin = offset - first * BLOCK_BYTES
        return bytes(found[begin : begin + count])

    def _fill(self, first: int, last: int) -> None:
        while first <= last and first in self._blocks:
            first += 1
        while first <= last and last in self._blocks:
            last -= 1
        if first > last or not self._gives_more:
            return
        begin = first * BLOCK_BYTES
        end = min((last + 1) * BLOCK_BYTES, self.size_bytes)
        answer = self._requests.get(self._opened.url, begin, end - begin)
        if answer is not None and self._is_other(answer):
            self.changed = True
        self._gives_more = answer is not None and not self.changed and bool(answer.data)
        if answer is not None and not self.changed:
            self._keep(first, answer.data)

    def _is_other(self, answer: FileAnswer) -> bool:
        """Whether an answer is about another file than the first one; that there is no such range is news where a size was told."""
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return self._opened.size_bytes is not None
        return (answer.size_bytes, answer.version) != (self._opened.size_bytes, self._opened.version)

    def _keep(self, number: int, data: bytes) -> None:
        for begin in range(0, len(data), BLOCK_BYTES):
            self._blocks[number + begin // BLOCK_BYTES] = data[begin : begin + BLOCK_BYTES]


def _describe(answer: OutboundAnswer, size_bytes: int | None, data: bytes = b"") -> FileAnswer:
    headers = answer.headers
    content_type = headers.get("Content-Type", "").partition(";")[0].strip()
    version = headers.get("ETag") or headers.get("Last-Modified") or ""
    return FileAnswer(answer.url, answer.status, content_type, size_bytes, version, data)


def _is_success(status: int) -> bool:
    return HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES


def _is_plain(answer: OutboundAnswer) -> bool:
    """Whether sizes and bytes are the file's own: some hosts compress although they are told not to."""
    return answer.headers.get("Content-Encoding", "identity").strip().lower() in {"", "identity"}


def _read_length(answer: OutboundAnswer) -> int | None:
    """Return the size of the file that a whole answer states, None where it states none or isn't of the file."""
    text = answer.headers.get("Content-Length", "").strip()
    is_file = answer.status == HTTPStatus.OK and _is_plain(answer)
    if not is_file or "Transfer-Encoding" in answer.headers or _COUNT.fullmatch(text) is None:
        return None
    return int(text)
