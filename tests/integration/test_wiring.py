"""Services from settings: what refuses to start on another schema, and what starts all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from cryptography.fernet import Fernet

from anex.errors import DatabaseUnavailable
from config.settings import load_settings
from config.wiring import build_services
from tests.support.spine import RecordingDispatcher

if TYPE_CHECKING:
    from pathlib import Path

    from anex.s3 import S3Location
    from config.settings import Settings
    from tests.support.servers import DatabaseUrls


@pytest.fixture
def settings(fresh_database_urls: DatabaseUrls, s3_location: S3Location, tmp_path: Path) -> Settings:
    return load_settings(
        {
            "ANEX_DATA_DIR": str(tmp_path),
            "ANEX_DATABASE_API_URL": fresh_database_urls.api,
            "ANEX_DATABASE_WORK_URL": fresh_database_urls.work,
            "ANEX_S3_ENDPOINT": s3_location.endpoint or "",
            "ANEX_S3_BUCKET": s3_location.bucket,
            "ANEX_S3_ACCESS_KEY": s3_location.access_key,
            "ANEX_S3_SECRET_KEY": s3_location.secret_key,
            "ANEX_SECRET_KEY": Fernet.generate_key().decode(),
            "ANEX_CATALOG": "models.local.toml",
            "ANEX_LEASE_SECONDS": "50",
        }
    )


@pytest.fixture
def older_schema(fresh_database_urls: DatabaseUrls) -> None:
    """Put the database back by a revision, as far as it says."""
    with psycopg.connect(fresh_database_urls.owner) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")


@pytest.mark.parametrize("role", ["api", "work"])
def test_a_process_is_served_as_its_role(settings: Settings, role: str) -> None:
    services = build_services(settings, "api" if role == "api" else "work", RecordingDispatcher())
    with services.database.transaction() as transaction:
        row = transaction.fetch_dict("SELECT current_user AS role")
    services.database.close()
    assert row == {"role": f"anex_{role}"}
    assert services.timings.lease_seconds == 50
    assert "smollm2-135m" in services.catalog.models
    services.objects.probe()


@pytest.mark.usefixtures("older_schema")
def test_a_worker_does_not_start_on_an_older_schema(settings: Settings) -> None:
    with pytest.raises(DatabaseUnavailable, match="run: anex migrate"):
        build_services(settings, "work", RecordingDispatcher())


@pytest.mark.usefixtures("older_schema")
def test_the_api_starts_and_leaves_the_schema_to_its_readiness(settings: Settings) -> None:
    build_services(settings, "api", RecordingDispatcher()).database.close()
