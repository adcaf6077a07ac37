"""Clients that send half a request and stop, or ask and never read: they hold no thread, and are let go in the end."""

from __future__ import annotations

import http.client
import json
import re
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from api.request_frame import BODY_MAX_BYTES
from tests.support.served_api import serve_api

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.served_api import ServedApi
    from tests.support.tenant import Tenant

SILENT = 20
"""Connections that stop, more than the 8 threads of the one worker."""

LONG_SECONDS, SHORT_SECONDS = "600", "0.2"
"""For a request to arrive: longer than any test, and no longer than it takes to see it end."""

HALVES = {
    "nothing": b"",
    "half of the headers": b"POST /batch/v1/jobs HTTP/1.1\r\nHost: anex\r\nAuthoriz",
    "half of the body": b"{head}Content-Length: 100\r\n\r\n{{",
    "half of a chunk": b"{head}Transfer-Encoding: chunked\r\n\r\n100\r\n{{",
}


def head_of(tenant: Tenant) -> bytes:
    return f"POST /batch/v1/jobs HTTP/1.1\r\nHost: anex\r\nAuthorization: Bearer {tenant.key}\r\n".encode()


def half(name: str, tenant: Tenant) -> bytes:
    return HALVES[name].replace(b"{head}", head_of(tenant)).replace(b"{{", b"{")


def connect(api: ServedApi, receive_bytes: int | None = None) -> socket.socket:
    parts = urlsplit(api.address)
    connection = socket.socket()
    connection.settimeout(30)
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.connect((parts.hostname or "", parts.port or 0))
    return connection


def hear(connection: socket.socket, method: str = "GET") -> tuple[int, bytes]:
    answer = http.client.HTTPResponse(connection, method=method)
    answer.begin()
    return answer.status, answer.read()


def hear_end(connection: socket.socket) -> bytes:
    said = b""
    while data := connection.recv(65536):
        said += data
    return said


