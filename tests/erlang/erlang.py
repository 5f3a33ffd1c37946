"""Erlang nodes with the original on them, as processes that do what the tests tell them.

Everything listens on loopback, with an epmd of its own, and is ended by its own process id.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locks.otp.bytes import etf
from locks.otp.bytes.terms import Atom, Pid

COOKIE = "cookie-of-the-tests"
LIMIT = 15.0
"""Seconds after which an answer that does not come fails a test."""

FOLDER = os.environ.get("LOCKS_ORIGINAL", "")
MISSING = (
    "these tests need `erl`, `erlc` and `epmd` on PATH (Debian: erlang-base), and LOCKS_ORIGINAL=the "
    "folder with the original's compiled modules (docs/with_erlang.md)"
)
PRESENT = (
    all(shutil.which(program) for program in ("erl", "erlc", "epmd"))
    and (Path(FOLDER) / "locks_agent.beam").exists()
)


def compiled(folder: Path) -> Path:
    """Compile the driver, and the callback modules, into a folder."""
    sources = [str(each) for each in Path(__file__).parent.glob("*.erl")]
    subprocess.run(["erlc", "-o", str(folder), *sources], check=True)
    return folder


class ErlangError(Exception):
    """A function has failed in the Erlang node."""


class Call:
    """A call that an Erlang client carries out."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = threading.Event()
        self._outcome: Any = None
        self._result: Any = None

    def done(self, outcome: Any, result: Any) -> None:
        """It is over."""
        self._outcome, self._result = outcome, result
        self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether it is over, and has returned something."""
        return self.is_done and self._outcome == Atom("ok")

    def get(self, timeout: float = LIMIT) -> Any:
        """What it has returned; raises `ErlangError` if it failed."""
        assert self._done.wait(timeout), f"no answer within {timeout} s: {self._what}"
        if self._outcome != Atom("ok"):
            raise ErlangError(f"{self._what}: {self._outcome}: {self._result}")
        return self._result


class Erlang:
    """An Erlang node with the original on it.

    Args:
        name: Its name.
        driver: The folder with the compiled `driver.erl`.
        locks: Whether the original is started.
    """

    def __init__(self, name: str, driver: Path, *, locks: bool = True) -> None:
        self.name = name
        self._numbers = itertools.count(1)
        self._calls: dict[int, Call] = {0: Call(f"{name} starts")}
        self.output: list[str] = []
        ready = self._calls[0]
        self._process = subprocess.Popen(
            [
                "erl",
                "-noshell",
                *("-name", name, "-setcookie", COOKIE, "-start_epmd", "false"),
                *("-kernel", "inet_dist_use_interface", "{127,0,0,1}"),
                *("-pa", FOLDER, str(driver), "-s", "driver", "start"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        threading.Thread(target=self._read, daemon=True).start()
        ready.get()
        if locks:
            assert self.call("main", "driver", "start_locks") == Atom("ok")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                number, outcome, result = etf.decode(bytes.fromhex(line.decode().strip()))
            except ValueError:
                self.output.append(line.decode())  # what Erlang logs
                continue
            self._calls.pop(number).done(outcome, result)

    def start(self, client: str, module: str, function: str, *arguments: Any) -> Call:
        """Have a client call a function; returns at once."""
        number = next(self._numbers)
        call = self._calls[number] = Call(f"{client}: {module}:{function}{arguments}")
        command = (number, Atom(client), Atom(module), Atom(function), list(arguments))
        assert self._process.stdin is not None
        self._process.stdin.write(etf.encode(command).hex().encode() + b"\n")
        self._process.stdin.flush()
        return call

    def call(self, client: str, module: str, function: str, *arguments: Any) -> Any:
        """Have a client call a function, and wait for what it returns."""
        return self.start(client, module, function, *arguments).get()

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, whatever state it is in."""
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()


class ErlangClient:
    """A process in an Erlang node that has a transaction."""

    def __init__(self, node: Erlang, name: str, **options: bool) -> None:
        self.node = node
        self.name = name
        given = [(Atom(option), value) for option, value in options.items()]
        self.agent: Pid = node.call(name, "locks", "spawn_agent", given)[1]

    def ask(self, lock_id: Sequence[Any], mode: str, *nodes: str, require: str = "all") -> Call:
        """Ask for a lock; the call is over when it is there."""
        where = [Atom(each) for each in nodes]
        terms = (self.agent, list(lock_id), Atom(mode), where, Atom(require))
        return self.node.start(self.name, "locks", "lock", *terms)

    def lock(self, lock_id: Sequence[Any], mode: str, *nodes: str) -> Any:
        """Get a lock; returns the deadlocks that the client is told of."""
        ok, deadlocks = self.ask(lock_id, mode, *nodes).get()
        assert ok == Atom("ok")
        return deadlocks

    def end(self) -> None:
        """End the transaction."""
        assert self.node.call(self.name, "locks", "end_transaction", self.agent) == Atom("ok")

    def die(self) -> None:
        """The process is killed."""
        self.node.call("main", "driver", "kill", Atom(self.name))


def settle(clients: Sequence[ErlangClient]) -> None:
    """Wait until nothing is under way between clients of one node, their agents and its lock server; what their calls have returned is there."""
    names = [Atom(client.name) for client in clients]
    agents = [client.agent for client in clients]
    clients[0].node.call("main", "driver", "settle", agents, names)
