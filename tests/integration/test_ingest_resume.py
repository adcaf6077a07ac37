"""A copy whose source was cut: it goes on where the rest is proven to be of the same file, else begins anew, and is never mixed."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from anex.inputs.ingest import PASSES_MAX
from anex.inputs.source import DATE_IS_STRONG_AFTER
from tests.support.sources import (
    ETAG,
    chunked,
    in_turn,
    look,
    make_serve,
    read_object,
    read_start,
    say,
    serve_ranges,
)

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from tests.support.sources import Answer, Serve
    from tests.support.spine import Spine
    from tests.support.tls_server import Exchange, TlsServer

ONE, TWO = (hashlib.shake_256(version).digest(400_000) for version in (b"one", b"two"))
SIZE = len(ONE)
CUT = 200_000
OTHER_ETAG = '"two"'
WEAK_ETAG = 'W/"one"'
STATED = {"Content-Length": SIZE}
TAGGED = {"ETag": ETAG}
CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.fixture
def serve(spine: Spine, tmp_path: Path) -> Serve:
    """Return a context manager that runs a source, and lets the spine's copies reach it."""
    return make_serve(spine, tmp_path)


def cut(headers: dict[str, Any]) -> Answer:
    """Send a part of version one, with its length, and break off."""
    return lambda exchange: say(exchange, 200, {**STATED, **headers}, ONE[:CUT])


def whole(data: bytes, etag: str = OTHER_ETAG) -> Answer:
    return lambda exchange: exchange.respond(200, data, {"ETag": etag})


def rest(exchange: Exchange, data: bytes, headers: dict[str, Any], **changes: Any) -> None:
    """Send the rest of ``data`` from where it was asked for; ``changes`` make its range or its framing say something else."""
    start = read_start(exchange)
    first, last = start + changes.get("first", 0), SIZE - 1 + changes.get("last", 0)
    content_range = {"Content-Range": f"bytes {first}-{last}/{changes.get('total', SIZE)}"}
    body = data[start : start + changes["sent"]] if "sent" in changes else data[start:]
    if changes.get("chunked"):
        say(exchange, 206, {**content_range, **CHUNKED, **headers}, chunked(body))
    else:
        say(exchange, 206, {**content_range, "Content-Length": len(body), **headers}, body)


def ranges_asked(server: TlsServer) -> list[str]:
    """Return what the copy's requests asked for, in order; an empty text is the whole file."""
    asked = [each.headers.get("range", "") for each in server.requests]
    return [each for each in asked if each != "bytes=0-0"]


def copy(spine: Spine, serve: Serve, *answers: Answer) -> tuple[str, str | None, bytes, list[str]]:
    """Copy from a source that gives these answers; return status, error, bytes, and the ranges that were asked for."""
    with serve(in_turn(*answers)) as server:
        input_id = spine.ingest(server.url("/file"))
        spine.answer_rings()
        found = look(spine, input_id)
        data = read_object(spine, found) if found.status == "ready" else b""
        return found.status, found.error, data, ranges_asked(server)


NOT_THE_REST: dict[str, Answer] = {
    "a 206 of another version": partial(rest, data=TWO, headers={"ETag": OTHER_ETAG}),
    "a 206 that names no version": partial(rest, data=TWO, headers={}),
    "a 206 with a weak ETag": partial(rest, data=TWO, headers={"ETag": WEAK_ETAG}),
    "a 206 with another total": partial(rest, data=TWO, headers=TAGGED, total=SIZE + 1),
    "a 206 that ends behind its total": partial(rest, data=TWO, headers=TAGGED, last=1, chunked=True),
    "a 206 without total that ends behind the file": partial(
        rest, data=TWO, headers=TAGGED, last=1, total="*", chunked=True
    ),
    "a 206 from an earlier byte": partial(rest, data=TWO, headers=TAGGED, first=-1, chunked=True),
    "a 206 from a later byte": partial(rest, data=TWO, headers=TAGGED, first=1, chunked=True),
    "a 206 whose Content-Length is not that of its range": partial(rest, data=TWO, headers=TAGGED, sent=1000),
    "a 206 without Content-Range": lambda exchange: exchange.respond(
        206, TWO[read_start(exchange) :], TAGGED
    ),
    "a 206 of several parts": partial(
        rest, data=TWO, headers={**TAGGED, "Content-Type": "multipart/byteranges; boundary=x"}
    ),
    "a 416 with a smaller total": lambda exchange: exchange.respond(
        416, b"", {"Content-Range": f"bytes */{read_start(exchange)}", **TAGGED}
    ),
    "a 416 with the same total": lambda exchange: exchange.respond(
        416, b"", {"Content-Range": f"bytes */{SIZE}", **TAGGED}
    ),
    "a 416 without a total": lambda exchange: exchange.respond(416, b"", TAGGED),
    "a 200": whole(TWO),
    "a 200 of the same version": whole(TWO, ETAG),
    "a redirect to another file": lambda exchange: exchange.respond(302, b"", {"Location": "/other"}),
    "a refusal": lambda exchange: exchange.respond(403),
}


