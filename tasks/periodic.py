"""What beat rings for."""

from __future__ import annotations

from anex.jobs import sweep as sweeping
from anex.retention import purge_by_age
from tasks import names
from tasks.app import task
from tasks.process import process_services


@task(names.SWEEP)
def sweep() -> None:
    """Ring again what was lost and end what has waited too long."""
    sweeping.sweep(process_services())


@task(names.PURGE)
def purge() -> None:
    """Delete what is too old."""
    purge_by_age(process_services())
