"""The source of a copy, read as one stream: cut connections are resumed, and every way it can fail has a sentence for its owner.

A source that cuts off is asked for the rest by ``Range`` with ``If-Range`` (RFC 9110, section 14), but only where its first answer
named a strong validator and each further one names the same: else two versions of a file could be joined. All that can't be proven
to be the rest of the same file ends the pass; the file is then read from its beginning.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

import structlog
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    wait_exponential_jitter,
)

from anex.errors import AnexError, LeaseLost
from anex.outbound import OutboundFailed, OutboundRefused
from anex.waiting import waiting_place

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from anex.outbound import Outbound, OutboundAnswer

REDIRECTS_MAX = 3
BLOCK_BYTES = 256 << 10
TRIES_WITHOUT_PROGRESS = 5
RETRY_WAIT_MAX_SECONDS = 8.0

DATE_IS_STRONG_AFTER = timedelta(seconds=60)
"""How long before the answer a file must have changed last: within less it could have changed again with the same date."""

_DIGITS_MAX = 18
"""What a length may have; Python itself refuses to read far longer numbers."""

_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)", re.IGNORECASE)
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]+"')
_DATE = re.compile(r"[A-Za-z]{3}, [0-9]{2} [A-Za-z]{3} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
_NAMES_ITS_FIX = re.compile(r": (?:check|use) ")
"""How ``anex.outbound`` joins a cause and its remedy, where it knows one."""

log = structlog.get_logger(__name__)


class SourceFault(AnexError):
    """The source can't be copied; the message tells its owner why, and what to do."""

    code = "source_failed"


class SourceCutShort(AnexError):
    """The source stopped, and nothing proves that it goes on where it stopped: only a copy from the beginning can help."""

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


@dataclass(frozen=True, slots=True)
class _Version:
    """Which version of a file an answer is of, by its validators (RFC 9110, 8.8)."""

    etag: str = ""
    last_modified: str = ""
    is_date_strong: bool = field(default=False, compare=False)

    @property
    def validator(self) -> str | None:
        """What ``If-Range`` may carry: a strong ETag, or a strong date where there is no ETag at all (13.1.5)."""
        if self.etag:
            return self.etag if _STRONG_ETAG.fullmatch(self.etag) else None
        return self.last_modified if self.is_date_strong else None

    def is_same(self, other: _Version) -> bool:
        """Whether both are the same, byte for byte. An answer that leaves the ETag out, which it must not (15.3.7), is not."""
        if self.etag:
            return self.validator is not None and self.etag == other.etag
        return self.validator is not None and self == other


@dataclass(frozen=True, slots=True)
class _Part:
    """Which bytes of a file an answer holds: from ``start`` to before ``end``, of ``total`` where it says so."""

    start: int
    end: int
    total: int | None


