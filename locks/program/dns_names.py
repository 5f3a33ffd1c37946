"""Servers that are found by DNS: parses `dns://` addresses and records. Pure.

    dns://locks.default.svc.cluster.local:9100?size=3
    dns://_locks._tcp.locks.default.svc.cluster.local?size=3

The first address asks for A records: each is a server, `locks@<address>`, at the given port. The name of the second one begins
with an underscore, so it asks for SRV records: each target is a server, `locks@<target>`, at the record's port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable
from typing import Literal, NamedTuple, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.model import check_node_name
from locks.otp.options import MOST_SERVERS

__all__ = ["SCHEME", "Kind", "Query", "Service", "of_hosts", "of_services", "parse_query"]

Kind = Literal["A", "AAAA", "SRV"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SCHEME = "dns://"
EXAMPLE = '"dns://locks.default.svc.cluster.local:9100?size=3"'
ALIVE = "locks"  # what is before the @ in a server's name
LONGEST = 253  # characters of a name in DNS
INTERVAL = 5.0  # seconds
DNS_PORT = 53
MOST_SHOWN = 10  # names in a message


class Query(NamedTuple):
    """The contents of a `dns://` address.

    Attributes:
        text: The address itself.
        domain: The name to look up.
        kind: The kind of its records.
        port: The port of the servers; `None` if the records have it.
        size: The number of servers.
        interval: Seconds after which the name is looked up again.
        nameserver: The nameserver; `None` for those of the system.
    """

    text: str
    domain: str
    kind: Kind
    port: int | None
    size: int
    interval: float
    nameserver: tuple[str, int] | None


class Service(NamedTuple):
    """An SRV record.

    Attributes:
        target: The host.
        port: Its port.
    """

    target: str
    port: int


def parse_query(text: str) -> Query:
    """Parse a `dns://` address.

    Raises:
        InvalidOption: The address is wrong.
    """

    def wrong(what: str) -> InvalidOption:
        return InvalidOption(f"servers={shown(text)}: {what}; write {EXAMPLE}", servers=shown(text))

    parts = _split(text, wrong)
    options = _options_of(parts, wrong)
    domain = parts.hostname or ""
    if not 0 < len(domain) <= LONGEST or not _is_plain(domain):
        raise wrong(f"{shown(domain)} is not a DNS name")
    kind: Kind = "SRV" if domain.startswith("_") else "A"
    kind = _kind_of(options.pop("records", kind), wrong)
    if kind == "SRV" and parts.port is not None:
        raise wrong(f"SRV records contain the port; leave :{parts.port} out")
    if kind != "SRV" and not parts.port:
        raise wrong(f"{kind} records have no port; add the port of the servers")
    size = options.pop("size", "")
    if not (size.isdecimal() and size.isascii() and 0 < int(size[:5]) <= MOST_SERVERS):
        raise wrong(
            f"size={size} is not a number of servers, 1 to {MOST_SERVERS}"
            if size
            else "the number of servers is missing, as in size=3: a majority is counted from it, "
            "not from the answers of DNS"
        )
    return Query(
        text,
        domain,
        kind,
        parts.port,
        int(size),
        _interval_of(options.pop("interval", ""), wrong),
        _nameserver_of(options.pop("nameserver", ""), wrong),
    )


_Wrong = Callable[[str], InvalidOption]


def _split(text: str, wrong: _Wrong) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise wrong(str(error)) from error
    if parts.scheme != "dns":
        raise wrong(f"the address does not begin with {SCHEME}")
    if parts.path not in ("", "/") or parts.fragment or "@" in parts.netloc:
        raise wrong("the address has more parts than a name, a port and options")
    return parts


def _options_of(parts: SplitResult, wrong: _Wrong) -> dict[str, str]:
    known = ("size", "records", "nameserver", "interval")
    found: dict[str, str] = {}
    try:
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise wrong(str(error)) from error
    for name, value in pairs:
        if name not in known:
            raise wrong(f"unknown option {shown(name)}; the options are {', '.join(known)}")
        if name in found:
            raise wrong(f"option {name} is given twice")
        found[name] = value
    return found


def _kind_of(text: str, wrong: _Wrong) -> Kind:
    for kind in KINDS:
        if text == kind:
            return kind
    raise wrong(f"records={text} is not one of {', '.join(KINDS)}")


def _interval_of(text: str, wrong: _Wrong) -> float:
    try:
        interval = float(text or INTERVAL)
    except ValueError:
        interval = 0
    if not 0.01 <= interval <= 3600:
        raise wrong(f"interval={text} is not a number of seconds, 0.01 to 3600")
    return interval


def _nameserver_of(text: str, wrong: _Wrong) -> tuple[str, int] | None:
    if not text:
        return None
    try:
        parts = urlsplit(f"//{text}")
        return str(ipaddress.ip_address(parts.hostname or "")), parts.port or DNS_PORT
    except ValueError:
        raise wrong(
            f"nameserver={shown(text)} is not an address, such as 10.0.0.2 or 127.0.0.1:5353"
        ) from None


def _is_plain(domain: str) -> bool:
    return all(character.isalnum() or character in "-_." for character in domain)


def of_hosts(query: Query, hosts: Iterable[str]) -> dict[str, tuple[str, int]]:
    """The servers in A or AAAA records, with their addresses.

    Raises:
        OperatingError: There are more servers than the size.
    """
    assert query.port is not None
    return _checked(query, {host: (host, query.port) for host in hosts})


def of_services(
    query: Query, services: Iterable[Service], resolve: Callable[[str], Iterable[str]]
) -> dict[str, tuple[str, int]]:
    """The servers in SRV records, with their addresses.

    Args:
        query: The query.
        services: The records.
        resolve: Returns the addresses of a target. If there are none at present, the server is
            listed with its name.

    Raises:
        OperatingError: There are more servers than the size, two of them are on one host, or a target is not a valid host.
    """
    found: dict[str, tuple[str, int]] = {}
    for target, port in services:
        host = target.rstrip(".").lower()
        if not host:
            continue  # "decidedly not available" (RFC 2782)
        _, other = found.setdefault(host, (host, port))
        if port != other:
            raise OperatingError(
                f"{query.domain} has two servers on {shown(host)}, with ports {other} and {port}, which both "
                f"would have the name {ALIVE}@{host}; give each server its own host name",
                domain=query.domain,
            )
    servers = _checked(query, found)
    return {
        name: (min(resolve(host), default=host), port) for name, (host, port) in servers.items()
    }


def _checked(query: Query, found: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """The servers by name, after a check of their number and hosts."""
    if len(found) > query.size:
        raise OperatingError(
            f"{query.domain} has {len(found)} servers instead of {query.size}: "
            f"{_some(found)}. It is looked up again; if the number is right, use size={len(found)} everywhere",
            domain=query.domain,
        )
    try:
        return {check_node_name(f"{ALIVE}@{host}"): at for host, at in found.items()}
    except InvalidOption as error:
        raise OperatingError(f"{query.domain} has an invalid host: {error}") from error


def _some(names: Collection[str]) -> str:
    some = sorted(names)[:MOST_SHOWN]
    return ", ".join(map(shown, some)) + (", ..." if len(names) > len(some) else "")