@pytest.mark.parametrize("answer", NOT_THE_REST.values(), ids=NOT_THE_REST.keys())
def test_what_is_not_proven_to_be_the_rest_begins_the_copy_anew(
    spine: Spine, serve: Serve, answer: Answer
) -> None:
    def rest_of_two(exchange: Exchange) -> None:
        answer(exchange)

    status, error, data, asked = copy(spine, serve, cut(TAGGED), rest_of_two, whole(TWO))
    assert (status, error) == ("ready", None)
    assert data == TWO
    assert [bool(each) for each in asked] == [False, True, False]


NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def dated(age: timedelta, **headers: str) -> dict[str, str]:
    """Return Date and a Last-Modified of so long before."""
    now = NOON
    return {
        "Date": format_datetime(now, usegmt=True),
        "Last-Modified": format_datetime(now - age, usegmt=True),
        **headers,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ETag": WEAK_ETAG},
        {"ETag": "one"},
        {"ETag": '""'},
        {"ETag": '"one", "two"'},
        dated(DATE_IS_STRONG_AFTER / 2),
        dated(DATE_IS_STRONG_AFTER * -2),
        dated(DATE_IS_STRONG_AFTER * 2, ETag=WEAK_ETAG),
        dated(DATE_IS_STRONG_AFTER * 2, Date="today"),
        {"Last-Modified": dated(DATE_IS_STRONG_AFTER * 2)["Last-Modified"]},
        dated(DATE_IS_STRONG_AFTER * 2, **{"Last-Modified": "Sat, 31 Feb 2026 00:00:00 GMT"}),
    ],
    ids=str,
)
def test_two_versions_are_not_joined_where_the_first_answer_named_no_strong_validator(
    spine: Spine, serve: Serve, headers: dict[str, str]
) -> None:
    """Asked with a range, this source would send the rest of another version under the same headers."""

    def changed(exchange: Exchange) -> None:
        if "range" in exchange.request.headers:
            rest(exchange, TWO, headers)
        else:
            whole(TWO)(exchange)

    status, _, data, asked = copy(spine, serve, cut(headers), changed)
    assert (status, asked) == ("ready", ["", ""])
    assert data == TWO


def test_a_source_without_validators_that_always_cuts_off_is_told_what_it_lacks(
    spine: Spine, serve: Serve
) -> None:
    status, error, _, asked = copy(spine, serve, cut({}))
    assert (status, asked) == ("failed", [""] * PASSES_MAX)
    assert (error or "").startswith("the source stopped after ")
    assert (error or "").endswith(
        "bytes and names no strong ETag by which to go on; serve the file from a host that does, or upload it"
    )


def test_a_source_that_changes_again_and_again_is_told_so(spine: Spine, serve: Serve) -> None:
    changing: list[Answer] = [cut(TAGGED), partial(rest, data=TWO, headers={"ETag": OTHER_ETAG})] * PASSES_MAX
    status, error, _, _ = copy(spine, serve, *changing)
    assert (status, error) == (
        "failed",
        "the source changed while it was read; create a new input once the file stays as it is",
    )


def test_a_strong_date_is_enough_to_go_on_by(spine: Spine, serve: Serve) -> None:
    headers = dated(DATE_IS_STRONG_AFTER * 2)
    status, _, data, asked = copy(spine, serve, cut(headers), partial(rest, data=ONE, headers=headers))
    assert (status, len(asked)) == ("ready", 2)
    assert data == ONE


def test_two_versions_are_not_joined_where_the_date_differs(spine: Spine, serve: Serve) -> None:
    old, new = dated(DATE_IS_STRONG_AFTER * 3), dated(DATE_IS_STRONG_AFTER * 2)
    status, _, data, _ = copy(
        spine, serve, cut(old), partial(rest, data=TWO, headers=new), partial(serve_ranges, data=TWO)
    )
    assert (status, data == TWO) == ("ready", True)