def test_clients_that_stop_in_the_middle_of_a_request_hold_no_thread(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    environment = {**api_environment, "ANEX_API_REQUEST_SECONDS": LONG_SECONDS}
    with serve_api(environment, tmp_path / "log") as api:
        for name in HALVES:
            with ExitStack() as silent:
                for _ in range(SILENT):
                    silent.enter_context(connect(api)).sendall(half(name, tenant))

                assert [api.get("/healthz").status_code for _ in range(SILENT)] == [200] * SILENT, name


def test_a_request_that_does_not_arrive_in_time_is_ended(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    environment = {**api_environment, "ANEX_API_REQUEST_SECONDS": SHORT_SECONDS}
    said = {}
    with serve_api(environment, tmp_path / "log") as api:
        for name in HALVES:
            with connect(api) as connection:
                connection.sendall(half(name, tenant))
                said[name] = hear_end(connection)

    assert said.pop("nothing") == b""
    for name, answer in said.items():
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), name
        assert b"X-Request-Id: req_" in head
        assert json.loads(body)["error"]["code"] == "request_timeout"


def test_a_request_that_comes_byte_by_byte_is_answered(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api, connect(api) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for framing in (
            b"Content-Length: 2\r\n\r\n{}",
            b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ):
            for byte in head_of(tenant) + framing:
                connection.sendall(bytes([byte]))
            status, body = hear(connection)
            assert (status, sorted(json.loads(body)["errors"])) == (422, ["input_id", "model"])


def test_requests_that_are_sent_at_once_are_answered_in_order(
    api_environment: dict[str, str], tmp_path: Path
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api, connect(api) as connection:
        connection.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: anex\r\n\r\nGET /none HTTP/1.1\r\nHost: anex\r\nConnection: close\r\n\r\n"
        )
        connection.shutdown(socket.SHUT_WR)
        said = hear_end(connection)

    assert re.findall(rb"HTTP/1.1 ([0-9]+)", said) == [b"200", b"404"]


def test_idle_connections_hold_no_thread_and_stay_usable(
    api_environment: dict[str, str], tmp_path: Path
) -> None:
    """They were closed after 2 s: a client that polls at that pace met resets."""
    request = b"GET /healthz HTTP/1.1\r\nHost: anex\r\n\r\n"
    with serve_api(api_environment, tmp_path / "log") as api, ExitStack() as opened:
        kept = [opened.enter_context(connect(api)) for _ in range(SILENT)]
        for _ in range(2):
            for connection in kept:
                connection.sendall(request)
                assert hear(connection)[0] == 200
            assert api.get("/healthz").ok


def test_a_client_that_never_reads_is_given_up(api_environment: dict[str, str], tmp_path: Path) -> None:
    """It held its thread for ever, then for five seconds: what it asks for exceeds all that lies between it and the server."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: anex\r\n\r\n"
    with serve_api(api_environment, tmp_path / "log") as api, ExitStack() as opened:
        deaf = [opened.enter_context(connect(api, receive_bytes=4096)) for _ in range(SILENT)]
        for connection in deaf:
            connection.sendall(request * 100)
        for _ in range(SILENT):
            assert api.get("/healthz").ok
        for connection in deaf:
            assert 1 <= hear_end(connection).count(b"HTTP/1.1 200 ") < 100
        assert "did not take its answer" not in (tmp_path / "log").read_text()


def test_a_body_that_never_came_is_not_taken_for_none(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    """One byte over the bound was read as an empty body: an approval went through without the body that it announced."""
    with serve_api(api_environment, tmp_path / "log") as api:
        for size_bytes in (BODY_MAX_BYTES + 1, BODY_MAX_BYTES + 2):
            with connect(api) as connection:
                connection.sendall(head_of(tenant) + f"Content-Length: {size_bytes}\r\n\r\n".encode())
                status, body = hear(connection)
            assert (status, json.loads(body)["error"]["code"]) == (413, "request_too_large")


def test_a_body_of_many_small_chunks_delays_nobody(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    """Gunicorn's reader takes a time that grows with the square of the chunks that it is given at once."""
    chunks = b"1\r\n \r\n" * 340_000 + b"0\r\n\r\n"
    with serve_api(api_environment, tmp_path / "log") as api, connect(api) as connection:
        with suppress(OSError):  # it is refused while it comes
            connection.sendall(head_of(tenant) + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        for _ in range(20):
            assert api.get("/healthz").ok


def test_a_clients_word_for_the_path_is_not_taken(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api, connect(api) as connection:
        key = f"Authorization: Bearer {tenant.key}\r\nSCRIPT_NAME: /x\r\nX-Forwarded-Proto: https\r\n"
        connection.sendall(f"GET /batch/v1/jobs/job_x HTTP/1.1\r\nHost: a\r\n{key}\r\n".encode())
        assert hear(connection)[0] == 404


def test_clients_that_never_close_hold_nobody_up(api_environment: dict[str, str], tmp_path: Path) -> None:
    """The loop once stood still for 2 s at each connection that was to end and whose client did not close it."""
    last = b"GET /none HTTP/1.1\r\nHost: anex\r\nConnection: close\r\n\r\n"
    with serve_api(api_environment, tmp_path / "log") as api, ExitStack() as opened:
        lingering = [opened.enter_context(connect(api)) for _ in range(SILENT)]
        for connection in lingering:
            connection.sendall(last)
        assert api.get("/healthz").ok
        for connection in lingering:
            assert hear_end(connection).startswith(b"HTTP/1.1 404 ")


def test_a_body_that_is_too_large_is_refused_before_it_comes(
    api_environment: dict[str, str], tmp_path: Path, tenant: Tenant
) -> None:
    with serve_api(api_environment, tmp_path / "log") as api, connect(api) as connection:
        connection.sendall(head_of(tenant) + b"Content-Length: 3000000\r\nExpect: 100-continue\r\n\r\n")
        status, body = hear(connection)

    assert (status, json.loads(body)["error"]["code"]) == (413, "request_too_large")


def test_more_connections_than_there_is_room_for_take_the_place_of_idle_ones(
    api_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**api_environment, "GUNICORN_CMD_ARGS": "--worker-connections 12"}
    with serve_api(environment, tmp_path / "log") as api, ExitStack() as opened:
        silent = [opened.enter_context(connect(api)) for _ in range(SILENT)]
        for connection in silent:
            connection.sendall(b"GET ")

        assert api.get("/healthz").ok
        assert hear_end(silent[0]) == b""
