"""Two regions on one machine: each organization's data stays in its own, and either API answers what it may."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import requests

from anex.s3 import S3Location, make_client
from config.settings import load_settings
from tests.support.live_stack import LiveStack
from tests.support.spine import chat_rows
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

CATALOG = Path(__file__).parents[1] / "support" / "models.slow.toml"
SECRET = "kept-in-the-EEA"
ROWS = 40
REGIONS = ("world", "eu")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    # One engine runs at a time here: an idle one makes room for the other region's.
    idle = {"ANEX_ENGINE_IDLE_SECONDS": "1"}
    running = LiveStack(tmp_path_factory.mktemp("live"), CATALOG, idle, regions="world,eu")
    running.start()
    yield running
    running.end()


def ask(stack: LiveStack, method: str, path: str, body: Any = None) -> requests.Response:
    return requests.request(method, stack.base + path, json=body, headers=stack.headers, timeout=30)


def rows() -> list[bytes]:
    return chat_rows(ROWS, SECRET + " {number}")


def read_bucket(stack: LiveStack, region: str) -> dict[str, bytes]:
    """Return every object of a region's bucket."""
    settings = stack.settings
    endpoint = settings.require("s3.endpoint")
    location = S3Location(
        endpoint=endpoint,
        public_endpoint=endpoint,
        region=settings.s3.region,
        bucket=f"anex-{region}",
        access_key=settings.require("s3.access_key"),
        secret_key=settings.require("s3.secret_key"),
    )
    client = make_client(location, endpoint)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=location.bucket)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
    return {
        key: client.get_object(Bucket=location.bucket, Key=key)["Body"].read()
        for key in keys
        if not key.startswith("models/")
    }


def watch_broker(stack: LiveStack, database: int) -> list[bytes]:
    """Return everything that lies in one of the broker's databases now, keys and values."""
    url = stack.settings.require("redis_url").rpartition("/")[0]
    held: list[bytes] = []
    with redis.Redis.from_url(f"{url}/{database}") as client:
        for key in client.scan_iter():
            held.append(key)
            held.append(client.dump(key) or b"")
    return held


def test_an_eu_jobs_bytes_touch_nothing_of_the_world(stack: LiveStack) -> None:
    """From upload to result, looked at after each step; the job's id is not in the world's broker either."""
    stack.become_customer(eu_routing=True)
    stack.speak_to("eu")
    upload = stack.call("POST", "/inputs", {"format": "jsonl"})
    assert upload["input_s3_uri"].startswith("s3://anex-eu/")
    sent = requests.post(
        upload["upload_url"], data=upload["fields"], files={"file": b"".join(rows())}, timeout=60
    )
    assert sent.ok
    seen: list[bytes] = []
    job_id = stack.call("POST", "/jobs", {"input_id": upload["id"], "model": "fake-chat"})["id"]
    seen += watch_broker(stack, 0)
    stack.wait_for(job_id, "cost_ready")
    seen += watch_broker(stack, 0)
    stack.call("POST", f"/jobs/{job_id}/approve")
    stack.wait_until_rows_run(job_id)
    with stack.database() as database, database.transaction() as transaction:
        runners = transaction.fetch_dicts("SELECT DISTINCT region FROM units")
    assert runners == [{"region": "eu"}]
    seen += watch_broker(stack, 0)
    job = stack.wait_for(job_id, "done")
    assert job["data_residency"] == "eu"
    lines = stack.lines(job_id)
    assert len(lines) == ROWS

    assert not [held for held in seen if SECRET.encode() in held or job_id.encode() in held]
    world, eu = read_bucket(stack, "world"), read_bucket(stack, "eu")
    assert not [key for key, data in world.items() if SECRET.encode() in data or job_id in key]
    assert any(SECRET.encode() in data for data in eu.values())


