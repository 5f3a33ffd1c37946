"""Addresses of nodes, and what knows the addresses of servers that may move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Address", "HostAndPort", "Locator", "UnixAddress", "place"]

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
class Locator(Protocol):
    """Knows where servers with fixed names listen at present: those of this machine, or of an engine.

    It is asked when the program's node starts, until it knows the addresses of all servers, and again before a server
    that is not connected is dialled, at most once a second.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers."""

    def find(self) -> Mapping[str, Address]:
        """The present addresses of the servers, as far as they are known; blocks, in a native thread of its own.

        Raises:
            OSError: They can't be found now.
            OperatingError: Likewise.
        """

    def describe(self) -> str:
        """A short description for messages."""
