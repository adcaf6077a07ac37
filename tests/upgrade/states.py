"""Jobs in every state, made through the use cases: what ``make_dump`` stores.

A process that dies is a ``Killed`` raised where it would have died: what it had claimed stays claimed, as after a crash.
"""

from __future__ import annotations

from concurrent.futures import wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import requests

from anex.estimating.chunks import ChunkBounds, cut_chunks
from anex.inputs.create import create_input
from anex.inputs.model import InputRequest
from anex.inputs.settle import get_input
from anex.jobs.approve import approve_job
from anex.jobs.cancel import cancel_job
from anex.jobs.delete import delete_data
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.money import cents_to_nanos
from anex.orgs.keys import create_key, revoke_key
from anex.orgs.model import Caller
from anex.orgs.organizations import set_organization
from anex.rows.spans import SpanCutter
from tests.support.factories import make_funded_caller
from tests.support.spine import MODEL, chat_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from anex.jobs.model import Job
    from anex.services import Engine, EngineAnswer, EngineRequest
    from tests.support.spine import Spine

ROWS = 150
"""Of a job with several pieces: three spans and three chunks, of 64, 64 and 22 rows."""
FEW_ROWS = 5
PIECE_ROWS = 64
AUTO_APPROVE_CEILING_CENTS = 50
GRANT_CENTS = 10_000
PAST_UPLOADS = timedelta(hours=3)
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {"type": "object", "properties": {"short": {"type": "string"}}, "required": ["short"]},
    },
}


class Killed(BaseException):
    """The process ends here."""