@dataclass(slots=True)
class SourceReader:
    """A source that is read from its first byte; ``received_bytes`` tells how far. The deadline is that of all passes together."""

    outbound: Outbound
    url: str
    limits: SourceLimits
    received_bytes: int = 0
    _total_bytes: int | None = None
    _version: _Version = field(default_factory=_Version)
    _found_at: str = ""
    _is_complete: bool = False
    _ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        self._ends_at = time.monotonic() + self.limits.deadline_seconds

    def start_over(self) -> None:
        """Forget what came: the next bytes are the file's first."""
        self.received_bytes = 0
        self._is_complete = False

    def send_to(self, write: Callable[[bytes], None], lost: threading.Event) -> None:
        """Call ``write`` with the source's bytes, in order, to the end.

        Raises ``SourceFault``, ``SourceCutShort``, ``LeaseLost`` within a second or so after ``lost`` is set, and what
        ``write`` raises.
        """
        while not self._is_complete:
            try:
                self._retrying(lost)(self._read_on, write, lost)
            except OutboundRefused as refused:
                raise SourceFault(refused.message) from refused
            except OutboundFailed as failed:
                raise SourceFault(_add_fix(failed.message)) from failed

    def _retrying(self, lost: threading.Event) -> Retrying:
        """Try again while nothing comes; whatever came begins the count anew."""
        return Retrying(
            retry=retry_if_exception_type(OutboundFailed),
            stop=stop_after_attempt(TRIES_WITHOUT_PROGRESS),
            wait=wait_exponential_jitter(
                multiplier=self.limits.retry_seconds,
                max=RETRY_WAIT_MAX_SECONDS,
                jitter=self.limits.retry_seconds,
            ),
            sleep=sleep_using_event(lost),
            reraise=True,
        )

    def _read_on(self, write: Callable[[bytes], None], lost: threading.Event) -> None:
        """Read from where the last answer stopped: to this one's end, or until it is cut after some bytes."""
        before = self.received_bytes
        try:
            with self._ask(lost) as answer:
                end = self._judge(answer)
                if answer.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    self._read_body(answer, end, write)
                # A 200 ends where its framing says; a part is the last one where the whole size is known and here.
                self._is_complete = answer.status == HTTPStatus.OK or self.received_bytes == self._total_bytes
        except OutboundFailed as failed:
            if self.received_bytes == before:
                raise
            log.info("source_cut", received_bytes=self.received_bytes, reason=failed.message)

    def _ask(self, lost: threading.Event) -> AbstractContextManager[OutboundAnswer]:
        """Ask for the file, or for the rest of it: from where the first answer came, as a validator is of one address only."""
        _require_held(lost)
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise SourceFault(
                f"the copy took longer than {self.limits.deadline_seconds:g} seconds; serve the file from a faster host"
            )
        return self.outbound.request(
            "GET",
            self._found_at if self.received_bytes else self.url,
            headers=self._headers(),
            deadline_seconds=left,
            idle_seconds=self.limits.idle_seconds,
            redirects_max=0 if self.received_bytes else REDIRECTS_MAX,
            meanwhile=lambda: _require_held(lost),
        )

    def _headers(self) -> dict[str, str]:
        if not self.received_bytes:
            return {}
        validator = self._version.validator
        if validator is None:
            raise SourceCutShort(
                f"the source stopped after {self.received_bytes} bytes and names no strong ETag by which to go on;"
                " serve the file from a host that does, or upload it"
            )
        return {"Range": f"bytes={self.received_bytes}-", "If-Range": validator}

    def _judge(self, answer: OutboundAnswer) -> int | None:
        """Return where in the file the answer ends, None where only its framing tells; raise unless it is the file or its rest."""
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in _TRY_AGAIN:
            raise _SourceBusy(f"the source answered {_describe(answer.status)}")
        encoding = answer.headers.get("Content-Encoding", "identity")
        if answer.status in _WITH_FILE and encoding.lower() not in {"", "identity"}:
            raise SourceFault(f"the source sends the file compressed ({encoding[:32]}); serve it as it is")
        end = self._judge_rest(answer) if self.received_bytes else self._judge_first(answer)
        self._judge_size(self._total_bytes or 0)
        return end

    def _judge_first(self, answer: OutboundAnswer) -> int | None:
        if answer.status != HTTPStatus.OK:
            raise SourceFault(_explain(answer.status))
        self._found_at = answer.url
        self._version = _read_version(answer.headers)
        self._total_bytes = _read_length(answer.headers)
        return self._total_bytes

    def _judge_rest(self, answer: OutboundAnswer) -> int:
        """Return where the part ends that an answer is. Raises ``SourceCutShort`` unless it goes on exactly where we are."""
        version, part = _read_version(answer.headers), _read_part(answer.headers)
        if answer.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and self._is_all(answer, version):
            self._total_bytes = self.received_bytes
            return self.received_bytes
        if answer.status == HTTPStatus.PARTIAL_CONTENT and part is not None and self._is_next(part, version):
            self._total_bytes = part.total if self._total_bytes is None else self._total_bytes
            return part.end
        raise SourceCutShort(self._explain_cut(answer.status, version))

    def _is_all(self, answer: OutboundAnswer, version: _Version) -> bool:
        """Whether the connection was cut just behind the last byte. A size that was never told before needs its version."""
        is_known = self._total_bytes is not None or self._version.is_same(version)
        total = _read_total(answer.headers)
        return is_known and total == self.received_bytes and self._total_bytes in {None, total}

    def _is_next(self, part: _Part, version: _Version) -> bool:
        totals = {self._total_bytes, part.total} - {None}
        fits = len(totals) <= 1 and all(part.end <= total for total in totals if total is not None)
        return fits and part.start == self.received_bytes and self._version.is_same(version)

    def _explain_cut(self, status: int, version: _Version) -> str:
        if status in _WITH_FILE and version.validator is not None and not self._version.is_same(version):
            return "the source changed while it was read; create a new input once the file stays as it is"
        return (
            f"the source stopped after {self.received_bytes} bytes and does not go on from there;"
            " serve the file from a host that answers Range requests, or upload it"
        )

    def _read_body(self, answer: OutboundAnswer, end: int | None, write: Callable[[bytes], None]) -> None:
        for block in answer.iterate(BLOCK_BYTES):
            self.received_bytes += len(block)
            self._judge_size(self.received_bytes)
            if end is not None and self.received_bytes > end:
                raise SourceFault(
                    "the source sends more bytes than it states; serve the file with its true Content-Length and Content-Range"
                )
            write(block)
        if end is not None and self.received_bytes < end:
            raise OutboundFailed(f"the source ended its answer after {self.received_bytes} of {end} bytes")

    def _judge_size(self, size_bytes: int) -> None:
        if size_bytes > self.limits.size_max_bytes:
            raise SourceFault(
                f"the source is over the {self.limits.size_max_bytes >> 20} MiB cap; split it over several inputs"
            )


