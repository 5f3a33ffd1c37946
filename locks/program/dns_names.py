"""Where servers are found by DNS: what the address says, and what records say of servers. Pure.

    dns://locks.default.svc.cluster.local:9100?size=3
    dns://_locks._tcp.locks.default.svc.cluster.local?size=3

The first one asks for A records: each address is a server, `locks@<address>`, at the port. The second one asks for SRV
records, as the name begins with an underscore: each target is a server, `locks@<target>`, at the record's port.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable
from typing import Literal, NamedTuple, get_args
from urllib.parse import SplitResult, parse_qsl, urlsplit

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.otp.options import MOST_SERVERS, check_node_name

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
    """What `dns://` addresses say.

    Attributes:
        text: The address itself.
        domain: The name that is asked for.
        kind: Which records.
        port: Where the servers listen; `None` if the records say it.
        size: How many servers there are to be.
        interval: How many seconds an answer is used for at most.
        nameserver: Whom to ask; `None` for those of the system.
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
        port: Where it listens.
    """

    target: str
    port: int


def parse_query(text: str) -> Query:
    """Take a `dns://` address apart.

    Raises:
        InvalidOption: Something in it is wrong.
    """

    def wrong(what: str) -> InvalidOption:
        return InvalidOption(f"servers={shown(text)}: {what}; write {EXAMPLE}", servers=shown(text))

    parts = _split(text, wrong)
    options = _options_of(parts, wrong)
    domain = parts.hostname or ""
    if not 0 < len(domain) <= LONGEST or not _is_plain(domain):
        raise wrong(f"{shown(domain)} is not a name to look up in DNS")
    kind: Kind = "SRV" if domain.startswith("_") else "A"
    kind = _kind_of(options.pop("records", kind), wrong)
    if kind == "SRV" and parts.port is not None:
        raise wrong(f"SRV records have a port of their own; leave :{parts.port} out")
    if kind != "SRV" and not parts.port:
        raise wrong(f"{kind} records have no port; say at which one the servers listen")
    size = options.pop("size", "")
    if not (size.isdecimal() and size.isascii() and 0 < int(size[:5]) <= MOST_SERVERS):
        raise wrong(
            f"size={size} is not the number of servers that there are to be, 1 to {MOST_SERVERS}"
            if size
            else "it does not say how many servers there are to be, size=3 for example: a majority is one of these, "
            "whatever DNS says"
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
        raise wrong(f"it does not begin with {SCHEME}")
    if parts.path not in ("", "/") or parts.fragment or "@" in parts.netloc:
        raise wrong("there is more in it than a name, a port and options")
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
            raise wrong(f"{shown(name)} is not an option; there are {', '.join(known)}")
        if name in found:
            raise wrong(f"it says {name} twice")
        found[name] = value
    return found


def _kind_of(text: str, wrong: _Wrong) -> Kind:
    for kind in KINDS:
        if text == kind:
            return kind
    raise wrong(f"records={text} is none of {', '.join(KINDS)}")


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
            f"nameserver={shown(text)} is not the address of one, 10.0.0.2 or 127.0.0.1:5353 for example"
        ) from None


def _is_plain(domain: str) -> bool:
    return all(character.isalnum() or character in "-_." for character in domain)


def of_hosts(query: Query, hosts: Iterable[str]) -> dict[str, tuple[str, int]]:
    """The servers that A or AAAA records name, and where they are.

    Raises:
        OperatingError: They are more than there are to be.
    """
    assert query.port is not None
    return _checked(query, {host: (host, query.port) for host in hosts})


def of_services(
    query: Query, services: Iterable[Service], resolve: Callable[[str], Iterable[str]]
) -> dict[str, tuple[str, int]]:
    """The servers that SRV records name, and where they are.

    Args:
        query: What was asked.
        services: The records.
        resolve: The addresses of a target; none if there is none now. Then its name stands for it: it is a server
            all the same.

    Raises:
        OperatingError: They are more than there are to be, or there are two at one host, or a target can't be a host.
    """
    found: dict[str, tuple[str, int]] = {}
    for target, port in services:
        host = target.rstrip(".").lower()
        if not host:
            continue  # "decidedly not available" (RFC 2782)
        _, other = found.setdefault(host, (host, port))
        if port != other:
            raise OperatingError(
                f"{query.domain} names two servers at {shown(host)}, ports {other} and {port}, and both "
                f"would be {ALIVE}@{host}: give each server a host name of its own",
                domain=query.domain,
            )
    servers = _checked(query, found)
    return {
        name: (min(resolve(host), default=host), port) for name, (host, port) in servers.items()
    }


def _checked(query: Query, found: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """What is at each host, under the servers' names."""
    if len(found) > query.size:
        raise OperatingError(
            f"{query.domain} names {len(found)} servers, and there are to be {query.size}: "
            f"{_some(found)}. It is asked again; say size={len(found)} everywhere if that is how many there are",
            domain=query.domain,
        )
    try:
        return {check_node_name(f"{ALIVE}@{host}"): at for host, at in found.items()}
    except InvalidOption as error:
        raise OperatingError(f"{query.domain} names a host that can't be: {error}") from error


def _some(names: Collection[str]) -> str:
    some = sorted(names)[:MOST_SHOWN]
    return ", ".join(map(shown, some)) + (", ..." if len(names) > len(some) else "")
