"""Checkpoints: the finished rows of a chunk that is not finished, so that the next claim runs only the missing ones.

MessagePack (https://msgpack.org): a list of ``_Entry``, each an array. Bounded like a part: 64 MiB of expected output.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
import structlog

from anex.errors import ObjectChanged, ObjectMissing
from anex.jobs.chunks import Chunk, StoredObject
from anex.object_keys import new_checkpoint_key
from anex.rows.result import OutcomeKind, RowOutcome
from anex.s3 import ObjectHead
from anex.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.services import Services

log = structlog.get_logger(__name__)


class _Entry(msgspec.Struct, array_like=True, gc=False):
    """A finished row. What was added since the first version stands last: entries without it are still read."""

    row_number: int
    kind: OutcomeKind
    input_tokens: int
    output_tokens: int
    line: bytes
    media_tokens: int = 0
    images: int = 0
    clips: int = 0
    clip_milliseconds: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Entry]).decode


def write_checkpoint(services: Services, chunk: Chunk, outcomes: Mapping[int, RowOutcome]) -> StoredObject:
    """Store the finished rows of a chunk under a fresh key."""
    data = _encode(
        [
            _Entry(row_number=number, kind=outcome.kind, line=outcome.line, **asdict(outcome.usage))
            for number, outcome in outcomes.items()
        ]
    )
    key = new_checkpoint_key(chunk.org_id, chunk.job_id, chunk.chunk_index, chunk.fence)
    return StoredObject(key, ObjectHead(len(data), services.objects.put(key, data)))


def read_checkpoint(services: Services, chunk: Chunk) -> dict[int, RowOutcome]:
    """Return the finished rows of a chunk, by row number; none when the checkpoint is lost: they run again."""
    if chunk.checkpoint_key is None:
        return {}
    try:
        data = _read(services, chunk.checkpoint_key, chunk.checkpoint_etag)
    except (ObjectChanged, ObjectMissing):
        log.error("checkpoint_lost", job_id=chunk.job_id, chunk=chunk.chunk_index)  # noqa: TRY400 - the trace tells nothing
        return {}
    return {entry.row_number: RowOutcome(entry.line, entry.kind, _usage(entry)) for entry in _decode(data)}


def _usage(entry: _Entry) -> Usage:
    return Usage(
        entry.input_tokens,
        entry.output_tokens,
        entry.media_tokens,
        entry.images,
        entry.clips,
        entry.clip_milliseconds,
    )


def _read(services: Services, key: str, etag: str | None) -> bytes:
    head = services.objects.head(key)
    if head is None:
        raise ObjectMissing(f"there is no {key}")
    return b"".join(services.objects.stream(key, 0, head.size_bytes, etag))
