"""Which addresses and URLs are called: the table of special networks, and that no text at all escapes the judgement."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address, ip_network
from threading import Event

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anex.outbound import Outbound, OutboundPolicy, OutboundRefused, OutboundTimeout
from anex.outbound_addresses import HostGuard, is_public, read_target, system_resolve
from anex.outbound_errors import OutboundFailed

PUBLIC = "93.184.215.14"

SPECIAL_NETWORKS = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "::/8",
    "::/128",
    "::1/128",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:db8::/32",
    "2002::/16",
    "3ffe::/16",
    "3fff::/20",
    "4000::/2",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]

EMBEDDED = [
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:808:808::1",
    "2001:0:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "fd00:ec2::254",
    "168.63.129.16",
    "100.100.100.200",
    "255.255.255.255",
]


@pytest.mark.parametrize("network", SPECIAL_NETWORKS)
def test_no_address_of_a_special_network_is_public(network: str) -> None:
    addresses = ip_network(network)
    middle = addresses[addresses.num_addresses // 2]

    assert not any(is_public(address) for address in (addresses[0], middle, addresses[-1]))


@pytest.mark.parametrize("address", EMBEDDED)
def test_a_form_that_carries_another_address_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "1.0.0.0",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "168.63.129.15",
        "172.15.255.255",
        "172.32.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::",
        "2001:4860:4860::8888",
        "2003::1",
        "2606:4700::1111",
        "2a00:1450:4001::1",
    ],
)
def test_addresses_beside_the_special_networks_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(address=st.ip_addresses())
def test_nothing_is_public_that_the_standard_library_knows_as_special(address: object) -> None:
    judged = ip_address(str(address))

    if is_public(judged):
        assert judged.is_global
        assert not any((judged.is_private, judged.is_multicast, judged.is_reserved, judged.is_link_local))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "https://"),
        ("files.example/a", "https://"),
        ("http://files.example/a", "https://"),
        ("ftp://files.example/a", "https://"),
        ("file:///etc/passwd", "https://"),
        (" https://files.example/", "malformed"),
        ("https:", "host name"),
        ("https://", "host name"),
        ("https:///a", "host name"),
        ("https:files.example", "host name"),
        ("https://?x=1", "host name"),
        ("https://:8443/", "host name"),
        ("https://good@files.example/", "user name"),
        ("https://good:word@files.example/", "user name"),
        ("https://files.example:80/", "port 80"),
        ("https://files.example:0/", "port 0"),
        ("https://files.example:22/", "port 22"),
        ("https://files.example:444/", "port 444"),
        ("https://files.example:1023/", "port 1023"),
        ("https://files.example:65536/", "malformed"),
        ("https://files.example:-1/", "malformed"),
        ("https://files.example:443x/", "malformed"),
        ("https://[::1/", "malformed"),
        ("https://[::1].example/", "malformed"),
        ("https://[127.0.0.1]/", "malformed"),
        ("https://[v1.fe]/", "malformed"),
        ("https://::1/", "malformed"),
        ("https://files .example/", "malformed"),
        ("https://files\t.example/", "malformed"),
        ("https://files\r\n.example/", "malformed"),
        ("https://files\x00.example/", "malformed"),
        ("https://１２７.0.0.1/", "malformed"),  # noqa: RUF001 - full-width digits
        ("https://①②⑦.0.0.1/", "malformed"),
        ("https://127。0。0。1/", "malformed"),
        ("https://\udcff.example/", "malformed"),
        ("https://files..example/", "host name"),
        ("https://.files.example/", "host name"),
        ("https://./", "host name"),
        ("https://files.example%2f@x/", "user name"),
        ("https://files.example%2fx/", "host name"),
        ("https://files%00.example/", "malformed"),
        ("https://files,example/", "host name"),
        ("https://*.example/", "host name"),
        (f"https://{'a' * 64}.example/", "host name"),
        (f"https://{'a.' * 127}example/", "host name"),
        ("https://[fe80::1%25eth0]/", "zone"),
        ("https://[fe80::1%eth0]/", "zone"),
    ],
)
def test_a_url_of_another_shape_is_refused_with_what_to_do(url: str, says: str) -> None:
    with pytest.raises(OutboundRefused, match=says):
        read_target(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://files.example", "files.example", 443, "/"),
        ("HTTPS://Files.Example:443?q=1#part", "files.example", 443, "/?q=1"),
        ("https://files.example:/a b/ü", "files.example", 443, "/a%20b/%C3%BC"),
        ("https://files.example:1024//x/../y", "files.example", 1024, "//y"),
        ("https://files.example.:65535/", "files.example.", 65535, "/"),
        ("https://my_bucket.files.example/", "my_bucket.files.example", 443, "/"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "/"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/"),
        ("https://[2606:4700::1111]:8443/", "2606:4700::1111", 8443, "/"),
        ("https://files.example\\@127.0.0.1/", "files.example", 443, "/%5C@127.0.0.1/"),
        ("https://files.example/@127.0.0.1", "files.example", 443, "/@127.0.0.1"),
        ("https://files.example#@127.0.0.1/", "files.example", 443, "/"),
    ],
)
def test_a_fit_url_is_read_into_its_parts(url: str, host: str, port: int, path: str) -> None:
    target = read_target(url)

    assert (target.host, target.port, target.path) == (host, port, path)
    assert "#" not in target.url


def test_the_final_dot_of_a_name_is_no_other_origin() -> None:
    assert read_target("https://files.example./").origin == read_target("https://files.example/").origin


EVERYWHERE_PUBLIC = Outbound(OutboundPolicy(), resolve=lambda _: [PUBLIC])

URL_PIECES = st.sampled_from(
    [
        "https://",
        "HTTPS:",
        "//",
        "/",
        "@",
        ":",
        "[",
        "]",
        "%",
        "%25",
        "\\",
        "?",
        "#",
        "::1",
        "127.1",
        ".",
        "xn--",
        "443",
    ]
)
NEARLY_URLS = st.lists(URL_PIECES | st.text(max_size=4), max_size=8).map("".join)


@given(url=st.text() | NEARLY_URLS | NEARLY_URLS.map("https://{}".format))
@example(url="https://xn--a/")
@example(url="https://" + "a" * 300)
@example(url="https://[::1%25" + "%41" * 9 + "]/")
def test_whatever_the_text_check_refuses_it_or_is_silent(url: str) -> None:
    with suppress(OutboundRefused):
        EVERYWHERE_PUBLIC.check(url)


@given(host=st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=0x3100), min_size=1, max_size=12))
def test_a_host_that_passes_is_one_that_the_resolver_takes(host: str) -> None:
    with suppress(OutboundRefused):
        assert read_target(f"https://{host}/").host.encode("idna")


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        [PUBLIC, "10.0.0.1"],
        ["10.0.0.1", PUBLIC],
        [PUBLIC, "::ffff:10.0.0.1"],
        ["2606:4700::1111", "fe80::1"],
        ["fe80::1%eth0"],
        ["2606:4700::1111%eth0"],
    ],
)
def test_one_bad_answer_refuses_the_name(answers: list[str]) -> None:
    guard = HostGuard(lambda _: answers, ())

    with pytest.raises(OutboundRefused, match=r"files\.example is not on the public internet"):
        guard.judge("files.example", 5.0)


def test_the_refusal_keeps_the_address_to_itself() -> None:
    with pytest.raises(OutboundRefused) as caught:
        HostGuard(lambda _: ["10.1.2.3"], ()).judge("intern.example", 5.0)

    assert "10.1.2.3" not in caught.value.message


def test_all_public_answers_are_kept_in_order_and_once() -> None:
    answers = ["2606:4700::1111", PUBLIC, "2606:4700::1111"]

    judged = HostGuard(lambda _: answers, ()).judge("files.example", 5.0)

    assert judged == [ip_address("2606:4700::1111"), ip_address(PUBLIC)]


def test_allowed_networks_widen_and_zones_stay_out() -> None:
    networks = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"), ip_network("fe80::/10"))
    policy = OutboundPolicy(allowed_networks=networks)

    def check(address: str) -> None:
        Outbound(policy, resolve=lambda _: [PUBLIC, address]).check("https://files.example/")

    check("10.1.2.3")
    check("fd00::1")
    check("fe80::1")
    for refused in ("10.2.0.1", "fc00::1", "fe80::1%eth0", "::ffff:10.1.2.3", "127.0.0.1"):
        with pytest.raises(OutboundRefused):
            check(refused)


@pytest.mark.parametrize(
    "error", [socket.gaierror(socket.EAI_NONAME, "Name or service not known"), UnicodeError("label too long")]
)
def test_a_name_that_does_not_resolve_passes_the_check_and_fails_the_look_up(error: Exception) -> None:
    def resolve(_: str) -> list[str]:
        raise error

    Outbound(OutboundPolicy(), resolve=resolve).check("https://files.example/")
    with pytest.raises(OutboundFailed, match="does not resolve"):
        HostGuard(resolve, ()).judge("files.example", 5.0)


def test_a_name_without_an_address_does_not_resolve() -> None:
    with pytest.raises(OutboundFailed, match="does not resolve"):
        HostGuard(lambda _: [], ()).judge("files.example", 5.0)


def test_the_systems_resolver_reads_numbers_as_addresses() -> None:
    assert system_resolve("0x7f000001") == ["127.0.0.1"]
    assert system_resolve("::1") == ["::1"]


def test_a_look_up_that_hangs_is_given_up() -> None:
    released = Event()

    def resolve(_: str) -> list[str]:
        released.wait(30.0)
        return [PUBLIC]

    try:
        with pytest.raises(OutboundTimeout, match="did not resolve in time"):
            HostGuard(resolve, ()).judge("files.example", 0.2)
    finally:
        released.set()
