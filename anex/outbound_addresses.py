"""Which URLs and addresses we call at all: rulings 10, as pure rules and one guarded look-up of names.

What counts is the address that a host resolves to, never how the host is spelled: ``127.1``, ``0x7f000001``
and ``localhost.`` are the same place. So nothing here reads numbers out of a host name.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from urllib3.util import parse_url

from anex.outbound_errors import OutboundFailed, OutboundRefused, OutboundTimeout

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Resolve = Callable[[str], Sequence[str]]
"""From a host name to its addresses as text; raises OSError where it has none."""

HTTPS_PORT = 443
SYSTEM_PORT_MAX = 1023
"""Below are the ports of mail, shells and databases of old: only 443 of them speaks HTTPS on purpose."""

RESOLVER_THREADS = 4

_HOST_NAME = re.compile(r"(?=.{1,254}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")

_GLOBAL_IPV6 = IPv6Network("2000::/3")
"""All that IANA gives out as global unicast. Outside lie the IPv4-mapped, IPv4-compatible and NAT64 forms, site-local,
unique-local, link-local and multicast addresses."""

_NOT_PUBLIC: tuple[Network, ...] = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; some clouds keep their metadata here
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # looks global, and is Azure's own service beside each of its machines
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; one cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "2001::/23",  # protocol assignments: Teredo, benchmarks, identifiers that are no place
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3ffe::/16",  # given back
        "3fff::/20",  # documentation
    )
)
"""Forms that carry an IPv4 address inside (6to4, Teredo, NAT64) are refused whole, whatever they carry: which machine
answers is up to a translator on the way. A network that reaches IPv4 through NAT64 alone must allow 64:ff9b::/96 by the
setting, and its translator must then refuse private addresses itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that is fit to be called, in parts; ``host`` is ASCII and as it is resolved (no brackets)."""

    url: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, int]:
        """Whom the request is for; the scheme is always https."""
        return self.host.rstrip("."), self.port


def is_public(address: Address) -> bool:
    """Return whether an address (one without a zone) is global unicast.

    The standard library has a say on top of our own list, since its registry grows with each version; alone it
    is not enough (in 3.11 it takes NAT64 and 6to4 forms of private addresses, and multicast, for global).
    """
    if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
        return False
    return address.is_global and not any(address in network for network in _NOT_PUBLIC)


def read_target(url: str) -> Target:
    """Return the parts of a URL. Raises ``OutboundRefused`` where its shape is not one that we call.

    The same parser and the same parts serve the judgement and the request, so there is no second reading of
    a URL that could lead elsewhere.
    """
    try:
        parsed = parse_url(url)
    except ValueError:
        raise OutboundRefused("the URL is malformed: check its host and port") from None
    if parsed.scheme != "https":
        raise OutboundRefused("the URL must begin with https://")
    if parsed.auth is not None:
        raise OutboundRefused("leave user name and password out of the URL")
    port = HTTPS_PORT if parsed.port is None else parsed.port
    if port != HTTPS_PORT and port <= SYSTEM_PORT_MAX:
        raise OutboundRefused(f"port {port} is not allowed: use {HTTPS_PORT}, or one above {SYSTEM_PORT_MAX}")
    host = _read_host(parsed.host or "")
    return Target(parsed._replace(fragment=None).url, host, port, parsed.request_uri)


def _read_host(host: str) -> str:
    if host.startswith("["):
        # A zone names one of our own network cards. Anything else in brackets is an address to the parser already.
        if "%" in host:
            raise OutboundRefused("the URL's address has a zone (%): use a public host name")
        return host[1:-1]
    name = host.lower()  # the parser has done it, but for numbers
    if not _HOST_NAME.fullmatch(name):
        raise OutboundRefused("the URL has no valid host name: write it in letters, digits, '-' and '.'")
    return name


def _is_address(host: str) -> bool:
    """Whether a host needs no look-up, which may be waiting behind names that don't resolve."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def system_resolve(host: str) -> list[str]:
    """Return all addresses of a host by the system's resolver; a link-local one carries its zone."""
    return [str(answer[4][0]) for answer in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class HostGuard:
    """Resolves hosts and judges every answer. Thread-safe; make it after a fork.

    The system's look-up can't be interrupted, so it runs on a few threads of its own and is given up when its
    time is over. The cost: a thread stays taken until the system gives up too (with usual settings half a
    minute), look-ups behind RESOLVER_THREADS such names time out, and a process may end that much later.
    """

    def __init__(self, resolve: Resolve, allowed_networks: Sequence[Network]) -> None:
        self._resolve = resolve
        self._allowed_networks = tuple(allowed_networks)
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolve")

    def judge(self, host: str, timeout_seconds: float) -> list[Address]:
        """Return the addresses of a host, all of which may be called. Without time only what is an address already is judged.

        One bad answer refuses the name: who mixes public and private ones wants the private one tried.
        Raises ``OutboundRefused``; ``OutboundFailed`` where there is no address, in time.
        """
        found = [host] if _is_address(host) else self._look_up(host, timeout_seconds)
        addresses = [ip_address(each) for each in dict.fromkeys(found)]
        if not addresses:
            raise OutboundFailed(f"{host} does not resolve: check the host name")
        if not all(self._is_allowed(address) for address in addresses):
            raise OutboundRefused(f"{host} is not on the public internet: use a URL that everybody can reach")
        return addresses

    def _look_up(self, host: str, timeout_seconds: float) -> Sequence[str]:
        if timeout_seconds <= 0:
            raise OutboundTimeout(f"{host} did not resolve in time: check its name servers")
        look_up = self._threads.submit(self._resolve, host)
        try:
            return look_up.result(timeout_seconds)
        except TimeoutError as error:
            look_up.cancel()
            raise OutboundTimeout(f"{host} did not resolve in time: check its name servers") from error
        except (OSError, UnicodeError) as error:
            raise OutboundFailed(f"{host} does not resolve: check the host name") from error

    def _is_allowed(self, address: Address) -> bool:
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return False  # networks don't look at the zone
        return is_public(address) or any(address in network for network in self._allowed_networks)
