"""A connection that waits for answers only so long.

``connect_timeout`` bounds connecting and ``statement_timeout`` what the server does. A server that stands still, or a network that
swallows packets, obeys neither: without a bound of the client's own a request would hang for as long as that lasts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.abc import PQGen

T = TypeVar("T")

_LOOK_SECONDS = 0.1
"""How often a wait looks at its bound and at signals; psycopg's own default."""

_GRACE_SECONDS = 1.0
"""A server that is only slow says so itself at its time-out, and its connection stays."""


class BoundedConnection(psycopg.Connection[Any]):
    """Gives up after ``answer_seconds``, with an ``OperationalError``, and is closed then: the answer may still come."""

    answer_seconds: float | None = None

    def wait(self, gen: PQGen[T], interval: float = _LOOK_SECONDS, timeout: float | None = None) -> T:
        """Wait as psycopg does, but not for ever."""
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


def bound_statements(seconds: float | None) -> Callable[[BoundedConnection], None] | None:
    """Return what sets a new connection up so that no statement takes longer than ``seconds``, with a dead server neither."""
    if seconds is None:
        return None

    def configure(connection: BoundedConnection) -> None:
        connection.answer_seconds = seconds + _GRACE_SECONDS
        connection.execute(f"SET statement_timeout = {round(seconds * 1000)}")

    return configure
