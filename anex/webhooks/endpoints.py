"""Endpoints: one an organization, set and watched over by operators; its state follows from what deliveries come to."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from anex.errors import EventNotFound, WebhookDisabled, WebhookNotFound
from anex.ids import is_id, new_id
from anex.jobs.transitions import Status
from anex.orgs.organizations import get_organization
from anex.outbound_addresses import read_target
from anex.sealing import new_signing_secret
from anex.webhooks.model import JOB_EVENTS, Endpoint, EventType
from anex.webhooks.store import begin_again, give_up_disabled, insert_delivery

if TYPE_CHECKING:
    from datetime import datetime

    from anex.db import Transaction
    from anex.sealing import Sealer

_COLUMNS = ", ".join(field.name for field in fields(Endpoint))

_SELECT = f"SELECT {_COLUMNS} FROM webhook_endpoints WHERE org_id = %(org_id)s"  # noqa: S608 - the columns are a constant

_INSERT = f"""
INSERT INTO webhook_endpoints (org_id, url, host, secret, created_at)
VALUES (%(org_id)s, %(url)s, %(host)s, %(secret)s, anex_now())
ON CONFLICT (org_id) DO NOTHING RETURNING {_COLUMNS}
"""  # noqa: S608 - the columns are a constant

_UPDATE_URL = """
UPDATE webhook_endpoints SET url = %(url)s, host = %(host)s, failing_since = NULL, disabled_at = NULL, disabled_reason = NULL
WHERE org_id = %(org_id)s
"""

_MOVE_WAITING = """
UPDATE deliveries SET host = %(host)s WHERE org_id = %(org_id)s AND state = 'waiting' AND input_id IS NULL
"""

_ROTATE = """
UPDATE webhook_endpoints SET
    previous_secret = secret, previous_until = anex_now() + %(seconds)s * interval '1 second', secret = %(secret)s
WHERE org_id = %(org_id)s
"""

_DISABLE = """
UPDATE webhook_endpoints SET disabled_at = anex_now(), disabled_reason = %(reason)s
WHERE org_id = %(org_id)s AND disabled_at IS NULL
"""

_ENABLE = """
UPDATE webhook_endpoints SET failing_since = NULL, disabled_at = NULL, disabled_reason = NULL WHERE org_id = %(org_id)s
"""

_NOTE_FAILURE = """
UPDATE webhook_endpoints SET
    failing_since = coalesce(failing_since, %(failed_at)s),
    disabled_at = CASE WHEN {over} THEN coalesce(disabled_at, anex_now()) ELSE disabled_at END,
    disabled_reason = CASE WHEN {over} THEN coalesce(disabled_reason, %(reason)s) ELSE disabled_reason END
WHERE org_id = %(org_id)s RETURNING disabled_at
""".format(over="failing_since <= anex_now() - %(patience)s * interval '1 second'")

_JOB_EVENT = """
SELECT job_events.id, job_events.org_id, jobs.region, job_id, to_status, at
FROM job_events JOIN jobs ON jobs.id = job_events.job_id WHERE job_events.id = %(event_id)s
"""

_DELIVERY = """
SELECT deliveries.org_id, input_id, disabled_at FROM deliveries LEFT JOIN webhook_endpoints USING (org_id)
WHERE event_id = %(event_id)s
"""

BY_HAND = "by an operator"
BY_RULE = "no attempt succeeded for too long"


def get_endpoint(transaction: Transaction, org_id: str) -> Endpoint:
    """Return an organization's endpoint. Raises ``OrganizationNotFound``, ``WebhookNotFound``."""
    get_organization(transaction, org_id)
    found = transaction.fetch_one(Endpoint, _SELECT, {"org_id": org_id})
    if found is None:
        raise WebhookNotFound(f"{org_id} has no webhook endpoint; `anex webhook set` makes one")
    return found


