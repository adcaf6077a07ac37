"""The sweeper's part in deliveries: rings for what is due, and ends what waits for a disabled endpoint."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from anex.errors import BrokerUnavailable
from anex.webhooks.store import give_up_disabled, list_due_seconds

if TYPE_CHECKING:
    from anex.db import Transaction
    from anex.services import Services

RINGS_MAX = 16
"""Of a lane and sweep, as many as a worker has threads; each goes on until nothing is due."""

log = structlog.get_logger(__name__)


def sweep_deliveries(transaction: Transaction, services: Services) -> int:
    """Ring for what is due in the region before the next sweep, each at its time; return how many rings."""
    give_up_disabled(transaction)
    return sum(_ring_lane(transaction, services, again=again) for again in (False, True))


def _ring_lane(transaction: Transaction, services: Services, *, again: bool) -> int:
    try:
        waiting = services.dispatcher.deliveries_queue_length(again=again)
    except BrokerUnavailable:
        log.warning("queue_length_unknown", again=again)
        return 0
    due = list_due_seconds(
        transaction,
        services.region,
        again=again,
        ahead_seconds=services.timings.sweep_seconds,
        most=RINGS_MAX,
    )
    missing = due[waiting:]
    for seconds in missing:
        transaction.after_commit(
            partial(services.dispatcher.ring_deliveries, again=again, after_seconds=seconds)
        )
    return len(missing)
