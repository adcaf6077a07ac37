"""Submit a job: settings, balance, input and first bytes are judged before it exists; rows are checked in the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anex.errors import (
    ApprovalQueueFull,
    InputContentInvalid,
    InputExpired,
    ObjectMissing,
    OrganizationNotFound,
    RequestRefused,
)
from anex.ids import new_id
from anex.inputs.settle import find_for_submit
from anex.jobs.model import Step
from anex.jobs.ring import ring_plan
from anex.jobs.sample_limit import require_sample
from anex.jobs.store import count_jobs, insert_action, insert_job
from anex.jobs.submit_rules import SubmitRequest, check_settings, takes_sample
from anex.jobs.transitions import AWAITING_APPROVAL, Status
from anex.ledger.store import require_credits
from anex.residency import choose_region
from anex.rows.first_look import find_first_fault

if TYPE_CHECKING:
    from anex.catalog import ModelSpec
    from anex.db import Transaction
    from anex.inputs.model import Input
    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from anex.services import Services


# A deletion that waits for its job to stop bars the input already.
_KEEP_INPUT = """
SELECT status, data_deleted_at IS NOT NULL OR EXISTS (
           SELECT 1 FROM jobs WHERE jobs.input_id = inputs.id AND jobs.delete_requested) AS is_deleted
FROM inputs WHERE id = %(input_id)s FOR SHARE
"""


def submit_job(services: Services, caller: Caller, request: SubmitRequest) -> Job:
    """Create a job and ring for its plan.

    Raises, in the order of the checks: ``ModelUnknown``, ``SettingInvalid``, ``RequestRefused``, ``GrammarBusy``,
    ``RegionForbidden``, ``RegionElsewhere``, ``BalanceTooLow``, ``InputNotFound``, ``InputNotReady``, ``InputExpired``,
    ``InputFailed``, ``InputContentInvalid``, ``ApprovalQueueFull``, ``SampleLimitReached``.
    """
    spec = services.catalog.get(request.model)
    check_settings(spec, request)
    _check_grammar(services, request)
    with services.database.transaction(caller.org_id) as transaction:
        region = choose_region(services, transaction, caller.org_id, request.data_residency, "job")
        require_credits(transaction, caller.org_id)
    found = find_for_submit(
        services, caller, input_id=request.input_id, input_s3_uri=request.input_s3_uri, region=region
    )
    _look_at_content(services, found)
    with services.database.transaction(caller.org_id) as transaction:
        _require_room(transaction, services, caller.org_id)
        if takes_sample(spec, request):
            require_sample(transaction, caller.org_id, services.limits.sampled_rows_per_day)
        _keep_input(transaction, found)
        values = _job_values(services, caller, request, spec, found)
        job = insert_job(transaction, services, values, caller.key_id)
        insert_action(transaction, job, "submit", caller.key_id)
        ring_plan(transaction, services, job)
    return job


def _check_grammar(services: Services, request: SubmitRequest) -> None:
    """Raise ``RequestRefused`` for a format that the engine could not be held to, ``GrammarBusy``."""
    if request.response_format is None:
        return
    fault = services.grammar.find_fault(request.response_format)
    if fault is not None:
        raise RequestRefused(fault)


def _look_at_content(services: Services, found: Input) -> None:
    """Read the size and the first bytes, no more. Raises ``InputContentInvalid`` and ``InputExpired``."""
    limit = services.limits.input_max_bytes
    size = found.size_bytes or 0
    if size > limit:
        raise InputContentInvalid(f"the input is over the {limit >> 20} MiB cap; split it over several jobs")
    try:
        head = services.objects.read_range(found.object_key, 0, services.limits.first_look_bytes)
    except ObjectMissing as missing:
        raise InputExpired(
            "the input's file is gone; create a new input and send the file again"
        ) from missing
    fault = find_first_fault(head, is_whole=len(head) < services.limits.first_look_bytes)
    if fault is not None:
        raise InputContentInvalid(fault)


def _require_room(transaction: Transaction, services: Services, org_id: str) -> None:
    """Hold the organization's row, so that of concurrent submits only as many pass as there is room for."""
    if (
        transaction.execute(
            "SELECT 1 FROM organizations WHERE id = %(org_id)s FOR UPDATE", {"org_id": org_id}
        )
        == 0
    ):
        raise OrganizationNotFound("no such organization")
    most = services.limits.jobs_awaiting_approval_max
    if count_jobs(transaction, org_id, AWAITING_APPROVAL) >= most:
        raise ApprovalQueueFull(
            f"the approval queue is full: {most} jobs await approval; approve or cancel some, then submit again"
        )


def _keep_input(transaction: Transaction, found: Input) -> None:
    """Hold the input's row until the job that reads it stands: a deletion comes before, and is seen, or after, and sees the job."""
    row = transaction.fetch_dict(_KEEP_INPUT, {"input_id": found.id})
    if row is None or row["status"] != "ready" or row["is_deleted"]:
        raise InputExpired("the input was deleted meanwhile; create a new one and send the file again")


def _job_values(
    services: Services, caller: Caller, request: SubmitRequest, spec: ModelSpec, found: Input
) -> dict[str, Any]:
    samples = takes_sample(spec, request)
    return {
        "id": new_id("job", services.clock.now()),
        "org_id": caller.org_id,
        "region": found.region,
        "input_id": found.id,
        "status": Status.SUBMITTED.value,
        "model": spec.id,
        "model_queue": spec.queue,
        "task_type": spec.kind,
        "asked_max_tokens": request.max_output_tokens,
        "asked_budget": request.reasoning_budget,
        "reasoning": request.reasoning,
        "reasoning_effort": request.reasoning_effort,
        "video_fps": request.video_fps,
        "dimensions": request.dimensions,
        "response_format": request.response_format,
        "samples_rows": samples,
        "max_output_tokens": request.max_output_tokens if spec.kind == "chat" else 0,
        "reasoning_budget": request.reasoning_budget if spec.reasoning is not None else None,
        "step": Step.VALIDATE.value,
    }
