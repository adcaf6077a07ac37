"""What the rows of the contract run on: an API over real servers, and hands that bring a job into any state.

Each step of a job is done by the use case that does it in a running service; nothing but the doorbells is missing.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg
import pytest
from cryptography.fernet import Fernet

from anex.catalog import make_catalog
from anex.clock import SystemClock
from anex.db import Database
from anex.grammar import GrammarChildren
from anex.jobs.chunk_end import close_chunk, count_down
from anex.jobs.chunks import claim_chunk, drop_unstarted_chunks
from anex.jobs.run_chunk import run_next_chunk
from anex.jobs.store import lock_job
from anex.jobs.sweep import sweep
from anex.ledger.grants import grant_credits
from anex.media.clips import ClipReader
from anex.money import cents_to_nanos
from anex.objects import ObjectStore
from anex.orgs.keys import create_key
from anex.orgs.model import Caller
from anex.orgs.organizations import create_organization, set_organization
from anex.outbound import Outbound, OutboundPolicy, OutboundTimeout
from anex.sealing import Sealer
from anex.services import Limits, Services, Timings
from anex.token_counters import StoredTokenCounters
from anex.units.model import HeldLeases, StopSignals
from api.app import create_app
from api.limits import RedisRateLimit
from config.catalog import load_catalog
from tests.support.contract import BROKEN_LINES, LINES, BenchJob, Place, expect
from tests.support.factories import make_unit
from tests.support.spine import MODEL, RecordingDispatcher, Spine
from tests.support.tenant import Tenant
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from flask import Flask
    from werkzeug.test import TestResponse

    from anex.jobs.chunks import Chunk
    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls, Servers

FAKE_MODELS = Path(__file__).with_name("models.test.toml")
SOLD_MODELS = Path(__file__).parents[2] / "config" / "models.toml"
"""The models of the reference: a submit is judged by their settings, and nothing runs on them here."""


class SilentWeb(Outbound):
    """Judges addresses as the real client does, for names that are all public; whoever is called keeps silent."""

    def __init__(self) -> None:
        super().__init__(
            OutboundPolicy(), resolve=lambda host: ["93.184.216.34"] if host[-1:].isalpha() else [host]
        )

    def request(self, *_: Any, **__: Any) -> NoReturn:
        raise OutboundTimeout("files.example.com did not answer in time")


class _DrainAfter(threading.Event):
    """A drain that begins once a slot has asked about one row: it asks before each."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = 0

    def is_set(self) -> bool:
        self._asked += 1
        return self._asked > 1


