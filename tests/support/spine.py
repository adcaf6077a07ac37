"""The spine in one process: the use cases on real Postgres, SeaweedFS and the fake engine, doorbells answered at once.

What Celery adds, other processes and lost messages, is tested where Celery runs; here a test drives each step by hand.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import requests

from anex.inputs.create import create_input
from anex.inputs.ingest import copy_input
from anex.inputs.model import InputRequest
from anex.jobs.count import count_next_span
from anex.jobs.estimate import estimate_job
from anex.jobs.finalize import finalize_job
from anex.jobs.read import get_job
from anex.jobs.result import get_result
from anex.jobs.run_chunk import run_next_chunk
from anex.jobs.sample import sample_job
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.jobs.validate import validate_job
from anex.webhooks.deliver import deliver_due

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anex.jobs.model import Job, Step
    from anex.orgs.model import Caller
    from anex.services import Engine, Services
    from anex.units.model import HeldLeases, StopSignals, Unit

MODEL = "fake-chat"
TWO_CHUNKS_ROWS = 400
TWO_CHUNKS_CAP = 4000
"""So many rows of so many tokens are more than two minutes of the catalog's throughput: two chunks."""


@dataclass(slots=True)
class RecordingDispatcher:
    """Keeps what was rung, in order; a test answers it or lets it be lost."""

    rings: deque[tuple[str, str]] = field(default_factory=deque)

    def ring_step(self, job_id: str, step: Step, model_queue: str) -> None:  # noqa: ARG002 - the port's signature
        self.rings.append((step.value, job_id))

    def ring_spans(self, job_id: str, span_count: int) -> None:
        self.rings.extend([("count", job_id)] * span_count)

    def ring_copy(self, input_id: str) -> None:
        self.rings.append(("copy", input_id))

    def ring_deliveries(self, *, again: bool, after_seconds: float = 0.0) -> None:
        self.rings.append(("deliver again" if again else "deliver", f"{after_seconds:.1f}"))

    def deliveries_queue_length(self, *, again: bool) -> int:
        return sum(what == ("deliver again" if again else "deliver") for what, _ in self.rings)

    def ring_model(self, model_queue: str, count: int = 1) -> None:
        self.rings.extend([("run", model_queue)] * count)

    def run_queue_length(self, model_queue: str) -> int:
        return sum(ring == ("run", model_queue) for ring in self.rings)


@dataclass(slots=True)
class Spine:
    """One organization's view of the use cases, and the hands that answer doorbells."""

    api: Services
    """As ``anex_api``: what customers do."""
    services: Services
    """As ``anex_work``: what planners and workers do."""
    caller: Caller
    engine: Engine
    unit: Unit
    stop: StopSignals
    leases: HeldLeases
    dispatcher: RecordingDispatcher

    def upload(self, rows: Sequence[bytes]) -> str:
        """Upload a file of these lines through a presigned form; return the input's id."""
        upload = create_input(self.api, self.caller, InputRequest(format="jsonl"))
        assert upload.upload_url is not None
        answer = requests.post(
            upload.upload_url, data=upload.fields, files={"file": b"".join(rows)}, timeout=30
        )
        assert answer.ok, answer.text
        return upload.input.id

    def ingest(self, source_url: str, **settings: Any) -> str:
        """Ask for a copy of the file at ``source_url``; return the input's id."""
        return create_input(self.api, self.caller, InputRequest(source_url=source_url, **settings)).input.id

    def submit(self, rows: Sequence[bytes], **settings: Any) -> Job:
        """Upload and submit."""
        request = SubmitRequest(model=settings.pop("model", MODEL), input_id=self.upload(rows), **settings)
        return submit_job(self.api, self.caller, request)

    def answer_rings(self) -> None:
        """Answer every doorbell, and those that answering rings."""
        while self.dispatcher.rings:
            self.answer_one()

    def answer_one(self) -> None:
        """Answer the oldest doorbell."""
        what, whom = self.dispatcher.rings.popleft()
        steps: dict[str, Callable[[], object]] = {
            "validate": lambda: validate_job(self.services, whom),
            "count": lambda: count_next_span(self.services, whom),
            "sample": lambda: self._sample(whom),
            "estimate": lambda: estimate_job(self.services, whom),
            "finalize": lambda: finalize_job(self.services, whom),
            "run": self.run_chunk,
            "copy": lambda: copy_input(self.services, whom),
            "deliver": lambda: deliver_due(self.services, again=False),
            "deliver again": lambda: deliver_due(self.services, again=True),
        }
        steps[what]()

    def _sample(self, job_id: str) -> None:
        """Run the chain from the sample on: where Celery's next link follows, a ring stands here."""
        sample_job(self.services, self.engine, job_id)
        self.dispatcher.rings.append(("estimate", job_id))

    def run_chunk(self) -> bool:
        """Claim and run one chunk."""
        return run_next_chunk(self.services, self.engine, self.unit, self.stop, self.leases)

    def job(self, job_id: str) -> Job:
        """Read the job."""
        return get_job(self.api, self.caller, job_id)

    def result_lines(self, job_id: str) -> list[dict[str, Any]]:
        """Download the result."""
        link = get_result(self.api, self.caller, job_id)
        answer = requests.get(link.result_url, timeout=30)
        answer.raise_for_status()
        lines = [json.loads(line) for line in answer.content.split(b"\n")[:-1]]
        assert len(lines) == link.row_count
        return lines


def chat_rows(count: int, text: str = "Say something short about row {number}.") -> list[bytes]:
    """Return ``count`` lines of chat rows."""
    return [
        json.dumps(
            {
                "custom_id": f"row-{number}",
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": {"messages": [{"role": "user", "content": text.format(number=number)}]},
            }
        ).encode()
        + b"\n"
        for number in range(1, count + 1)
    ]


def body_rows(url: str, *bodies: dict[str, Any]) -> list[bytes]:
    """Return a line for each body, sent to ``url``."""
    values = (
        {"custom_id": f"row-{number}", "method": "POST", "url": url, "body": body}
        for number, body in enumerate(bodies, start=1)
    )
    return [json.dumps(value).encode() + b"\n" for value in values]


def in_threads(count: int, action: Callable[[int], Any]) -> list[Any]:
    """Run ``action`` in ``count`` threads that start together; return results or exceptions, in order."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = action(place)
        except Exception as error:  # noqa: BLE001 - the test judges it
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
