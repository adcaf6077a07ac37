"""The SQL on ``deliveries`` and their attempts: written with what they tell, claimed under a lease, recorded by its holder."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from anex.webhooks.model import Attempt, Delivery, EventType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from anex.db import Reader, Transaction

# Of an organization without an endpoint, or with a disabled one, nothing is kept to be sent.
_INSERT_TO_ENDPOINT = """
WITH made AS (
    INSERT INTO deliveries (event_id, org_id, region, type, job_id, host, occurred_at, due_at)
    SELECT %(event_id)s, org_id, %(region)s, %(type)s, %(job_id)s, host, coalesce(%(occurred_at)s, anex_now()), anex_now()
    FROM webhook_endpoints WHERE org_id = %(org_id)s AND disabled_at IS NULL
    RETURNING org_id
)
SELECT failing_since IS NOT NULL AS again FROM made JOIN webhook_endpoints USING (org_id)
"""

_INSERT_CALLBACK = """
INSERT INTO deliveries (event_id, org_id, region, type, input_id, host, occurred_at, due_at)
SELECT %(event_id)s, org_id, region, 'input.' || status, id, %(host)s, anex_now(), anex_now()
FROM inputs WHERE id = %(input_id)s
"""

# Claims of a region wait for each other, so that what is under way at a host is counted truly. They take a millisecond, because
# they don't wait for the disk: a claim that a crash of Postgres loses is made again, and of its two holders one records.
_LOCK_CLAIMS = """
SELECT set_config('synchronous_commit', 'off', true), pg_advisory_xact_lock(hashtext('anex.deliver.' || %(region)s))
"""

# What is due in one of two lanes: first attempts, and whatever was tried before or goes to an endpoint that failed last.
# The first attempt of a job's event waits for those of the events before it, not for their retries.
_DUE = """
FROM deliveries LEFT JOIN webhook_endpoints AS endpoint ON endpoint.org_id = deliveries.org_id AND deliveries.input_id IS NULL
WHERE deliveries.region = %(region)s AND deliveries.state = 'waiting' AND endpoint.disabled_at IS NULL
  AND (deliveries.lease_until IS NULL OR deliveries.lease_until < anex_now())
  AND (deliveries.attempts > 0 OR endpoint.failing_since IS NOT NULL) = %(again)s
  AND (deliveries.attempts > 0 OR NOT EXISTS (
        SELECT 1 FROM deliveries AS before
        WHERE before.job_id = deliveries.job_id AND before.place < deliveries.place
          AND before.state = 'waiting' AND before.attempts = 0))
"""

_CLAIM = f"""
WITH busy AS (
    SELECT host FROM deliveries WHERE region = %(region)s AND lease_until >= anex_now()
    GROUP BY host HAVING count(*) >= %(host_max)s
), chosen AS (
    SELECT deliveries.event_id, deliveries.org_id, deliveries.input_id {_DUE}
      AND deliveries.due_at <= anex_now() AND deliveries.host NOT IN (SELECT host FROM busy)
    ORDER BY deliveries.due_at, deliveries.place LIMIT 1 FOR UPDATE OF deliveries SKIP LOCKED
)
UPDATE deliveries SET fence = fence + 1, lease_until = anex_now() + %(lease)s * interval '1 second'
FROM chosen
    LEFT JOIN webhook_endpoints AS endpoint ON endpoint.org_id = chosen.org_id AND chosen.input_id IS NULL
    LEFT JOIN inputs ON inputs.id = chosen.input_id
WHERE deliveries.event_id = chosen.event_id
RETURNING deliveries.event_id, deliveries.org_id, type, job_id, deliveries.input_id, occurred_at, attempts, fence,
          anex_now() AS claimed_at, coalesce(inputs.callback_url, endpoint.url) AS url,
          coalesce(inputs.callback_secret, endpoint.secret) AS sealed_secret,
          CASE WHEN endpoint.previous_until > anex_now() THEN endpoint.previous_secret END AS previous_sealed_secret
"""  # noqa: S608 - constants

_DUE_SOON = f"""
SELECT greatest(0, extract(epoch FROM deliveries.due_at - anex_now()))::float8 AS seconds {_DUE}
  AND deliveries.due_at <= anex_now() + %(ahead)s * interval '1 second'
