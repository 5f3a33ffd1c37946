"""What DNS says of servers: the address that is asked, records, and a nameserver that is one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from locks.errors import InvalidOption, OperatingError
from locks.otp.names.discovery import Sightings
from locks.program.dns_names import Query, Service, of_hosts, of_services, parse_query
from locks.program.dns_servers import DnsServers
from tests.cluster.nameserver import Nameserver, hosts, services

NAME = "locks.test"
SERVICE = "_locks._tcp.locks.test"
MANY = tuple(f"10.0.{n // 250}.{n % 250}" for n in range(1000))


@pytest.fixture
def dns() -> Iterator[Nameserver]:
    """A nameserver that knows nothing yet."""
    with Nameserver() as server:
        yield server


# --- What the address says ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dns://a.b:9100?size=3", ("a.b", "A", 9100, 3, 5.0, None)),
        ("dns://a.b.:9100/?size=1&records=AAAA", ("a.b.", "AAAA", 9100, 1, 5.0, None)),
        ("dns://_x._tcp.a?size=3&interval=0.5", ("_x._tcp.a", "SRV", None, 3, 0.5, None)),
        ("dns://a?size=99&records=SRV", ("a", "SRV", None, 99, 5.0, None)),
        ("dns://a:1?size=3&nameserver=10.0.0.2", ("a", "A", 1, 3, 5.0, ("10.0.0.2", 53))),
        ("dns://a:1?size=3&nameserver=[::1]:5353", ("a", "A", 1, 3, 5.0, ("::1", 5353))),
    ],
)
def test_what_an_address_says(text: str, expected: tuple[Any, ...]) -> None:
    """Name, records, port, how many, how often, whom to ask."""
    assert parse_query(text) == Query(text, *expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://a:1?size=3", "does not begin with dns://"),
        ("dns://?size=3", "'' is not a DNS name"),
        ("dns://a b:1?size=3", "'a b' is not a DNS name"),
        (f"dns://{'a' * 254}:1?size=3", "is not a DNS name"),
        ("dns://a?size=3", "A records have no port"),
        ("dns://a:0?size=3", "A records have no port"),
        ("dns://a:70000?size=3", "ort out of range"),
        ("dns://_a:1?size=3", "leave :1 out"),
        ("dns://a:1", "the number of servers is missing"),
        ("dns://a:1?size=0", "size=0 is not a number"),
        ("dns://a:1?size=100", "size=100 is not a number"),
        ("dns://a:1?size=-3", "size=-3 is not a number"),
        ("dns://a:1?size=3&size=5", "option size is given twice"),
        ("dns://a:1?size=3&sise=5", "unknown option 'sise'"),
        ("dns://a:1?size", "bad query field"),
        ("dns://a:1?size=3&records=TXT", "records=TXT is not one of A, AAAA, SRV"),
        ("dns://a:1?size=3&interval=often", "interval=often is not a number of seconds"),
        ("dns://a:1?size=3&interval=nan", "interval=nan is not a number of seconds"),
        ("dns://a:1?size=3&nameserver=ns.a", "nameserver='ns.a' is not an address"),
        ("dns://a:1?size=3&nameserver=10.0.0.2:x", "is not an address"),
        ("dns://u@a:1?size=3", "more parts"),
        ("dns://a:1/b?size=3", "more parts"),
        ("dns://a:1?size=3#b", "more parts"),
    ],
)
def test_what_is_wrong_with_an_address(text: str, says: str) -> None:
    """The error names it."""
    with pytest.raises(InvalidOption, match="servers=") as raised:
        parse_query(text)
    assert says in str(raised.value)


# --- What records say ---------------------------------------------------------------------------

A = parse_query(f"dns://{NAME}:9100?size=3")
SRV = parse_query(f"dns://{SERVICE}?size=3")


def test_a_host_is_a_server() -> None:
    """By its address, at the port that was given; also one of IPv6; the same one twice is one."""
    assert of_hosts(A, ["10.0.0.1", "fd00::1", "10.0.0.1"]) == {
        "locks@10.0.0.1": ("10.0.0.1", 9100),
        "locks@fd00::1": ("fd00::1", 9100),
    }


def test_a_target_is_a_server() -> None:
    """By its name, in small letters, at its own port; one that has no address now is one, too."""
    known = {"l-0.test": ["10.0.0.2", "10.0.0.1"]}
    found = of_services(
        SRV,
        [Service("L-0.test.", 1), Service("l-1.test.", 2), Service(".", 0)],
        lambda host: known.get(host, []),
    )
    assert found == {"locks@l-0.test": ("10.0.0.1", 1), "locks@l-1.test": ("l-1.test", 2)}


def test_a_set_is_never_larger_than_it_is_to_be() -> None:
    """More are an error that names some of them."""
    with pytest.raises(OperatingError, match=r"has 1000 servers instead of 3: .*\.\.\."):
        of_hosts(A, MANY)
    with pytest.raises(OperatingError, match="has 4 servers instead of 3"):
        of_services(SRV, [Service(f"l-{n}.test.", 1) for n in range(4)], lambda host: [])


def test_a_server_has_a_host_of_its_own() -> None:
    """Two at one host would have one name."""
    with pytest.raises(OperatingError, match="ports 1 and 2"):
        of_services(SRV, [Service("a.", 1), Service("a.", 2)], lambda host: [])


@pytest.mark.parametrize("host", ["a b", "a@b", "x" * 250, "a\nb"])
def test_a_host_that_can_not_be(host: str) -> None:
    """What a record says becomes a node's name only if it can be one."""
    with pytest.raises(OperatingError, match="has an invalid host"):
        of_services(SRV, [Service(host, 1)], lambda host: [])


