"""The copy of an input from its source URL."""

from __future__ import annotations

from anex.inputs import ingest
from tasks import names
from tasks.app import task
from tasks.process import process_services


@task(names.COPY)
def copy_input(input_id: str) -> None:
    """Copy an input into the bucket."""
    ingest.copy_input(process_services(), input_id)
