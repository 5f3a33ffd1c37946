"""Servers that are found by DNS: asks a nameserver, and keeps what it says for as long as it may.

It needs dnspython (`pip install 'pykka-locks[dns]'`): the system's own resolver knows no SRV records, and says neither how long an
answer may be kept nor whether there is no such name or nobody to ask.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dns.exception import DNSException
from dns.resolver import NXDOMAIN, NoAnswer, Resolver

from locks.errors import OperatingError
from locks.program.dns_names import Query, Service, of_hosts, of_services, parse_query

__all__ = ["DnsServers"]

LIFETIME = 5.0  # seconds that all nameservers together have for one question
SHORTEST = 1.0  # seconds that an answer is kept, whatever its TTL


class DnsServers:
    """Servers that DNS names; a `locks.Discovery`.

    Args:
        text: `dns://name:port?size=3`, see `locks.program.dns_names`.

    Attributes:
        query: What it says.
        size: How many servers there are to be.
        interval: How many seconds it is until it is asked again.

    Raises:
        InvalidOption: Something in it is wrong.
    """

    def __init__(self, text: str) -> None:
        self.query: Query = parse_query(text)
        self.size = self.query.size
        self.interval = self.query.interval
        self._kept: Mapping[str, tuple[str, int]] = {}
        self._until = 0.0  # by time.monotonic()

    def describe(self) -> str:
        """The address that is asked."""
        return self.query.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DnsServers) and self.query == other.query

    def __hash__(self) -> int:
        return hash(self.query)

    def find(self) -> Mapping[str, tuple[str, int]]:
        """The servers that DNS names now, and where they are. Blocks.

        Raises:
            OperatingError: No nameserver answers, or what it says can't be.
        """
        if time.monotonic() < self._until:
            return self._kept
        try:
            asked = _Asked(self.query)
            self._kept = asked.servers()
        except DNSException as error:
            text = " ".join(str(error).split())
            raise OperatingError(
                f"{self.query.text} has no answer: {text}", domain=self.query.domain
            ) from error
        self._until = time.monotonic() + min(max(asked.ttl, SHORTEST), self.query.interval)
        return self._kept


class _Asked:
    """One round of questions.

    Attributes:
        ttl: How many seconds all the answers may be kept.
    """

    def __init__(self, query: Query) -> None:
        self.ttl = query.interval
        self._query = query
        self._resolver = Resolver(configure=query.nameserver is None)
        if query.nameserver is not None:
            self._resolver.nameservers = [query.nameserver[0]]
            self._resolver.port = query.nameserver[1]

    def servers(self) -> dict[str, tuple[str, int]]:
        query = self._query
        records = self._ask(query.domain, query.kind)
        if query.kind != "SRV":
            return of_hosts(query, [record.address for record in records])
        services = [Service(record.target.to_text(), record.port) for record in records]
        return of_services(query, services, self._addresses)

    def _addresses(self, host: str) -> list[str]:
        records = self._ask(f"{host}.", "A") or self._ask(f"{host}.", "AAAA")
        return [record.address for record in records]

    def _ask(self, name: str, kind: str) -> list[Any]:
        """The records of a name; none if it has none, or is none."""
        try:
            answer = self._resolver.resolve(name, kind, lifetime=LIFETIME, search=True)
        except (NXDOMAIN, NoAnswer):
            self.ttl = 0.0
            return []
        assert answer.rrset is not None
        self.ttl = min(self.ttl, answer.rrset.ttl)
        return list(answer.rrset)
