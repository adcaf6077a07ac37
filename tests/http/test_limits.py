"""How fast requests may come, by key and by address; and that they pass while Redis is away, mute or back again."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

import pytest
import redis
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from anex.errors import KeyInvalid
from api.app import create_app
from api.limits import BREAKER_SECONDS, RedisRateLimit
from tests.support.relay import Relay
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from werkzeug.test import TestResponse

    from anex.services import Services
    from tests.support.tenant import Tenant

THREE = "3 per 1 hour"
FAR_BELOW_A_HANG_SECONDS = 20.0
"""Unbounded, a Redis that never answers is waited for until the operating system gives up."""


class Clock:
    """Seconds that a test moves on."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def valkey(valkey_url: str) -> Iterator[redis.Redis]:
    """Return this worker's database, emptied."""
    client = redis.Redis.from_url(valkey_url)
    client.flushdb()
    yield client
    client.flushdb()
    client.close()


@pytest.fixture
def limited(services: Services, valkey_url: str, valkey: redis.Redis) -> Flask:  # noqa: ARG001 - emptied first
    return create_app(services, rate_limit=RedisRateLimit(valkey_url, THREE))


@pytest.fixture
def black_hole() -> Iterator[socket.socket]:
    """Return a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


@pytest.fixture
def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return port_of(server)


def count_callers(server: socket.socket) -> int:
    """Return how many connections were made to a server since the last look."""
    callers = 0
    while True:
        try:
            server.accept()[0].close()
        except BlockingIOError:
            return callers
        callers += 1


def read_skipped() -> float:
    return REGISTRY.get_sample_value("anex_rate_limits_skipped_total") or 0.0


def poll(tenant: Tenant) -> TestResponse:
    return tenant.call("GET", "/jobs/x")


def knock(app: Flask, **headers: str) -> TestResponse:
    """Send a request without a good key."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.test_client().get("/batch/v1/jobs/x", headers=named)


def assert_refused(response: TestResponse) -> None:
    body = response.get_json()
    assert (response.status_code, body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert body["detail"] == body["error"]["message"]
    assert 1 <= int(response.headers["Retry-After"]) <= 3600
    assert response.headers["X-Request-Id"]


def test_a_key_is_refused_above_its_rate_and_no_other_key(
    limited: Flask, make_tenant: Callable[..., Tenant]
) -> None:
    eager, other = make_tenant(on=limited), make_tenant(on=limited)

    assert [poll(eager).status_code for _ in range(3)] == [404] * 3

    assert_refused(poll(eager))
    assert poll(other).status_code == 404


def test_a_refused_key_may_come_again_when_its_oldest_request_is_old_enough(
    services: Services, valkey_url: str, make_tenant: Callable[..., Tenant]
) -> None:
    app = create_app(services, rate_limit=RedisRateLimit(valkey_url, "1 per 1 second"))
    tenant = make_tenant(on=app)
    wait_until(lambda: poll(tenant).status_code == 429, what="two requests come within a second")

    wait_until(lambda: poll(tenant).status_code == 404, what="the key is served again")


def test_the_rate_is_judged_before_the_body(limited: Flask, make_tenant: Callable[..., Tenant]) -> None:
    tenant = make_tenant(on=limited)
    for _ in range(3):
        poll(tenant)

    assert_refused(tenant.call("POST", "/jobs", {"colour": "blue"}))


def test_processes_share_the_counts(
    services: Services, valkey_url: str, limited: Flask, make_tenant: Callable[..., Tenant]
) -> None:
    tenant = make_tenant(on=limited)
    for _ in range(3):
        poll(tenant)

    beside = create_app(services, rate_limit=RedisRateLimit(valkey_url, THREE))

    assert_refused(knock(beside, Authorization=f"Bearer {tenant.key}"))


def test_concurrent_requests_are_counted_one_by_one(
    limited: Flask, make_tenant: Callable[..., Tenant]
) -> None:
    tenant = make_tenant(on=limited)
    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(lambda _: poll(tenant).status_code, range(16)))

    assert sorted(statuses) == [404] * 3 + [429] * 13


