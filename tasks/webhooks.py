"""What is told to other people's servers: first attempts, and the rest on a queue of its own."""

from __future__ import annotations

from anex.webhooks.deliver import deliver_due
from tasks import names
from tasks.app import task
from tasks.process import process_services


@task(names.DELIVER)
def deliver() -> None:
    """Make the first attempts that are due."""
    deliver_due(process_services(), again=False)


@task(names.DELIVER_AGAIN)
def deliver_again() -> None:
    """Make the further attempts that are due, and those at endpoints that failed last."""
    deliver_due(process_services(), again=True)
