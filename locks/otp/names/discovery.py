"""Where nodes are, and who says it if that is not known beforehand."""

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

SIGHTINGS = 3  # times that other servers are named, until they are taken for what is true

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
    """Host and port in words, or the path of a socket; just what stands in the place of the host, if there is no port."""
    if isinstance(address, UnixAddress):
        return address.path
    host, port = address
    return f"{host}:{port}" if port else host


@runtime_checkable
class Discovery(Protocol):
    """Says which servers there are, and where: `locks.start(servers=...)` takes one in the place of a list.

    It is asked when the program's node starts, until it names as many servers as there are to be, and
    again before a server that is not connected is dialled, at most once a second.
    """

    @property
    def size(self) -> int:
        """How many servers there are to be, by configuration: that is what `require` counts."""

    def find(self) -> Mapping[str, Address]:
        """Find out which servers there are, and where they are now.

        It runs in a native thread of its own, and may block. If it takes too long, it may be asked again before it
        has answered.

        Returns:
            Names of servers, `name@host`, and where each listens: host and port. There may be fewer than `size`,
            never more.

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
    """What a discovery has named since it named the servers that a node has.

    As many other servers as there are to be, named several times, are taken for what is true. Fewer say nothing: nobody
    may use them. Nor does an answer that does not come.

    Args:
        own: The node's servers.

    Attributes:
        others: Which ones it has now; `None` as long as it is to keep its own.
    """

    def __init__(self, own: Collection[str]) -> None:
        self._own = frozenset(own)
        self._times = 0
        self.others: frozenset[str] | None = None

    def take(self, found: Collection[str]) -> None:
        """The discovery has answered."""
        named = frozenset(found)
        if named == self._own:
            self._times, self.others = 0, None
        elif len(named) == len(self._own):
            self._times += 1
            if self._times >= SIGHTINGS:
                self.others = named
