"""``anex job show``: what an operator is told of a job, in every state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
from psycopg.types.json import Jsonb

from anex.jobs.chunks import claim_chunk
from anex.jobs.model import Step
from anex.jobs.store import update_job
from anex.money import cents_to_nanos
from anex.units.model import EngineState, Unit
from anex.units.store import note_heartbeat
from tests.support.cli import make_running_job
from tests.support.factories import (
    cancel_started_job,
    make_caller,
    make_job,
    make_priced_job,
)

if TYPE_CHECKING:
    from anex.db import Database
    from tests.support.cli import CommandLine
    from tests.support.servers import DatabaseUrls


def test_a_running_job_shows_its_money_its_chunks_and_who_did_what(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = make_running_job(work, caller)
    job = anex.read("job", "show", job_id)
    assert (job["id"], job["status"], job["rows_done"]) == (job_id, "in_progress", 0)
    assert job["estimate"]["cost_cents"] == 25
    assert job["hold"] | {"held_at": None} == {
        "job_id": job_id,
        "org_id": caller.org_id,
        "amount_nanos": cents_to_nanos(25),
        "state": "held",
        "charged_nanos": None,
        "held_at": None,
        "settled_at": None,
    }
    assert job["chunks"] == [{"state": "ready", "chunks": 1, "rows": 10, "rows_done": 0, "attempts": 0}]
    assert [event["to_status"] for event in job["events"]] == ["submitted", "cost_ready", "in_progress"]
    assert [event["key_id"] for event in job["events"]] == [caller.key_id, None, caller.key_id]
    assert [(action["action"], action["key_name"]) for action in job["actions"]] == [("approve", "test")]
    assert job["waits_for"] == "a worker: no worker serves fake-chat in the region 'world' yet"
    assert job["run_by"] == []


def test_a_job_is_shown_with_the_unit_that_runs_it(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = make_running_job(work, caller)
    unit = Unit("unit-1", "world", "fake-chat", "fake-chat", "1", slots=1)
    with work.transaction() as transaction:
        note_heartbeat(transaction, unit, EngineState.STARTING)
    assert anex.read("job", "show", job_id)["waits_for"] == "an engine: unit-1 is starting"
    with work.transaction() as transaction:
        note_heartbeat(transaction, unit, EngineState.READY)
        claim_chunk(transaction, unit, lease_seconds=60)
    job = anex.read("job", "show", job_id)
    assert job["waits_for"] is None
    assert job["run_by"] == [{"unit_id": "unit-1", "chunks": 1}]
    assert re.search(r"run by +unit-1 \(1 chunks\)", anex.run("job", "show", job_id).stdout)


def test_a_job_that_runs_nothing_yet_says_whose_turn_it_is(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work)
    with work.transaction() as transaction:
        submitted = make_job(transaction, caller)
        sampled = update_job(transaction, make_job(transaction, caller).id, {"step": Step.SAMPLE.value})
        priced = make_priced_job(transaction, caller)
        transaction.execute(
            "INSERT INTO samples (job_id, org_id, drawn) VALUES (%(id)s, %(org_id)s, %(drawn)s)",
            {"id": sampled.id, "org_id": caller.org_id, "drawn": Jsonb({"rows": [[1, 0, 9, 0]] * 3})},
        )
    assert anex.read("job", "show", submitted.id)["waits_for"] is None
    assert anex.read("job", "show", priced.id)["waits_for"] == "its approval"
    shown = anex.read("job", "show", sampled.id)
    assert shown["waits_for"] == "a worker: no worker serves fake-chat in the region 'world' yet"
    assert shown["sample"] == {
        "rows_drawn": 3,
        "rows_answered": None,
        "sampled_at": None,
        "output_quantiles": None,
        "rows_cut": 0,
    }
    assert re.search(r"sample +0 of 3 rows answered", anex.run("job", "show", sampled.id).stdout)


def test_a_worker_with_another_revision_is_no_worker_for_a_job(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = make_running_job(work, caller)
    with work.transaction() as transaction:
        note_heartbeat(
            transaction, Unit("unit-2", "world", "fake-chat", "fake-chat", "2", 1), EngineState.READY
        )
    waits_for = anex.read("job", "show", job_id)["waits_for"]
    assert waits_for == "a worker that serves revision 1 of fake-chat; those here serve 2"


def test_an_ended_job_is_shown_to_people(anex: CommandLine, work: Database) -> None:
    caller, _ = make_caller(work, cents_to_nanos(100))
    job_id = make_running_job(work, caller)
    with work.transaction() as transaction:
        transaction.execute("UPDATE chunks SET state = 'dropped'")
        cancel_started_job(transaction, job_id, charge_cents=0)
    shown = anex.run("job", "show", job_id).stdout
    for expected in (
        r"status +cancelled",
        r"hold +\$0\.25, settled, \$0\.00 charged",
        r"cost +\$0\.00",
        r"outcome +0 success, 0 truncated, 0 format_error, 0 error, 10 pending rows",
        r"→ cancelled +anex",
        rf"approve +{caller.key_id} \(test, sk-",
    ):
        assert re.search(expected, shown), f"{expected} is not in:\n{shown}"


def test_a_customers_text_does_not_steer_the_terminal(
    anex: CommandLine, work: Database, fresh_database_urls: DatabaseUrls
) -> None:
    caller, _ = make_caller(work)
    with work.transaction() as transaction:
        job_id = make_priced_job(transaction, caller).id
    with psycopg.connect(fresh_database_urls.superuser) as connection:
        connection.execute("ALTER TABLE jobs DISABLE TRIGGER job_move_is_legal")
        connection.execute(
            "UPDATE jobs SET status = 'failed', finished_at = anex_now(), cost_cents = 0,"
            " failure_code = 'invalid_input', failure_reason = %s",
            ("Row '\x1b[2Jgröße' is wrong\nand 3 more",),
        )
    shown = anex.run("job", "show", job_id).stdout
    assert "\x1b" not in shown
    assert re.search(r"failure +invalid_input\n +Row '\\x1b\[2Jgröße' is wrong\n +and 3 more\n", shown)
