"""The API fuzzed from its own document: whatever is sent, in whatever order, each answer is one that the document names.

Each run is seeded and bounded. A failing one shows Schemathesis' report, with a curl line for each case; to look for more than
fits into a test run, raise ``EXAMPLES`` and change ``SEED``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from anex.freeze import lift_freeze, set_freeze
from config.catalog import load_catalog
from tests.support.contract import LINES, Place, expect
from tests.support.contract_bench import FAKE_MODELS, Bench, make_bench
from tests.support.fuzz import Fuzz, Hands, serve_app
from tests.support.served_api import serve_api

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flask import Flask

    from tests.support.servers import Servers
    from tests.support.tenant import Tenant

__all__ = ["make_bench"]

SEED = 1
EXAMPLES = 8
JOBS = [*Place, *[Place.COST_READY] * 4]
"""What the fuzz finds: a job at each place, and more of those that its first approval or cancel takes away."""

OPERATIONS = (
    "createInput",
    "getInput",
    "submitJob",
    "getJob",
    "approveJob",
    "cancelJob",
    "getResult",
    "deleteData",
)
BEGINNINGS = ("createInput", "getInput", "submitJob", "getJob")
CHANGES = ("createInput", "submitJob", "approveJob", "cancelJob", "deleteData")
CONFORMANCE = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "errors_have_one_shape",
)
"""What holds at a closed door too: no request is judged there, so none can be wrongly taken or refused."""

AT_THE_DOOR = ["--phases=examples", f"--checks={','.join(CONFORMANCE)}"]


def test_an_organization_with_credits_gets_no_answer_outside_the_document(
    bench: Bench, tmp_path: Path
) -> None:
    owner = bench.tenant(cents=100_000)
    inputs = [owner.upload(LINES) for _ in range(3)]
    jobs = [bench.job(place, owner).id for place in JOBS]
    deleted = [bench.job(Place.DONE, owner) for _ in range(3)]
    for job in deleted:
        expect(job.delete(), 200)
    fuzz = Fuzz(tmp_path, owner, bench.tenant(), [*jobs, *(job.id for job in deleted)], inputs)
    limits = replace(bench.spine.api.limits, jobs_awaiting_approval_max=1_000_000)
    app = bench.serve(limits=limits, catalog=load_catalog(FAKE_MODELS, allow_fake_engine=True))
    hands = Hands(bench)
    hands.help(app)

    with serve_app(app) as address:
        answers = fuzz.run(address, examples=EXAMPLES, seed=SEED)

    assert hands.faults == []
    # Whatever the seed, it must get past the door; which job it finds in which state is left to chance.
    assert [name for name in BEGINNINGS if 200 not in answers.statuses(name)] == []
    assert [name for name in OPERATIONS if not {401, 404, 422} & answers.statuses(name)] == []
    assert {200, 202, 400, 401, 404, 409, 422} <= answers.statuses()


def test_an_organization_without_credits_gets_none_either_from_the_api_as_it_is_run(
    bench: Bench, servers: Servers, api_environment: dict[str, str], tmp_path: Path
) -> None:
    """It had one cent, which a job has cost: approval, submit and inputs meet an empty balance."""
    owner = bench.tenant(cents=1)
    inputs = [owner.upload(LINES)]
    jobs = [bench.job(place, owner).id for place in (Place.COST_READY, Place.DONE)]
    fuzz = Fuzz(tmp_path, owner, bench.tenant(), jobs, inputs)
    base = urlsplit(servers.addresses["ANEX_DATABASE_API_URL"])
    database = base._replace(path=urlsplit(bench.owner_url).path).geturl()
    settings = {**api_environment, "ANEX_DATABASE_API_URL": database, "ANEX_RATE_LIMIT": "off"}

    with serve_api(settings, tmp_path / "log") as api:
        answers = fuzz.run(api.address, examples=EXAMPLES, seed=SEED)

    for name in ("createInput", "submitJob", "approveJob"):
        assert 402 in answers.statuses(name)
    assert 200 not in answers.statuses("createInput") | answers.statuses("submitJob")


def serve_limited(bench: Bench) -> tuple[Flask, Tenant]:
    return bench.one_an_hour, bench.tenant()


def serve_elsewhere(bench: Bench) -> tuple[Flask, Tenant]:
    return bench.app, bench.tenant(eu_routing=True)


@pytest.mark.parametrize(
    ("serve", "status", "operations"),
    [(serve_limited, 429, OPERATIONS), (serve_elsewhere, 421, ("createInput", "submitJob"))],
    ids=["rate limit", "another region"],
)
def test_a_refusal_at_the_door_is_in_the_document(
    bench: Bench,
    tmp_path: Path,
    serve: Callable[[Bench], tuple[Flask, Tenant]],
    status: int,
    operations: tuple[str, ...],
) -> None:
    app, owner = serve(bench)

    with serve_app(app) as address:
        answers = Fuzz(tmp_path, owner, bench.tenant(), ["job_1"], ["inp_1"]).run(
            address, examples=1, seed=SEED, options=AT_THE_DOOR
        )

    assert [name for name in operations if status not in answers.statuses(name)] == []


@pytest.fixture
def frozen(bench: Bench) -> Iterator[None]:
    with bench.spine.services.database.transaction() as transaction:
        set_freeze(transaction, "maintenance")
    yield
    with bench.spine.services.database.transaction() as transaction:
        lift_freeze(transaction)


@pytest.mark.usefixtures("frozen")
def test_a_frozen_api_answers_as_the_document_says(bench: Bench, tmp_path: Path) -> None:
    with serve_app(bench.app) as address:
        answers = Fuzz(tmp_path, bench.anyone, bench.tenant(), ["job_1"], ["inp_1"]).run(
            address, examples=1, seed=SEED, options=AT_THE_DOOR
        )

    assert [name for name in CHANGES if 503 not in answers.statuses(name)] == []
