"""The source of a copy, read as one stream: cut connections are resumed, and every way it can fail has a sentence for its owner.

A source that cuts off is asked for the rest by ``Range`` (RFC 9110, section 14), with ``If-Range`` where it named a strong
validator, so that the two halves are of the same file.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from anex.errors import AnexError
from anex.outbound import OutboundFailed, OutboundRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anex.outbound import Outbound, OutboundAnswer

REDIRECTS_MAX = 3
BLOCK_BYTES = 256 << 10
TRIES_WITHOUT_PROGRESS = 5
RETRY_WAIT_MAX_SECONDS = 8.0

PROBES_AT_ONCE = 4
"""Requests of one process that may wait for strangers' servers at a time; further ones go without the early look."""

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_STRONG_ETAG = re.compile(r'"[^"]*"')

_probes = threading.BoundedSemaphore(PROBES_AT_ONCE)

log = structlog.get_logger(__name__)


class SourceFault(AnexError):
    """The source can't be copied; the message tells its owner why, and what to do."""

    code = "source_failed"


class SourceCutShort(AnexError):
    """The source stopped sending and does not go on where it stopped: only a copy from the beginning can help."""

    code = "source_failed"


class _SourceBusy(OutboundFailed):
    """The source answered that it can't serve now."""


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Bounds of one copy."""

    size_max_bytes: int
    deadline_seconds: float
    idle_seconds: float
    retry_seconds: float


@dataclass(slots=True)
class SourceReader:
    """One pass over a source from its first byte; ``received_bytes`` tells how far it is."""

    outbound: Outbound
    url: str
    limits: SourceLimits
    received_bytes: int = 0
    _total_bytes: int | None = None
    _validator: str | None = None
    _is_complete: bool = False
    _ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends_at = time.monotonic() + self.limits.deadline_seconds

    def send_to(self, write: Callable[[bytes], None]) -> None:
        """Call ``write`` with the source's bytes, in order, to the end.

        Raises ``SourceFault``, ``SourceCutShort``, and what ``write`` raises.
        """
        while not self._is_complete:
            try:
                self._retrying()(self._read_on, write)
            except OutboundRefused as refused:
                raise SourceFault(refused.message) from refused
            except OutboundFailed as failed:
                raise SourceFault(f"{failed.message}; check the source, then create a new input") from failed

    def _retrying(self) -> Retrying:
        """Try again while nothing comes; whatever came begins the count anew."""
        return Retrying(
            retry=retry_if_exception_type(OutboundFailed),
            stop=stop_after_attempt(TRIES_WITHOUT_PROGRESS),
            wait=wait_exponential_jitter(
                multiplier=self.limits.retry_seconds,
                max=RETRY_WAIT_MAX_SECONDS,
                jitter=self.limits.retry_seconds,
            ),
            reraise=True,
        )

    def _read_on(self, write: Callable[[bytes], None]) -> None:
        """Read from where the last connection stopped: to the end, or until this one is cut after some bytes."""
        before = self.received_bytes
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise SourceFault(
                f"the copy took longer than {self.limits.deadline_seconds:g} seconds; serve the file from a faster host"
            )
        try:
            with self.outbound.request(
                "GET",
                self.url,
                headers=self._headers(),
                deadline_seconds=left,
                idle_seconds=self.limits.idle_seconds,
                redirects_max=REDIRECTS_MAX,
            ) as answer:
                self._judge(answer)
                self._read_body(answer, write)
        except OutboundFailed as failed:
            if self.received_bytes == before:
                raise
            log.info("source_cut", received_bytes=self.received_bytes, reason=failed.message)
        else:
            self._is_complete = True

    def _headers(self) -> dict[str, str]:
        if not self.received_bytes:
            return {}
        headers = {"Range": f"bytes={self.received_bytes}-"}
        return headers if self._validator is None else {**headers, "If-Range": self._validator}

    def _judge(self, answer: OutboundAnswer) -> None:
        """Raise unless the answer is the file, or the rest of it."""
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in _TRY_AGAIN:
            raise _SourceBusy(f"the source answered {_describe(answer.status)}")
        if answer.headers.get("Content-Encoding", "identity").lower() not in {"", "identity"}:
            raise SourceFault(
                f"the source sends the file compressed ({answer.headers['Content-Encoding'][:32]}); serve it as it is"
            )
        if self.received_bytes:
            self._judge_rest(answer)
        elif answer.status == HTTPStatus.OK:
            self._total_bytes = _read_length(answer.headers)
            self._validator = _find_validator(answer.headers)
        else:
            raise SourceFault(_explain(answer.status))
        self._judge_size(self._total_bytes or 0)

    def _judge_rest(self, answer: OutboundAnswer) -> None:
        start, total = _read_content_range(answer.headers)
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and total == self.received_bytes:
            self._total_bytes = total  # the connection was cut just behind the last byte
            return
        same_file = self._total_bytes is None or total in (None, self._total_bytes)
        if answer.status != HTTPStatus.PARTIAL_CONTENT or start != self.received_bytes or not same_file:
            raise SourceCutShort(
                f"the source stopped after {self.received_bytes} bytes and does not go on from there"
            )
        self._total_bytes = total or self._total_bytes

    def _read_body(self, answer: OutboundAnswer, write: Callable[[bytes], None]) -> None:
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        for block in answer.iterate(BLOCK_BYTES):
            self.received_bytes += len(block)
            self._judge_size(self.received_bytes)
            write(block)

    def _judge_size(self, size_bytes: int) -> None:
        if size_bytes > self.limits.size_max_bytes:
            raise SourceFault(
                f"the source is over the {self.limits.size_max_bytes >> 20} MiB cap; split it over several inputs"
            )


def find_advertised_size(outbound: Outbound, url: str, wait_seconds: float) -> int | None:
    """Return the size that a source states, without reading its body; None where it states none, fails, or is slow.

    Asks with GET for one byte: a presigned link is signed for its method, so HEAD would be refused.
    """
    if not _probes.acquire(blocking=False):
        return None
    try:
        with outbound.request(
            "GET",
            url,
            headers={"Range": "bytes=0-0"},
            deadline_seconds=wait_seconds,
            redirects_max=REDIRECTS_MAX,
        ) as answer:
            if answer.status == HTTPStatus.OK:
                return _read_length(answer.headers)
            return _read_content_range(answer.headers)[1]
    except (OutboundFailed, OutboundRefused) as failed:
        log.info("source_not_looked_at", reason=failed.message)
        return None
    finally:
        _probes.release()


_TRY_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
_NEEDS_RIGHTS = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_NOT_THERE = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}


def _describe(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _explain(status: int) -> str:
    told = f"the source answered {_describe(status)}"
    if status in _NEEDS_RIGHTS:
        return f"{told}: the link may have expired; create a new input with a link that can be read without signing in"
    if status in _NOT_THERE:
        return f"{told}: there is no file at this address"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return (
            f"{told}: it redirects more than {REDIRECTS_MAX} times, or nowhere; give the file's own address"
        )
    return f"{told}; expected is 200 OK with the file"


def _read_length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _read_content_range(headers: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the first byte and the whole size that ``Content-Range`` states (RFC 9110, 14.4)."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if match is None:
        return None, None
    start, _, total = match.groups()
    return (int(start) if start else None), (None if total == "*" else int(total))


def _find_validator(headers: Mapping[str, str]) -> str | None:
    """Return what ``If-Range`` may carry: a strong ETag, or the date of the last change (RFC 9110, 13.1.5)."""
    etag = headers.get("ETag", "")
    return etag if _STRONG_ETAG.fullmatch(etag) else headers.get("Last-Modified")
