"""Copy an input from its source URL into the bucket: leased, fenced, resumed, and settled once.

Whoever hears the doorbell claims the copy or goes away. A copier that dies loses the lease and the sweeper rings for another,
which begins anew; one that was only slow finds its lease lost and leaves nothing behind. An organization has few copies under way
at a time: a further one waits, and is rung for when one of them settles.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import LeaseLost, StorageUnavailable
from anex.inputs import copies
from anex.inputs.source import SourceCutShort, SourceFault, SourceLimits, SourceReader
from anex.lease_keeper import kept_alive
from anex.webhooks.outbox import announce_input

if TYPE_CHECKING:
    import threading

    from anex.db import Transaction
    from anex.inputs.copies import Copy
    from anex.objects import ObjectHead
    from anex.services import Services

log = structlog.get_logger(__name__)

PASSES_MAX = 3
"""How often a source that can't be resumed is read from its beginning."""

TOO_OFTEN = "the copy was interrupted too often; create a new input"


def copy_input(services: Services, input_id: str) -> None:
    """Copy one input, if its copy is to be had: it becomes ``ready``, or ``failed`` with a reason that its owner can act on.

    Raises ``LeaseLost``; ``StorageUnavailable`` and ``DatabaseUnavailable`` leave the copy for the sweeper.
    """
    with services.database.transaction() as transaction:
        copy = copies.claim_copy(
            transaction,
            input_id,
            services.region,
            lease_seconds=services.timings.lease_seconds,
            copies_max=services.limits.organization_copies_max,
        )
    if copy is None:
        return
    log.info("copy_begun", input_id=copy.id, fence=copy.copy_fence, attempt=copy.copy_attempts)
    try:
        head = _copy(services, copy)
    except SourceFault as fault:
        _settle_failed(services, copy, fault.message)
    except StorageUnavailable:
        with services.database.transaction() as transaction:
            copies.give_back_copy(transaction, copy)
        raise
    else:
        _settle_ready(services, copy, head)


def _copy(services: Services, copy: Copy) -> ObjectHead:
    """Read the source to its end, from its beginning again where it can't be resumed."""
    if copy.copy_attempts > services.limits.copy_attempts_max:
        raise SourceFault(TOO_OFTEN)
    reader = SourceReader(services.outbound, copy.source_url, _limits(services))
    extend = partial(_extend, services, copy, reader)
    with kept_alive(extend, services.timings.heartbeat_seconds) as lost:
        for _ in range(PASSES_MAX):
            try:
                return _write(services, copy, reader, lost)
            except SourceCutShort as cut:
                log.info("copy_starts_over", input_id=copy.id, reason=cut.message)
                told = cut.message
                reader.start_over()
    raise SourceFault(told)


def _write(services: Services, copy: Copy, reader: SourceReader, lost: threading.Event) -> ObjectHead:
    with services.objects.open_writer(copy.object_key) as writer:
        reader.send_to(writer.write, lost)
        # Looked at once more before the object is completed: a late copier must not write over what a job reads.
        if not _extend(services, copy, reader):
            raise LeaseLost(f"the copy of {copy.id} has another holder")
        return writer.close()


def _extend(services: Services, copy: Copy, reader: SourceReader) -> bool:
    with services.database.transaction() as transaction:
        return copies.extend_copy(transaction, copy, reader.received_bytes, services.timings.lease_seconds)


def _settle_ready(services: Services, copy: Copy, head: ObjectHead) -> None:
    with services.database.transaction() as transaction:
        settled = copies.mark_copied(
            transaction, copy, head.size_bytes, services.timings.input_retention_seconds
        )
        if settled:
            announce_input(transaction, services, copy.id)
            _ring_next(transaction, services, copy)
    log.info("copy_done" if settled else "copy_outrun", input_id=copy.id, size_bytes=head.size_bytes)


def _settle_failed(services: Services, copy: Copy, reason: str) -> None:
    with services.database.transaction() as transaction:
        settled = copies.mark_copy_failed(transaction, copy, reason)
        if settled:
            announce_input(transaction, services, copy.id)
            _ring_next(transaction, services, copy)
    log.info("copy_failed" if settled else "copy_outrun", input_id=copy.id, reason=reason)


def _ring_next(transaction: Transaction, services: Services, copy: Copy) -> None:
    """Ring for the copy of the same organization that has waited longest for the room that this one makes."""
    waiting = copies.find_next_to_ring(transaction, copy.org_id, services.region)
    if waiting is not None:
        transaction.after_commit(partial(services.dispatcher.ring_copy, waiting))


def _limits(services: Services) -> SourceLimits:
    return SourceLimits(
        size_max_bytes=services.limits.input_max_bytes,
        deadline_seconds=services.timings.copy_seconds,
        idle_seconds=services.timings.copy_idle_seconds,
        retry_seconds=services.timings.copy_retry_seconds,
    )
