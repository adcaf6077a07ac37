"""Make what a test begins with, through the stores that the service uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from anex.clock import SystemClock
from anex.ids import new_id
from anex.inputs.store import insert_upload
from anex.jobs.store import insert_job, lock_job, move_job
from anex.jobs.transitions import Status
from anex.ledger.grants import grant_credits
from anex.ledger.holds import place_hold, settle_hold
from anex.money import NANOS_PER_CENT, cents_to_nanos
from anex.orgs.keys import create_key
from anex.orgs.model import Caller
from anex.orgs.organizations import create_organization
from anex.units.model import EngineState, Unit
from anex.units.store import note_heartbeat
from tests.support.spine import RecordingDispatcher

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.clock import Clock
    from anex.db import Database, Transaction
    from anex.jobs.model import Job
    from anex.services import Dispatcher, Services


_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class _Quiet:
    """What a transition needs, with doorbells that nobody hears."""

    clock: Clock = _CLOCK
    dispatcher: Dispatcher = field(default_factory=RecordingDispatcher)
    region: str = "world"


COUNTED = (
    "success_rows",
    "error_rows",
    "format_error_rows",
    "truncated_rows",
    "input_tokens",
    "output_tokens",
)
_ESTIMATE_ROWS = 10


def make_caller(database: Database, balance_nanos: int = 0) -> tuple[Caller, str]:
    """Make an organization with a key and, if asked for, credits; return who calls and the key's secret."""
    now = _CLOCK.now()
    with database.transaction() as transaction:
        organization = create_organization(transaction, "Test", now)
        if balance_nanos:
            grant_credits(
                transaction, org_id=organization.id, amount_nanos=balance_nanos, reason="test", now=now
            )
        key, secret = create_key(transaction, organization.id, "test", now)
    return Caller(organization.id, key.id), secret


def make_funded_caller(services: Services, balance_nanos: int) -> Caller:
    """Make an organization that can pay."""
    return make_caller(services.database, balance_nanos)[0]


def make_input(transaction: Transaction, caller: Caller) -> str:
    """Make an input that awaits its upload; return its id."""
    input_id = new_id("inp", _CLOCK.now())
    values = {
        "id": input_id,
        "org_id": caller.org_id,
        "region": "world",
        "format": "jsonl",
        "object_uri": f"s3://test/{input_id}",
        "object_key": f"inputs/{input_id}",
        "window_seconds": 3600,
        "key_id": caller.key_id,
    }
    insert_upload(transaction, values)
    return input_id


def make_job(transaction: Transaction, caller: Caller) -> Job:
    """Make a job that was just submitted."""
    values = {
        "id": new_id("job", _CLOCK.now()),
        "org_id": caller.org_id,
        "region": "world",
        "input_id": make_input(transaction, caller),
        "status": Status.SUBMITTED.value,
        "model": "fake-chat",
        "model_queue": "fake-chat",
        "task_type": "chat",
        "samples_rows": False,
        "step": "validate",
    }
    return insert_job(transaction, _Quiet(), values, caller.key_id)


def make_priced_job(transaction: Transaction, caller: Caller, cost_cents: int = 25) -> Job:
    """Make a job of ten rows that awaits its approval at ``cost_cents``."""
    now = _CLOCK.now()
    estimate: dict[str, Any] = {
        "step": None,
        "total_rows": _ESTIMATE_ROWS,
        "est_input_tok": 1000,
        "est_output_tok": 500,
        "est_cost_cents": cost_cents,
        "est_processing_seconds": 1,
        "max_output_tokens": 50,
        "terms": {},
        "model_revision": "1",
        "cost_ready_at": now,
        "approval_expires_at": now + timedelta(hours=24),
    }
    return move_job(transaction, _Quiet(), make_job(transaction, caller), Status.COST_READY, estimate)


def start_priced_job(transaction: Transaction, caller: Caller, job_id: str) -> Job:
    """Hold a priced job's estimate and start it, as an approval does. Raises ``BalanceTooLow``."""
    job = lock_job(transaction, job_id)
    place_hold(
        transaction,
        org_id=caller.org_id,
        job_id=job.id,
        amount_nanos=cents_to_nanos(job.est_cost_cents or 0),
        key_id=caller.key_id,
        now=_CLOCK.now(),
    )
    changes = {"approved_at": _CLOCK.now()}
    return move_job(transaction, _Quiet(), job, Status.IN_PROGRESS, changes, key_id=caller.key_id)


def cancel_started_job(transaction: Transaction, job_id: str, charge_cents: int) -> int:
    """End a started job and settle its hold at ``charge_cents``; return the nanos charged."""
    job = lock_job(transaction, job_id)
    now = _CLOCK.now()
    charged_nanos = settle_hold(
        transaction, job_id=job.id, charge_nanos=cents_to_nanos(charge_cents), now=now
    )
    counts = dict.fromkeys(COUNTED, 0) | {"pending_rows": job.total_rows}
    end = {**counts, "cost_cents": charged_nanos // NANOS_PER_CENT, "finished_at": now}
    move_job(transaction, _Quiet(), job, Status.CANCELLED, end)
    return charged_nanos


def make_unit(services: Services, spec: ModelSpec) -> Unit:
    """Register a unit for a model whose engine is ready."""
    unit = Unit(f"unit-{uuid4().hex[:8]}", services.region, spec.id, spec.queue, spec.revision, slots=1)
    with services.database.transaction() as transaction:
        note_heartbeat(transaction, unit, EngineState.READY)
    return unit
