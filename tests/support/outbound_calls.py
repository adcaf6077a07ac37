"""What the tests of the guarded client share: servers that end with the test, limits, a GET."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from tests.support.tls_server import Exchange, TlsServer, run_tls_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from anex.outbound import Outbound

PUBLIC = "93.184.215.14"
WAIT_SECONDS = 30.0
"""A limit that no test waits for."""

SHORT_SECONDS = 0.3
"""A limit that is to pass."""


class Serve(Protocol):
    """Runs a server, with a certificate for ``localhost`` and ``names``, until the test ends."""

    def __call__(
        self, answer: Callable[[Exchange], None], *names: str, reads_bodies: bool = True
    ) -> TlsServer:
        """Return the running server."""


@contextmanager
def serving(folder: Path) -> Iterator[Serve]:
    """Yield what runs servers until the context ends."""
    with ExitStack() as running:

        def start(answer: Callable[[Exchange], None], *names: str, reads_bodies: bool = True) -> TlsServer:
            return running.enter_context(run_tls_server(folder, answer, names, reads_bodies=reads_bodies))

        yield start


def fetch(
    outbound: Outbound,
    url: str,
    *,
    deadline_seconds: float = WAIT_SECONDS,
    idle_seconds: float = WAIT_SECONDS,
    redirects_max: int = 0,
    headers: Mapping[str, str] | None = None,
    bytes_max: int = 1 << 20,
) -> bytes:
    """Send a GET and return the whole body."""
    with outbound.request(
        "GET",
        url,
        headers=headers,
        deadline_seconds=deadline_seconds,
        idle_seconds=idle_seconds,
        redirects_max=redirects_max,
    ) as answer:
        return answer.read(bytes_max)


def sends(raw: bytes) -> Callable[[Exchange], None]:
    """Return an answer of these very bytes."""
    return lambda exchange: exchange.send(raw)
