"""Lock servers that an engine places: their addresses, and an address for a server that is about to start."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence

from locks.net.addresses import HostAndPort

__all__ = ["Asked", "names_of", "take_port"]


def names_of(size: int, engine: str) -> tuple[str, ...]:
    """The names of an engine's lock servers. They do not depend on where the servers run."""
    return tuple(f"locks-{number}@{engine}" for number in range(1, size + 1))


def take_port(host: str, port: int = 0) -> HostAndPort:
    """A free address of this machine.

    Args:
        host: The machine's own address.
        port: The port; 0: a free one.

    Raises:
        OSError: The port is not free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as taken:
        return host, taken.getsockname()[1]


class Asked:
    """The lock servers, as a program of the engine finds them. A `Locator`.

    Args:
        engine: A short description of the engine.
        names: The names of the servers.
        ask: Asks the engine for their addresses, as far as it knows them; blocks. Raises `OSError` if that fails.
        found: Their current addresses, as far as they are known.
    """

    def __init__(
        self,
        engine: str,
        names: Sequence[str],
        ask: Callable[[], Mapping[str, HostAndPort]],
        found: Mapping[str, HostAndPort],
    ) -> None:
        self._engine = engine
        self.names = tuple(names)
        self._ask = ask
        self._found = dict(found)
        self._process = os.getpid()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, tuple[str, ...]]:
        return self._engine, self.names

    def find(self) -> Mapping[str, HostAndPort]:
        """Their current addresses; in a forked child, which has no connection to the engine, their last ones."""
        if os.getpid() == self._process:
            self._found |= self._ask()
        return self._found

    def describe(self) -> str:
        """A short description for messages."""
        return self._engine
