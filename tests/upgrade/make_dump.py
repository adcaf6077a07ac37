"""Store the installation that ``test_upgrade`` upgrades: the newest revision's schema, with jobs in every state.

    .venv/bin/python tests/upgrade/make_dump.py

It starts servers and a fake engine of its own, makes the jobs (``states.py``), and writes ``tests/upgrade/<revision>/``. Run it
once for each revision, on the last code that was released with it: before the next migration is begun. A folder that was
released is never made again, since its point is that old code wrote it; to make an old one that is missing, check out that
code elsewhere and run it there:

    PYTHONPATH=. …/python …/tests/upgrade/make_dump.py

The engine has another seed and the catalog other prices than the tests have: rows that are run twice and jobs that are charged
by today's prices show.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

import anex
from anex.catalog import make_catalog
from anex.jobs.checkpoints import read_checkpoint
from anex.jobs.chunks import Chunk, sum_chunks
from anex.jobs.end import RowCounts
from anex.jobs.model import Step
from anex.jobs.store import get_job
from anex.jobs.transitions import RUNNING, Status
from anex.ledger.pricing import PriceTerms, charge_cents
from anex.migrations import newest_revision
from anex.units.model import HeldLeases, StopSignals
from config.environment import PREFIX
from config.settings import load_settings
from config.stack.layout import PROJECT_FOLDER
from config.wiring import build_catalog, build_object_store, build_services
from tests.support import servers as shared
from tests.support.factories import make_funded_caller, make_unit
from tests.support.server_host import ADDRESSES
from tests.support.spine import MODEL, RecordingDispatcher, Spine
from tests.support.spine_fixtures import CATALOG
from tests.support.wait import wait_until
from tests.upgrade.states import States
from tests.upgrade.stored import HERE, About, Stored, StoredJob
from workers.engine_client import EngineClient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from anex.catalog import Catalog
    from anex.db import Transaction
    from anex.jobs.model import Job
    from anex.objects import ObjectStore
    from anex.services import Services
    from config.settings import Settings
    from tests.support.servers import DatabaseUrls, Servers
    from tests.upgrade.states import MadeJob

BUCKET = "stored-for-tests"
ENGINE_SEED = 7
PRICE_FACTOR = 1000
"""Makes jobs of 150 rows cost a dollar or so, not the least there is."""
CHUNK_STATES = {"planned", "ready", "leased", "done", "dropped"}


def main() -> None:
    """Make and store the installation."""
    servers = _start_servers()
    urls = servers.make_database()
    stored = Stored(HERE / newest_revision())
    with tempfile.TemporaryDirectory() as name, _serve_engine(Path(name) / "engine.sock") as engine:
        spine = _make_spine(servers, urls, engine, Path(name))
        states = States(spine, lambda by: _shift_clock(urls, by))
        states.make_all()
        about = _describe(spine.services, states, urls)
        stored.write(urls.superuser, _read_objects(spine.services.objects), about)
        spine.api.database.close()
        spine.services.database.close()
    sys.stdout.write(f"{stored.folder} tells of {len(about.jobs)} jobs, made by {anex.__file__}\n")


def _start_servers() -> Servers:
    """Start servers that end with this process, and whose folder goes with them."""
    folder = Path(tempfile.mkdtemp(prefix="anex-dump-"))
    shared._start_host(folder, os.getpid())
    return shared.Servers(folder, json.loads((folder / "data" / ADDRESSES).read_text("utf-8")))


@contextmanager
def _serve_engine(socket: Path) -> Iterator[EngineClient]:
    command = [sys.executable, "-m", "workers.engines.fake", "--socket", str(socket), "--model", MODEL]
    law = ["--seed", str(ENGINE_SEED), "--context-tokens", "4096", "--answer-law", "lognormal:12:0.5"]
    with subprocess.Popen([*command, *law], cwd=PROJECT_FOLDER, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(socket.exists, what="the fake engine listens")
            client = EngineClient(socket, 64, progress_seconds=0.2)
            yield client
            client.close()
        finally:
            process.kill()


def _make_spine(servers: Servers, urls: DatabaseUrls, engine: EngineClient, folder: Path) -> Spine:
    """Wire the services as processes do, so that this goes on working when they grow."""
    dispatcher, settings = RecordingDispatcher(), _make_settings(servers, urls, folder)
    catalog = _raise_prices(build_catalog(settings))
    build_object_store(settings).ensure_bucket()
    api = replace(build_services(settings, "api", dispatcher), catalog=catalog)
    work = replace(build_services(settings, "work", dispatcher), catalog=catalog)
    caller, unit = make_funded_caller(work, 1), make_unit(work, catalog.get(MODEL))
    return Spine(api, work, caller, engine, unit, StopSignals(), HeldLeases(), dispatcher)


def _make_settings(servers: Servers, urls: DatabaseUrls, folder: Path) -> Settings:
    addresses = {name: value for name, value in servers.addresses.items() if name.startswith(PREFIX)}
    return load_settings(
        {
            **addresses,
            f"{PREFIX}DATA_DIR": str(folder),
            f"{PREFIX}DATABASE_API_URL": urls.api,
            f"{PREFIX}DATABASE_WORK_URL": urls.work,
            f"{PREFIX}S3_BUCKET": BUCKET,
            f"{PREFIX}CATALOG": str(CATALOG),
            f"{PREFIX}ALLOW_FAKE_ENGINE": "1",
        }
    )


def _raise_prices(catalog: Catalog) -> Catalog:
    spec = catalog.get(MODEL)
    prices = replace(
        spec.prices,
        input_nanos_per_million=spec.prices.input_nanos_per_million * PRICE_FACTOR,
        output_nanos_per_million=spec.prices.output_nanos_per_million * PRICE_FACTOR,
    )
    return make_catalog([replace(spec, prices=prices)])


def _shift_clock(urls: DatabaseUrls, by: timedelta) -> None:
    with psycopg.connect(urls.owner) as connection:
        connection.execute("DELETE FROM clock_shift")
        if by:
            connection.execute("INSERT INTO clock_shift (shift) VALUES (%s)", (by,))


def _read_objects(store: ObjectStore) -> dict[str, bytes]:
    return {key: _read_object(store, key) for key in store.list_keys("")}


def _read_object(store: ObjectStore, key: str) -> bytes:
    head = store.head(key)
    assert head is not None
    return store.read_range(key, 0, head.size_bytes, head.etag)


def _describe(services: Services, states: States, urls: DatabaseUrls) -> About:
    heads = {key: services.objects.head(key) for key in services.objects.list_keys("")}
    with services.database.transaction() as transaction:
        jobs = {name: _describe_job(services, transaction, made) for name, made in states.jobs.items()}
        chunks = transaction.fetch_dicts("SELECT DISTINCT state FROM chunks")
        time = transaction.fetch_dict("SELECT anex_now() AS now")
        balances = transaction.fetch_dicts("SELECT * FROM accounts")
    assert {job.status for job in jobs.values()} == {status.value for status in Status}
    assert {job.step for job in jobs.values()} == {None, *(step.value for step in Step)}
    assert {chunk["state"] for chunk in chunks} == CHUNK_STATES
    assert time is not None
    return About(
        revision=newest_revision(),
        time=time["now"],
        jobs=jobs,
        inputs=states.inputs,
        keys=states.keys,
        table_rows=_count_rows(urls),
        balances={row["org_id"]: [row["available_nanos"], row["held_nanos"]] for row in balances},
        etags={key: head.etag for key, head in heads.items() if head is not None},
    )


def _describe_job(services: Services, transaction: Transaction, made: MadeJob) -> StoredJob:
    job = get_job(transaction, made.id)
    kept = {} if job.is_terminal else _find_finished_rows(services, transaction, job)
    return StoredJob(
        id=job.id,
        org_id=job.org_id,
        status=job.status,
        step=job.step,
        rows=made.rows,
        end_status=made.end_status,
        end_rows=made.end_rows,
        charge_cents=_find_charge(transaction, job, made),
        is_to_be_approved=made.is_to_be_approved,
        is_purged_in_the_end=made.is_purged_in_the_end,
        kept_rows=sorted(kept),
        kept_sha256=hashlib.sha256(b"".join(kept[number] for number in sorted(kept))).hexdigest(),
    )


def _find_finished_rows(services: Services, transaction: Transaction, job: Job) -> dict[int, bytes]:
    """Return the lines that are in parts and checkpoints, by row number."""
    columns = ", ".join(Chunk.__slots__)
    query = f"SELECT {columns}, part_key FROM chunks WHERE job_id = %(job_id)s ORDER BY chunk_index"  # noqa: S608 - columns of ours
    lines: dict[int, bytes] = {}
    for row in transaction.fetch_dicts(query, {"job_id": job.id}):
        part_key = row.pop("part_key")
        chunk = Chunk(**row)
        lines |= {number: outcome.line for number, outcome in read_checkpoint(services, chunk).items()}
        if part_key is not None:
            part = _read_object(services.objects, part_key).splitlines(keepends=True)
            lines |= dict(enumerate(part, start=chunk.first_row))
    return lines


def _find_charge(transaction: Transaction, job: Job, made: MadeJob) -> int | None:
    """Return what the job costs in the end, None while there are rows to run that count."""
    if job.is_terminal:
        return job.cost_cents
    if Status(job.status) not in RUNNING:
        return 0 if made.end_status == Status.CANCELLED else None
    if job.status == Status.IN_PROGRESS:
        return None
    counts = RowCounts.of(sum_chunks(transaction, job.id))
    return charge_cents(
        PriceTerms.from_json((job.terms or {})["prices"]),
        counts.usage,
        billable_rows=counts.billable_rows,
        hold_cents=job.est_cost_cents or 0,
    )


def _count_rows(urls: DatabaseUrls) -> dict[str, dict[str, int]]:
    """Return how many rows of each table belong to each organization."""
    query = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'org_id'"
    counts: dict[str, dict[str, int]] = {}
    with psycopg.connect(urls.superuser) as connection:
        for (table,) in connection.execute(query).fetchall():
            rows = connection.execute(f"SELECT org_id, count(*) FROM {table} GROUP BY org_id")  # noqa: S608 - names of tables of ours
            for org_id, count in rows.fetchall():
                counts.setdefault(org_id, {})[table] = count
    return counts


if __name__ == "__main__":
    main()
