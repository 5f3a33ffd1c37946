"""Servers that are found by DNS: asks a nameserver, and keeps the answers for as long as is allowed.

It needs dnspython (`pip install 'pykka-locks[dns]'`). The system's own resolver has no SRV records, and reports neither how long an
answer is valid nor whether a name does not exist or no nameserver answered.
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

LIFETIME = 5.0  # seconds for one question to all nameservers together
SHORTEST = 1.0  # seconds that an answer is kept at least


class DnsServers:
    """Servers that are found by DNS; a `locks.node.Discovery`.

    Args:
        text: `dns://name:port?size=3`, see `locks.program.dns_names`.

    Attributes:
        query: Its contents.
        size: The number of servers.
        interval: Seconds until the next look-up.

    Raises:
        InvalidOption: The address is wrong.
    """

    def __init__(self, text: str) -> None:
        self.query: Query = parse_query(text)
        self.size = self.query.size
        self.interval = self.query.interval
        self._kept: Mapping[str, tuple[str, int]] = {}
        self._until = 0.0  # by time.monotonic()

    def describe(self) -> str:
        """The address."""
        return self.query.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DnsServers) and self.query == other.query

    def __hash__(self) -> int:
        return hash(self.query)

    def find(self) -> Mapping[str, tuple[str, int]]:
        """Look up the servers and their addresses. Blocks.

        Raises:
            OperatingError: No nameserver answers, or the answer is invalid.
        """
        if time.monotonic() < self._until:
            return self._kept
        try:
            asked = _Asked(self.query)
            self._kept = asked.servers()
        except DNSException as error:
            text = " ".join(str(error).split())
            raise OperatingError(
                f"the look-up of {self.query.text} failed: {text}", domain=self.query.domain
            ) from error
        self._until = time.monotonic() + min(max(asked.ttl, SHORTEST), self.query.interval)
        return self._kept


class _Asked:
    """One round of questions.

    Attributes:
        ttl: Seconds for which all answers are valid.
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
        """The records of a name; empty if it has none, or does not exist."""
        try:
            answer = self._resolver.resolve(name, kind, lifetime=LIFETIME, search=True)
        except (NXDOMAIN, NoAnswer):
            self.ttl = 0.0
            return []
        assert answer.rrset is not None
        self.ttl = min(self.ttl, answer.rrset.ttl)
        return list(answer.rrset)
