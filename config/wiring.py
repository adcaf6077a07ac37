"""Put the services together from settings: the one place that knows which part stands behind which port."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from anex.clock import SystemClock
from anex.db import Database
from anex.errors import AnexError
from anex.grammar import GrammarChildren
from anex.media.clips import ClipReader
from anex.media.probe import ClipProbe
from anex.migrations import require_current
from anex.objects import ObjectStore
from anex.outbound import Outbound
from anex.s3 import S3Location
from anex.sealing import Sealer
from anex.services import Services
from anex.token_counters import StoredTokenCounters
from config.catalog import load_catalog
from config.environment import SettingsInvalid
from config.settings import load_settings
from config.stack.ffmpeg import find_ffmpeg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.catalog import Catalog
    from anex.services import Dispatcher
    from config.settings import Settings

Role = Literal["api", "work"]

CONNECTIONS_MAX = 8
"""A process's connections to Postgres; a worker's threads share them."""

API_STATEMENT_SECONDS = 15.0
"""How long a statement of the API may take, so that a request is answered with 503 while the database stands still.

Statements of the API take milliseconds; what they may wait for is the lock of a planner or a worker. Those have no bound: finishing
a job may take them longer, and their leases watch over them.
"""

API_S3_READ_SECONDS = 5.0
API_S3_ATTEMPTS = 2
"""The API looks at objects and reads their first 64 KiB, while somebody waits: with a mute S3 that ends in 503 after 10 seconds."""


_KEY_MISSING = (
    "ANEX_SECRET_KEY is not set: it encrypts the secrets of webhooks and callbacks. Make one with"
    " `python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'`,"
    " or run `anex up`, which makes one and keeps it"
)


def read_settings() -> Settings:
    """Read this process's environment, which nothing else does. Raises ``SettingsInvalid``."""
    return load_settings(os.environ)


def child_environment() -> dict[str, str]:
    """Return this process's environment, to hand on to children as it is."""
    return dict(os.environ)


def build_catalog(settings: Settings) -> Catalog:
    """Load the model catalog. Raises ``CatalogInvalid``."""
    return load_catalog(
        settings.catalog_path, settings.models_offered, allow_fake_engine=settings.allow_fake_engine
    )


def build_database(settings: Settings, role: Role) -> Database:
    """Return an open pool of one role; it connects when it is first used."""
    return Database(
        settings.require(f"database_{role}_url"),
        max_connections=CONNECTIONS_MAX,
        statement_timeout_seconds=API_STATEMENT_SECONDS if role == "api" else None,
    ).open()


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """Give the database as operators' commands see it (role ``work``), closed at the block's end.

    Raises ``DatabaseUnavailable`` when it is away or its schema is not the one that this version needs.
    """
    database = build_database(settings, "work")
    try:
        require_schema(database)
        yield database
    finally:
        database.close()


def require_schema(database: Database) -> None:
    """Raise ``DatabaseUnavailable`` unless the schema is the one that this version needs."""
    with database.transaction() as transaction:
        require_current(transaction.connection)


def build_object_store(settings: Settings, role: Role = "work") -> ObjectStore:
    """Return the region's bucket; the API gives up on it sooner than workers do."""
    location = S3Location(
        endpoint=settings.require("s3.endpoint"),
        public_endpoint=settings.s3.public_endpoint or settings.require("s3.endpoint"),
        region=settings.s3.region,
        bucket=settings.s3.bucket,
        access_key=settings.require("s3.access_key"),
        secret_key=settings.require("s3.secret_key"),
    )
    if role == "api":
        location = replace(location, read_timeout_seconds=API_S3_READ_SECONDS, attempts=API_S3_ATTEMPTS)
    return ObjectStore(location)


def build_sealer(settings: Settings) -> Sealer:
    """Return what encrypts kept secrets, for commands that make them. Raises ``SettingsInvalid`` without a key."""
    if not settings.secret_keys:
        raise SettingsInvalid([_KEY_MISSING])
    return Sealer(settings.secret_keys)


def _build_sealer(settings: Settings, role: Role) -> Sealer:
    """Return what encrypts kept secrets. Raises ``SettingsInvalid`` where customers would be promised one, and there is no key."""
    return build_sealer(settings) if role == "api" else Sealer(settings.secret_keys)


def _build_clips(settings: Settings) -> ClipReader:
    """Return what reads clips: with ffprobe, where this machine has one."""
    found = find_ffmpeg(settings.ffmpeg_bin)
    return ClipReader() if found is None else ClipReader(ClipProbe(found.ffprobe))


def build_services(settings: Settings, role: Role, dispatcher: Dispatcher) -> Services:
    """Return the bag for a process of one role. Call it after a fork; close ``database`` at the end.

    Workers refuse to start on another schema, or without a database, with ``DatabaseUnavailable``. The API starts all the same:
    its ``/readyz`` looks at both, and turns well without a restart.
    """
    catalog, objects = build_catalog(settings), build_object_store(settings, role)
    database = build_database(settings, role)
    if role == "work":
        try:
            require_schema(database)
        except AnexError:
            database.close()
            raise
    return Services(
        catalog=catalog,
        database=database,
        objects=objects,
        dispatcher=dispatcher,
        counters=StoredTokenCounters(objects, settings.data_dir / "tokenizers"),
        grammar=GrammarChildren(),
        outbound=Outbound(settings.outbound),
        clips=_build_clips(settings),
        sealer=_build_sealer(settings, role),
        clock=SystemClock(),
        timings=settings.timings,
        limits=settings.limits,
        region=settings.region,
    )
