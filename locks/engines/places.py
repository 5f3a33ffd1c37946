"""Lock servers that an engine places: where they are, and an address for one that is about to start."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence

from locks.otp.names.discovery import Address, HostAndPort

__all__ = ["Asked", "Told", "names_of", "take_port"]

INTERVAL = 1.0  # seconds until a lock server looks again who the others are


def names_of(size: int, engine: str) -> tuple[str, ...]:
    """The names of an engine's lock servers. They stay, wherever the servers are."""
    return tuple(f"locks-{number}@{engine}" for number in range(1, size + 1))


def take_port(host: str, port: int = 0) -> HostAndPort:
    """An address of this machine at which nobody listens.

    Args:
        host: The machine's own address.
        port: The port; 0: a free one.

    Raises:
        OSError: It can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as taken:
        return host, taken.getsockname()[1]


class Told:
    """The lock servers, as a lock server is told. A `locks.Discovery` that is asked all the time.

    So it grants nothing until the others have said that they are of the same servers: two that have one name, since the
    engine has taken the first one for dead, never both serve others.

    Args:
        size: How many there are to be.
    """

    interval = INTERVAL

    def __init__(self, size: int) -> None:
        self.size = size
        self._found: Mapping[str, Address] = {}

    def tell(self, found: Mapping[str, Address]) -> None:
        """This is where they are now."""
        self._found = dict(found)

    def find(self) -> Mapping[str, Address]:
        """What was told."""
        return self._found

    def describe(self) -> str:
        """What it is, in a few words."""
        return "what the engine says"


class Asked:
    """The lock servers, as a program of the engine asks for them. A `locks.Discovery`.

    Args:
        engine: What it is, in a few words.
        names: The servers.
        ask: Asks the engine where they are, as far as it knows; blocks. Raises `OSError` if that can't be found out.
        found: Where they are now, as far as that is known.
    """

    def __init__(
        self,
        engine: str,
        names: Sequence[str],
        ask: Callable[[], Mapping[str, HostAndPort]],
        found: Mapping[str, HostAndPort],
    ) -> None:
        self._engine = engine
        self._names = tuple(names)
        self._ask = ask
        self._found = dict(found)
        self._process = os.getpid()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, tuple[str, ...]]:
        return self._engine, self._names

    @property
    def size(self) -> int:
        """How many there are to be."""
        return len(self._names)

    def find(self) -> Mapping[str, HostAndPort]:
        """Where they are now; in a forked child, which has no connection to the engine, where they were."""
        if os.getpid() == self._process:
            self._found |= self._ask()
        return self._found

    def describe(self) -> str:
        """What it is, in a few words."""
        return self._engine