@dataclass(repr=False)
class Bench:
    """An API on a database of its own, and everything that a row needs to prove its sentence."""

    spine: Spine
    app: Flask
    owner_url: str
    valkey_url: str
    held: Chunk | None = None
    """What ``claim`` got last."""
    _uploads: dict[bytes, str] = field(default_factory=dict)
    _shared: dict[Place, BenchJob] = field(default_factory=dict)

    @cached_property
    def anyone(self) -> Tenant:
        """An organization with credits, for requests that leave nothing behind."""
        return self.tenant()

    @cached_property
    def eu_app(self) -> Flask:
        """The API of the other region, over the same database."""
        return self.serve(region="eu")

    @cached_property
    def one_an_hour(self) -> Flask:
        """The same API, where a key may send one request an hour."""
        return create_app(self.spine.api, rate_limit=RedisRateLimit(self.valkey_url, "1 per 1 hour"))

    def serve(self, **changes: Any) -> Flask:
        """Return an application whose services differ in ``changes``."""
        return create_app(replace(self.spine.api, **changes))

    def tenant(self, *, cents: int = 1000, eu_routing: bool = False, on: Flask | None = None) -> Tenant:
        """Make an organization with a key and ``cents`` of credit."""
        now = datetime.now(UTC)
        with self.spine.services.database.transaction() as transaction:
            org_id = create_organization(transaction, "Acme", now).id
            set_organization(transaction, org_id, {"eu_routing": eu_routing})
            key, secret = create_key(transaction, org_id, "test", now)
            if cents:
                grant_credits(
                    transaction, org_id=org_id, amount_nanos=cents_to_nanos(cents), reason="test", now=now
                )
        return Tenant(on or self.app, org_id, key.id, secret)

    def uploaded(self, lines: bytes) -> str:
        """Return an input of ``anyone`` that is ready with these lines, the same one at each call."""
        if lines not in self._uploads:
            self._uploads[lines] = self.anyone.upload(lines)
            expect(self.anyone.call("GET", f"/inputs/{self._uploads[lines]}"), 200)
        return self._uploads[lines]

    def change(self, statement: str, *parameters: Any) -> int:
        """Run one statement as a worker would; return how many rows it touched."""
        with self.spine.services.database.transaction() as transaction:
            return transaction.connection.execute(statement.encode(), parameters).rowcount

    def count(self, table: str, tenant: Tenant) -> int:
        """Return how many rows of a table belong to an organization."""
        return self.change(f"SELECT 1 FROM {table} WHERE org_id = %s", tenant.org_id)  # noqa: S608 - a test's constant

    @contextmanager
    def later(self, by: timedelta) -> Iterator[None]:
        """Move the database's time for as long as the block runs."""
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute("INSERT INTO clock_shift (shift) VALUES (%s)", (by,))
            try:
                yield
            finally:
                connection.execute("DELETE FROM clock_shift")

    def submit(self, tenant: Tenant, *, lines: bytes = LINES, **settings: Any) -> TestResponse:
        """Submit a job, on a fresh input unless one is named; a cap is set unless ``max_output_tokens`` is given."""
        body = {"model": MODEL, "max_output_tokens": 16, **settings}
        if "input_id" not in body and "input_s3_uri" not in body:
            body["input_id"] = tenant.upload(lines)
        return tenant.call("POST", "/jobs", body)

    def job(self, place: Place, tenant: Tenant | None = None, **settings: Any) -> BenchJob:
        """Bring a fresh job to a place, each step by the use case that does it in a running service."""
        job = self._submit(place, tenant or self.tenant(), settings)
        match place:
            case Place.SUBMITTED:
                pass
            case Place.ESTIMATING:
                self.spine.answer_one()
            case Place.CANCELLED:
                expect(job.cancel(), 200)
            case Place.FAILED | Place.COST_READY:
                self.spine.answer_rings()
            case _:
                self.spine.answer_rings()
                self.start(job)
                self._run_to(place, job)
        assert job.poll()["status"] == place.status
        return job

    def shared(self, place: Place) -> BenchJob:
        """Return a job at a place, the same one while it stays there: for what changes nothing."""
        job = self._shared.get(place)
        if job is None or job.poll()["status"] != place.status:
            job = self._shared[place] = self.job(place)
        return job

    def _submit(self, place: Place, tenant: Tenant, settings: dict[str, Any]) -> BenchJob:
        region = "eu" if tenant.app is self.eu_app else "world"
        self.spine.services = replace(self.spine.services, region=region)
        self.spine.unit = replace(self.spine.unit, region=region)
        while self.spine.run_chunk():
            """Whatever earlier rows left to run would be claimed before this job's own."""
        self.spine.dispatcher.rings.clear()
        if place is Place.ESTIMATING:
            settings = {"max_output_tokens": None, **settings}
        if place is Place.FAILED:
            settings = {"lines": BROKEN_LINES, **settings}
        return BenchJob(tenant, expect(self.submit(tenant, **settings), 200)["id"])

    def start(self, job: BenchJob) -> None:
        """Approve a job; the doorbells of its chunks stay unheard."""
        expect(job.approve(), 200)
        self.spine.dispatcher.rings.clear()

    def _run_to(self, place: Place, job: BenchJob) -> None:
        match place:
            case Place.RUNNING:
                self.claim()
            case Place.CANCELLING:
                self.claim()
                expect(job.cancel(), 200)
            case Place.FINALIZING:
                assert self.spine.run_chunk()
            case Place.DONE:
                assert self.spine.run_chunk()
                self.spine.answer_rings()
            case Place.PARTLY_CANCELLED:
                self._run_one_row()
                expect(job.cancel(), 200)
                self.spine.answer_rings()
            case Place.PARTLY_FAILED:
                self._run_one_row()
                self._lose_rows(job)

    def claim(self) -> None:
        """Claim a chunk as a worker that keeps it."""
        with self.spine.services.database.transaction() as transaction:
            self.held = claim_chunk(transaction, self.spine.unit, lease_seconds=600)
        assert self.held is not None

    def let_go(self) -> None:
        """Drop the claimed chunk, as a worker does that hears of a cancel before its first row; answer what follows."""
        assert self.held is not None
        close_chunk(self.spine.services, self.held, {})
        self.spine.answer_rings()

    def sweep(self) -> None:
        """Let the sweeper come by, and answer what it rings."""
        sweep(self.spine.services)
        self.spine.answer_rings()

    def _run_one_row(self) -> None:
        spine, stop = self.spine, StopSignals(draining=_DrainAfter())
        assert run_next_chunk(spine.services, spine.engine, spine.unit, stop, spine.leases)

    def _lose_rows(self, job: BenchJob) -> None:
        """Let a job come to its end without the rows that did not run: a fault of ours, and told as one."""
        services = self.spine.services
        with services.database.transaction() as transaction:
            dropped = drop_unstarted_chunks(transaction, job.id)
            count_down(transaction, services, lock_job(transaction, job.id), dropped)
        self.spine.dispatcher.rings = deque(
            ring for ring in self.spine.dispatcher.rings if ring[0] == "finalize"
        )
        self.spine.answer_rings()