def set_endpoint(
    transaction: Transaction, sealer: Sealer, org_id: str, url: str
) -> tuple[Endpoint, str | None]:
    """Make an organization's endpoint, or give it another address; return it, and the secret where it is new.

    What waits goes to the new address, which begins enabled. Raises ``OrganizationNotFound``, ``OutboundRefused``.
    """
    get_organization(transaction, org_id)
    host = read_target(url).host
    secret = new_signing_secret()
    values = {"org_id": org_id, "url": url, "host": host, "secret": sealer.seal(secret)}
    made = transaction.fetch_one(Endpoint, _INSERT, values)
    if made is not None:
        return made, secret
    # Deliveries first, then the endpoint: who records an attempt locks in this order.
    give_up_disabled(transaction, org_id)
    transaction.execute(_MOVE_WAITING, values)
    transaction.execute(_UPDATE_URL, values)
    return get_endpoint(transaction, org_id), None


def rotate_secret(
    transaction: Transaction, sealer: Sealer, org_id: str, previous_seconds: float
) -> tuple[Endpoint, str]:
    """Give an endpoint a new secret; the one before signs too for ``previous_seconds``. Raises like ``get_endpoint``."""
    get_endpoint(transaction, org_id)
    secret = new_signing_secret()
    values = {"org_id": org_id, "secret": sealer.seal(secret), "seconds": previous_seconds}
    transaction.execute(_ROTATE, values)
    return get_endpoint(transaction, org_id), secret


def disable_endpoint(transaction: Transaction, org_id: str) -> Endpoint:
    """Send an organization nothing more, and give up what waits. Raises like ``get_endpoint``."""
    get_endpoint(transaction, org_id)
    transaction.execute(_DISABLE, {"org_id": org_id, "reason": BY_HAND})
    give_up_disabled(transaction, org_id)
    return get_endpoint(transaction, org_id)


def enable_endpoint(transaction: Transaction, org_id: str) -> Endpoint:
    """Send an organization its events again, from now on. Raises like ``get_endpoint``."""
    get_endpoint(transaction, org_id)
    give_up_disabled(transaction, org_id)
    transaction.execute(_ENABLE, {"org_id": org_id})
    return get_endpoint(transaction, org_id)


def send_test(transaction: Transaction, org_id: str, region: str, now: datetime) -> str:
    """Put a test into an endpoint's outbox; return the event's id. Raises like ``get_endpoint``, and ``WebhookDisabled``."""
    get_endpoint(transaction, org_id)
    event_id = new_id("evt", now)
    made = insert_delivery(
        transaction, event_id=event_id, org_id=org_id, region=region, event_type=EventType.TEST, job_id=None
    )
    _require_enabled(made is not None)
    return event_id


def redeliver(transaction: Transaction, event_id: str) -> None:
    """Send an event once more, with its id: one that was delivered or given up, or that found no endpoint when it happened.

    One that still waits is left to its schedule. Raises ``EventNotFound``, ``WebhookNotFound``, ``WebhookDisabled``.
    """
    known = transaction.fetch_dict(_DELIVERY, {"event_id": event_id}) if is_id("evt", event_id) else None
    if known is None:
        _deliver_late(transaction, event_id)
        return
    _require_enabled(known["input_id"] is not None or known["disabled_at"] is None)
    begin_again(transaction, event_id)


def note_failure(transaction: Transaction, org_id: str, failed_at: datetime, patience_seconds: float) -> bool:
    """Record that an endpoint did not take an event; return whether it is disabled, now or before."""
    values = {"org_id": org_id, "failed_at": failed_at, "patience": patience_seconds, "reason": BY_RULE}
    row = transaction.fetch_dict(_NOTE_FAILURE, values)
    return row is not None and row["disabled_at"] is not None


def _deliver_late(transaction: Transaction, event_id: str) -> None:
    event = transaction.fetch_dict(_JOB_EVENT, {"event_id": event_id})
    event_type = None if event is None else JOB_EVENTS.get(Status(event["to_status"]))
    if event is None or event_type is None:
        raise EventNotFound(f"no event that is sent has the id {event_id[:64]}")
    get_endpoint(transaction, event["org_id"])
    made = insert_delivery(
        transaction,
        event_id=event["id"],
        org_id=event["org_id"],
        region=event["region"],
        event_type=event_type,
        job_id=event["job_id"],
        occurred_at=event["at"],
    )
    _require_enabled(made is not None)


def _require_enabled(is_enabled: bool) -> None:
    if not is_enabled:
        raise WebhookDisabled("the webhook endpoint is disabled; `anex webhook enable` sends it events again")
