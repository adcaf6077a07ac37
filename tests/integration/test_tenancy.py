"""The wall between organizations, as Postgres keeps it whatever the code above forgets.

The tables come from Postgres's own catalog: a new one is tested, or must be named here as one that belongs to nobody.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cryptography.fernet import Fernet
from psycopg.sql import SQL, Composed, Identifier

from anex.clock import SystemClock
from anex.db import Database
from anex.errors import KeyInvalid, KeyNotFound, OrganizationNotFound
from anex.estimating.chunks import ChunkPlan
from anex.ids import new_id
from anex.jobs.chunks import insert_chunks
from anex.jobs.sample_limit import note_sample
from anex.jobs.store import insert_action
from anex.ledger.grants import grant_credits
from anex.money import cents_to_nanos
from anex.orgs.authenticate import authenticate
from anex.orgs.keys import HINT_CHARACTERS, create_key, hash_key, list_keys, revoke_key
from anex.orgs.model import Caller
from anex.orgs.organizations import create_organization, get_organization, set_organization
from anex.sealing import Sealer
from anex.webhooks.endpoints import set_endpoint
from anex.webhooks.model import Attempt
from anex.webhooks.store import claim_delivery, insert_attempt
from tests.support.factories import make_caller, make_priced_job, start_priced_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import DatabaseUrls, Servers

# What every organization may know, or none: time's shift, the graph of states, the schema's revision, the machines.
OPEN_TABLES = {"api_freeze", "clock_shift", "engine_starts", "job_moves", "alembic_version", "units"}
NOW = SystemClock().now()


@dataclass(frozen=True, slots=True)
class Town:
    """Two organizations; the first has a row in every table, the second a key."""

    urls: DatabaseUrls
    api: Database
    work: Database
    owner: Caller
    owner_secret: str
    stranger: Caller

    def tenant_tables(self) -> list[str]:
        """Tables that say whose each row is."""
        with psycopg.connect(self.urls.superuser) as connection:
            rows = connection.execute(
                "SELECT table_name FROM information_schema.columns"
                " WHERE table_schema = 'public' AND column_name = 'org_id' ORDER BY table_name"
            ).fetchall()
        return [row[0] for row in rows]

    def count(self, table: str, org_id: str | None) -> int:
        """Rows of a table that the API sees for an organization."""
        with self.api.transaction(org_id) as transaction:
            row = transaction.fetch_dict(named("SELECT count(*) AS rows FROM {}", table))
        assert row is not None
        return int(row["rows"])


def named(statement: str, *names: str) -> Composed:
    return SQL(statement).format(*map(Identifier, names))


@pytest.fixture(scope="module")
def town(servers: Servers) -> Iterator[Town]:
    urls = servers.make_database()
    api, work = Database(urls.api, max_connections=1).open(), Database(urls.work).open()
    owner, secret = make_caller(work, cents_to_nanos(100))
    stranger, _ = make_caller(work)
    fill_every_table(work, owner)
    yield Town(urls, api, work, owner, secret, stranger)
    api.close()
    work.close()
    servers.drop_database(urls)


def fill_every_table(work: Database, owner: Caller) -> None:
    plan = ChunkPlan(
        first_row=1,
        rows=10,
        first_line=1,
        start_byte=0,
        end_byte=100,
        expected_tokens=1,
        expected_seconds=1.0,
    )
    sealer = Sealer([Fernet.generate_key().decode()])
    with work.transaction() as transaction:
        set_endpoint(transaction, sealer, owner.org_id, "https://example.com/hooks")
        job = make_priced_job(transaction, owner)
        insert_action(transaction, job, "approve", owner.key_id)
        insert_chunks(transaction, job, [plan])
        start_priced_job(transaction, owner, job.id)
        place = {"job_id": job.id, "org_id": owner.org_id}
        transaction.execute(
            "INSERT INTO spans (job_id, span_index, org_id, first_row, row_count, first_line, start_byte, end_byte,"
            " cut_bytes, cut_lines, state) VALUES (%(job_id)s, 0, %(org_id)s, 1, 10, 1, 0, 100, '{}', '{}', 'ready')",
            place,
        )
        transaction.execute(
            "INSERT INTO samples (job_id, org_id, drawn) VALUES (%(job_id)s, %(org_id)s, '{}')", place
        )
        note_sample(transaction, job, rows=1)
        delivery = claim_delivery(transaction, "world", again=False, lease_seconds=60, host_max=1)
        assert delivery is not None
        insert_attempt(transaction, delivery, Attempt(5, status=200))


def test_every_table_is_behind_the_wall_or_named_as_open(town: Town) -> None:
    with psycopg.connect(town.urls.superuser) as connection:
        rows = connection.execute(
            "SELECT relname, relrowsecurity AND relforcerowsecurity FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"
        ).fetchall()
    walled = {name for name, is_walled in rows if is_walled}
    assert walled == {*town.tenant_tables(), "organizations"}
    assert {name for name, _ in rows} - walled == OPEN_TABLES


def test_a_request_without_an_organization_sees_nothing(town: Town) -> None:
    seen = {table: town.count(table, None) for table in [*town.tenant_tables(), "organizations"]}
    assert set(seen.values()) == {0}, seen


def test_the_owner_sees_rows_in_every_table_and_the_stranger_none_of_them(town: Town) -> None:
    own = {"api_keys": 1, "accounts": 1}  # the stranger has a key and an account
    for table in town.tenant_tables():
        assert town.count(table, town.owner.org_id) > 0, f"the fixture fills no {table}"
        assert town.count(table, town.stranger.org_id) == own.get(table, 0), table
    assert town.count("organizations", town.stranger.org_id) == 1


def test_no_row_can_be_written_for_another_organization(town: Town) -> None:
    for table in town.tenant_tables():
        row = read_row(town, table)
        statement = named(
            "INSERT INTO {} OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_record(NULL::{}, %(row)s::jsonb)",
            table,
            table,
        )
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege),
            town.api.transaction(town.stranger.org_id) as transaction,
        ):
            transaction.execute(statement, {"row": row})


def test_no_row_of_another_organization_can_be_changed_or_removed(town: Town) -> None:
    for table in town.tenant_tables():
        for statement in ("UPDATE {} SET org_id = org_id", "DELETE FROM {}"):
            before = town.count(table, town.owner.org_id)
            assert touch(town, named(statement, table)) in {0, None}
            assert town.count(table, town.owner.org_id) == before


def touch(town: Town, statement: Composed) -> int | None:
    """Run a statement as a stranger that owns nothing; return the rows touched, None where the role may not at all."""
    nobody = new_id("org", NOW)
    try:
        with town.api.transaction(nobody) as transaction:
            return transaction.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return None


def read_row(town: Town, table: str) -> str:
    with town.work.transaction() as transaction:
        row = transaction.fetch_dict(
            named("SELECT to_jsonb({}) AS row FROM {} WHERE org_id = %(org_id)s LIMIT 1", table, table),
            {"org_id": town.owner.org_id},
        )
    assert row is not None
    return json.dumps(row["row"])


def test_a_row_cannot_be_given_away(town: Town) -> None:
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege),
        town.api.transaction(town.owner.org_id) as transaction,
    ):
        transaction.execute("UPDATE jobs SET org_id = %(org_id)s", {"org_id": town.stranger.org_id})


def test_the_role_that_serves_customers_makes_no_money(town: Town) -> None:
    with (
        pytest.raises(psycopg.errors.InsufficientPrivilege, match="customers_grant_nothing"),
        town.api.transaction(town.owner.org_id) as transaction,
    ):
        grant_credits(transaction, org_id=town.owner.org_id, amount_nanos=1, reason="", now=NOW)


def test_an_organization_is_forgotten_with_its_transaction(town: Town) -> None:
    """The pool has one connection: what is asked next goes through the same one."""
    assert town.count("jobs", town.owner.org_id) == 1
    assert town.count("jobs", None) == 0
    with pytest.raises(ZeroDivisionError), town.api.transaction(town.owner.org_id):
        raise ZeroDivisionError
    assert town.count("jobs", None) == 0


@pytest.mark.parametrize("role", ["anex_owner", "anex_api", "anex_work"])
def test_no_role_steps_around_the_wall(town: Town, role: str) -> None:
    with psycopg.connect(town.urls.superuser) as connection:
        row = connection.execute(
            "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = %s", (role,)
        ).fetchone()
        members = connection.execute(
            "SELECT count(*) FROM pg_auth_members WHERE member = %s::regrole", (role,)
        ).fetchone()
    assert row == (False,)
    assert members == (0,)


def test_a_key_says_who_calls(town: Town) -> None:
    assert authenticate(town.api, town.owner_secret) == town.owner


@pytest.mark.parametrize("presented", ["", "sk-", "sk-" + "A" * 43, "x" * 10_000, "sk-ключ\u0000"])
def test_an_unknown_key_is_invalid(town: Town, presented: str) -> None:
    with pytest.raises(KeyInvalid):
        authenticate(town.api, presented)


def test_a_presented_key_shows_itself_alone(town: Town) -> None:
    digest = hash_key(town.owner_secret).hex()
    with town.api.transaction(key_sha256=digest) as transaction:
        keys = transaction.fetch_dicts("SELECT id FROM api_keys")
        assert [key["id"] for key in keys] == [town.owner.key_id]
        assert transaction.fetch_dicts("SELECT id FROM organizations") == []
        assert transaction.execute("SELECT 1 FROM jobs") == 0


def test_a_revoked_key_is_invalid_from_then_on(town: Town) -> None:
    with town.work.transaction() as transaction:
        key, secret = create_key(transaction, town.stranger.org_id, "second", NOW)
    assert authenticate(town.api, secret) == Caller(town.stranger.org_id, key.id)
    with town.work.transaction() as transaction:
        revoked = revoke_key(transaction, key.id)
    with pytest.raises(KeyInvalid):
        authenticate(town.api, secret)
    with town.work.transaction() as transaction:
        assert revoke_key(transaction, key.id) == revoked


def test_a_key_is_kept_as_its_hash(fresh_database_urls: DatabaseUrls) -> None:
    work = Database(fresh_database_urls.work).open()
    caller, secret = make_caller(work)
    with psycopg.connect(fresh_database_urls.superuser) as connection:
        stored = connection.execute("SELECT to_jsonb(api_keys)::text FROM api_keys").fetchone()
    with work.transaction() as transaction:
        (key,) = list_keys(transaction, caller.org_id)
    work.close()
    assert stored is not None
    assert secret not in stored[0]
    assert len(secret) == len("sk-") + 43
    assert key.hint == secret[:HINT_CHARACTERS]


def test_what_does_not_exist_is_not_found(town: Town) -> None:
    calls: list[tuple[type[Exception], Any]] = [
        (OrganizationNotFound, get_organization),
        (OrganizationNotFound, lambda tx, unknown: set_organization(tx, unknown, {"auto_approve": True})),
        (OrganizationNotFound, lambda tx, unknown: create_key(tx, unknown, "", NOW)),
        (OrganizationNotFound, list_keys),
        (KeyNotFound, revoke_key),
    ]
    for error, call in calls:
        for unknown in (new_id("org", NOW), new_id("key", NOW), "", "org_", "x" * 1000):
            with town.work.transaction() as transaction, pytest.raises(error):
                call(transaction, unknown)


def test_settings_change_alone(fresh_database_urls: DatabaseUrls) -> None:
    work = Database(fresh_database_urls.work).open()
    with work.transaction() as transaction:
        created = create_organization(transaction, "Acme", NOW)
        other = create_organization(transaction, "Other", NOW)
        changes = {"auto_approve": True, "auto_approve_ceiling_cents": 500}
        changed = set_organization(transaction, created.id, changes)
        assert (changed.auto_approve, changed.auto_approve_ceiling_cents) == (True, 500)
        assert (changed.name, changed.eu_routing) == ("Acme", False)
        assert set_organization(transaction, created.id, {}) == changed
        assert get_organization(transaction, other.id) == other
    work.close()
