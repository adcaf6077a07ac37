"""Fixtures of the spine in one process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet

from anex.clock import SystemClock
from anex.db import Database
from anex.grammar import GrammarChildren
from anex.media.clips import ClipReader
from anex.money import cents_to_nanos
from anex.objects import ObjectStore
from anex.outbound import Outbound, OutboundPolicy
from anex.sealing import Sealer
from anex.services import Limits, Services, Timings
from anex.token_counters import StoredTokenCounters
from anex.units.model import HeldLeases, StopSignals
from config.catalog import load_catalog
from tests.support.engines import open_client, run_fake_engine
from tests.support.factories import make_funded_caller, make_unit
from tests.support.spine import MODEL, RecordingDispatcher, Spine
from tests.support.wait import wait_until
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.orgs.model import Caller
    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls

CATALOG = Path(__file__).with_name("models.test.toml")
ROOT = Path(__file__).parents[2]
SHORT = Timings(
    lease_seconds=5.0,
    heartbeat_seconds=1.0,
    sweep_seconds=0.5,
    ring_backoff_seconds=0.0,
    ring_backoff_max_seconds=0.0,
    drain_seconds=5.0,
)


@pytest.fixture(scope="session")
def fake_engine_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One fake engine for all tests of this worker that don't hurt it."""
    socket_path = tmp_path_factory.mktemp("engine") / "engine.sock"
    command = [sys.executable, "-m", "workers.engines.fake", "--socket", str(socket_path), "--model", MODEL]
    law = ["--context-tokens", "4096", "--answer-law", "lognormal:12:0.5"]
    with subprocess.Popen([*command, *law], cwd=ROOT) as process:
        try:
            wait_until(socket_path.exists, what="the fake engine listens")
            yield socket_path
        finally:
            process.kill()


@pytest.fixture
def spine(
    fresh_database_urls: DatabaseUrls, s3_location: S3Location, fake_engine_socket: Path, tmp_path: Path
) -> Iterator[Spine]:
    """Everything for one job's way, in this process, on a database of its own."""
    dispatcher = RecordingDispatcher()
    objects = ObjectStore(s3_location)
    catalog = load_catalog(CATALOG, allow_fake_engine=True)
    grammar = GrammarChildren()
    sealer = Sealer([Fernet.generate_key().decode()])

    def serve(database: Database) -> Services:
        counters = StoredTokenCounters(objects, tmp_path / uuid4().hex)
        return Services(
            catalog=catalog,
            database=database,
            objects=objects,
            dispatcher=dispatcher,
            counters=counters,
            grammar=grammar,
            outbound=Outbound(OutboundPolicy()),
            clips=ClipReader(),
            sealer=sealer,
            clock=SystemClock(),
            timings=SHORT,
            limits=Limits(),
            region="world",
        )

    api = serve(Database(fresh_database_urls.api, max_connections=60).open())
    work = serve(Database(fresh_database_urls.work).open())
    engine = EngineClient(fake_engine_socket, 64, progress_seconds=0.2)
    caller = make_funded_caller(work, cents_to_nanos(100_000))
    unit = make_unit(work, catalog.get(MODEL))
    yield Spine(api, work, caller, engine, unit, StopSignals(), HeldLeases(), dispatcher)
    engine.close()
    grammar.close()
    api.database.close()
    work.database.close()


@pytest.fixture
def poor(spine: Spine) -> Caller:
    """Another organization, with next to nothing: one nano-dollar."""
    return make_funded_caller(spine.services, 1)


@pytest.fixture
def embed_spine(spine: Spine) -> Iterator[Spine]:
    """Give the spine a unit that serves an embedding model."""
    with serve_model(spine, "fake-embed") as served:
        yield served


@pytest.fixture
def decide_spine(spine: Spine) -> Iterator[Spine]:
    """Give the spine a unit that serves a decision model."""
    with serve_model(spine, "fake-decide") as served:
        yield served


@contextmanager
def serve_model(spine: Spine, model: str) -> Iterator[Spine]:
    """Give the spine a unit of another model of the tests' catalog, with an engine of its own."""
    unit = make_unit(spine.services, spine.services.catalog.get(model))
    with run_fake_engine(model) as engine, open_client(engine.socket_path) as client:
        yield replace(spine, engine=client, unit=unit)