def test_what_is_kept_expires_and_holds_no_secret(
    limited: Flask, make_tenant: Callable[..., Tenant], valkey: redis.Redis
) -> None:
    tenant = make_tenant(on=limited)
    poll(tenant)
    knock(limited, Authorization="Bearer sk-guessed")

    names = [name.decode() for name in valkey.scan_iter()]

    assert len(names) == 2
    for name in names:
        assert name.startswith("anex:limits:")
        assert "sk-" not in name
        assert tenant.key not in name
        lives_seconds = valkey.ttl(name)
        assert isinstance(lives_seconds, int)
        assert 0 < lives_seconds <= 3600


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 422), ({"Authorization": "Basic dTpw"}, 401), ({"Authorization": "Bearer sk-guessed"}, 401)],
)
def test_what_is_wrong_with_the_key_is_told_before_the_rate(
    limited: Flask, headers: dict[str, str], status: int
) -> None:
    """An address with many bad keys was answered 429, even where no key was sent."""
    for _ in range(4):
        knock(limited, Authorization="Bearer sk-guessed")

    assert [knock(limited, **headers).status_code for _ in range(4)] == [status] * 4


def test_good_requests_do_not_count_against_the_address(
    limited: Flask, make_tenant: Callable[..., Tenant]
) -> None:
    for _ in range(2):
        tenant = make_tenant(on=limited)
        assert [poll(tenant).status_code for _ in range(3)] == [404] * 3

    with looked_up(limited):
        assert guess(limited).status_code == 401


def guess(app: Flask, **headers: str) -> TestResponse:
    return knock(app, Authorization="Bearer sk-guessed", **headers)


@contextmanager
def looked_up(app: Flask, **headers: str) -> Iterator[None]:
    """Have a guessed key looked up for as long as the block takes, if it is let through."""
    begun, over = threading.Event(), threading.Event()

    def wait_and_refuse(*_: object) -> NoReturn:
        begun.set()
        assert over.wait(FAR_BELOW_A_HANG_SECONDS)
        raise KeyInvalid("no such key")

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr("api.auth.admit", wait_and_refuse)
        guessed = threads.submit(guess, app, **headers)
        try:
            assert begun.wait(FAR_BELOW_A_HANG_SECONDS)
            patch.undo()
            yield
        finally:
            over.set()
        assert guessed.result().status_code == 401


def test_bad_keys_of_a_suspect_address_are_looked_up_one_at_a_time(limited: Flask) -> None:
    for _ in range(3):
        guess(limited)

    with looked_up(limited):
        assert_refused(guess(limited))
        assert knock(limited).status_code == 422
    assert guess(limited).status_code == 401


def test_a_good_key_is_not_shut_out_by_its_neighbours(
    limited: Flask, make_tenant: Callable[..., Tenant]
) -> None:
    """Behind a proxy that is not declared, all clients of an installation have one address."""
    known, unknown = make_tenant(on=limited), make_tenant(on=limited)
    poll(known)
    for _ in range(4):
        guess(limited)

    with looked_up(limited):
        assert poll(known).status_code == 404
        assert_refused(poll(unknown))
    assert poll(unknown).status_code == 404


def test_a_key_that_was_good_is_no_way_in_once_it_is_revoked(
    limited: Flask, make_tenant: Callable[..., Tenant], change_database: Callable[..., int]
) -> None:
    tenant = make_tenant(on=limited)
    poll(tenant)
    change_database("UPDATE api_keys SET revoked_at = now() WHERE id = %s", tenant.key_id)

    assert [poll(tenant).status_code for _ in range(4)] == [401] * 4
    with looked_up(limited):
        assert_refused(poll(tenant))


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json", "/openapi.yaml"])
def test_probes_and_the_document_have_no_limit(limited: Flask, path: str) -> None:
    for _ in range(4):
        guess(limited)

    assert [limited.test_client().get(path).status_code for _ in range(5)] == [200] * 5


def test_a_client_can_not_choose_its_address(limited: Flask) -> None:
    for number in range(3):
        guess(limited, X_Forwarded_For=f"192.0.2.{number}")

    with looked_up(limited):
        assert_refused(guess(limited, X_Forwarded_For="192.0.2.9"))


