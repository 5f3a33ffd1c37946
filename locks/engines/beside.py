"""A lock server as a separate process beside a process of an engine; it ends with that process.

So tasks that keep their interpreter busy do not delay the lock server. The two communicate through pipes, in lines of JSON:

    to it      its setup: name, cookie, host, port, ...
    from it    the address where it will listen: host and port
    to it      the addresses of all servers, whenever they change; it starts with the first one
    from it    that it is running

It ends when its input is closed, because then the other process has ended, in any way.

`python -m locks.engines.beside` runs it.
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

from locks.engines.places import Asked, take_port
from locks.errors import LocksError, OperatingError
from locks.net.addresses import HostAndPort
from locks.net.tls import TLS
from locks.program.default import start, stop
from locks.program.local import environment_of_server, python
from locks.program.server_log import FORMATS, start_logging
from locks.program.serving import open_many_files, settle
from locks.runtime.waiter import Event

__all__ = ["Beside", "main"]

logger = logging.getLogger("locks.engines")

PATIENCE = 10.0  # seconds that it may take to end
LOOK = 1.0  # seconds between two checks whether the other process is alive


class Beside:
    """A lock server beside this process, for one event loop. `start_process` creates it.

    Attributes:
        address: Its address.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.address: HostAndPort = ("", 0)
        self._process = process
        self._serves = False
        self._telling = asyncio.Lock()

    @classmethod
    async def start_process(cls, setup: Mapping[str, Any]) -> Beside:
        """Start its process.

        Args:
            setup: Its setup: `name`, `cookie`, `host`, `port`, `names` (of all servers), `tls` (the fields of `locks.TLS`, or `None`).

        Raises:
            OperatingError: It did not start.
        """
        process = await asyncio.create_subprocess_exec(
            python(),
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment_of_server(os.environ, sys.path),
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
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

    async def tell_addresses(self, found: Mapping[str, HostAndPort]) -> None:
        """Send it the addresses of the servers; the first time, wait until it is running.

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

    async def end_process(self) -> None:
        """End it, and wait until it has ended."""
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
    start_logging(FORMATS["text"])
    open_many_files()
    parent = os.getppid()
    setup = json.loads(sys.stdin.readline())
    found: dict[str, HostAndPort] = {}
    try:
        address = take_port(setup["host"], setup["port"])
        _say(address)
        line = sys.stdin.readline()
        if not line:
            return 0
        found.update(_found(line))
        tls = setup["tls"]
        node = start(
            setup["name"],
            cookie=setup.pop("cookie"),
            listen=address,
            servers=Asked("the engine", setup["names"], lambda: found, {}),
            tls=tls and TLS(*tls),
            allow_plaintext=not tls,
        )
    except (OSError, LocksError) as error:
        logger.error("the lock server %s can't start: %s", setup["name"], error)
        return 2
    settle()
    _say(True)
    ended = Event()
    threading.Thread(target=_listen, args=(found, ended), daemon=True).start()
    # A process forked by the other one may keep the pipe open after its end.
    while not ended.wait(timeout=LOOK) and node.running and os.getppid() == parent:
        pass
    crashed = not node.running
    stop()
    return 1 if crashed else 0


def _listen(found: dict[str, HostAndPort], ended: Event) -> None:
    """Take new addresses until the input ends."""
    for line in sys.stdin:
        found.update(_found(line))
    ended.open()


def _found(line: str) -> dict[str, HostAndPort]:
    return {name: (host, port) for name, (host, port) in json.loads(line).items()}


def _say(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
