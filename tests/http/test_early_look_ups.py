"""Names that don't resolve: they delay their own request for a moment, and nobody else's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from anex.outbound import Outbound, OutboundPolicy
from anex.waiting import PLACES
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flask import Flask
    from werkzeug.test import TestResponse

    from tests.support.tenant import Tenant

LONG_SECONDS, SHORT_SECONDS = 600.0, 0.05


class DeadNames:
    """A resolver that finds nothing until it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_over = threading.Event()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        self.is_over.wait()
        return []


@pytest.fixture
def names() -> Iterator[DeadNames]:
    names = DeadNames()
    yield names
    names.is_over.set()


@pytest.fixture
def sender(make_app: Callable[..., Flask], make_tenant: Callable[..., Tenant], names: DeadNames) -> Tenant:
    return make_tenant(on=make_app(outbound=Outbound(OutboundPolicy(), resolve=names)))


def copy(sender: Tenant, host: str, callback: str | None = None) -> TestResponse:
    body = {"source_url": f"https://{host}/x", "callback_url": callback and f"https://{callback}/y"}
    return sender.call("POST", "/inputs", body)


def test_names_that_do_not_resolve_hold_up_a_few_requests_and_no_more(
    sender: Tenant, names: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anex.inputs.create.CHECK_SECONDS", LONG_SECONDS)
    with ThreadPoolExecutor(PLACES) as threads:
        held = [threads.submit(copy, sender, f"dead{number}.example") for number in range(PLACES)]
        try:
            wait_until(lambda: len(names.asked) == PLACES, what="all of them look up")

            assert copy(sender, "another.example", "hook.example").status_code == 200
            assert copy(sender, "10.0.0.1").status_code == 400
            assert copy(sender, "another.example", "127.0.0.1").status_code == 400
            assert not any(each.done() for each in held)
        finally:
            names.is_over.set()
        assert {each.result().status_code for each in held} == {200}
    assert len(names.asked) == PLACES
    assert copy(sender, "later.example").status_code == 200
    assert names.asked[-1] == "later.example"


def test_the_two_names_of_a_request_have_one_time_together(
    sender: Tenant, names: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anex.inputs.create.CHECK_SECONDS", SHORT_SECONDS)

    assert copy(sender, "dead.example", "hook.example").status_code == 200
    assert names.asked == ["dead.example"]


def test_an_address_is_judged_while_the_resolver_is_stuck(
    sender: Tenant, names: DeadNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited behind names that don't resolve, ran out of time, and passed."""
    monkeypatch.setattr("anex.inputs.create.CHECK_SECONDS", SHORT_SECONDS)
    for number in range(6):
        assert copy(sender, f"dead{number}.example").status_code == 200

    assert copy(sender, "169.254.169.254").status_code == 400
    assert names.asked
