"""``anex job``: where one job stands, and who did what to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anex.jobs.show import describe_job
from anex.money import format_cents
from config.cli_output import format_nanos, json_option, print_fields, print_json, print_table
from config.wiring import open_database, read_settings

if TYPE_CHECKING:
    from datetime import datetime


@click.group()
def job_group() -> None:
    """Look into a job."""


@job_group.command("show")
@click.argument("job_id")
@json_option
def show_command(job_id: str, *, as_json: bool) -> None:
    """Show a job's state, progress, estimate, money, chunks, history, and who runs it."""
    settings = read_settings()
    with open_database(settings) as database, database.transaction() as transaction:
        job = describe_job(transaction, job_id, alive_seconds=settings.timings.worker_alive_seconds)
    if as_json:
        print_json(job)
    else:
        _show(job)


def _show(job: dict[str, Any]) -> None:
    print_fields({name: value for name, value in _summary(job).items() if value is not None})
    _show_chunks(job)
    click.echo("\nHistory")
    print_table(("at", "what", "by"), _history(job), indent=2)


def _summary(job: dict[str, Any]) -> dict[str, object]:
    return {
        "job": job["id"],
        "organization": job["org_id"],
        "input": job["input_id"],
        "model": f"{job['model']} ({job['task_type']}, {job['region']})",
        "status": job["status"],
        "next step": job["step"],
        "waits for": job["waits_for"],
        "run by": ", ".join(f"{lease['unit_id']} ({lease['chunks']} chunks)" for lease in job["run_by"])
        or None,
        "units": "\n".join(
            f"{unit['id']} is {unit['engine_state']} {unit['detail']}" for unit in job["units"]
        )
        or None,
        "checked": _tell_checked(job["progress"]),
        "rows done": _tell_rows_done(job),
        "outcome": _tell_outcome(job),
        "failure": job["failure_reason"] and f"{job['failure_code']}\n{job['failure_reason']}",
        "sample": _tell_sample(job["sample"]),
        "estimate": _tell_estimate(job["estimate"]),
        "approve until": job["approval_expires_at"] if job["status"] == "cost_ready" else None,
        "hold": _tell_hold(job["hold"]),
        "cost": None if job["cost_cents"] is None else format_cents(job["cost_cents"]),
        "created": job["created_at"],
        "finished": job["finished_at"],
        "data kept until": None if job["data_deleted_at"] else job["data_expires_at"],
        "data deleted": job["data_deleted_at"],
    }


def _tell_checked(progress: dict[str, Any]) -> str:
    size = progress["input_size_bytes"]
    of_all = "" if size is None else f" of {size:,}"
    open_spans = f", {progress['spans_open']:,} spans to count" if progress["spans_open"] else ""
    return f"{progress['bytes_checked']:,}{of_all} bytes, {progress['rows_checked']:,} rows{open_spans}"


def _tell_rows_done(job: dict[str, Any]) -> str | None:
    return f"{job['rows_done']:,} of {job['progress']['total_rows']:,}" if job["chunks"] else None


def _tell_outcome(job: dict[str, Any]) -> str | None:
    if job["success_rows"] is None:
        return None
    kinds = ("success", "truncated", "format_error", "error", "pending")
    rows = ", ".join(f"{job[f'{kind}_rows']:,} {kind}" for kind in kinds)
    return f"{rows} rows; {job['input_tokens'] or 0:,} tokens in, {job['output_tokens'] or 0:,} out"


def _tell_sample(sample: dict[str, Any] | None) -> str | None:
    if sample is None:
        return None
    told = f"{sample['rows_answered'] or 0} of {sample['rows_drawn']} rows answered"
    if not sample["output_quantiles"]:
        return told
    half, most, longest = sample["output_quantiles"]
    return f"{told}; half within {half:,} tokens, 95 % within {most:,}, the longest {longest:,}; {sample['rows_cut']} cut"


def _tell_estimate(estimate: dict[str, Any] | None) -> str | None:
    if estimate is None:
        return None
    budget = estimate["reasoning_budget"]
    thinking = "" if budget is None else f", {budget:,} of thinking"
    return (
        f"{format_cents(estimate['cost_cents'])} at most: {estimate['input_tokens']:,} tokens in, "
        f"{estimate['output_tokens']:,} out ({estimate['output_tokens_at_cap']:,} with every row at its cap of "
        f"{estimate['max_output_tokens']:,}){thinking}; "
        f"about {estimate['processing_seconds']:,} s"
    )


def _tell_hold(hold: dict[str, Any] | None) -> str | None:
    if hold is None:
        return None
    charged = hold["charged_nanos"]
    outcome = "open" if charged is None else f"settled, {format_nanos(charged)} charged"
    return f"{format_nanos(hold['amount_nanos'])}, {outcome}"


def _show_chunks(job: dict[str, Any]) -> None:
    if not job["chunks"]:
        return
    click.echo("\nChunks")
    columns = ("state", "chunks", "rows", "rows_done", "attempts")
    print_table(columns, [[chunk[column] for column in columns] for chunk in job["chunks"]], indent=2)


def _history(job: dict[str, Any]) -> list[tuple[datetime, str, str]]:
    """Return moves and actions in order of time."""
    actions = [(action["at"], action["action"], _tell_key(action)) for action in job["actions"]]
    moves = [(event["at"], f"→ {event['to_status']}", _tell_key(event)) for event in job["events"]]
    return sorted([*actions, *moves], key=lambda entry: entry[0])


def _tell_key(entry: dict[str, Any]) -> str:
    if entry["key_id"] is None:
        return "anex"
    return f"{entry['key_id']} ({entry['key_name']}, {entry['key_hint']}…)"