PARTS: dict[str, list[Answer]] = {
    "parts of the rest": [
        cut(TAGGED),
        lambda exchange: rest(exchange, ONE, TAGGED, sent=70_000, last=read_start(exchange) + 70_000 - SIZE),
        partial(rest, data=ONE, headers=TAGGED),
    ],
    "a 206 that ends early, by its own framing": [
        cut(TAGGED),
        partial(rest, data=ONE, headers=TAGGED, sent=90_000, chunked=True),
        partial(rest, data=ONE, headers=TAGGED),
    ],
    "a 206 that ends before its first byte": [
        cut(TAGGED),
        partial(rest, data=ONE, headers=TAGGED, sent=0, chunked=True),
        partial(rest, data=ONE, headers=TAGGED),
    ],
    "a first answer without a size": [
        lambda exchange: say(exchange, 200, {**CHUNKED, **TAGGED}, chunked(ONE[:CUT], ends=False)),
        partial(rest, data=ONE, headers=TAGGED),
    ],
    "a size that is never told but by the 416 behind it": [
        lambda exchange: say(exchange, 200, {**CHUNKED, **TAGGED}, chunked(ONE[:CUT], ends=False)),
        partial(rest, data=ONE, headers=TAGGED, total="*"),
        lambda exchange: exchange.respond(416, b"", {"Content-Range": f"bytes */{SIZE}", **TAGGED}),
    ],
    "a first answer whose chunks end before its Content-Length": [
        lambda exchange: say(exchange, 200, {**CHUNKED, **STATED, **TAGGED}, chunked(ONE[:CUT])),
        partial(rest, data=ONE, headers=TAGGED),
    ],
    "a first answer that states its length twice": [
        lambda exchange: say(exchange, 200, {"Content-Length": f"{SIZE}, {SIZE}", **TAGGED}, ONE[:CUT]),
        partial(rest, data=ONE, headers=TAGGED),
    ],
}


@pytest.mark.parametrize("answers", PARTS.values(), ids=PARTS.keys())
def test_a_copy_that_comes_in_parts_has_every_byte(spine: Spine, serve: Serve, answers: list[Answer]) -> None:
    status, error, data, asked = copy(spine, serve, *answers)
    assert (status, error) == ("ready", None)
    assert data == ONE
    assert [bool(each) for each in asked] == [False, *[True] * (len(answers) - 1)]


def test_a_416_of_unknown_version_is_not_the_end_of_a_file_of_unknown_size(
    spine: Spine, serve: Serve
) -> None:
    """The file was replaced by one that is as long as what had come of it."""
    status, _, data, _ = copy(
        spine,
        serve,
        lambda exchange: say(exchange, 200, {**CHUNKED, **TAGGED}, chunked(ONE[:CUT], ends=False)),
        lambda exchange: exchange.respond(416, b"", {"Content-Range": f"bytes */{read_start(exchange)}"}),
        whole(TWO[:CUT]),
    )
    assert (status, data == TWO[:CUT]) == ("ready", True)


@pytest.mark.parametrize(
    "answers",
    [
        [cut(TAGGED), partial(rest, data=ONE + b"more", headers=TAGGED, chunked=True)],
        [lambda exchange: say(exchange, 200, {**CHUNKED, **STATED, **TAGGED}, chunked(ONE + b"more"))],
    ],
    ids=["in a 206", "in a 200"],
)
def test_a_source_that_sends_more_than_it_states_fails(
    spine: Spine, serve: Serve, answers: list[Answer]
) -> None:
    status, error, _, _ = copy(spine, serve, *answers)
    assert (status, error) == (
        "failed",
        "the source sends more bytes than it states; serve the file with its true Content-Length and Content-Range",
    )


def test_a_body_that_ends_with_its_connection_is_whole_when_the_source_says_goodbye(
    spine: Spine, serve: Serve
) -> None:
    def close(exchange: Exchange) -> None:
        say(exchange, 200, {}, ONE)
        exchange.say_goodbye()

    status, _, data, _ = copy(spine, serve, close)
    assert (status, data == ONE) == ("ready", True)


def test_a_body_that_ends_with_a_cut_connection_is_not_whole(spine: Spine, serve: Serve) -> None:
    status, _, _, asked = copy(spine, serve, lambda exchange: say(exchange, 200, {}, ONE))
    assert (status, len(asked)) == ("failed", PASSES_MAX)


def test_a_cut_behind_a_redirect_goes_on_where_it_led(spine: Spine, serve: Serve) -> None:
    """A validator is of one address only: the redirect may lead to another file by now, with the same one."""
    led_to = ["/one", "/two"]

    def answer(exchange: Exchange) -> None:
        asked = exchange.request
        if asked.path == "/file":
            exchange.respond(302, b"", {"Location": led_to.pop(0)})
        elif asked.path == "/two":
            serve_ranges(exchange, TWO)
        else:
            serve_ranges(exchange, ONE, cut_at=None if "range" in asked.headers else CUT)

    status, _, data, asked = copy(spine, serve, answer)
    assert (status, data == ONE) == ("ready", True)
    assert [bool(each) for each in asked] == [False, False, True]


@pytest.mark.parametrize(
    "header",
    [{"Content-Length": "9" * 5000}, {"Content-Range": f"bytes 0-0/{'9' * 5000}"}],
    ids=["length", "range"],
)
def test_a_size_of_thousands_of_digits_breaks_nothing(
    spine: Spine, serve: Serve, header: dict[str, str]
) -> None:
    """Python refuses to read such a number: the look at the source must not end in a fault of ours."""
    with serve(lambda exchange: say(exchange, 206, header)) as server:
        input_id = spine.ingest(server.url())
        spine.answer_rings()
        assert look(spine, input_id).status == "failed"
