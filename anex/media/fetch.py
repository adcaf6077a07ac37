"""Fetch hosted media for the engine, which never fetches anything itself: through the guarded client, bounded in time and size.

What an item is gets looked at again here: an address' extension and its host may say one thing and send another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from anex.media.formats import find_by_extension, find_by_mime, find_by_name
from anex.media.images import find_image_fault
from anex.media.sniff import HEAD_BYTES, find_contradiction, sniff_format
from anex.outbound import OutboundFailed, OutboundRefused

if TYPE_CHECKING:
    from anex.catalog import Modality
    from anex.media.model import MediaFormat
    from anex.outbound import Outbound

REDIRECTS_MAX = 3
TRIES_MAX = 3
RETRY_WAIT_MAX_SECONDS = 4.0
FETCH_SECONDS = 60.0
"""Of one try, from the first look-up of the name to the last byte."""

SIZE_MAX_BYTES: dict[Modality, int] = {"image": 64 << 20, "audio": 128 << 20, "video": 192 << 20}
"""A hosted item has no size of its own in the contract; a worker's memory has."""

CACHE_MAX_BYTES = 128 << 20
"""Of items kept for the rows of a chunk that name the same address."""

_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class MediaUnavailable(Exception):
    """An item could not be had; ``message`` tells the row's owner why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class _HostBusy(OutboundFailed):
    """The host answered that it can't serve now."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One item."""

    data: bytes
    format: MediaFormat


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes that are read like a file's."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self, offset: int, count: int) -> bytes:
        return self.data[offset : offset + count]


class MediaFetcher:
    """Fetches items, each once as long as it is remembered. Safe from several threads."""

    def __init__(self, outbound: Outbound, retry_seconds: float = 0.5) -> None:
        self._outbound = outbound
        self._retry_seconds = retry_seconds
        self._kept: OrderedDict[tuple[Modality, str], Fetched] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def fetch(self, modality: Modality, address: str) -> Fetched:
        """Return what is at an address, in a format that the model reads. Raises ``MediaUnavailable``."""
        with self._lock:
            kept = self._kept.get((modality, address))
        if kept is not None:
            return kept
        try:
            data, mime = self._retrying()(self._read, modality, address)
        except (OutboundFailed, OutboundRefused) as fault:
            raise MediaUnavailable(f"the {modality} could not be fetched: {fault.message}") from fault
        fetched = Fetched(data, _judge(modality, address, mime, data))
        self._keep(modality, address, fetched)
        return fetched

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(OutboundFailed),
            stop=stop_after_attempt(TRIES_MAX),
            wait=wait_exponential_jitter(
                multiplier=self._retry_seconds, max=RETRY_WAIT_MAX_SECONDS, jitter=self._retry_seconds
            ),
            reraise=True,
        )

    def _read(self, modality: Modality, address: str) -> tuple[bytes, str]:
        with self._outbound.request(
            "GET", address, deadline_seconds=FETCH_SECONDS, redirects_max=REDIRECTS_MAX
        ) as answer:
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in _TRY_AGAIN:
                raise _HostBusy(f"the host answered {answer.status}")
            if answer.status != HTTPStatus.OK:
                raise MediaUnavailable(
                    f"the {modality} could not be fetched: the host answered {answer.status}"
                )
            return answer.read(SIZE_MAX_BYTES[modality]), answer.headers.get("Content-Type", "")

    def _keep(self, modality: Modality, address: str, fetched: Fetched) -> None:
        with self._lock:
            if len(fetched.data) > CACHE_MAX_BYTES or (modality, address) in self._kept:
                return
            self._kept[modality, address] = fetched
            self._kept_bytes += len(fetched.data)
            while self._kept_bytes > CACHE_MAX_BYTES:
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped.data)


def _judge(modality: Modality, address: str, mime: str, data: bytes) -> MediaFormat:
    """Return the format of fetched bytes. Raises ``MediaUnavailable`` for bytes that no engine should see."""
    head = data[:HEAD_BYTES]
    extension = find_by_extension(address)
    named = (
        (None if extension is None else find_by_name(modality, extension))
        or find_by_mime(modality, mime)
        or sniff_format(modality, head)
    )
    if named is None:
        raise MediaUnavailable(f"what the host sent is no {modality} in a supported format")
    contradiction = find_contradiction(named, head)
    if contradiction is not None:
        raise MediaUnavailable(f"the {modality} is named {named}, but {contradiction}")
    fault = find_image_fault(named, _Held(data)) if modality == "image" else None
    if fault is not None:
        raise MediaUnavailable(fault)
    return named
