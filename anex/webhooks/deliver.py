"""Deliver what is due: claim one, send it, record what came of it; a doorbell's worth at a time.

First attempts and the rest have a queue each, and of the rest only so many are under way in a process: receivers that are dead
take none of the threads that others' first attempts need. A claim is a lease with a fence. Who dies after sending lets it run out,
and the event is sent once more with the same id: that is what its id is for.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import AnexError, DatabaseUnavailable, LeaseLost
from anex.inputs.store import get_input
from anex.jobs.store import get_job
from anex.webhooks import store
from anex.webhooks.endpoints import note_failure
from anex.webhooks.events import encode_callback, encode_job_event
from anex.webhooks.model import Attempt
from anex.webhooks.send import send
from anex.webhooks.sign import sign

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.services import Services
    from anex.webhooks.model import Delivery

log = structlog.get_logger(__name__)

PER_RING_MAX = 100
"""Deliveries that one doorbell leads to; it is rung again for more, so that the queue of the other lane has its turn."""

RETRIES_AT_ONCE = 8
"""Of a process; its threads are twice as many (``Procfile``)."""

RING_AHEAD_SECONDS = 60.0
"""A retry that is due within this time is rung for at once, to be heard then; the sweeper rings for the others."""

JITTER = 0.1

_retries = threading.BoundedSemaphore(RETRIES_AT_ONCE)


def deliver_due(services: Services, *, again: bool) -> None:
    """Deliver what is due in one lane until nothing is, or nothing may be.

    Who finds no room leaves: each of those who have it looks for the next when it is done.
    """
    if not again:
        _deliver_many(services, again=False)
    elif _retries.acquire(blocking=False):
        try:
            _deliver_many(services, again=True)
        finally:
            _retries.release()


def deliver_next(services: Services, *, again: bool) -> bool:
    """Claim, send and record one delivery of a lane. False when none is to be had. Raises ``LeaseLost``."""
    with services.database.transaction() as transaction:
        delivery = store.claim_delivery(
            transaction,
            services.region,
            again=again,
            lease_seconds=services.timings.delivery_seconds + services.timings.lease_seconds,
            host_max=services.limits.host_deliveries_max,
        )
    if delivery is None:
        return False
    attempt = _try(services, delivery)
    _record(services, delivery, attempt)
    return True


def _deliver_many(services: Services, *, again: bool) -> None:
    for _ in range(PER_RING_MAX):
        if not deliver_next(services, again=again):
            return
    services.dispatcher.ring_deliveries(again=again)


def _try(services: Services, delivery: Delivery) -> Attempt:
    """Make the event, sign and send it. What keeps it from being made is an attempt that failed, or it would be tried for ever."""
    try:
        headers, body = _make(services, delivery)
    except DatabaseUnavailable:
        raise
    except AnexError as fault:
        log.warning("event_not_made", event_id=delivery.event_id, code=fault.code, reason=fault.message)
        return Attempt(0, error=f"the event could not be made: {fault.code}")
    return send(services.outbound, delivery.url, headers, body, services.timings.delivery_seconds)


def _make(services: Services, delivery: Delivery) -> tuple[dict[str, str], bytes]:
    reader = services.database.reader()
    if delivery.input_id is not None:
        body = encode_callback(delivery, get_input(reader, delivery.org_id, delivery.input_id))
    else:
        job = None if delivery.job_id is None else get_job(reader, delivery.job_id)
        body = encode_job_event(services, delivery, job)
    secrets = [services.sealer.open(sealed) for sealed in delivery.sealed_secrets]
    return sign(secrets, delivery.event_id, delivery.claimed_at, body), body.encode()


def _record(services: Services, delivery: Delivery, attempt: Attempt) -> None:
    with services.database.transaction() as transaction:
        if attempt.delivered:
            held = store.record_delivered(transaction, delivery, attempt)
        else:
            held = _record_failed(transaction, services, delivery, attempt)
        if not held:
            raise LeaseLost(f"the delivery of {delivery.event_id} has another holder")
    log.info(
        "delivered" if attempt.delivered else "delivery_failed",
        event_id=delivery.event_id,
        attempt=delivery.attempts + 1,
        status=attempt.status,
        reason=attempt.error,
        duration_milliseconds=attempt.duration_milliseconds,
    )


def _record_failed(
    transaction: Transaction, services: Services, delivery: Delivery, attempt: Attempt
) -> bool:
    delays_seconds = services.timings.delivery_retry_seconds
    held, seconds = store.mark_failed(transaction, delivery, delays_seconds=delays_seconds, jitter=JITTER)
    if not held:
        return False
    store.insert_attempt(transaction, delivery, attempt)
    if delivery.input_id is None:
        _judge_endpoint(transaction, services, delivery)
    if seconds is not None and seconds <= RING_AHEAD_SECONDS:
        ring = partial(services.dispatcher.ring_deliveries, again=True, after_seconds=seconds)
        transaction.after_commit(ring)
    return True


def _judge_endpoint(transaction: Transaction, services: Services, delivery: Delivery) -> None:
    patience_seconds = services.timings.endpoint_patience_seconds
    if note_failure(transaction, delivery.org_id, delivery.claimed_at, patience_seconds):
        log.warning("webhook_disabled", org_id=delivery.org_id)
        store.give_up_disabled(transaction, delivery.org_id)
