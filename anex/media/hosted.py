"""Ask hosts about clips whose length their owners didn't state: each once, best effort, and no job waits for a host.

A clip costs a HEAD and a few ranges of its container (``anex.media.ranges``), all within one deadline. What contradicts itself is
not known: a file that changes while it is read, bytes of another format. The URL's query may hold its owner's secret, so no URL is
logged.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import structlog

from anex.media.durations import HOSTED_READS_MAX
from anex.media.formats import find_by_mime
from anex.media.model import MediaUnreadable
from anex.media.ranges import BLOCK_BYTES, FileRequests, RangedSource
from anex.media.sniff import HEAD_BYTES, find_contradiction
from anex.outbound import OutboundFailed, OutboundRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.catalog import Modality
    from anex.media.model import ByteSource, Clip, MediaFormat
    from anex.media.ranges import FileAnswer
    from anex.outbound import Outbound

    ReadClip = Callable[[MediaFormat, ByteSource], Clip | None]

log = structlog.get_logger(__name__)

CONTENT_TYPE_MAX_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class HostedClip:
    """A clip to ask about."""

    url: str
    modality: Modality
    format: MediaFormat | None
    """By the URL's extension; None where it has none: then what its host says decides."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The container states the clip's length."""

    clip: Clip
    format: MediaFormat


@dataclass(frozen=True, slots=True)
class Sized:
    """The clip's size is known, and its length not."""

    size_bytes: int
    format: MediaFormat


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing about the clip is known for certain."""


@dataclass(frozen=True, slots=True)
class TypeRefused:
    """The host serves a clip without an extension as a type that is no supported format."""

    content_type: str


Probed = Stated | Sized | Unknown | TypeRefused


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """How much is asked of hosts for one job."""

    clips_max: int = 48
    at_once: int = 10
    seconds_each: float = 5.0
    bytes_each: int = 1 << 20
    requests_each: int = HOSTED_READS_MAX
    """Beside the HEAD and redirects."""

    @property
    def seconds_all(self) -> float:
        """How long all of it takes when no host answers."""
        return self.seconds_each * ceil(self.clips_max / self.at_once)


def probe_clips(
    outbound: Outbound,
    clips: Sequence[HostedClip],
    limits: ProbeLimits,
    read_clip: ReadClip,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Probed]:
    """Return what the hosts of the first distinct URLs say, by URL, in order; the rest are not asked and not in it.

    Once ``stop()`` is true no more are begun. The first clip of a URL speaks for all of them.
    """
    distinct = {clip.url: clip for clip in reversed(clips)}
    asked = [distinct[url] for url in dict.fromkeys(clip.url for clip in clips)][: limits.clips_max]
    all_end_at = time.monotonic() + limits.seconds_all
    probes: dict[str, Future[Probed]] = {}
    pending: set[Future[Probed]] = set()
    with ThreadPoolExecutor(limits.at_once, thread_name_prefix="clip-probe") as threads:
        for clip in asked:
            if len(pending) == limits.at_once:
                _, pending = wait(pending, return_when=FIRST_COMPLETED)
            if stop():
                break
            probes[clip.url] = threads.submit(_probe, outbound, clip, limits, all_end_at, read_clip)
            pending.add(probes[clip.url])
    found = {url: probe.result() for url, probe in probes.items()}
    counts = Counter(type(each) for each in found.values())
    log.info(
        "clips_probed",
        clips=len(distinct),
        asked=len(found),
        stated=counts[Stated],
        sized=counts[Sized],
        unknown=counts[Unknown],
        refused=counts[TypeRefused],
    )
    return found


def _probe(
    outbound: Outbound, clip: HostedClip, limits: ProbeLimits, all_end_at: float, read_clip: ReadClip
) -> Probed:
    ends_at = min(time.monotonic() + limits.seconds_each, all_end_at)
    requests = FileRequests(outbound, ends_at, limits.requests_each, limits.bytes_each)
    try:
        return _ask(requests, clip, read_clip)
    except (OutboundFailed, OutboundRefused, MediaUnreadable):
        return Unknown()


def _ask(requests: FileRequests, clip: HostedClip, read_clip: ReadClip) -> Probed:
    """Ask for the head's facts, then for the bytes. A refused HEAD says nothing: a signed URL is often for GET alone."""
    head = requests.head(clip.url)
    named = clip.format
    if named is None and head is not None and head.content_type:
        named = find_by_mime(clip.modality, head.content_type)
        if named is None:
            return _refuse(head)
    opened = requests.get(clip.url, 0, BLOCK_BYTES)
    if named is None and opened is not None and opened.content_type:
        named = find_by_mime(clip.modality, opened.content_type)
        if named is None:
            return _refuse(opened)
    if named is None:
        return Unknown()
    told_bytes = None if head is None else head.size_bytes
    if opened is None:
        return Sized(told_bytes, named) if told_bytes else Unknown()
    size_bytes = told_bytes if opened.size_bytes is None else opened.size_bytes
    return _read(RangedSource(requests, opened, size_bytes), named, size_bytes, read_clip)


def _refuse(answer: FileAnswer) -> TypeRefused:
    return TypeRefused(answer.content_type[:CONTENT_TYPE_MAX_CHARACTERS])


def _read(source: RangedSource, named: MediaFormat, size_bytes: int | None, read_clip: ReadClip) -> Probed:
    """Return what a file's bytes say. Raises ``MediaUnreadable``."""
    head = source.read(0, HEAD_BYTES)
    if head and find_contradiction(named, head) is not None:
        return Unknown()
    clip = read_clip(named, source)
    if source.changed:
        return Unknown()
    if clip is not None:
        return Stated(clip, named)
    return Sized(size_bytes, named) if size_bytes else Unknown()
