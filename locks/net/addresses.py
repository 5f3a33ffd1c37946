"""Where nodes are: addresses, their texts, and what knows the addresses of servers that may move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from locks.errors import InvalidOption
from locks.lock_ids import shown

__all__ = [
    "Address",
    "HostAndPort",
    "Locator",
    "UnixAddress",
    "is_loopback",
    "parse_address",
    "place",
]

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


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback address, which no other machine can reach."""
    if host == "localhost":
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str, what: str) -> HostAndPort:
    """The host and the port of `HOST:PORT`.

    Args:
        text: The text.
        what: What it is for, for the error.

    Raises:
        InvalidOption: It is not of this form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidOption(
            f"{what} {shown(text)} is not HOST:PORT, such as 127.0.0.1:9464", value=shown(text)
        )
    return host, int(port)


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
