"""How fast requests may come: so many in a time with one key, and so many from one address that show no good key.

The counts lie in Redis, so all processes share them; they expire by themselves. A limit protects the service, and must not take it
down: while Redis is away or mute, requests pass unchecked. Time-outs are short, and a breaker lets one request in some seconds try
whether Redis is back, so that the others wait for nothing.
"""

from __future__ import annotations

import math
import threading
import time
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

import structlog
from limits import parse
from limits.storage import RedisStorage
from limits.strategies import MovingWindowRateLimiter
from redis import RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from api.errors import RateLimitExceeded
from api.metrics import RATE_LIMITS_SKIPPED

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Counted = Literal["key", "address"]

log = structlog.get_logger(__name__)

TIMEOUT_SECONDS = 0.08
"""Of connecting and of each answer: a Redis that is slow to connect and then mute costs twice that, which is below 0.2."""

BREAKER_SECONDS = 5.0
"""How long checks are skipped after one failed."""

_KEY_PREFIX = "anex:limits"
_IPV6_NETWORK_BITS = 64
_ADDRESS_CHARACTERS_MAX = 64


class RateLimit(Protocol):
    """Counts requests by who sends them."""

    def take(self, kind: Counted, who: str) -> None:
        """Count one request. Raises ``RateLimitExceeded`` instead when it is one too many."""

    def check(self, kind: Counted, who: str) -> None:
        """Count nothing. Raises ``RateLimitExceeded`` when the next one would be one too many."""


class NoRateLimit:
    """Lets everything pass: for an installation without a limit."""

    def take(self, kind: Counted, who: str) -> None:
        """Count nothing."""

    def check(self, kind: Counted, who: str) -> None:
        """Refuse nothing."""


class RedisRateLimit:
    """Counts over one Redis or Valkey, in a moving window. Thread-safe; make it after a fork. It connects at the first check."""

    def __init__(self, redis_url: str, limit: str, now: Callable[[], float] = time.monotonic) -> None:
        """Take the server's URL, a limit such as ``20 per 2 second``, and a clock that never runs backwards, in seconds."""
        storage = RedisStorage(
            redis_url,
            key_prefix=_KEY_PREFIX,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),  # type: ignore[arg-type] # it goes to redis.Redis as it is
        )
        self._windows = MovingWindowRateLimiter(storage)
        self._limit = parse(limit)
        self._breaker = _Breaker(now)

    def take(self, kind: Counted, who: str) -> None:
        """Count one request. Raises ``RateLimitExceeded`` instead when it is one too many."""
        if not self._ask(lambda: self._windows.hit(self._limit, kind, who), unknown=True):
            raise self._make_refusal(kind, who)

    def check(self, kind: Counted, who: str) -> None:
        """Count nothing. Raises ``RateLimitExceeded`` when the next one would be one too many."""
        if not self._ask(lambda: self._windows.test(self._limit, kind, who), unknown=True):
            raise self._make_refusal(kind, who)

    def _make_refusal(self, kind: Counted, who: str) -> RateLimitExceeded:
        """Say when the oldest request leaves the window; at most a window, should the machines' clocks differ."""
        longest = self._limit.get_expiry()
        ends_at = self._ask(
            lambda: self._windows.get_window_stats(self._limit, kind, who).reset_time, unknown=math.inf
        )
        seconds = math.ceil(min(ends_at - time.time(), longest))
        return RateLimitExceeded(max(1, seconds))

    def _ask(self, question: Callable[[], T], *, unknown: T) -> T:
        """Return what Redis answers, ``unknown`` when it doesn't."""
        if not self._breaker.admits():
            RATE_LIMITS_SKIPPED.inc()
            return unknown
        try:
            answer = question()
        except (RedisError, OSError) as error:
            self._breaker.open()
            RATE_LIMITS_SKIPPED.inc()
            # No flood: whoever comes now finds the breaker open.
            log.warning("rate_limit_unavailable", error=repr(error), skipped_seconds=BREAKER_SECONDS)
            return unknown
        if self._breaker.close():
            log.info("rate_limit_available")
        return answer


class _Breaker:
    """Open after a failure; then one caller in ``BREAKER_SECONDS`` is let through, and its success closes it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._try_at: float | None = None
        """None while it is closed."""

    def admits(self) -> bool:
        """Whether this caller may try."""
        with self._lock:
            if self._try_at is None:
                return True
            if self._now() < self._try_at:
                return False
            self._try_at = self._now() + BREAKER_SECONDS
            return True

    def open(self) -> None:
        """Remember a failure."""
        with self._lock:
            self._try_at = self._now() + BREAKER_SECONDS

    def close(self) -> bool:
        """Remember a success; return whether it was open."""
        with self._lock:
            was_open = self._try_at is not None
            self._try_at = None
        return was_open


def name_address(remote: str | None) -> str:
    """Return what an address counts as: of IPv6 the network, since every customer has 2^64 addresses to send from.

    A proxy may hand on something else than an address; it counts as it stands.
    """
    try:
        address = ip_address(remote or "")
    except ValueError:
        return (remote or "unknown")[:_ADDRESS_CHARACTERS_MAX]
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    # Without the scope: a link-local address carries its interface's name.
    return str(ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))
