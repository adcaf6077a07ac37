"""An installation of an earlier version is upgraded: nothing is lost, and what was under way goes on.

Each folder here holds a database as that version left it, and its objects. They are restored (objects under their keys, in
another bucket: no code opens ``object_uri``, it is a name), time is set back to the dump's, the schema is migrated, and today's
code does the rest. The model of the jobs, ``fake-chat`` at revision 1, has to stay in ``models.test.toml``: a job whose model
is served at another revision waits for ever, rightly.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
import requests
from alembic.script import ScriptDirectory
from psycopg.rows import dict_row

from anex import migrations
from anex.errors import InputNotFound, KeyInvalid
from anex.inputs.settle import get_input
from anex.jobs.approve import approve_job
from anex.jobs.result import get_result
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.jobs.sweep import sweep
from anex.jobs.transitions import TERMINAL
from anex.ledger.check import check_ledger
from anex.ledger.store import get_balance
from anex.orgs.authenticate import authenticate
from config.stack.postgres import ensure_database
from tests.support.audit import audit
from tests.support.servers import DatabaseUrls
from tests.support.spine import MODEL
from tests.upgrade.stored import list_stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anex.jobs.model import Job
    from anex.orgs.model import Caller
    from tests.support.servers import Servers
    from tests.support.spine import Spine
    from tests.upgrade.stored import About, Stored, StoredJob

STORED = list_stored()
PAST_LEASES = timedelta(minutes=2)
PAST_APPROVALS = timedelta(hours=25)
SWEEPS_MAX = 200

HISTORY = ("job_events", "job_actions", "holds", "transfers")
"""What is written beside a job, for good; only an open hold is settled in its place."""
FROZEN = (
    "model", "asked_max_tokens", "samples_rows", "est_input_tok", "est_output_tok", "est_cost_cents", "max_output_tokens",
    "reasoning_budget", "terms", "model_revision", "catalog_hash", "cost_ready_at", "approval_expires_at", "approved_at",
)  # fmt: skip
"""What is settled about a job once it has a value."""
PURGE = frozenset({"delete_requested", "data_deleted_at"})
"""What may still change on a job that has ended, if its deletion had to wait."""

Row = dict[str, Any]


@dataclass(slots=True)
class Upgraded:
    """The installation after its upgrade, and what was in it before."""

    stored: Stored
    about: About
    urls: DatabaseUrls
    jobs: dict[str, Row]
    history: dict[str, list[Row]]
    ahead: timedelta = timedelta()

    def shift_clock(self, by: timedelta = timedelta()) -> None:
        """Set the database's time to the dump's, or move it on from there."""
        self.ahead += by
        shift = self.about.time - datetime.now(UTC) + self.ahead
        with psycopg.connect(self.urls.owner) as connection:
            connection.execute("DELETE FROM clock_shift")
            connection.execute("INSERT INTO clock_shift (shift) VALUES (%s)", (shift,))


@pytest.fixture(params=STORED, ids=lambda stored: stored.folder.name)
def upgraded(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Upgraded]:
    """Restore a stored database into an empty one, and upgrade it."""
    stored: Stored = request.param
    urls = make_empty_database(servers)
    stored.restore_database(urls.superuser)
    restored = Upgraded(stored, stored.read_about(), urls, *read_jobs(urls))
    restored.shift_clock()
    migrations.upgrade(urls.owner)
    yield restored
    servers.drop_database(urls)


@pytest.fixture
def fresh_database_urls(upgraded: Upgraded) -> DatabaseUrls:
    """Build the spine on the upgraded database."""
    return upgraded.urls


@pytest.fixture
def callers(upgraded: Upgraded, spine: Spine) -> dict[str, Caller]:
    """Return who calls for each organization, by keys that were made before the upgrade; the objects are there."""
    upgraded.stored.restore_objects(spine.services.objects, upgraded.about.etags)
    secrets = [secret for secret, key_id in upgraded.about.keys.items() if key_id is not None]
    found = [authenticate(spine.api.database, secret) for secret in secrets]
    return {caller.org_id: caller for caller in found}


def make_empty_database(servers: Servers) -> DatabaseUrls:
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(servers.superuser_url, autocommit=True) as connection:
        ensure_database(connection, name)
    roles = {
        role: servers.addresses[f"ANEX_DATABASE_{role.upper()}_URL"] for role in ("owner", "api", "work")
    }
    urls = {role: urlsplit(url)._replace(path=f"/{name}").geturl() for role, url in roles.items()}
    return DatabaseUrls(
        name=name, superuser=urlsplit(servers.superuser_url)._replace(path=f"/{name}").geturl(), **urls
    )


def read_jobs(urls: DatabaseUrls) -> tuple[dict[str, Row], dict[str, list[Row]]]:
    """Return the jobs by id, and the rows of their history by table, as the superuser sees them."""
    with psycopg.connect(urls.superuser, row_factory=dict_row) as connection:
        jobs = {row["id"]: row for row in connection.execute("SELECT * FROM jobs")}
        history = {table: list(connection.execute(f"SELECT * FROM {table}")) for table in HISTORY}  # noqa: S608 - constants
    return jobs, history


def keeps(after: Row, before: Row, *, but: frozenset[str] = frozenset()) -> bool:
    """Whether a row has the values it had in every column that there was."""
    return all(after[name] == value for name, value in before.items() if name not in but)


def settle(spine: Spine) -> None:
    """Sweep and answer doorbells until nothing stands undone."""
    for _ in range(SWEEPS_MAX):
        sweep(spine.services)
        if not spine.dispatcher.rings:
            return
        spine.answer_rings()
    raise AssertionError(f"after {SWEEPS_MAX} sweeps doorbells still ring: {spine.dispatcher.rings}")


def finish(spine: Spine, upgraded: Upgraded, callers: Mapping[str, Caller]) -> None:
    """Bring every job to its end: dead workers' leases run out, people approve, and what they don't expires."""
    upgraded.shift_clock(PAST_LEASES)
    settle(spine)
    for stored in upgraded.about.jobs.values():
        if stored.is_to_be_approved:
            approve_job(spine.api, callers[stored.org_id], stored.id)
    settle(spine)
    upgraded.shift_clock(PAST_APPROVALS)
    settle(spine)


def download_lines(spine: Spine, caller: Caller, job_id: str) -> list[bytes]:
    answer = requests.get(get_result(spine.api, caller, job_id).result_url, timeout=30)
    answer.raise_for_status()
    return answer.content.splitlines(keepends=True)


def charge(terms: Mapping[str, Any], lines: list[bytes], hold_cents: int) -> int:
    """Return what delivered rows cost by frozen terms: whole cents, rounded up, from the least to the hold."""
    usages = [json.loads(line)["usage"] for line in lines]
    prices = terms["prices"]
    price = sum(
        usage["input_tokens"] * prices["input_nanos_per_million"]
        + usage["output_tokens"] * prices["output_nanos_per_million"]
        for usage in usages
    )
    cents = -(-price // (1_000_000 * 10_000_000))
    return int(min(hold_cents, max(1, prices["minimum_cents"], cents)))


def check_result(spine: Spine, caller: Caller, job: Job, stored: StoredJob) -> None:
    """Check that each row is there once, in order; that finished ones were not run again; and the charge."""
    lines = download_lines(spine, caller, job.id)
    custom_ids = [json.loads(line)["custom_id"] for line in lines]
    assert custom_ids == [f"row-{number}" for number in range(1, (stored.end_rows or 0) + 1)]
    kept = b"".join(lines[number - 1] for number in stored.kept_rows)
    assert hashlib.sha256(kept).hexdigest() == stored.kept_sha256
    assert job.cost_cents == charge(job.terms or {}, lines, job.est_cost_cents or 0)


def run_new_job(spine: Spine, callers: Mapping[str, Caller], input_id: str) -> None:
    """Run a job over an input that was there before, for whom it belongs to."""
    [caller] = [caller for caller in callers.values() if owns(spine, caller, input_id)]
    job = submit_job(spine.api, caller, SubmitRequest(model=MODEL, input_id=input_id))
    spine.answer_rings()
    approve_job(spine.api, caller, job.id)
    spine.answer_rings()
    assert replace(spine, caller=caller).job(job.id).status == "done"


def owns(spine: Spine, caller: Caller, input_id: str) -> bool:
    try:
        get_input(spine.api, caller, input_id)
    except InputNotFound:
        return False
    return True


def check_past(upgraded: Upgraded) -> None:
    """Check that jobs which had ended, and all that was written of any job, are as they were."""
    jobs, history = read_jobs(upgraded.urls)
    ended = {job_id: before for job_id, before in upgraded.jobs.items() if before["status"] in TERMINAL}
    assert len(ended) == sum(stored.status in TERMINAL for stored in upgraded.about.jobs.values())
    for job_id, before in ended.items():
        waits = before["delete_requested"] and before["data_deleted_at"] is None
        assert keeps(jobs[job_id], before, but=PURGE if waits else frozenset())
    for table, rows in upgraded.history.items():
        settled = [row for row in rows if row["job_id"] in ended]
        for before in settled if table == "holds" else rows:
            assert any(keeps(after, before) for after in history[table])
        assert len(settled) == sum(row["job_id"] in ended for row in history[table])


def test_an_installation_of_every_older_revision_is_stored() -> None:
    scripts = ScriptDirectory.from_config(migrations._config())
    older = {script.revision for script in scripts.walk_revisions()} - {migrations.newest_revision()}
    stored = {stored.folder.name for stored in STORED}
    assert stored
    assert older <= stored, "make_dump.py, run on the code of that revision, stores it"
    assert all(stored.read_about().revision == stored.folder.name for stored in STORED)


def test_every_row_is_found_by_whom_it_belongs_to(upgraded: Upgraded) -> None:
    """Through row-level security, before anything else has touched the database."""
    about = upgraded.about
    with psycopg.connect(upgraded.urls.api) as connection:
        migrations.require_current(connection)
        for org_id, tables in about.table_rows.items():
            connection.execute("SELECT set_config('anex.org_id', %s, false)", (org_id,))
            found = {table: count_rows(connection, table) for table in tables}
            assert found == tables
    with psycopg.connect(upgraded.urls.work) as connection:
        total = sum(tables.get("jobs", 0) for tables in about.table_rows.values())
        assert count_rows(connection, "jobs") == total == len(about.jobs)


def count_rows(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()  # noqa: S608 - names of tables
    return int(row[0]) if row is not None else 0


def test_keys_balances_and_inputs_are_what_they_were(
    spine: Spine, upgraded: Upgraded, callers: dict[str, Caller]
) -> None:
    about = upgraded.about
    for secret, key_id in about.keys.items():
        if key_id is None:
            with pytest.raises(KeyInvalid):
                authenticate(spine.api.database, secret)
        else:
            assert authenticate(spine.api.database, secret).key_id == key_id
    for org_id, balance in about.balances.items():
        with spine.api.database.transaction(org_id) as transaction:
            found = get_balance(transaction, org_id)
        assert [found.available_nanos, found.held_nanos] == balance
    [caller] = [caller for caller in callers.values() if owns(spine, caller, about.inputs["ready"])]
    states = {
        state: get_input(spine.api, caller, input_id).reported_status.value
        for state, input_id in about.inputs.items()
    }
    assert states == {"expired": "expired", "awaited": "awaiting_upload", "landed": "ready", "ready": "ready"}


def test_every_unfinished_job_ends_as_it_would_have_and_the_past_stays(
    spine: Spine, upgraded: Upgraded, callers: dict[str, Caller]
) -> None:
    finish(spine, upgraded, callers)
    for stored in upgraded.about.jobs.values():
        caller, before = callers[stored.org_id], upgraded.jobs[stored.id]
        job = replace(spine, caller=caller).job(stored.id)
        assert job.status == stored.end_status, job
        assert (job.data_deleted_at is not None) == stored.is_purged_in_the_end
        assert all(getattr(job, name) == before[name] for name in FROZEN if before[name] is not None)
        if stored.charge_cents is not None:
            assert job.cost_cents == stored.charge_cents
        if stored.end_rows is not None:
            check_result(spine, caller, job, stored)
    check_past(upgraded)
    run_new_job(spine, callers, upgraded.about.inputs["ready"])
    audit(spine.services)
    with spine.services.database.transaction() as transaction:
        assert check_ledger(transaction) == []
