"""Real elections of the original, by scripts of `locks_lab.original.elections`; `python -m tests.erlang.elections` records them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from locks.otp.bytes.terms import Atom, Pid
from tests.erlang.erlang import LIMIT, Erlang, compiled
from tests.original.elections import SCRIPTS
from tests.otp.erlang import port_mapper

LONG_ENOUGH = 0.3  # without a change: more than the 20 ms after which candidates look again
_names = count(1)


class Played:
    """Instances of one election, which a script starts and kills."""

    def __init__(self, nodes: Sequence[Erlang]) -> None:
        self.nodes = nodes
        self.resource = f"recorded {next(_names)}"
        self.pids: dict[int, Pid] = {}
        self.gone: dict[int, list[Any]] = {}

    def play(self, script: str) -> str:
        """Do what it says, and return the callbacks of all, as `Elections.callbacks` has them."""
        for group in script.split(";"):
            for step in group.split(","):
                verb, number, *words = step.split()
                getattr(self, verb)(int(number), *words)
            self.settle()
        found = self.found()
        for each in {*self.pids} - {*self.gone}:
            self.kill(each)
        return found

    def start(self, number: int, fact: str = "") -> None:
        """An instance starts."""
        me, role = self.node(number), Atom("candidate")
        name = f"{self.resource} {number}".replace(" ", "_")
        arguments = (self.resource, fact or f"f{number}", role)
        ok, self.pids[number] = me.call(name, "recorder", "start", *arguments)
        assert ok == Atom("ok")

    def put(self, number: int, fact: str) -> None:
        """An instance is given a fact for the leader."""
        self.node(number).call("asks", "locks_leader", "leader_cast", self.pids[number], fact)

    def kill(self, number: int, hangs: bool = False) -> None:
        """An instance leaves its group, and is killed: see `Theirs.die`."""
        self.gone[number] = [] if hangs else self._state(number)[1]
        pid, group = (
            self.pids[number],
            (Atom("locks_leader"), [Atom("locks_leader"), self.resource]),
        )
        self.node(number).call("kills", "locks_pg", "leave", group, pid)
        self.node(number).call("kills", "driver", "kill", pid)

    def node(self, number: int) -> Erlang:
        """Where an instance lives."""
        return self.nodes[(number - 1) % len(self.nodes)]

    def leader(self, number: int) -> Any:
        """Whom an instance takes for the leader."""
        return self.node(number).call(
            "asks", "locks_leader", "info", self.pids[number], Atom("leader")
        )

    def _state(self, number: int) -> Any:
        return self.node(number).call(
            "asks", "locks_leader", "info", self.pids[number], Atom("mod_state")
        )

    def settle(self) -> None:
        """Wait until all follow one leader, and nothing has changed for a while."""
        limit, since, before = time.monotonic() + LIMIT, time.monotonic(), ""
        while True:
            living = [each for each in self.pids if each not in self.gone]
            leaders = {self.leader(each) for each in living}
            now = self.found()
            if now != before or len(leaders) > 1 or None in leaders:
                since, before = time.monotonic(), now
            elif time.monotonic() > since + LONG_ENOUGH:
                return
            assert time.monotonic() < limit, f"it does not settle: {now}"
            time.sleep(0.01)

    def found(self) -> str:
        """The callbacks so far."""
        numbers = {pid: str(number) for number, pid in self.pids.items()}

        def shown(argument: Any) -> str:
            if isinstance(argument, list):
                return "+".join(sorted(argument))
            return argument if isinstance(argument, str) else numbers.get(argument, "")

        found = []
        for number in sorted(self.pids):
            calls = self.gone.get(number) or self._state(number)[1]
            said = [f"{name.name} {shown(argument)}".strip() for name, argument in reversed(calls)]
            found.append(", ".join(dict.fromkeys(said)))
        return " / ".join(found)


def main(times: int) -> None:
    """Print what becomes of each script, each outcome once."""
    with port_mapper() as port, tempfile.TemporaryDirectory() as folder:
        os.environ["ERL_EPMD_PORT"] = str(port)
        driver = compiled(Path(folder))
        nodes = [Erlang(f"{name}@127.0.0.1", driver) for name in "ef"]
        nodes[0].call("main", "net_adm", "ping", Atom(nodes[1].name))
        try:
            for script, homes in SCRIPTS:
                found = [Played(nodes[: len(homes.split())]).play(script) for _ in range(times)]
                for each in sorted({*found}):
                    print(
                        f"{script} | {homes} | {each}",
                        f"# {found.count(each)}",
                        file=sys.stdout,
                        flush=True,
                    )
        finally:
            for node in nodes:
                node.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
