"""The contract as rows: each quotes what the reference promises and proves it on a running API.

``Promise`` is a row; its check gets a ``Bench``: an API over real Postgres and SeaweedFS, organizations to call it with, and hands
that bring a job into any state by the use cases themselves. The texts that are quoted ("REF", "DOC", "Ruling n") are not ours, so
a row quotes no more than it takes to find the sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.row_samples import chat_line, join_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from werkzeug.test import TestResponse

    from tests.support.contract_bench import Bench
    from tests.support.tenant import Tenant

ROWS = 3
LINES = join_lines(*(chat_line(f"row-{number}") for number in range(1, ROWS + 1)))
BROKEN_LINES = join_lines(chat_line("row-1"), b"{not json}")
"""Passes the first look and fails in the job."""

UNKNOWN_JOB = "job_00000000000000000000000000"
UNKNOWN_INPUT = "inp_00000000000000000000000000"

Check = Callable[["Bench"], None]


@dataclass(frozen=True, slots=True)
class Promise:
    """One sentence of the contract and what proves it; ``case`` tells several rows of one sentence apart."""

    source: str
    sentence: str
    check: Check
    case: str = ""

    @property
    def name(self) -> str:
        """The row as a failing test shows it."""
        return f"{self.source}: {self.sentence}" + (f" [{self.case}]" if self.case else "")


def keep(promise: Promise, bench: Bench) -> None:
    """Run a row's check on doorbells that are silent; a failure quotes the sentence."""
    bench.spine.dispatcher.rings.clear()
    try:
        promise.check(bench)
    except BaseException as error:
        error.add_note(f"broken promise of {promise.source}: {promise.sentence!r}")
        raise


def promised(*tables: Sequence[Promise]) -> pytest.MarkDecorator:
    """Run a test once for every row."""
    rows = [row for table in tables for row in table]
    names = [row.name for row in rows]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"rows that can't be told apart need a case: {sorted(doubled)}")
    return pytest.mark.parametrize("promise", rows, ids=names)


def expect(response: TestResponse, status: int, code: str | None = None) -> dict[str, Any]:
    """Assert an answer's status and code, and the shape that every answer has; return its body."""
    body: dict[str, Any] = response.get_json()
    assert response.status_code == status, body
    assert response.headers["X-Request-Id"]
    if status < 300:
        assert code is None
        return body
    assert body["detail"] == body["error"]["message"]
    assert set(body["error"]) == {"code", "message"}
    assert code in (None, body["error"]["code"]), body
    assert ("errors" in body) == (status == 422)
    return body


class Place(StrEnum):
    """Where a job can be on its way; a state of the contract has several places where that decides an answer."""

    SUBMITTED = "submitted"
    ESTIMATING = "estimating"
    COST_READY = "cost_ready"
    WAITING = "in_progress/nothing begun"
    RUNNING = "in_progress/rows running"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"
    DONE = "done"
    FAILED = "failed"
    PARTLY_FAILED = "failed/with rows"
    CANCELLED = "cancelled"
    PARTLY_CANCELLED = "cancelled/with rows"

    @property
    def status(self) -> str:
        """What the API tells of a job there."""
        return self.value.partition("/")[0]


@dataclass(frozen=True, slots=True)
class BenchJob:
    """A job and the organization that it belongs to."""

    tenant: Tenant
    id: str

    def approve(self) -> TestResponse:
        return self.tenant.call("POST", f"/jobs/{self.id}/approve")

    def cancel(self) -> TestResponse:
        return self.tenant.call("POST", f"/jobs/{self.id}/cancel")

    def result(self) -> TestResponse:
        return self.tenant.call("GET", f"/jobs/{self.id}/result")

    def delete(self) -> TestResponse:
        return self.tenant.call("DELETE", f"/jobs/{self.id}/data")

    def poll(self) -> dict[str, Any]:
        return expect(self.tenant.call("GET", f"/jobs/{self.id}"), 200)