def test_a_world_job_runs_beside_it(stack: LiveStack) -> None:
    stack.become_customer()
    stack.speak_to("world")
    job_id = stack.submit(chat_rows(ROWS))
    stack.approve(job_id)
    assert stack.wait_for(job_id, "done")["data_residency"] == "world"
    assert not [key for key in read_bucket(stack, "eu") if job_id in key]


def test_either_api_answers_poll_approve_cancel_and_delete(stack: LiveStack) -> None:
    """The job's own region does the work: the other's API rings nothing and deletes nothing itself."""
    stack.become_customer(eu_routing=True)
    stack.speak_to("eu")
    approved, cancelled = stack.submit(rows()), stack.submit(rows())
    stack.wait_for(approved, "cost_ready")
    stack.wait_for(cancelled, "cost_ready")
    stack.speak_to("world")
    stack.call("POST", f"/jobs/{approved}/approve")
    assert stack.call("POST", f"/jobs/{cancelled}/cancel")["status"] == "cancelled"
    assert stack.wait_for(approved, "done")["success_rows"] == ROWS
    deletion = ask(stack, "DELETE", f"/jobs/{approved}/data")
    assert deletion.status_code == 202
    assert "region" in deletion.json()["message"]
    wait_until(lambda: stack.call("GET", f"/jobs/{approved}")["data_deleted_at"], what="the data is deleted")
    assert not [key for key in read_bucket(stack, "eu") if approved in key]
    assert ask(stack, "DELETE", f"/jobs/{approved}/data").status_code == 200


def test_what_the_other_region_keeps_is_421_with_its_address(stack: LiveStack) -> None:
    stack.become_customer(eu_routing=True)
    stack.speak_to("eu")
    eu = stack.base.removesuffix("/batch/v1")
    job_id = stack.submit(chat_rows(1))
    input_id = stack.call("POST", "/inputs", {"format": "jsonl"})["id"]
    stack.speak_to("world")
    refused = [
        ask(stack, "POST", "/inputs", {"format": "jsonl"}),
        ask(stack, "POST", "/inputs", {"format": "jsonl", "data_residency": "eu"}),
        ask(stack, "GET", f"/inputs/{input_id}"),
        ask(stack, "POST", "/jobs", {"input_id": input_id, "model": "fake-chat"}),
        ask(stack, "GET", f"/jobs/{job_id}/result"),
    ]
    assert {answer.status_code for answer in refused} == {421}
    for answer in refused:
        body = answer.json()
        assert (body["residency"], body["api"]) == ("eu", eu)
        assert body["detail"].endswith(f"is stored in the EU region; use {eu}")


def test_an_organization_without_eu_routing_may_not_ask_for_it(stack: LiveStack) -> None:
    stack.become_customer()
    for region in REGIONS:
        stack.speak_to(region)
        answer = ask(stack, "POST", "/inputs", {"format": "jsonl", "data_residency": "eu"})
        assert answer.status_code == 403
        assert answer.json()["detail"] == (
            "EU data routing is not enabled for this organization. Contact us to enable it."
        )


def test_an_input_in_one_region_serves_no_job_in_the_other(stack: LiveStack) -> None:
    stack.become_customer(eu_routing=True)
    stack.speak_to("world")
    upload = stack.call("POST", "/inputs", {"format": "jsonl", "data_residency": "world"})
    sent = requests.post(
        upload["upload_url"], data=upload["fields"], files={"file": chat_rows(1)[0]}, timeout=60
    )
    assert sent.ok
    stack.speak_to("eu")
    mixed = ask(stack, "POST", "/jobs", {"input_id": upload["id"], "model": "fake-chat"})
    assert (mixed.status_code, list(mixed.json()["errors"] or {})) == (422, ["data_residency"])


def test_each_region_has_settings_of_its_own(stack: LiveStack) -> None:
    first = load_settings({"ANEX_DATA_DIR": str(stack.folder)})
    assert first.region == "world"
    assert first.origins["world"] != first.origins["eu"]
    names = stack.processes().values()
    assert sum("--queues plan,count,finalize" in line for line in names) >= len(REGIONS)