# --- A nameserver -------------------------------------------------------------------------------


def test_records_change(dns: Nameserver) -> None:
    """An answer is kept for a second, whatever its TTL, but not longer than the interval; then it is asked again."""
    source = DnsServers(dns.url(f"{NAME}:9100", size=3, interval=0.05))
    assert source.size == 3
    assert source.find() == {}  # NXDOMAIN
    for some in ("10.0.0.1",), ("10.0.0.1", "10.0.0.2"), ("10.0.0.7", "10.0.0.8", "10.0.0.9"):
        dns.zone = hosts(NAME, *some, ttl=3600)
        time.sleep(0.06)
        assert source.find() == {f"locks@{each}": (each, 9100) for each in some}


def test_an_answer_is_kept(dns: Nameserver) -> None:
    """Who asks often does not ask the nameserver each time."""
    dns.zone = hosts(NAME, "10.0.0.1", ttl=60)
    source = DnsServers(dns.url(f"{NAME}:9100", size=3, interval=600))
    first = source.find()
    assert source.find() == first
    assert dns.asked == {"udp": 1}


def test_services(dns: Nameserver) -> None:
    """Targets are resolved, one without an address is named all the same."""
    some = [(f"l-{n}.locks.test", 9100 + n) for n in range(3)]
    dns.zone = "\n".join(
        [
            services(SERVICE, *some),
            hosts("l-0.locks.test", "127.0.0.2"),
            hosts("l-1.locks.test", "::1"),
        ]
    )
    assert DnsServers(dns.url(SERVICE, size=3)).find() == {
        "locks@l-0.locks.test": ("127.0.0.2", 9100),
        "locks@l-1.locks.test": ("::1", 9101),
        "locks@l-2.locks.test": ("l-2.locks.test", 9102),
    }


def test_no_records_of_that_kind(dns: Nameserver) -> None:
    """A name that has others names no servers."""
    dns.zone = f'{NAME}. 0 IN TXT "hello"\n{hosts(NAME, "::1")}'
    assert DnsServers(dns.url(f"{NAME}:1", size=3)).find() == {}
    assert DnsServers(dns.url(f"{NAME}:1", size=3, records="AAAA")).find() == {
        "locks@::1": ("::1", 1)
    }


def test_a_large_answer_comes_over_tcp(dns: Nameserver) -> None:
    """What is cut over UDP is asked for again; a thousand records are too many, and said to be."""
    source = DnsServers(dns.url(f"{NAME}:9100", size=99))
    dns.zone = hosts(NAME, *MANY[:99])
    assert len(source.find()) == 99
    assert dns.asked == {"udp": 1, "tcp": 1}
    dns.zone = hosts(NAME, *MANY)
    with pytest.raises(OperatingError, match="has 1000 servers instead of 99"):
        DnsServers(dns.url(f"{NAME}:9100", size=99)).find()


def test_a_nameserver_that_fails(dns: Nameserver) -> None:
    """Its error is told; it is another thing than to name no servers."""
    dns.failure = "SERVFAIL"
    with pytest.raises(OperatingError, match=r"the look-up of dns://.* failed: .*SERVFAIL"):
        DnsServers(dns.url(f"{NAME}:9100", size=3)).find()


def test_a_nameserver_that_is_silent(dns: Nameserver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever."""
    monkeypatch.setattr("locks.program.dns_servers.LIFETIME", 0.2)
    dns.silent = True
    with pytest.raises(OperatingError, match=r"the look-up of dns://.* failed: .*expired"):
        DnsServers(dns.url(f"{NAME}:9100", size=3)).find()


# --- Servers that become others -----------------------------------------------------------------


OWN, OTHERS, THIRD = {"a", "b", "c"}, {"b", "c", "d"}, {"d", "e", "f"}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([OTHERS] * 2, None),
        ([OTHERS] * 3, OTHERS),
        ([OTHERS, OTHERS, OWN, OTHERS, OTHERS], None),
        ([OTHERS, OTHERS, OWN, OTHERS, OTHERS, OTHERS], OTHERS),
        ([OTHERS] * 3 + [OWN], None),
        ([OTHERS, THIRD, THIRD], THIRD),
        ([OTHERS, {"b"}, set(), OTHERS, {"b", "c"}, OTHERS], OTHERS),
        ([{"b", "c"}] * 9, None),
        ([set()] * 9, None),
        ([OTHERS | OWN] * 9, None),
    ],
)
def test_which_servers_a_node_has(named: list[set[str]], expected: set[str] | None) -> None:
    """Others, when they are as many as there are to be and were named three times since the own ones."""
    sightings = Sightings(OWN)
    for each in named:
        sightings.take_names(each)
    assert sightings.others == expected
