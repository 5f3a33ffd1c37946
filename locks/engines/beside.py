"""A lock server as a process of its own beside one of an engine's, with which it ends.

So tasks that keep their interpreter busy don't hold up those who ask for locks. What is said goes over pipes, each a line of JSON:

    to it      how it is set up: name, cookie, host, port, ...
    from it    where it will listen: host and port
    to it      where all of them are, whenever that changes; with the first one it starts
    from it    that it serves

It ends when its input does, for then the other process has ended, however that came.

`python -m locks.engines.beside` is its program.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from locks.engines.places import Told, take_port
from locks.errors import LocksError, OperatingError
from locks.otp.names.discovery import HostAndPort
from locks.otp.options import TLS
from locks.program import start, stop
from locks.program.local import environment_of_server, python
from locks.program.serving import open_many_files, settle
from locks.runtime import Event

__all__ = ["Beside", "main"]

logger = logging.getLogger("locks.engines")

PATIENCE = 10.0  # seconds that it may take to end
LOOK = 1.0  # seconds between two looks at whether the other process is there


class Beside:
    """A lock server beside this process; for one event loop. `begin` makes it.

    Attributes:
        address: Where it listens.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.address: HostAndPort = ("", 0)
        self._process = process
        self._serves = False
        self._telling = asyncio.Lock()

    @classmethod
    async def begin(cls, setup: Mapping[str, Any]) -> Beside:
        """Start its process.

        Args:
            setup: How: `name`, `cookie`, `host`, `port`, `size`, `tls` (the fields of `locks.TLS`, or `None`).

        Raises:
            OperatingError: It does not start.
        """
        process = await asyncio.create_subprocess_exec(
            python(),
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment_of_server(os.environ, sys.path),
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        beside = cls(process)
        try:
            beside._write(setup)
            host, port = await beside._read()
        except BaseException:
            process.kill()
            raise
        beside.address = host, port
        return beside

    async def tell(self, found: Mapping[str, HostAndPort]) -> None:
        """Tell it where the servers are; the first time, wait until it serves.

        Raises:
            OperatingError: It has ended.
        """
        async with self._telling:
            self._write(found)
            if not self._serves:
                await self._read()
                self._serves = True

    async def ended(self) -> int:
        """Wait until it has ended; return its exit status."""
        return await self._process.wait()

    async def end(self) -> None:
        """Let it end, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), PATIENCE)
        except (TimeoutError, asyncio.TimeoutError):
            self._process.kill()

    def _write(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said).encode() + b"\n")

    async def _read(self) -> Any:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise OperatingError(
                f"the lock server (process {self._process.pid}) has ended; its log says why"
            )
        return json.loads(line)


def main() -> int:
    """Serve until the input ends."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s")
    open_many_files()
    parent = os.getppid()
    setup = json.loads(sys.stdin.readline())
    told = Told(setup["size"])
    try:
        address = take_port(setup["host"], setup["port"])
        _say(address)
        line = sys.stdin.readline()
        if not line:
            return 0
        told.tell(_found(line))
        tls = setup["tls"]
        node = start(
            setup["name"],
            cookie=setup.pop("cookie"),
            listen=address,
            servers=told,
            tls=tls and TLS(*tls),
            allow_plaintext=not tls,
        )
    except (OSError, LocksError) as error:
        logger.error("the lock server %s can't start: %s", setup["name"], error)
        return 2
    settle()
    _say(True)
    ended = Event()
    threading.Thread(target=_listen, args=(told, ended), daemon=True).start()
    # A process that the other one has forked may keep the pipe open after its end.
    while not ended.wait(timeout=LOOK) and node.running and os.getppid() == parent:
        pass
    crashed = not node.running
    stop()
    return 1 if crashed else 0


def _listen(told: Told, ended: Event) -> None:
    """Take what is told, until the input ends."""
    for line in sys.stdin:
        told.tell(_found(line))
    ended.open()


def _found(line: str) -> dict[str, HostAndPort]:
    return {name: (host, port) for name, (host, port) in json.loads(line).items()}


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
