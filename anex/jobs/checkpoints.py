"""Checkpoints: the finished rows of a chunk that is not finished, so that the next claim runs only the missing ones.

MessagePack (https://msgpack.org): a list of [row number, kind, input tokens, output tokens, line]. Bounded like a part: 64 MiB of
expected output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import structlog

from anex.errors import ObjectChanged, ObjectMissing
from anex.jobs.chunks import Chunk, StoredObject
from anex.object_keys import new_checkpoint_key
from anex.rows.result import OutcomeKind, RowOutcome
from anex.s3 import ObjectHead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anex.services import Services

log = structlog.get_logger(__name__)

_Entry = tuple[int, OutcomeKind, int, int, bytes]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Entry]).decode


def write_checkpoint(services: Services, chunk: Chunk, outcomes: Mapping[int, RowOutcome]) -> StoredObject:
    """Store the finished rows of a chunk under a fresh key."""
    entries = [
        (number, outcome.kind, outcome.input_tokens, outcome.output_tokens, outcome.line)
        for number, outcome in outcomes.items()
    ]
    data = _encode(entries)
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
    return {
        number: RowOutcome(line, kind, input_tokens, output_tokens)
        for number, kind, input_tokens, output_tokens, line in _decode(data)
    }


def _read(services: Services, key: str, etag: str | None) -> bytes:
    head = services.objects.head(key)
    if head is None:
        raise ObjectMissing(f"there is no {key}")
    return b"".join(services.objects.stream(key, 0, head.size_bytes, etag))
