"""Who is asking, and whether they may now: judged before anything else of the request.

In this order: 422 without a header, 401 for another scheme or a bad key, 429 above the rate, 503 while the API is frozen.
A missing header and another scheme cost nothing and are told as often as they come. Keys that were looked up in vain count against
their address: guessing keys must not load Postgres. From an address that sent too many of them, an unknown key is looked up while
no other such key is, and refused with 429 only meanwhile, so that nobody is shut out by a neighbour behind the same address. A key
that was good a moment ago is not held up at all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog
from flask import current_app, g, request

from anex.errors import Frozen, KeyInvalid
from anex.orgs.authenticate import Admission, admit
from anex.orgs.keys import hash_key
from api.context import services
from api.errors import RateLimitExceeded, ShapeInvalid
from api.limits import name_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask import Flask

    from api.limits import RateLimit

KEYS_REMEMBERED_MAX = 10_000
"""Good keys that a process remembers, as hashes of 32 bytes: some 2 MB with what holds them."""

SERVED_WHILE_FROZEN = frozenset({"GET", "HEAD", "OPTIONS"})
"""Polling and downloads; everything else changes something."""

SUSPECTS_AT_ONCE = 1
"""Keys from addresses with too many bad ones that a process looks up at a time."""

_HEADER = "Authorization"
_HTTP_SPACE = " \t"
_DOOR = "anex-door"


class Door:
    """What one process knows of those who came in before."""

    def __init__(self, rate_limit: RateLimit) -> None:
        self.rate_limit = rate_limit
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self._suspects = threading.Semaphore(SUSPECTS_AT_ONCE)

    @contextmanager
    def pass_by(self, presented: str, address: str) -> Iterator[None]:
        """Look a key up in the block. Raises ``RateLimitExceeded`` where it must wait for others from suspect addresses."""
        if self.knows(presented):
            yield
            return
        try:
            self.rate_limit.check("address", address)
        except RateLimitExceeded:
            if not self._suspects.acquire(blocking=False):
                raise
            try:
                yield
            finally:
                self._suspects.release()
        else:
            yield

    def knows(self, presented: str) -> bool:
        """Whether this key was good when it was last looked up, here and not long ago."""
        return hash_key(presented) in self._good

    def remember(self, presented: str) -> None:
        """Note a good key; the one that was not seen for longest makes room."""
        digest = hash_key(presented)
        with self._lock:
            self._good[digest] = None
            self._good.move_to_end(digest)
            if len(self._good) > KEYS_REMEMBERED_MAX:
                self._good.popitem(last=False)

    def forget(self, presented: str) -> None:
        """Drop a key that is good no more."""
        with self._lock:
            self._good.pop(hash_key(presented), None)


def guard_door(app: Flask, rate_limit: RateLimit) -> None:
    """Make ``app``'s requests count against ``rate_limit``."""
    app.extensions[_DOOR] = Door(rate_limit)


def authenticate_request() -> None:
    """Set ``g.caller``; a ``before_request`` hook of every blueprint that needs a key.

    Raises ``ShapeInvalid`` without the header, ``KeyInvalid`` for another scheme or a bad key, ``RateLimitExceeded`` above the
    rate, ``Frozen`` while an operator holds the API, and ``DatabaseUnavailable`` when key or freeze can't be read.
    """
    door: Door = current_app.extensions[_DOOR]
    admission = _admit(door, _read_key(), name_address(request.remote_addr))
    g.caller = admission.caller
    structlog.contextvars.bind_contextvars(org_id=g.caller.org_id, key_id=g.caller.key_id)
    door.rate_limit.take("key", g.caller.key_id)
    if admission.is_frozen and request.method not in SERVED_WHILE_FROZEN:
        raise Frozen("the API is frozen for maintenance; polling and downloading results keep working")


def _read_key() -> str:
    header = request.headers.get(_HEADER, "").strip(_HTTP_SPACE)
    if not header:
        raise ShapeInvalid({_HEADER: ["the header is missing; send 'Authorization: Bearer <your-api-key>'"]})
    scheme, _, presented = header.partition(" ")
    if scheme.lower() != "bearer":
        raise KeyInvalid("the Authorization header must read 'Bearer <your-api-key>'")
    return presented.strip(_HTTP_SPACE)


def _admit(door: Door, presented: str, address: str) -> Admission:
    with door.pass_by(presented, address):
        try:
            admission = admit(services().database, presented)
        except KeyInvalid:
            door.forget(presented)
            with suppress(RateLimitExceeded):  # it is counted for the next one; this one is known to be bad
                door.rate_limit.take("address", address)
            raise
    door.remember(presented)
    return admission
