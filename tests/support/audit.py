"""The audit that must hold after everything: rows, usage, money, states, bytes and events agree with each other.

Each query returns what breaks one invariant; together they are the list of docs/ledger and the state machine, asked of a live
database. The bytes of the results are read too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anex.jobs.transitions import MOVES
from anex.object_keys import job_prefix

if TYPE_CHECKING:
    from anex.services import Services

_QUERIES = {
    "I1 rows of an ended job add up": """
        SELECT id FROM jobs WHERE finished_at IS NOT NULL AND total_rows IS NOT NULL AND success_rows IS NOT NULL
        AND success_rows + error_rows + format_error_rows + truncated_rows + pending_rows <> total_rows""",
    "I2 billed usage is the sum over complete chunks": """
        SELECT jobs.id FROM jobs WHERE status IN ('done', 'cancelled') AND input_tokens IS NOT NULL
        AND (input_tokens, output_tokens) <> (
            SELECT coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0)
            FROM chunks WHERE job_id = jobs.id AND state = 'done')""",
    "I3 charge within hold within estimate": """
        SELECT holds.job_id AS id FROM holds JOIN jobs ON jobs.id = holds.job_id
        WHERE holds.amount_nanos > jobs.est_cost_cents * 10000000 OR holds.charged_nanos > holds.amount_nanos
           OR (holds.state = 'settled' AND holds.charged_nanos <> jobs.cost_cents * 10000000)""",
    "I4 a hold is open exactly while the job runs": """
        SELECT jobs.id FROM jobs LEFT JOIN holds ON holds.job_id = jobs.id
        WHERE (jobs.status IN ('in_progress', 'cancelling', 'finalizing')) <> (coalesce(holds.state, '') = 'held')""",
    "I5 transfers sum to balances": """
        SELECT org_id AS id FROM accounts WHERE (available_nanos, held_nanos) <> (
            SELECT coalesce(sum(CASE WHEN credit = 'available' THEN amount_nanos ELSE 0 END)
                          - sum(CASE WHEN debit = 'available' THEN amount_nanos ELSE 0 END), 0),
                   coalesce(sum(CASE WHEN credit = 'held' THEN amount_nanos ELSE 0 END)
                          - sum(CASE WHEN debit = 'held' THEN amount_nanos ELSE 0 END), 0)
            FROM transfers WHERE transfers.org_id = accounts.org_id)""",
    "I8 one event for the present state, the first from nothing": """
        SELECT jobs.id FROM jobs
        WHERE NOT EXISTS (SELECT 1 FROM job_events WHERE job_id = jobs.id AND to_status = jobs.status)
           OR (SELECT count(*) FROM job_events WHERE job_id = jobs.id AND from_status IS NULL) <> 1""",
    "I8 what is told of a job is what happened to it": """
        SELECT deliveries.event_id AS id FROM deliveries LEFT JOIN job_events ON job_events.id = deliveries.event_id
        WHERE deliveries.job_id IS NOT NULL AND (
            job_events.id IS NULL OR (job_events.job_id, job_events.at) <> (deliveries.job_id, deliveries.occurred_at)
            OR replace(deliveries.type, 'completed', 'done') <> job_events.to_status)""",
    "I8 no attempt of an event is counted less than once": """
        SELECT event_id AS id FROM deliveries WHERE attempts < (
            SELECT count(*) FROM delivery_attempts WHERE delivery_attempts.event_id = deliveries.event_id)""",
    "no chunk is open behind an ended job": """
        SELECT jobs.id FROM jobs JOIN chunks ON chunks.job_id = jobs.id
        WHERE jobs.finished_at IS NOT NULL AND chunks.state IN ('ready', 'leased')""",
    "chunks_open counts the open chunks": """
        SELECT jobs.id FROM jobs WHERE status IN ('in_progress', 'cancelling') AND chunks_open <> (
            SELECT count(*) FROM chunks WHERE job_id = jobs.id AND state IN ('ready', 'leased'))""",
}


def audit(services: Services) -> None:
    """Fail with everything that is broken."""
    broken: list[str] = []
    with services.database.transaction() as transaction:
        for rule, query in _QUERIES.items():
            broken += [f"{rule}: {row['id']}" for row in transaction.fetch_dicts(query)]
        broken += _illegal_moves(
            transaction.fetch_dicts("SELECT job_id, from_status, to_status FROM job_events")
        )
        jobs = transaction.fetch_dicts(
            "SELECT id, org_id, status, total_rows, result_key, result_etag, result_size_bytes, result_rows,"
            " input_tokens, output_tokens, data_deleted_at FROM jobs WHERE finished_at IS NOT NULL"
        )
    for job in jobs:
        broken += _audit_objects(services, job)
    assert not broken, "\n".join(broken)


def _illegal_moves(events: list[dict[str, Any]]) -> list[str]:
    legal = {(source.value, target.value) for source, targets in MOVES.items() for target in targets}
    return [
        f"I6 states move along the graph: {event['job_id']} {event['from_status']} → {event['to_status']}"
        for event in events
        if event["from_status"] is not None and (event["from_status"], event["to_status"]) not in legal
    ]


def _audit_objects(services: Services, job: dict[str, Any]) -> list[str]:
    if job["data_deleted_at"] is not None:
        left = list(services.objects.list_keys(job_prefix(job["org_id"], job["id"])))
        return [f"I9 nothing is left of a deleted job: {left}"] if left else []
    if job["result_key"] is None:
        return []
    blocks = services.objects.stream(job["result_key"], 0, job["result_size_bytes"], job["result_etag"])
    lines = [json.loads(line) for line in b"".join(blocks).split(b"\n")[:-1]]
    numbers = [int(line["id"].rpartition("_")[2]) for line in lines]
    usage = [sum(line["usage"][kind] for line in lines) for kind in ("input_tokens", "output_tokens")]
    rules = {
        "I1 each row at most once, in input order": numbers == sorted(set(numbers)),
        "I1 each row exactly once when done": job["status"] != "done" or len(numbers) == job["total_rows"],
        "I2 usage on the lines is what was billed": usage == [job["input_tokens"], job["output_tokens"]],
        "I7 row_count is true": len(lines) == job["result_rows"],
    }
    return [f"{rule}: {job['id']}" for rule, holds in rules.items() if not holds]
