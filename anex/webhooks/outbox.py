"""What is to be told, written in the transaction of what it tells: nothing of it is lost, and nothing told that never was."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from anex.ids import new_id
from anex.jobs.transitions import Status
from anex.outbound import OutboundRefused
from anex.outbound_addresses import read_target
from anex.webhooks.model import JOB_EVENTS
from anex.webhooks.store import insert_callback, insert_delivery

if TYPE_CHECKING:
    from datetime import datetime

    from anex.clock import Clock
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.services import Dispatcher

_CALLBACK_URL = "SELECT callback_url FROM inputs WHERE id = %(input_id)s AND callback_url IS NOT NULL"


class Surroundings(Protocol):
    """What of the services this takes: the time in an event's id, and the doorbell of those who deliver."""

    @property
    def clock(self) -> Clock:
        """Tells the time of day."""

    @property
    def dispatcher(self) -> Dispatcher:
        """Rings for deliveries."""

    @property
    def region(self) -> str:
        """Whose deliveries are heard by this dispatcher's queues."""


def announce_job(
    transaction: Transaction, services: Surroundings, job: Job, event_id: str, occurred_at: datetime
) -> None:
    """Tell the organization's endpoint, if it has one, of the state that its job came into; ring for it."""
    event_type = JOB_EVENTS.get(Status(job.status))
    if event_type is None:
        return
    again = insert_delivery(
        transaction,
        event_id=event_id,
        org_id=job.org_id,
        region=job.region,
        event_type=event_type,
        job_id=job.id,
        occurred_at=occurred_at,
    )
    if again is not None and job.region == services.region:
        transaction.after_commit(partial(services.dispatcher.ring_deliveries, again=again))


def announce_input(transaction: Transaction, services: Surroundings, input_id: str) -> None:
    """Tell of an input that the transaction settles, if its owner asked to be called back; ring for it."""
    row = transaction.fetch_dict(_CALLBACK_URL, {"input_id": input_id})
    if row is None:
        return
    event_id = new_id("evt", services.clock.now())
    insert_callback(transaction, event_id, input_id, _host_of(row["callback_url"]))
    transaction.after_commit(partial(services.dispatcher.ring_deliveries, again=False))


def _host_of(url: str) -> str:
    """Return the host of a URL that was judged when it came; a later judgement must not keep its input from settling."""
    try:
        return read_target(url).host
    except OutboundRefused:
        return ""