def find_advertised_size(outbound: Outbound, url: str, wait_seconds: float) -> int | None:
    """Return the size that a source states, without reading its body; None where it states none, fails, or is slow.

    Asks with GET for one byte: a presigned link is signed for its method, so HEAD would be refused.
    """
    with waiting_place() as has_place:
        return _ask_size(outbound, url, wait_seconds) if has_place else None


def _ask_size(outbound: Outbound, url: str, wait_seconds: float) -> int | None:
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
            return _read_total(answer.headers)
    except (OutboundFailed, OutboundRefused) as failed:
        log.info("source_not_looked_at", reason=failed.message)
        return None


_WITH_FILE = {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}
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
        return f"{told}: there is no file at this address; create a new input with the file's own address"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return f"{told}: it redirects nowhere; create a new input with the file's own address"
    return f"{told}; expected is 200 OK with the file"


def _add_fix(message: str) -> str:
    """Tell what to do about a call that failed, unless its message says so itself: two remedies in a row read as nonsense."""
    return (
        message if _NAMES_ITS_FIX.search(message) else f"{message}; check the source, then create a new input"
    )


def _require_held(lost: threading.Event) -> None:
    if lost.is_set():
        raise LeaseLost("the copy has another holder")


def _read_length(headers: Mapping[str, str]) -> int | None:
    """Return the length that an answer states. Repeated equal ones are one (RFC 9110, 8.6); a longer number is over every cap."""
    text = headers.get("Content-Length", "").partition(",")[0].strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return int(text) if len(text) <= _DIGITS_MAX else 10**_DIGITS_MAX


def _read_total(headers: Mapping[str, str]) -> int | None:
    """Return the size of the whole file that ``Content-Range`` states (RFC 9110, 14.4)."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    return None if match is None or match[3] == "*" else int(match[3])


def _read_part(headers: Mapping[str, str]) -> _Part | None:
    """Return which bytes an answer says it holds, None where it holds several parts, or none, or contradicts itself."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    is_multipart = headers.get("Content-Type", "").lower().startswith("multipart/byteranges")
    if match is None or match[1] is None or is_multipart:
        return None
    part = _Part(int(match[1]), int(match[2]) + 1, _read_total(headers))
    length = _read_length(headers)
    return part if part.start < part.end and length in {None, part.end - part.start} else None


def _read_version(headers: Mapping[str, str]) -> _Version:
    changed = headers.get("Last-Modified", "")
    return _Version(headers.get("ETag", ""), changed, _is_date_strong(changed, headers.get("Date", "")))


def _is_date_strong(changed: str, answered: str) -> bool:
    """Whether the file can't have changed again within its date (RFC 9110, 8.8.2.2); what can't be told is a no."""
    if not (_DATE.fullmatch(changed) and _DATE.fullmatch(answered)):
        return False
    try:
        return parsedate_to_datetime(answered) - parsedate_to_datetime(changed) >= DATE_IS_STRONG_AFTER
    except ValueError:  # the 31st of February
        return False