ORDER BY deliveries.due_at, deliveries.place LIMIT %(most)s
"""  # noqa: S608 - constants

# What only the holder of the lease may write.
_HELD = "WHERE event_id = %(event_id)s AND fence = %(fence)s AND state = 'waiting'"

# All of it in one statement: this is what happens most. A success is noted at the endpoint once a minute, or deliveries of a busy
# organization would wait for each other there.
_RECORD_DELIVERED = f"""
WITH held AS (
    UPDATE deliveries SET state = 'delivered', attempts = attempts + 1, due_at = NULL, lease_until = NULL, ended_at = anex_now()
    {_HELD} RETURNING event_id, attempts, org_id, input_id
), noted AS (
    UPDATE webhook_endpoints SET failing_since = NULL, last_success_at = anex_now()
    FROM held WHERE webhook_endpoints.org_id = held.org_id AND held.input_id IS NULL
      AND (failing_since IS NOT NULL OR last_success_at IS NULL OR last_success_at < anex_now() - interval '1 minute')
)
INSERT INTO delivery_attempts (event_id, attempt, org_id, begun_at, duration_milliseconds, status, answer, error)
SELECT event_id, attempts, org_id, %(begun_at)s, %(duration_milliseconds)s, %(status)s, %(answer)s, %(error)s FROM held
"""  # noqa: S608 - constants

_MARK_FAILED = f"""
UPDATE deliveries SET
    attempts = attempts + 1, failures = failures + 1, lease_until = NULL,
    due_at = anex_now() + (%(delays)s::float8[])[failures + 1] * (1 + %(jitter)s * (2 * random() - 1)) * interval '1 second',
    state = CASE WHEN failures < cardinality(%(delays)s::float8[]) THEN 'waiting' ELSE 'given_up' END,
    ended_at = CASE WHEN failures < cardinality(%(delays)s::float8[]) THEN NULL ELSE anex_now() END
{_HELD} RETURNING extract(epoch FROM due_at - anex_now())::float8 AS seconds
"""  # noqa: S608 - constants

_INSERT_ATTEMPT = """
INSERT INTO delivery_attempts (event_id, attempt, org_id, begun_at, duration_milliseconds, status, answer, error)
VALUES (%(event_id)s, %(attempt)s, %(org_id)s, %(begun_at)s, %(duration_milliseconds)s, %(status)s, %(answer)s, %(error)s)
"""

# Only what nobody holds or locks: an attempt under way still counts, and two that end a dead endpoint's deliveries must not wait
# for each other. The sweeper takes the rest.
_GIVE_UP_DISABLED = """
UPDATE deliveries SET state = 'given_up', due_at = NULL, lease_until = NULL, ended_at = anex_now()
WHERE event_id IN (
    SELECT event_id FROM deliveries JOIN webhook_endpoints USING (org_id)
    WHERE state = 'waiting' AND input_id IS NULL AND disabled_at IS NOT NULL AND org_id = coalesce(%(org_id)s, org_id)
      AND (lease_until IS NULL OR lease_until < anex_now())
    LIMIT %(batch)s FOR UPDATE OF deliveries SKIP LOCKED)
"""

_BEGIN_AGAIN = """
UPDATE deliveries SET state = 'waiting', failures = 0, due_at = anex_now(), ended_at = NULL
WHERE event_id = %(event_id)s AND state <> 'waiting'
"""

_LIST = """
SELECT deliveries.event_id, type, job_id, input_id, state, attempts, occurred_at, due_at,
       last.status AS last_status, last.error AS last_error
FROM deliveries LEFT JOIN delivery_attempts AS last
    ON last.event_id = deliveries.event_id AND last.attempt = deliveries.attempts
