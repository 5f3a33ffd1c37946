"""Addresses of nodes, and discoveries that find them if they are not known beforehand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = [
    "Address",
    "ChangingDiscovery",
    "Discovery",
    "HostAndPort",
    "Sightings",
    "UnixAddress",
    "place",
]

SIGHTINGS = 3  # answers with the same other servers, until these are believed

HostAndPort = tuple[str, int]


class UnixAddress(NamedTuple):
    """A socket of the Unix domain: only programs of one machine, and of one user, meet there.

    Attributes:
        path: The path of the socket.
    """

    path: str

    def __str__(self) -> str:
        return self.path


Address = HostAndPort | UnixAddress


def place(address: Address) -> str:
    """The text of an address: host and port, the host without a port, or the path of a socket."""
    if isinstance(address, UnixAddress):
        return address.path
    host, port = address
    return f"{host}:{port}" if port else host


@runtime_checkable
class Discovery(Protocol):
    """Says which servers there are, and where: `locks.start(servers=...)` takes one in the place of a list.

    It is asked when the program's node starts, until it names as many servers as there are to be,
    and again before a server that is not connected is dialled, at most once a second.
    """

    @property
    def size(self) -> int:
        """How many servers there are to be, by configuration: that is what `require` counts."""

    def find(self) -> Mapping[str, Address]:
        """Find out which servers there are, and where they are now.

        It runs in a native thread of its own, and may block. If it takes too long, it may be asked
        again before it has answered.

        Returns:
            Names of servers, `name@host`, and where each listens: host and port. There may be fewer
            than `size`, never more.

        Raises:
            OSError: It can't be found out just now; that is logged, and it is asked again later.
            OperatingError: Likewise.
        """

    def describe(self) -> str:
        """What it is, in a few words: for messages, and for `python -m locks config`."""


@runtime_checkable
class ChangingDiscovery(Discovery, Protocol):
    """A `Discovery` that may name other servers one day, not only other addresses: it is asked all the time."""

    @property
    def interval(self) -> float:
        """How many seconds it is until it is asked again."""


class Sightings:
    """The answers of a discovery since it last named the servers that a node has.

    Other servers are believed if the discovery names as many as configured, several times. Fewer
    servers are ignored, because no program may use them. A missing answer is ignored as well.

    Args:
        own: The node's servers.

    Attributes:
        others: The servers that are believed now; `None` as long as the node keeps its own.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._own = frozenset(own)
        self._times = 0
        self.others: frozenset[str] | None = None

    def take_names(self, found: Collection[str]) -> None:
        """Take in an answer of the discovery."""
        named = frozenset(found)
        if named == self._own:
            self._times, self.others = 0, None
        elif len(named) == len(self._own):
            self._times += 1
            if self._times >= SIGHTINGS:
                self.others = named
