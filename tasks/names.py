"""Every Celery task and queue name, in one place: a queue without a consumer is work that never happens.

A test compares these with the ``Procfile`` and the one-machine stack.
"""

from __future__ import annotations

PLAN_QUEUE = "plan"
COUNT_QUEUE = "count"
FINALIZE_QUEUE = "finalize"
CONTROL_QUEUE = "control"
INGEST_QUEUE = "ingest"
WEBHOOKS_QUEUE = "webhooks"
WEBHOOKS_AGAIN_QUEUE = "webhooks.again"

VALIDATE = "anex.validate"
COUNT = "anex.count"
SAMPLE = "anex.sample"
ESTIMATE = "anex.estimate"
RUN_CHUNK = "anex.run_chunk"
FINALIZE = "anex.finalize"
COPY = "anex.copy"
DELIVER = "anex.deliver"
DELIVER_AGAIN = "anex.deliver_again"
SWEEP = "anex.sweep"
PURGE = "anex.purge"


def run_queue(model_queue: str) -> str:
    """Queue of a model's chunk doorbells; ``model_queue`` is the catalog's ``queue`` of the model."""
    return f"gpu.{model_queue}"


def quick_queue(model_queue: str) -> str:
    """Queue of a model's samples and realtime requests."""
    return f"gpu.{model_queue}.quick"
