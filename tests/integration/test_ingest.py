"""Copies of inputs from a URL: byte for byte, resumed, bounded, settled once, and every failure told so that one can act on it."""

from __future__ import annotations

import hashlib
import re
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from anex.errors import LeaseLost, StorageUnavailable
from anex.inputs import copies
from anex.inputs.ingest import TOO_OFTEN, copy_input
from anex.jobs.submit import submit_job
from anex.jobs.submit_rules import SubmitRequest
from anex.jobs.sweep import sweep
from anex.object_multipart import PART_BYTES
from anex.objects import ObjectStore
from tests.support.sources import ETAG, is_copy, look, make_serve, read_columns, read_object, serve_ranges
from tests.support.spine import MODEL, chat_rows

if TYPE_CHECKING:
    from pathlib import Path

    from anex.s3 import S3Location
    from tests.support.sources import Serve
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange

FILE = hashlib.shake_256(b"anex").digest(PART_BYTES * 2 + 12_345)


@pytest.fixture
def serve(spine: Spine, tmp_path: Path) -> Serve:
    """Return a context manager that runs a source, and lets the spine's copies reach it."""
    return make_serve(spine, tmp_path)


def test_a_copy_has_every_byte_and_is_kept_for_a_week(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, FILE)) as server:
        input_id = spine.ingest(server.url("/file.jsonl?X-Signature=secret#part"))
        assert look(spine, input_id).status == "pending"
        assert look(spine, input_id).expires_at is None
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.size_bytes, found.error) == ("ready", len(FILE), None)
    assert read_object(spine, found) == FILE
    assert found.data_expires_at is not None
    assert 7 * 86_400 - 100 < (found.data_expires_at - found.read_at).total_seconds() <= 7 * 86_400
    assert read_columns(spine, input_id)["source_url"] == server.url("/file.jsonl")


def test_a_job_runs_over_a_copied_input(spine: Spine, serve: Serve) -> None:
    data = b"".join(chat_rows(3))
    with serve(lambda exchange: serve_ranges(exchange, data)) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    job = submit_job(spine.api, spine.caller, SubmitRequest(model=MODEL, input_id=input_id))
    spine.answer_rings()
    assert spine.job(job.id).status == "cost_ready"


def test_a_source_that_cuts_off_is_resumed_where_it_stopped(spine: Spine, serve: Serve) -> None:
    cuts = [PART_BYTES + 700_000, 300_000, 3_000_000]

    def answer(exchange: Exchange) -> None:
        serve_ranges(exchange, FILE, cut_at=cuts.pop(0) if is_copy(exchange) and cuts else None)

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.error) == ("ready", None)
    assert read_object(spine, found) == FILE
    resumed = [each.headers for each in server.requests if "if-range" in each.headers]
    assert len(resumed) == 3
    assert {each["if-range"] for each in resumed} == {ETAG}


def test_a_cut_just_behind_the_last_byte_loses_nothing(spine: Spine, serve: Serve) -> None:
    """Chunked, so that only the end of the chunks says that it was the last byte."""

    def answer(exchange: Exchange) -> None:
        asked = exchange.request.headers.get("range")
        if asked is None:
            head = f"HTTP/1.1 200 OK\r\nETag: {ETAG}\r\nTransfer-Encoding: chunked\r\n\r\n80000\r\n"
            exchange.send(head.encode() + FILE[:0x80000] + b"\r\n")
        else:
            exchange.respond(416, b"", {"Content-Range": f"bytes */{0x80000}", "ETag": ETAG})

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.size_bytes) == ("ready", 0x80000)
    assert read_object(spine, found) == FILE[:0x80000]


def test_a_source_that_changes_in_the_middle_is_read_anew_and_whole(spine: Spine, serve: Serve) -> None:
    """Asked for the rest of what it no longer has, it sends all of what it has now."""
    changed = FILE[::-1]
    asked: list[bool] = []

    def answer(exchange: Exchange) -> None:
        if not is_copy(exchange):
            serve_ranges(exchange, FILE)
        elif not asked:
            asked.append(True)
            serve_ranges(exchange, FILE, cut_at=1_000_000)
        else:
            exchange.respond(200, changed, {"ETag": '"two"'})

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    assert read_object(spine, look(spine, input_id)) == changed