@dataclass(slots=True)
class DyingEngine:
    """Answers ``rows`` requests, each before it returns; at the next one the worker that asks is killed."""

    engine: Engine
    rows: int

    def submit(
        self, request: EngineRequest, meanwhile: Callable[[], bool] | None = None
    ) -> Future[EngineAnswer]:
        if self.rows == 0:
            raise Killed
        self.rows -= 1
        future = self.engine.submit(request, meanwhile)
        wait([future])
        return future

    def alone(self, meanwhile: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        return self.engine.alone(meanwhile)

    def abort(self, futures: Sequence[Future[EngineAnswer]]) -> None:
        self.engine.abort(futures)

    def progress(self) -> int:
        return self.engine.progress()

    def in_flight(self) -> int:
        return self.engine.in_flight()

    def is_ready(self) -> bool:
        return self.engine.is_ready()


@dataclass(frozen=True, slots=True)
class MadeJob:
    """A job that was brought where it is, and what shall become of it."""

    id: str
    caller: Caller
    rows: int
    end_status: str
    end_rows: int | None
    is_to_be_approved: bool = False
    is_purged_in_the_end: bool = False


@dataclass(slots=True)
class States:
    """Brings jobs and inputs into their states, one after the other; a claim takes from the job that holds least."""

    spine: Spine
    shift_clock: Callable[[timedelta], None]
    jobs: dict[str, MadeJob] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str | None] = field(default_factory=dict)

    def make_all(self) -> None:
        """Make everything."""
        with _small_pieces():
            self.spine.caller = make_funded_caller(self.spine.services, cents_to_nanos(GRANT_CENTS))
            self.spine.caller = self._make_key("ends")
            self._make_inputs()
            self._make_ended()
            self._make_running()
            revoked = self.spine.caller
            self.spine.caller = self._make_key("stays")
            self._make_priced()
            self._make_unpriced()
            self._revoke(revoked)
            self._make_automatic()

    def _make_inputs(self) -> None:
        """Make inputs that no job reads."""
        self.shift_clock(-PAST_UPLOADS)
        expired, _ = self._begin_upload()
        self.shift_clock(timedelta())
        get_input(self.spine.api, self.spine.caller, expired)
        awaited, _ = self._begin_upload()
        landed, send = self._begin_upload()
        send()
        ready = self.spine.upload(chat_rows(FEW_ROWS))
        get_input(self.spine.api, self.spine.caller, ready)
        self.inputs = {"expired": expired, "awaited": awaited, "landed": landed, "ready": ready}

    def _make_ended(self) -> None:
        """Make jobs that have ended, one of which has more to lose: its input is read by a job that runs."""
        spine, api, caller = self.spine, self.spine.api, self.spine.caller
        self._keep("done", self._run(max_output_tokens=12), "done", ROWS)
        deleted = self._run(FEW_ROWS)
        delete_data(api, caller, deleted.id)
        self._keep("done_deleted", deleted, "done", None, rows=FEW_ROWS, is_purged_in_the_end=True)
        failed = spine.submit([*chat_rows(FEW_ROWS), b"{not json}\n"])
        spine.answer_rings()
        self._keep("failed", failed, "failed", None, rows=FEW_ROWS)
        self._keep("cancelled_unchecked", self._cancel(self._submit(FEW_ROWS)), "cancelled", None)
        self._keep("cancelled_unstarted", self._cancel(self._approve(FEW_ROWS)), "cancelled", None)
        partial_job = self._approve()
        spine.run_chunk()
        self._cancel(partial_job)
        spine.answer_rings()
        self._keep("cancelled_partial", partial_job, "cancelled", PIECE_ROWS)
        priced = self._price(FEW_ROWS)
        delete_data(api, caller, priced.id)
        self._keep("cancelled_deleted", priced, "cancelled", None, rows=FEW_ROWS, is_purged_in_the_end=True)
        shared = self._run(FEW_ROWS)
        request = SubmitRequest(model=MODEL, input_id=shared.input_id)
        reader = self._price(FEW_ROWS, submit_job(api, caller, request))
        delete_data(api, caller, shared.id)
        self._keep("done_to_be_deleted", shared, "done", None, rows=FEW_ROWS, is_purged_in_the_end=True)
        self._keep("last_reader", reader, "done", FEW_ROWS, rows=FEW_ROWS, is_to_be_approved=True)

    def _make_running(self) -> None:
        """Make jobs that are approved. Doorbells are lost and workers die; ready chunks come last, or they would be claimed."""
        spine, api = self.spine, self.spine.api
        self._keep("finalizing", self._run_chunks(3), "done", ROWS)
        deleted = self._run_chunks(3)
        delete_data(api, spine.caller, deleted.id)
        self._keep("finalizing_deleted", deleted, "done", None, is_purged_in_the_end=True)
        self._keep("running", self._run_chunks(1), "done", ROWS)
        self._die_in_chunk(rows=4)
        self._keep("cancelling", self._run_chunks(1), "cancelled", PIECE_ROWS)
        self._die_in_chunk()
        self._cancel(self._last())
        cancelling = self._run_chunks(1)
        self._keep("cancelling_deleted", cancelling, "cancelled", None, is_purged_in_the_end=True)
        self._die_in_chunk()
        delete_data(api, spine.caller, cancelling.id)
        self._keep("unstarted", self._run_chunks(0, response_format=FORMAT), "done", ROWS)

    def _make_priced(self) -> None:
        self._keep("cost_ready", self._price(), "done", ROWS, is_to_be_approved=True)
        self._keep("cost_ready_forgotten", self._price(), "cancelled", None)

    def _make_unpriced(self) -> None:
        """Make jobs on the way to their price; planners die on some of them."""
        spine = self.spine
        bound = partial(self._keep, end_status="done", is_to_be_approved=True)
        bound("submitted", self._submit(FEW_ROWS), end_rows=FEW_ROWS, rows=FEW_ROWS)
        checked = self._submit(FEW_ROWS)
        with _killing("anex.jobs.validate._check_rows"):
            spine.answer_one()
        bound("checking", checked, end_rows=FEW_ROWS, rows=FEW_ROWS)
        counted = self._advance(self._submit(max_output_tokens=16), "count")
        with _killing("anex.jobs.count._count_span"):
            spine.answer_one()
        bound("counting_unsampled", counted, end_rows=ROWS)
        counting = self._advance(self._submit(), "count")
        spine.answer_one()
        bound("counting", counting, end_rows=ROWS)
        sampled = self._advance(self._submit(FEW_ROWS), "sample")
        with self._dying_engine(rows=2):
            spine.answer_one()
        bound("sampling", sampled, end_rows=FEW_ROWS, rows=FEW_ROWS)
        bound("pricing", self._advance(self._submit(), "estimate"), end_rows=ROWS)
        deleted = self._advance(self._submit(FEW_ROWS), "sample")
        delete_data(spine.api, spine.caller, deleted.id)
        self._keep("estimating_deleted", deleted, "cancelled", None, rows=FEW_ROWS, is_purged_in_the_end=True)

    def _make_automatic(self) -> None:
        """Make jobs of another organization, which approves up to a ceiling by itself."""
        spine = self.spine
        spine.caller = make_funded_caller(spine.services, cents_to_nanos(GRANT_CENTS))
        spine.caller = self._make_key("other")
        changes = {"auto_approve": True, "auto_approve_ceiling_cents": AUTO_APPROVE_CEILING_CENTS}
        with spine.services.database.transaction() as transaction:
            set_organization(transaction, spine.caller.org_id, changes)
        self._keep("auto_approved", self._price(FEW_ROWS), "done", FEW_ROWS, rows=FEW_ROWS)
        self._keep("auto_too_dear", self._price(), "done", ROWS, is_to_be_approved=True)
        pricing = self._advance(self._submit(FEW_ROWS), "estimate")
        self._keep("auto_pricing", pricing, "done", FEW_ROWS, rows=FEW_ROWS)

    def _keep(
        self, name: str, job: Job, end_status: str, end_rows: int | None, *, rows: int = ROWS, **end: bool
    ) -> None:
        self.spine.dispatcher.rings.clear()
        self.jobs[name] = MadeJob(job.id, self.spine.caller, rows, end_status, end_rows, **end)

    def _last(self) -> Job:
        return self.spine.job(list(self.jobs.values())[-1].id)

    def _make_key(self, name: str) -> Caller:
        """Make a key whose secret anybody can see to be none."""
        org_id = self.spine.caller.org_id
        secret = f"stored-for-tests-{name}".ljust(43, "-")
        with (
            patch("anex.orgs.keys.secrets.token_urlsafe", return_value=secret),
            self.spine.services.database.transaction() as transaction,
        ):
            key, shown = create_key(transaction, org_id, name, self.spine.services.clock.now())
        self.keys[shown] = key.id
        return Caller(org_id, key.id)

    def _revoke(self, caller: Caller) -> None:
        assert caller.key_id is not None
        with self.spine.services.database.transaction() as transaction:
            revoke_key(transaction, caller.key_id)
        self.keys = {secret: None if key == caller.key_id else key for secret, key in self.keys.items()}

    def _begin_upload(self) -> tuple[str, Callable[[], None]]:
        upload = create_input(self.spine.api, self.spine.caller, InputRequest(format="jsonl"))
        url = str(upload.upload_url)

        def send() -> None:
            file = {"file": b"".join(chat_rows(FEW_ROWS))}
            requests.post(url, data=upload.fields, files=file, timeout=30).raise_for_status()

        return upload.input.id, send

    def _submit(self, rows: int = ROWS, **settings: Any) -> Job:
        self.spine.dispatcher.rings.clear()
        return self.spine.submit(chat_rows(rows), **settings)

    def _advance(self, job: Job, step: str) -> Job:
        """Answer doorbells until ``step`` is next."""
        while self.spine.job(job.id).step != step:
            self.spine.answer_one()
        return job

    def _price(self, rows: int = ROWS, job: Job | None = None, **settings: Any) -> Job:
        """Bring a job to ``cost_ready``; where it approves itself the doorbells of its run are lost."""
        priced = job or self._submit(rows, **settings)
        while self.spine.job(priced.id).status in {"submitted", "estimating"}:
            self.spine.answer_one()
        return priced

    def _approve(self, rows: int = ROWS, **settings: Any) -> Job:
        return approve_job(self.spine.api, self.spine.caller, self._price(rows, **settings).id)

    def _run(self, rows: int = ROWS, **settings: Any) -> Job:
        job = self._approve(rows, **settings)
        self.spine.answer_rings()
        return job

    def _run_chunks(self, chunks: int, **settings: Any) -> Job:
        job = self._approve(**settings)
        for _ in range(chunks):
            assert self.spine.run_chunk()
        return job

    def _cancel(self, job: Job) -> Job:
        return cancel_job(self.spine.api, self.spine.caller, job.id)

    def _die_in_chunk(self, rows: int = 0) -> None:
        """Claim a chunk of the job approved last, finish ``rows`` rows of it with a checkpoint after each, and die."""
        services = self.spine.services
        self.spine.services = replace(services, timings=replace(services.timings, checkpoint_seconds=0))
        with self._dying_engine(rows):
            self.spine.run_chunk()
        self.spine.services = services

    @contextmanager
    def _dying_engine(self, rows: int) -> Iterator[None]:
        engine = self.spine.engine
        self.spine.engine = DyingEngine(engine, rows)
        with _killing():
            yield
        self.spine.engine = engine


@contextmanager
def _killing(place: str | None = None) -> Iterator[None]:
    """Kill the process within the block, at ``place`` if that is named; no step is given back."""
    with ExitStack() as stack:
        stack.enter_context(patch("anex.jobs.steps._touch_lease"))
        if place is not None:
            stack.enter_context(patch(place, side_effect=Killed))
        try:
            yield
        except Killed:
            return
    raise AssertionError("nobody was killed")


@contextmanager
def _small_pieces() -> Iterator[None]:
    """Cut spans and chunks at 64 rows: the real bounds (8,192 rows) would make the files large."""
    cut_small_chunks = partial(cut_chunks, bounds=ChunkBounds(rows=PIECE_ROWS))
    cut_small_spans = partial(SpanCutter, max_rows=PIECE_ROWS)
    with (
        patch("anex.jobs.estimate.cut_chunks", cut_small_chunks),
        patch("anex.rows.check.SpanCutter", cut_small_spans),
    ):
        yield