WHERE deliveries.org_id = %(org_id)s ORDER BY place DESC LIMIT %(limit)s
"""

_LIST_ATTEMPTS = """
SELECT attempt, begun_at, duration_milliseconds, status, answer, error FROM delivery_attempts
WHERE event_id = %(event_id)s AND org_id = %(org_id)s ORDER BY attempt DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery as operators see it, with what its last attempt came to."""

    event_id: str
    type: str
    job_id: str | None
    input_id: str | None
    state: str
    attempts: int
    occurred_at: datetime
    due_at: datetime | None
    last_status: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class ListedAttempt(Attempt):
    """An attempt as operators see it."""

    attempt: int = 0
    begun_at: datetime | None = None


def insert_delivery(
    transaction: Transaction,
    *,
    event_id: str,
    org_id: str,
    region: str,
    event_type: EventType,
    job_id: str | None,
    occurred_at: datetime | None = None,
) -> bool | None:
    """Put an event into the outbox of its organization's endpoint; return in which lane it is due (``again``).

    None where there is no endpoint, or a disabled one.
    """
    values = {
        "event_id": event_id,
        "org_id": org_id,
        "region": region,
        "type": event_type.value,
        "job_id": job_id,
        "occurred_at": occurred_at,
    }
    row = transaction.fetch_dict(_INSERT_TO_ENDPOINT, values)
    return None if row is None else bool(row["again"])


def insert_callback(transaction: Transaction, event_id: str, input_id: str, host: str) -> None:
    """Put the callback of an input that is settled just now into the outbox."""
    transaction.execute(_INSERT_CALLBACK, {"event_id": event_id, "input_id": input_id, "host": host})


def claim_delivery(
    transaction: Transaction, region: str, *, again: bool, lease_seconds: float, host_max: int
) -> Delivery | None:
    """Claim what is due longest in one lane of a region, of a host at which fewer than ``host_max`` are under way."""
    transaction.execute(_LOCK_CLAIMS, {"region": region})
    values = {"region": region, "again": again, "lease": lease_seconds, "host_max": host_max}
    row = transaction.fetch_dict(_CLAIM, values)
    if row is None:
        return None
    sealed = (row.pop("sealed_secret"), row.pop("previous_sealed_secret"))
    secrets = tuple(secret for secret in sealed if secret is not None)
    return Delivery(**{**row, "type": EventType(row["type"]), "sealed_secrets": secrets})


def list_due_seconds(
    transaction: Transaction, region: str, *, again: bool, ahead_seconds: float, most: int
) -> list[float]:
    """Return in how many seconds each of the next deliveries of a lane is due, up to ``ahead_seconds`` from now."""
    values = {"region": region, "again": again, "ahead": ahead_seconds, "most": most}
    return [row["seconds"] for row in transaction.fetch_dicts(_DUE_SOON, values)]


def record_delivered(transaction: Transaction, delivery: Delivery, attempt: Attempt) -> bool:
    """End a held delivery well, with the attempt that was taken, and note the success. False when the lease was lost."""
    values = {**_claim_of(delivery), **_values_of(delivery, attempt)}
    return transaction.execute(_RECORD_DELIVERED, values) == 1


def mark_failed(
    transaction: Transaction, delivery: Delivery, *, delays_seconds: Sequence[float], jitter: float
) -> tuple[bool, float | None]:
    """Put a held delivery off to its next attempt, or give it up after the last one.

    Returns whether the lease still held, and in how many seconds the next attempt is due.
    """
    values = {**_claim_of(delivery), "delays": list(delays_seconds), "jitter": jitter}
    row = transaction.fetch_dict(_MARK_FAILED, values)
    return (False, None) if row is None else (True, row["seconds"])


def insert_attempt(transaction: Transaction, delivery: Delivery, attempt: Attempt) -> None:
    """Record what came of a held delivery's attempt."""
    transaction.execute(_INSERT_ATTEMPT, _values_of(delivery, attempt))


def give_up_disabled(transaction: Transaction, org_id: str | None = None, batch: int = 10_000) -> int:
    """End what waits for a disabled endpoint, of one organization or of any; return how many."""
    return transaction.execute(_GIVE_UP_DISABLED, {"org_id": org_id, "batch": batch})


def begin_again(transaction: Transaction, event_id: str) -> bool:
    """Send an ended delivery once more, from the beginning of the schedule. False when it is not ended."""
    return transaction.execute(_BEGIN_AGAIN, {"event_id": event_id}) == 1


def list_deliveries(reader: Reader, org_id: str, limit: int) -> list[ListedDelivery]:
    """Return an organization's deliveries, the newest first."""
    return reader.fetch_all(ListedDelivery, _LIST, {"org_id": org_id, "limit": limit})


def list_attempts(reader: Reader, org_id: str, event_id: str, limit: int) -> list[ListedAttempt]:
    """Return the attempts of a delivery, the newest first."""
    return reader.fetch_all(
        ListedAttempt, _LIST_ATTEMPTS, {"org_id": org_id, "event_id": event_id, "limit": limit}
    )


def _claim_of(delivery: Delivery) -> dict[str, Any]:
    return {"event_id": delivery.event_id, "fence": delivery.fence}


def _values_of(delivery: Delivery, attempt: Attempt) -> dict[str, Any]:
    return {
        "event_id": delivery.event_id,
        "attempt": delivery.attempts + 1,
        "org_id": delivery.org_id,
        "begun_at": delivery.claimed_at,
        **{field.name: getattr(attempt, field.name) for field in fields(Attempt)},
    }