def test_a_source_that_always_cuts_off_and_knows_no_ranges_fails(spine: Spine, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nETag: {ETAG}\r\nContent-Length: {len(FILE)}\r\n\r\n"
        exchange.send(head.encode() + FILE[:600_000])

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    found = look(spine, input_id)
    assert found.status == "failed"
    assert re.fullmatch(
        r"the source stopped after \d{6} bytes and does not go on from there; serve the file from a host"
        r" that answers Range requests, or upload it",
        found.error or "",
    )
    assert not list(spine.services.objects.list_keys(found.object_key))


def test_a_busy_source_is_asked_again(spine: Spine, serve: Serve) -> None:
    answers = [503, 429, 500]

    def answer(exchange: Exchange) -> None:
        if is_copy(exchange) and answers:
            exchange.respond(answers.pop(), b"busy")
        else:
            serve_ranges(exchange, FILE)

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    assert look(spine, input_id).status == "ready"


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (403, {}, "the source answered 403 Forbidden: the link may have expired"),
        (404, {}, "the source answered 404 Not Found: there is no file at this address"),
        (301, {}, "the source answered 301 Moved Permanently: it redirects"),
        (204, {}, "the source answered 204 No Content; expected is 200 OK with the file"),
        (206, {}, "the source answered 206 Partial Content; expected is 200"),
        (500, {}, "the source answered 500 Internal Server Error; check the source"),
        (599, {}, "the source answered 599; check the source"),
        (404, {"Content-Encoding": "gzip"}, "the source answered 404 Not Found: there is no file"),
        (200, {"Content-Encoding": "gzip"}, "the source sends the file compressed (gzip)"),
        (302, {"Location": "https://169.254.169.254/"}, "169.254.169.254 is not on the public internet"),
        (302, {"Location": "http://localhost/"}, "redirects"),
    ],
)
def test_what_a_source_answers_is_told_so_that_its_owner_can_act(
    spine: Spine, serve: Serve, status: int, headers: dict[str, str], reason: str
) -> None:
    with serve(lambda exchange: exchange.respond(status, b"", headers)) as server:
        input_id = spine.ingest(server.url("/a?token=hidden"))
        spine.answer_rings()
    found = look(spine, input_id)
    assert found.status == "failed"
    assert reason in (found.error or "")
    assert "hidden" not in (found.error or "")
    assert read_columns(spine, input_id)["source_url"].endswith("/a")


def test_a_name_that_does_not_resolve_is_accepted_and_fails_in_the_copy(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: exchange.respond(200)):
        input_id = spine.ingest("https://nowhere.invalid/file.jsonl")
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.error) == ("failed", "nowhere.invalid does not resolve: check the host name")


@pytest.mark.parametrize("advertised", [True, False])
def test_a_source_over_the_cap_fails_in_the_copy(spine: Spine, serve: Serve, *, advertised: bool) -> None:
    """Advertised only to the copy: at the look it was too slow, or smaller."""

    def answer(exchange: Exchange) -> None:
        if not is_copy(exchange):
            exchange.respond(503)
        elif advertised:
            exchange.respond(200, FILE)
        else:
            exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            exchange.repeat(b"10000\r\n" + bytes(65536) + b"\r\n")

    with serve(answer, input_max_bytes=9 << 20) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.error) == (
        "failed",
        "the source is over the 9 MiB cap; split it over several inputs",
    )
    assert not list(spine.services.objects.list_keys(found.object_key))


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (302, {"Location": "/"}, "the URL redirects more than 3 times: use the one it ends at"),
        (500, {}, "the source answered 500 Internal Server Error; check the source, then create a new input"),
        (
            404,
            {},
            "the source answered 404 Not Found: there is no file at this address; create a new input with the file's own address",
        ),
    ],
)
def test_a_failed_copy_tells_one_cause_and_one_remedy(
    spine: Spine, serve: Serve, status: int, headers: dict[str, str], error: str
) -> None:
    with serve(lambda exchange: exchange.respond(status, b"", headers)) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    assert look(spine, input_id).error == error