@pytest.fixture(scope="module", name="bench")
def make_bench(
    servers: Servers,
    s3_location: S3Location,
    valkey_url: str,
    fake_engine_socket: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    """Serve the API on a database of the module's own; a test module gets it by importing this function."""
    with ExitStack() as stack:
        urls = servers.make_database()
        stack.callback(servers.drop_database, urls)
        engine = EngineClient(fake_engine_socket, 64, progress_seconds=0.2)
        stack.callback(engine.close)
        spine = _make_spine(urls, s3_location, tmp_path_factory.mktemp("counters"), engine, stack)
        yield Bench(spine, create_app(spine.api), urls.owner, valkey_url)


def _make_spine(
    urls: DatabaseUrls, location: S3Location, counters: Path, engine: EngineClient, stack: ExitStack
) -> Spine:
    fake = load_catalog(FAKE_MODELS, allow_fake_engine=True)
    catalog = make_catalog([*fake, *load_catalog(SOLD_MODELS)])
    dispatcher, objects, grammar = RecordingDispatcher(), ObjectStore(location), GrammarChildren()
    stack.callback(grammar.close)

    def serve(url: str) -> Services:
        database = Database(url, max_connections=16).open()
        stack.callback(database.close)
        return Services(
            catalog=catalog,
            database=database,
            objects=objects,
            dispatcher=dispatcher,
            counters=StoredTokenCounters(objects, counters),
            grammar=grammar,
            outbound=SilentWeb(),
            clips=ClipReader(),
            sealer=Sealer([Fernet.generate_key().decode()]),
            clock=SystemClock(),
            timings=Timings(),
            limits=Limits(),
            region="world",
        )

    api, work = serve(urls.api), serve(urls.work)
    unit = make_unit(work, catalog.get(MODEL))
    nobody = Caller("", "")
    return Spine(api, work, nobody, engine, unit, StopSignals(), HeldLeases(), dispatcher)
