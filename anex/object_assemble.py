"""Carries out the plan of a join: the store copies what it can, the rest is read and sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from anex.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.object_join import JoinedPart
    from anex.object_multipart import MultipartUpload
    from anex.s3 import PartSource

    ReadRange = Callable[[str, int, int, str | None], bytes]

JOIN_THREADS = 4
"""Parts made at once. Four merged ones hold at most 4 * 15 MiB."""


def send_parts(
    upload: MultipartUpload, plan: Sequence[JoinedPart], sources: Sequence[PartSource], read_range: ReadRange
) -> None:
    """Make all parts of ``plan``; on a failure drop what has not begun and raise the first error."""
    executor = ThreadPoolExecutor(JOIN_THREADS, thread_name_prefix="object-join")
    try:
        futures = [
            executor.submit(_send_part, upload, number, part, sources, read_range)
            for number, part in enumerate(plan, start=1)
        ]
        for future in futures:
            future.result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def merge(part: JoinedPart, sources: Sequence[PartSource], read_range: ReadRange) -> bytes:
    """Read the stretches of ``part``, each conditional on its source's ETag, and return them as one."""
    merged = b"".join(
        read_range(sources[each.index].key, each.start, each.end, sources[each.index].etag)
        for each in part.stretches
    )
    if len(merged) != part.size_bytes:
        raise StorageUnavailable("a source of a joined object is shorter than was recorded")
    return merged


def _send_part(
    upload: MultipartUpload,
    number: int,
    part: JoinedPart,
    sources: Sequence[PartSource],
    read_range: ReadRange,
) -> None:
    if not part.is_copy:
        upload.upload_part(number, merge(part, sources, read_range))
        return
    stretch = part.stretches[0]
    source = sources[stretch.index]
    is_whole = stretch.size_bytes == source.size_bytes
    upload.copy_part(
        number, source.key, source.etag, None if is_whole else f"bytes={stretch.start}-{stretch.end - 1}"
    )