def test_behind_a_trusted_proxy_the_entry_that_it_added_is_the_address(
    services: Services, valkey_url: str, valkey: redis.Redis
) -> None:
    valkey.flushdb()
    app = create_app(services, rate_limit=RedisRateLimit(valkey_url, THREE), trusted_proxies=1)
    for number in range(3):
        guess(app, X_Forwarded_For=f"198.51.100.{number}, 192.0.2.1")

    with looked_up(app, X_Forwarded_For="192.0.2.1"):
        assert_refused(guess(app, X_Forwarded_For="198.51.100.9, 192.0.2.1"))
        assert guess(app, X_Forwarded_For="192.0.2.2").status_code == 401


def test_without_a_limit_everything_passes(app: Flask, tenant: Tenant) -> None:
    assert {poll(tenant).status_code for _ in range(30)} == {404}
    with looked_up(app):
        assert {guess(app).status_code for _ in range(30)} == {401}


def test_requests_pass_while_redis_is_gone_and_that_is_counted_and_logged_once(
    services: Services, closed_port: int, make_tenant: Callable[..., Tenant]
) -> None:
    app = create_app(
        services, rate_limit=RedisRateLimit(f"redis://127.0.0.1:{closed_port}/0", THREE, Clock())
    )
    tenant = make_tenant(on=app)
    skipped = read_skipped()

    with capture_logs() as logs:
        statuses = [poll(tenant).status_code for _ in range(10)]

    assert statuses == [404] * 10
    assert read_skipped() - skipped >= 10
    assert [entry["event"] for entry in logs].count("rate_limit_unavailable") == 1


def test_of_many_requests_at_a_redis_that_hangs_one_waits_for_it(
    services: Services, black_hole: socket.socket, make_tenant: Callable[..., Tenant]
) -> None:
    clock = Clock()
    limit = RedisRateLimit(f"redis://127.0.0.1:{port_of(black_hole)}/0", THREE, clock)
    tenant = make_tenant(on=create_app(services, rate_limit=limit))

    assert {poll(tenant).status_code for _ in range(10)} == {404}
    assert count_callers(black_hole) == 1

    clock.seconds += BREAKER_SECONDS
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: poll(tenant).status_code, range(16))) == {404}
    assert count_callers(black_hole) == 1


def test_a_redis_that_hangs_is_not_waited_for_long(black_hole: socket.socket) -> None:
    limit = RedisRateLimit(f"redis://127.0.0.1:{port_of(black_hole)}/0", THREE)
    asker = threading.Thread(target=limit.take, args=("key", "key_1"), daemon=True)

    asker.start()
    asker.join(FAR_BELOW_A_HANG_SECONDS)

    assert not asker.is_alive()


def test_the_limit_holds_again_once_redis_is_back(
    valkey_url: str,
    valkey: redis.Redis,
    closed_port: int,
    services: Services,
    make_tenant: Callable[..., Tenant],
) -> None:
    valkey.flushdb()
    parts = urlsplit(valkey_url)
    clock = Clock()
    at_closed_port = parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{closed_port}")).geturl()
    limit = RedisRateLimit(at_closed_port, THREE, clock)
    tenant = make_tenant(on=create_app(services, rate_limit=limit))
    assert [poll(tenant).status_code for _ in range(5)] == [404] * 5

    with Relay(closed_port, (parts.hostname or "", parts.port or 0)) as relay:
        serving = threading.Thread(target=relay.serve_forever)
        serving.start()
        try:
            assert [poll(tenant).status_code for _ in range(5)] == [404] * 5
            assert list(valkey.scan_iter()) == []

            clock.seconds += BREAKER_SECONDS
            with capture_logs() as logs:
                assert [poll(tenant).status_code for _ in range(4)] == [404] * 3 + [429]
            assert [entry["event"] for entry in logs].count("rate_limit_available") == 1
        finally:
            relay.shutdown()
            serving.join()


def test_a_connection_that_the_server_closed_while_it_was_idle_skips_no_check(
    limited: Flask, make_tenant: Callable[..., Tenant], valkey: redis.Redis
) -> None:
    tenant = make_tenant(on=limited)
    poll(tenant)
    skipped, own = read_skipped(), valkey.client_id()
    for client in valkey.client_list():
        if int(client["db"]) == valkey.connection_pool.connection_kwargs["db"] and int(client["id"]) != own:
            valkey.client_kill_filter(_id=client["id"])

    assert [poll(tenant).status_code for _ in range(3)] == [404, 404, 429]
    assert read_skipped() == skipped
