"""Where payload rests: which API takes an input or a job, which reads it, and what the other one answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.support.contract import LINES, UNKNOWN_INPUT, BenchJob, Promise, expect, keep, promised
from tests.support.tenant import send_form

if TYPE_CHECKING:
    from werkzeug.test import TestResponse

    from tests.support.contract import Check
    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

COPY, SUBMIT, ERRORS = "REF: POST /inputs", "REF: POST /jobs", "REF: Errors"
ORIGINS = {"world": "https://api.anex.sh", "eu": "https://api-eu.anex.sh"}
NAMES = {"world": "world", "eu": "EU"}
SOURCE = {"source_url": "https://files.example.com/a.jsonl"}


def expect_elsewhere(response: TestResponse, noun: str, region: str) -> None:
    """Expect a 421 that names the region that keeps the data, in words and for machines."""
    body = expect(response, 421, "wrong_region")
    assert body["detail"] == f"this {noun} is stored in the {NAMES[region]} region; use {ORIGINS[region]}"
    assert (body["residency"], body["api"]) == (region, ORIGINS[region])


def expect_not_enabled(response: TestResponse) -> None:
    body = expect(response, 403, "region_not_enabled")
    assert body["detail"] == "EU data routing is not enabled for this organization. Contact us to enable it."


def other(region: str) -> str:
    return "eu" if region == "world" else "world"


def make_caller(bench: Bench, app: str, *, eu_routing: bool) -> Tenant:
    return bench.tenant(eu_routing=eu_routing, on=bench.eu_app if app == "eu" else bench.app)


def stores(app: str, status: int, *, eu_routing: bool, asked: str | None) -> Check:
    """Check one organization, one API and one wish, for an upload and for a copy."""

    def check(bench: Bench) -> None:
        tenant = make_caller(bench, app, eu_routing=eu_routing)
        for mode in ({"format": "jsonl"}, SOURCE):
            response = tenant.call("POST", "/inputs", {**mode, "data_residency": asked})
            match status:
                case 403:
                    expect_not_enabled(response)
                case 421:
                    expect_elsewhere(response, "input", other(app))
                case _:
                    expect(response, status)
        made = bench.change("SELECT 1 FROM inputs WHERE org_id = %s AND region = %s", tenant.org_id, app)
        assert made == (2 if status == 200 else 0)

    return check


def runs(app: str, status: int, *, eu_routing: bool, asked: str | None) -> Check:
    """Check the same for a job."""

    def check(bench: Bench) -> None:
        tenant = make_caller(bench, app, eu_routing=eu_routing)
        input_id = upload_in(tenant, app) if status == 200 else UNKNOWN_INPUT
        response = bench.submit(tenant, input_id=input_id, data_residency=asked)
        match status:
            case 403:
                expect_not_enabled(response)
            case 421:
                expect_elsewhere(response, "job", other(app))
            case _:
                job = BenchJob(tenant, expect(response, status)["id"])
                assert job.poll()["data_residency"] == app
        assert bench.count("jobs", tenant) == (status == 200)

    return check


def upload_in(tenant: Tenant, region: str) -> str:
    """Upload an input of a region through that region's API."""
    created = expect(tenant.call("POST", "/inputs", {"format": "jsonl", "data_residency": region}), 200)
    send_form(created["upload_url"], created["fields"], LINES).raise_for_status()
    return str(created["id"])


WISHES = (
    ('any other "world"', "world", False, None, 200),
    ('any other "world"', "eu", False, None, 421),
    ('any other "world"', "world", False, "world", 200),
    ("without EU data routing answers 403", "world", False, "eu", 403),
    ("without EU data routing answers 403", "eu", False, "eu", 403),
    ('an organization with EU data routing gets "eu"', "world", True, None, 421),
    ('an organization with EU data routing gets "eu"', "eu", True, None, 200),
    ("the main base URL answers it with 421", "world", True, "eu", 421),
    ("the main base URL answers it with 421", "eu", True, "eu", 200),
    ("in the world region", "world", True, "world", 200),
    ("in the world region", "eu", True, "world", 421),
)


def is_read_where_it_is_kept(bench: Bench) -> None:
    for home, away in (("world", "eu"), ("eu", "world")):
        tenant = make_caller(bench, home, eu_routing=home == "eu")
        input_id = upload_in(tenant, home)
        expect(tenant.call("GET", f"/inputs/{input_id}"), 200)
        afar = replace(tenant, app=bench.eu_app if away == "eu" else bench.app)
        expect_elsewhere(afar.call("GET", f"/inputs/{input_id}"), "input", home)


def is_run_where_its_input_is(bench: Bench) -> None:
    """Refuse both ways round: an input of one region, a job for the other."""
    tenant = make_caller(bench, "eu", eu_routing=True)
    at_home = upload_in(tenant, "eu")
    afar = replace(tenant, app=bench.app)
    in_the_world = upload_in(afar, "world")
    for caller, input_id, asked in (
        (tenant, in_the_world, "eu"),
        (afar, at_home, "world"),
        (tenant, in_the_world, None),
    ):
        body = expect(bench.submit(caller, input_id=input_id, data_residency=asked), 422, "invalid_setting")
        assert list(body["errors"]) == ["data_residency"]
    assert bench.count("jobs", tenant) == 0


PLACES = [
    *(
        Promise(
            COPY, sentence, stores(app, status, eu_routing=routing, asked=asked), f"{app}, {routing}, {asked}"
        )
        for sentence, app, routing, asked, status in WISHES
    ),
    *(
        Promise(
            SUBMIT, sentence, runs(app, status, eu_routing=routing, asked=asked), f"{app}, {routing}, {asked}"
        )
        for sentence, app, routing, asked, status in WISHES
    ),
    Promise(ERRORS, "creating or polling an input", is_read_where_it_is_kept),
    Promise(SUBMIT, "The input must be stored in the same region", is_run_where_its_input_is),
]


@promised(PLACES)
def test_payload_stays_in_its_region(promise: Promise, bench: Bench) -> None:
    keep(promise, bench)
