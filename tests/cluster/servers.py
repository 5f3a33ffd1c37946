"""Lock servers that programs share, and such programs: they know them from their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from tests.cluster.harness import Server, World
from tests.helpers import free_port
from tests.warm import Program

__all__ = ["LIMIT", "NAMES", "Servers"]

NAMES = ("a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1")
LIMIT = 60  # seconds that a program has


class Servers:
    """Lock servers, three by default, and programs that know them from their environment.

    Args:
        world: What ends them.
        names: Their names.
        net_ticktime: Theirs. A program on a busy machine may need more than the second for a sign of life that follows from two.
        arguments: More arguments of each.
        copies: How many of them have each id; all, if it is `None`.

    Attributes:
        addresses: As `name@host:port`.
    """

    settings: Mapping[str, str] = {}
    """More of the environment of each server."""

    def __init__(
        self,
        world: World,
        names: Sequence[str] = NAMES,
        net_ticktime: float = 2,
        arguments: Sequence[str] = (),
        copies: int | None = None,
    ) -> None:
        self.world = world
        self.copies = copies
        ports = [free_port() for _ in names]
        self.addresses = [f"{name}:{port}" for name, port in zip(names, ports, strict=True)]
        self._net_ticktime = net_ticktime
        self._arguments = arguments
        self.processes = [self._start(address) for address in self.addresses]
        for server in self.processes:
            assert server.address

    def _start(self, address: str) -> Server:
        name, _, port = address.rpartition(":")
        given = [*self.named(), *self._arguments, *self.options(name)]
        return self.world.server(
            name,
            port=int(port),
            arguments=given,
            net_ticktime=self._net_ticktime,
            environment=self.settings,
        )

    def named(self) -> list[str]:
        """How a server is told of all."""
        copies = [] if self.copies is None else [f"--copies={self.copies}"]
        return [f"--servers={','.join(self.addresses)}", *copies]

    def options(self, name: str) -> list[str]:
        """More options of a server."""
        return []

    def restart(self, index: int) -> None:
        """End one of them, as a service manager does, and start it again."""
        self.processes[index].process.terminate()
        assert self.processes[index].process.wait(LIMIT) == 0
        self.start_again(index)

    def start_again(self, index: int) -> None:
        """Start one that has ended."""
        self.processes[index] = self._start(self.addresses[index])
        assert self.processes[index].address

    def environment(self, servers: list[str] | None = None) -> dict[str, str]:
        """The environment of a program that knows the servers."""
        known = {
            "LOCKS_SERVERS": ",".join(self.addresses if servers is None else servers),
            "LOCKS_COOKIE_FILE": str(self.world.cookie_file),
            "LOCKS_COPIES": "" if self.copies is None else str(self.copies),
        }
        return {**os.environ, **known}

    def program(
        self, code: str, servers: list[str] | None = None, arguments: Sequence[str] = ()
    ) -> Program:
        """Start a program of a few lines."""
        return Program([sys.executable, "-c", code, *arguments], env=self.environment(servers))

    def run(self, code: str, servers: list[str] | None = None) -> str:
        """Run a program to its end; return what it prints."""
        out, error = self.program(code, servers).communicate(timeout=LIMIT)
        return out + error
