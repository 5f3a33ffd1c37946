"""Lock servers whose list changes while programs work, and what came of it.

    python -m tests.cluster.changing 100 1

changes the list a hundred times with the seed 1. Whoever changes it is killed at a random moment of every other change, and a server of
every tenth. It prints how often programs did their work, for how long nobody did work of one kind, and the same of an election's leaders.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.cluster.commands import Done, locks
from tests.cluster.harness import World
from tests.cluster.ledger import Ledger
from tests.cluster.servers import LIMIT, Servers
from tests.helpers import eventually, free_port
from tests.warm import Program

__all__ = ["Candidates", "Changing", "Led", "Load", "change_often", "drawn"]

FIRST = ("a@127.0.0.1", "b@127.0.0.1", "c@127.0.0.1")
MORE = ("d@127.0.0.1", "e@127.0.0.1")
IDS = 4
WORK = """
import json, sys, threading, time
import locks
from tests.cluster.ledger import Ledger, Stale

folder, number, ids = sys.argv[1], sys.argv[2], int(sys.argv[3])
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
done, errors, turn = [], [], int(number)
print("ready", flush=True)
while not over.is_set():
    turn += 1
    kinds = sorted({turn % ids, turn * 7 // 3 % ids}, reverse=turn % 3 == 0)
    try:
        with locks.transaction(timeout=50) as tx:
            for kind in kinds:
                token = tx.write_lock((f"kind {kind}",))
                owner = f"{number}/{tx.agent.id.created}"
                ledger = Ledger(f"{folder}/{kind}")
                before = ledger.read(token, owner)
                ledger.write(token, owner, before)
            tx.ensure_held()
            done += [(kind, time.monotonic()) for kind in kinds]
    except (locks.LocksError, Stale) as error:
        errors.append(f"{type(error).__name__}: {error}")
        time.sleep(0.1)
print(json.dumps([done, errors]), flush=True)
"""


LEAD = """
import json, sys, threading, time
import locks, locks_leader
from tests.cluster.ledger import Ledger, Stale

path, name = sys.argv[1:]
over, ledger = threading.Event(), Ledger(path)
threading.Thread(target=lambda: (sys.stdin.readline(), over.set(), election.stop()), daemon=True).start()
done, terms, refused = [], [], 0

def lead(leadership):
    global refused
    terms.append(leadership.term)
    print("leads", flush=True)
    owner = f"{name}/{len(terms)}"
    while not over.is_set() and not leadership.lost.wait(0.01):
        try:
            leadership.ensure_leading()
            term = leadership.term
            ledger.write(term, owner, ledger.read(term, owner))
            done.append(time.monotonic())
        except (locks.LocksError, Stale):
            refused += 1
    terms[-1] = leadership.term

election = locks_leader.Election("boss")
print("ready", flush=True)
while not over.is_set():
    election.run(lead)
print(json.dumps([done, terms, refused]), flush=True)
"""


class Changing(Servers):
    """Three lock servers with state files, and two more that are not in their list.

    Args:
        world: What ends them.
        copies: How many of them have each id; all, if it is `None`.
    """

    def __init__(self, world: World, copies: int | None = None) -> None:
        super().__init__(world, FIRST, net_ticktime=15, copies=copies)
        more = [f"{name}:{free_port()}" for name in MORE]
        self.places = {place.split(":")[0]: place for place in (*self.addresses, *more)}
        self.processes += [self._start(place) for place in more]
        for server in self.processes:
            assert server.address

    def options(self, name: str) -> list[str]:
        """Each has a state file."""
        return ["--state", str(self.world.folder / f"{name}.state")]

    def change(self, *arguments: str) -> Done:
        """Change the list."""
        return locks(self, "servers", *arguments)

    @property
    def list(self) -> list[str]:
        """The names of the present servers; both lists while it is being changed."""
        return [row["server"].split(":")[0] for row in self.show()["servers"]]

    def show(self) -> Any:
        """What `locks servers` shows, as soon as enough servers answer."""
        answers: list[Done] = []

        def shown() -> bool:
            answers.append(locks(self, "servers", "--json"))
            return answers[-1].status == 0

        eventually(shown, limit=LIMIT)
        return json.loads(answers[-1].out)

    def begin_changing(self, *arguments: str) -> Program:
        """Begin to change the list, in a process that can be killed."""
        command = [sys.executable, "-m", "locks", "servers", *arguments]
        return Program(command, env=self.environment())

    def kill(self, name: str) -> None:
        """Kill a server, and start it again."""
        index = list(self.places).index(name)
        self.processes[index].kill()
        self.processes[index] = self._start(self.places[name])
        assert self.processes[index].address


class Load:
    """Programs that work under locks all the time.

    Args:
        servers: The servers.
        number: How many programs.
    """

    def __init__(self, servers: Changing, number: int = 3) -> None:
        self._folder = servers.world.folder / "ledgers"
        self._folder.mkdir()
        arguments = [str(self._folder)]
        self._programs = [
            servers.program(WORK, arguments=[*arguments, str(each), str(IDS)])
            for each in range(number)
        ]
        for program in self._programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"

    def end(self) -> tuple[int, list[str], float]:
        """End it, and check all ledgers.

        Returns:
            How often work was done, the errors, and the longest time in which nobody has done work of one kind.
        """
        times: list[list[float]] = [[] for _ in range(IDS)]
        errors: list[str] = []
        for program in self._programs:
            out, error = program.communicate(timeout=LIMIT)
            assert out, error
            done, failed = json.loads(out)
            errors += failed
            for kind, at in done:
                times[kind].append(at)
        for kind in range(IDS):
            Ledger(self._folder / str(kind)).check()
        gaps = [
            b - a for each in times for a, b in zip(sorted(each), sorted(each)[1:], strict=False)
        ]
        return sum(map(len, times)), errors, max(gaps)

    def close(self) -> None:
        """End the programs, if that was not done."""
        for program in self._programs:
            if program.poll() is None:
                program.kill()
                program.communicate()


class Led(NamedTuple):
    """What came of an election.

    Attributes:
        terms: The terms of all leaders, in the order of programs.
        refused: How often a leader noticed that it leads no more, or a later one had been there.
        gap: The longest time in which no leader did anything.
    """

    terms: list[int]
    refused: int
    gap: float


class Candidates:
    """Programs one of which leads, and writes into a ledger all the time.

    Args:
        servers: The servers.
        number: How many programs; the first one leads.
    """

    def __init__(self, servers: Changing, number: int = 2) -> None:
        self._path = servers.world.folder / "boss"
        self.programs: list[Program] = []
        for each in range(number):
            program = servers.program(LEAD, arguments=[str(self._path), str(each)])
            self.programs.append(program)
            assert program.stdout.readline() == "ready\n"
            if not each:
                assert program.stdout.readline() == "leads\n"

    def end(self) -> Led:
        """End them, the first one last, and check the ledger: no two have led at once by their terms."""
        times: list[float] = []
        terms: list[int] = []
        refused = 0
        for program in reversed(self.programs):
            out, error = program.communicate("\n", timeout=LIMIT)
            assert out, error
            done, led, number = json.loads(out.splitlines()[-1])
            times += done
            terms += led
            refused += number
        Ledger(self._path).check()
        times.sort()
        return Led(terms, refused, max(b - a for a, b in itertools.pairwise(times)))

    def close(self) -> None:
        """End the programs, if that was not done."""
        for program in self.programs:
            if program.poll() is None:
                program.kill()
                program.communicate()


def drawn(rng: random.Random, now: Sequence[str], servers: Changing) -> list[str]:
    """A change that is possible."""
    spare = [name for name in servers.places if name not in now]
    kinds = ["replace"] if spare else []
    kinds += ["add"] if spare else []
    kinds += ["remove"] if len(now) > 3 else []
    kind = rng.choice(kinds)
    comes = [servers.places[rng.choice(spare)]] if spare else []
    goes = [rng.choice(sorted(now))]
    return [kind, *(goes if kind != "add" else []), *(comes if kind != "remove" else [])]


def change_often(servers: Changing, changes: int, rng: random.Random, kills: bool = True) -> int:
    """Change the list, again and again; return how often it was changed.

    Args:
        servers: The servers.
        changes: How often somebody begins to change it.
        rng: Decides what happens.
        kills: Whether a server is killed now and then.
    """
    carried_out = 0
    for number in range(changes):
        if kills and number % 10 == 9:
            servers.kill(rng.choice(sorted(servers.list)))
        shown = servers.show()
        now = [row["server"].split(":")[0] for row in shown["servers"] if row["list"] != "new"]
        arguments = drawn(rng, now, servers)
        if number % 2:
            changer = servers.begin_changing(*arguments)
            time.sleep(rng.random() * 1.5)  # the moment of its death, not a wait for anything
            changer.kill()
            changer.communicate()
            continue
        done = servers.change(*arguments)
        if done.status == 2:
            # The change before it was finished first, so that this one is not possible any more.
            assert (
                "is already one" in done.error
                or "is not one" in done.error
                or "can't remove" in done.error
            ), done
            continue
        if "another change came first" in done.error:  # one who was killed had nearly begun it
            continue
        assert done.status == 0, done
        carried_out += 1
    assert (
        servers.change("remove", "nobody@127.0.0.1").status == 2
    )  # which finishes what is under way
    assert not servers.show()["changing"]
    return carried_out


def main(changes: int, seed: int) -> None:
    """Change it, and print what came of it."""
    with World() as world:
        servers = Changing(world)
        load, candidates = Load(servers), Candidates(servers)
        began = time.monotonic()
        try:
            number = change_often(servers, changes, random.Random(seed))
            took = time.monotonic() - began
            led = candidates.end()
            done, errors, gap = load.end()
        finally:
            load.close()
            candidates.close()
        print(f"leaders: {led}")
        print(
            f"{changes} changes begun, {number} carried out by those who were not killed, in {took:.0f} s; now {servers.list}"
        )
        print(
            f"{done} pieces of work, longest time without work of a kind {gap:.2f} s, {len(errors)} errors:"
        )
        for text in sorted({error.split(":")[0] for error in errors}):
            print(f"  {sum(error.startswith(text) for error in errors)} {text}")
        for text in errors[:10]:
            print("   ", text[:300])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
