"""Ports of the stack: free, non-standard, chosen once and kept, so that addresses survive a restart."""

from __future__ import annotations

import json
import secrets
import socket
from typing import TYPE_CHECKING

from config.stack.errors import PortsExhausted, PortTaken
from config.stack.files import write_private

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

GRPC_OFFSET = 10_000
"""SeaweedFS listens for gRPC on each HTTP port plus this."""

FIRST_PORT = 15_000
LAST_PORT = 22_767
"""Both a port and its gRPC twin stay below 32768, where Linux begins to hand out outgoing ports by default:
a neighbour's connection can't take the port between two starts."""

_TRIES = 200


def settle_ports(path: Path, plain: Iterable[str], with_grpc: Iterable[str]) -> dict[str, int]:
    """Return a port for each name, the one kept in ``path`` unless a foreign process has taken it meanwhile.

    Names in ``with_grpc`` need their gRPC twin free too. What was chosen is written back.
    """
    kept = _read_ports(path)
    settled: dict[str, int] = {}
    for names, offsets in ((plain, (0,)), (with_grpc, (0, GRPC_OFFSET))):
        for name in names:
            port = kept.get(name)
            others = {*kept.values(), *settled.values()}
            settled[name] = port if port and _are_free(port, offsets) else _choose_port(offsets, others)
    if settled != kept:
        write_private(path, json.dumps(settled, indent=1) + "\n")
    return settled


def check_port(host: str, port: int) -> None:
    """Raise ``PortTaken`` where another server listens already: its answers would pass for our API's."""
    if not is_free(port, host):
        raise PortTaken(
            f"{host}:{port} is taken by another server; set ANEX_API_PORT to a free port, or stop that one"
        )


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen here now (connections of a former one don't count)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _choose_port(offsets: tuple[int, ...], taken: Collection[int]) -> int:
    """Pick at random, so that two stacks started at the same moment rarely meet."""
    for _ in range(_TRIES):
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1)
        if port not in taken and _are_free(port, offsets):
            return port
    raise PortsExhausted(f"no free port between {FIRST_PORT} and {LAST_PORT} on 127.0.0.1; free some of them")


def _are_free(port: int, offsets: tuple[int, ...]) -> bool:
    return all(is_free(port + offset) for offset in offsets)


def _read_ports(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    return {str(name): int(port) for name, port in json.loads(path.read_text("utf-8")).items()}