def test_a_source_that_never_gets_on_is_given_up(spine: Spine, serve: Serve) -> None:
    def answer(exchange: Exchange) -> None:
        if is_copy(exchange):
            exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        exchange.stay_silent()

    timings = {"copy_idle_seconds": 0.1, "copy_seconds": 5.0, "source_probe_seconds": 0.1}
    with serve(answer, timings=timings) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
        assert look(spine, input_id).status == "failed"


def test_an_empty_file_is_copied(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: exchange.respond(200)) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    found = look(spine, input_id)
    assert (found.status, found.size_bytes) == ("ready", 0)


def test_a_lost_doorbell_is_rung_again_by_the_sweeper(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n")) as server:
        input_id = spine.ingest(server.url())
        spine.dispatcher.rings.clear()
        assert sweep(spine.services).copies_rung == 1
        spine.answer_rings()
        assert look(spine, input_id).status == "ready"
        assert sweep(spine.services).copies_rung == 0


def test_a_copy_is_made_once_however_often_it_is_rung(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n")) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
        asked = len(server.requests)
        copy_input(spine.services, input_id)
        assert len(server.requests) == asked


def test_a_late_copier_leaves_the_winners_object_alone(spine: Spine, serve: Serve) -> None:
    """The first stands still in the middle until its lease is gone and another has finished."""
    stands, goes_on = threading.Event(), threading.Event()

    def answer(exchange: Exchange) -> None:
        if is_copy(exchange) and not stands.is_set():
            exchange.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(FILE)}\r\n\r\n".encode() + FILE[:600_000])
            stands.set()
            goes_on.wait(30)
            exchange.send(FILE[600_000:])
        else:
            serve_ranges(exchange, b"{}\n")

    raised: list[BaseException] = []

    def copy_late() -> None:
        try:
            copy_input(spine.services, input_id)
        except LeaseLost as lost:
            raised.append(lost)

    with serve(answer) as server:
        input_id = spine.ingest(server.url())
        late = threading.Thread(target=copy_late)
        late.start()
        assert stands.wait(30)
        with spine.services.database.transaction() as transaction:
            transaction.execute("UPDATE inputs SET copy_lease_until = anex_now() - interval '1 s'")
        copy_input(spine.services, input_id)
        goes_on.set()
        late.join()
    assert [type(each) for each in raised] == [LeaseLost]
    found = look(spine, input_id)
    assert (found.status, read_object(spine, found)) == ("ready", b"{}\n")


def test_a_copier_that_dies_over_and_over_is_given_up(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n"), copy_attempts_max=2) as server:
        input_id = spine.ingest(server.url())
        for _ in range(2):
            with spine.services.database.transaction() as transaction:
                claimed = copies.claim_copy(transaction, input_id, "world", lease_seconds=-1, copies_max=1)
            assert claimed is not None
        copy_input(spine.services, input_id)
    found = look(spine, input_id)
    assert (found.status, found.error) == ("failed", TOO_OFTEN)


def test_a_store_that_is_away_leaves_the_copy_for_the_sweeper(
    spine: Spine, serve: Serve, s3_location: S3Location
) -> None:
    away = ObjectStore(replace(s3_location, endpoint="http://127.0.0.1:1"))
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n")) as server:
        input_id = spine.ingest(server.url())
        spine.dispatcher.rings.clear()
        with pytest.raises(StorageUnavailable):
            copy_input(replace(spine.services, objects=away), input_id)
        assert look(spine, input_id).status == "copying"
        sweep(spine.services)
        spine.answer_rings()
        assert look(spine, input_id).status == "ready"


def test_progress_is_kept_for_operators(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, FILE)) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
    columns = read_columns(spine, input_id)
    assert (columns["copied_bytes"], columns["copy_attempts"]) == (len(FILE), 1)


def test_the_callbacks_secret_is_kept_sealed(spine: Spine, serve: Serve) -> None:
    with serve(lambda exchange: serve_ranges(exchange, b"{}\n")) as server:
        input_id = spine.ingest(server.url(), callback_url=server.url("/hook"))
    sealed = bytes(read_columns(spine, input_id)["callback_secret"])
    assert b"whsec_" not in sealed
    assert spine.services.sealer.open(sealed).startswith("whsec_")
