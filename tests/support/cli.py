"""The ``anex`` command in this process, against real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from anex.db import Database
from anex.estimating.chunks import ChunkPlan
from anex.jobs.chunks import insert_chunks, release_chunks
from anex.jobs.store import insert_action
from config.cli import cli
from tests.support.factories import make_priced_job, start_priced_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anex.orgs.model import Caller
    from anex.s3 import S3Location
    from tests.support.servers import DatabaseUrls

CATALOG = Path(__file__).with_name("models.test.toml")
REFUSED = 1


class CommandLine:
    """Runs ``anex`` in this process, with settings of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def run(self, *arguments: str, **changes: str) -> Result:
        result = CliRunner().invoke(cli, arguments, env=self.environment | changes, prog_name="anex")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def read(self, *arguments: str) -> Any:
        """Return the JSON answer of a command that must succeed."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def refuse(self, *arguments: str, **changes: str) -> str:
        """Return the sentence of a command that must fail."""
        result = self.run(*arguments, **changes)
        assert (result.exit_code, result.stdout) == (REFUSED, "")
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr


@pytest.fixture
def anex(fresh_database_urls: DatabaseUrls, s3_location: S3Location, tmp_path: Path) -> CommandLine:
    return CommandLine(
        {
            "ANEX_DATA_DIR": str(tmp_path),
            "ANEX_DATABASE_OWNER_URL": fresh_database_urls.owner,
            "ANEX_DATABASE_WORK_URL": fresh_database_urls.work,
            "ANEX_S3_ENDPOINT": s3_location.endpoint or "",
            "ANEX_S3_BUCKET": s3_location.bucket,
            "ANEX_S3_ACCESS_KEY": s3_location.access_key,
            "ANEX_S3_SECRET_KEY": s3_location.secret_key,
            "ANEX_CATALOG": str(CATALOG),
            "ANEX_ALLOW_FAKE_ENGINE": "1",
        }
    )


@pytest.fixture
def work(fresh_database_urls: DatabaseUrls) -> Iterator[Database]:
    database = Database(fresh_database_urls.work).open()
    yield database
    database.close()


@pytest.fixture
def api(fresh_database_urls: DatabaseUrls) -> Iterator[Database]:
    database = Database(fresh_database_urls.api).open()
    yield database
    database.close()


def make_running_job(work: Database, caller: Caller) -> str:
    plan = ChunkPlan(
        first_row=1, rows=10, first_line=1, start_byte=0, end_byte=9, expected_tokens=1, expected_seconds=1.0
    )
    with work.transaction() as transaction:
        job = make_priced_job(transaction, caller)
        insert_chunks(transaction, job, [plan])
        release_chunks(transaction, job.id)
        insert_action(transaction, job, "approve", caller.key_id)
        start_priced_job(transaction, caller, job.id)
    return job.id
