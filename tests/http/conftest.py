"""The API over real Postgres and SeaweedFS; only the doorbells are recorded instead of rung."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from cryptography.fernet import Fernet

from anex.clock import SystemClock
from anex.db import Database
from anex.grammar import GrammarChildren
from anex.ledger.grants import grant_credits
from anex.media.clips import ClipReader
from anex.money import cents_to_nanos
from anex.objects import ObjectStore
from anex.orgs.keys import create_key
from anex.orgs.organizations import create_organization, set_organization
from anex.outbound import Outbound, OutboundPolicy
from anex.sealing import Sealer
from anex.services import DecisionCounter, Limits, Services, Timings, TokenCounter
from api.app import create_app
from config.catalog import load_catalog
from tests.support.spine import RecordingDispatcher
from tests.support.tenant import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask

    from anex.catalog import ModelSpec
    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls

CATALOG = Path(__file__).parent.parent / "support" / "models.test.toml"


class NoCounters:
    """The API counts no tokens."""

    def for_model(self, spec: ModelSpec) -> TokenCounter:
        raise AssertionError(f"the API counted tokens of {spec.id}")

    def for_decisions(self, spec: ModelSpec) -> DecisionCounter:
        raise AssertionError(f"the API counted tokens of {spec.id}")


@pytest.fixture
def dispatcher() -> RecordingDispatcher:
    return RecordingDispatcher()


@pytest.fixture(scope="session")
def objects(s3_location: S3Location) -> ObjectStore:
    return ObjectStore(s3_location)


@pytest.fixture(scope="session")
def grammar() -> Iterator[GrammarChildren]:
    children = GrammarChildren()
    yield children
    children.close()


def resolve_offline(host: str) -> list[str]:
    """Know addresses, and no name: tests ask no name server."""
    try:
        return [str(ip_address(host))]
    except ValueError as error:
        raise socket.gaierror(socket.EAI_NONAME, "no such name") from error


@pytest.fixture
def outbound() -> Outbound:
    """Return the guarded client as it stands by default: nothing but the public internet."""
    return Outbound(OutboundPolicy(), resolve=resolve_offline)


@pytest.fixture
def services(
    database_urls: DatabaseUrls,
    objects: ObjectStore,
    dispatcher: RecordingDispatcher,
    grammar: GrammarChildren,
    outbound: Outbound,
) -> Iterator[Services]:
    database = Database(database_urls.api, max_connections=12).open()
    yield Services(
        catalog=load_catalog(CATALOG, allow_fake_engine=True),
        database=database,
        objects=objects,
        dispatcher=dispatcher,
        counters=NoCounters(),
        grammar=grammar,
        outbound=outbound,
        clips=ClipReader(),
        sealer=Sealer([Fernet.generate_key().decode()]),
        clock=SystemClock(),
        timings=Timings(),
        limits=Limits(),
        region="world",
    )
    database.close()


@pytest.fixture
def app(services: Services) -> Flask:
    return create_app(services)


@pytest.fixture(scope="session")
def work_database(database_urls: DatabaseUrls) -> Iterator[Database]:
    """Open the database as operators' commands see it."""
    database = Database(database_urls.work).open()
    yield database
    database.close()


@pytest.fixture
def make_tenant(app: Flask, work_database: Database) -> Callable[..., Tenant]:
    """Return a function that makes organizations with a key and ``cents`` of credit."""

    def make(*, cents: int = 1000, eu_routing: bool = False, on: Flask = app) -> Tenant:
        now = datetime.now(UTC)
        with work_database.transaction() as transaction:
            org_id = create_organization(transaction, "Acme", now).id
            set_organization(transaction, org_id, {"eu_routing": eu_routing})
            key, secret = create_key(transaction, org_id, "test", now)
            if cents:
                nanos = cents_to_nanos(cents)
                grant_credits(transaction, org_id=org_id, amount_nanos=nanos, reason="test", now=now)
        return Tenant(on, org_id, key.id, secret)

    return make


@pytest.fixture
def tenant(make_tenant: Callable[..., Tenant]) -> Tenant:
    return make_tenant()


@pytest.fixture
def shift_clock(database_urls: DatabaseUrls) -> Iterator[Callable[[timedelta], None]]:
    """Return a function that moves the database's time, for this test only."""
    with psycopg.connect(database_urls.owner, autocommit=True) as connection:

        def shift(by: timedelta) -> None:
            connection.execute("DELETE FROM clock_shift")
            connection.execute("INSERT INTO clock_shift (shift) VALUES (%s)", (by,))

        yield shift
        connection.execute("DELETE FROM clock_shift")


@pytest.fixture
def change_database(database_urls: DatabaseUrls) -> Callable[..., int]:
    """Return a function that runs one statement as a worker would."""

    def change(statement: str, *parameters: Any) -> int:
        with psycopg.connect(database_urls.work) as connection:
            return connection.execute(statement.encode(), parameters).rowcount

    return change


@pytest.fixture
def make_app(services: Services) -> Callable[..., Flask]:
    """Return a function that makes an application whose services differ from the others' in ``changes``."""

    def make(**changes: Any) -> Flask:
        return create_app(replace(services, **changes))

    return make


@pytest.fixture
def unreachable_objects(s3_location: S3Location) -> ObjectStore:
    """Return an object store that nobody serves."""
    return ObjectStore(
        replace(s3_location, endpoint="http://127.0.0.1:1", public_endpoint="http://127.0.0.1:1")
    )
