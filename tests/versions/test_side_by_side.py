"""The present version beside an earlier one: servers, clients, relays, candidates and commands of both, in one cluster.

    python -m tests.versions.test_side_by_side 20 1

runs twenty rolling updates forth and back, from seed 1 on, each with ten clients, and says for how long nobody has done work of a kind.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.commands import Done, locks
from tests.cluster.harness import ROOT, Worker, World
from tests.cluster.ledger import Bank, Ledger
from tests.cluster.servers import LIMIT, NAMES, Servers
from tests.cluster.test_run import run as run_command
from tests.helpers import EXPLORE, SEED, eventually
from tests.leader.harness import Cluster, Member, agreed, have, store, the_leader
from tests.versions.earlier import unpacked
from tests.versions.worker import ACCOUNTS

X, Y = ["x"], ["y"]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the earlier version."""
    return unpacked(tmp_path_factory.mktemp("earlier"))


def python(
    root: Path, arguments: Sequence[str], environment: Mapping[str, str], check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run Python with the version of a folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**environment, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=check,
    )


class Client(Worker):
    """A program that is a client of servers."""

    program = "tests.versions.worker"

    def end(self) -> None:
        """Let it end by itself."""
        self._stdin.close()
        assert self.process.wait(LIMIT) == 0


class Both(Servers):
    """Lock servers, clients and commands, each of one of two versions.

    Args:
        world: What ends them.
        roots: Where the versions of the servers are.
    """

    def __init__(self, world: World, roots: Sequence[Path]) -> None:
        # Nobody is taken for dead because the machine is busy: who ends closes its connections.
        super().__init__(world, net_ticktime=15, roots=dict(zip(NAMES, roots, strict=True)))

    def named(self) -> list[str]:
        """Both versions know this option."""
        return [f"--server={address}" for address in self.addresses]

    def client(self, name: str, root: Path) -> Client:
        """Start a client."""
        options = {"listen": False, "mesh": False, "net_ticktime": 15}
        client = Client(f"{name}@127.0.0.1", root=root, servers=self.addresses, **options)
        self.world.processes.append(client)
        return client

    def command(self, root: Path, *arguments: str) -> Done:
        """Run a command of one version."""
        if root == ROOT:
            return locks(self, *arguments)
        done = python(root, ["-m", "locks_leader.command", *arguments], self.environment(), False)
        return Done(done.returncode, done.stdout, done.stderr)

    def rows(self, root: Path, *prefix: str) -> list[list[Any]]:
        """What `locks ps` of one version lists: of each request its agent, state, mode and servers."""
        done = self.command(root, "ps", *prefix, "--json")
        assert done.status == 0, done
        found: list[dict[str, Any]] = json.loads(done.out)["locks"]
        return sorted(
            [row[each] for each in ("agent", "state", "mode", "servers")] for row in found
        )


def test_the_earlier_version_is_another_one(earlier: Path) -> None:
    """What is compared is not the same thing twice."""
    code = "import locks; print(locks.__file__, hasattr(locks, 'once'))"
    for root, has_once in ((earlier, False), (ROOT, True)):
        done = python(root, ["-c", code], os.environ)
        assert done.stdout.split() == [str(root / "locks" / "__init__.py"), str(has_once)]


TAKE = """
import locks
try:
    with locks.transaction(timeout=20) as tx:
        print(tx.write_lock(("a",)) > 0)
except locks.CannotServe as error:
    print(error)
"""


@pytest.mark.slow
def test_copies_need_the_present_version(earlier: Path) -> None:
    """A program with copies does not use servers of an older version, and servers with copies serve no older program."""
    with World() as world:
        both = Both(world, (earlier, earlier, earlier))
        assert both.run(TAKE).splitlines()[0] == "True"
        both.copies = 1
        said = both.run(TAKE)
        assert "can't have the locks of some ids only (copies=1): it runs an older version" in said
    with World() as world:
        new = Servers(world, net_ticktime=15, copies=1)
        assert new.run(TAKE) == "True\n"
        done = python(earlier, ["-c", TAKE], {**new.environment(), "LOCKS_COPIES": ""})
        assert "does not serve this program" in done.stdout or "do not serve" in done.stdout
        assert f"was started with {', '.join(NAMES)} (require='majority')" in done.stdout


@pytest.fixture(
    scope="module",
    params=["one is new", pytest.param("one is old", marks=pytest.mark.explore)],
)
def processes(earlier: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    """Three servers of both versions."""
    most, one = (earlier, ROOT) if request.param == "one is new" else (ROOT, earlier)
    with World() as world:
        yield Both(world, (most, one, most))


@pytest.mark.slow
def test_locks_deadlocks_views_and_commands(processes: Both, earlier: Path) -> None:
    """Two clients are connected over a relay, and a deadlock between them is resolved; both versions see the same, and each breaks what the other holds."""
    roots = (earlier, ROOT)
    old, new = clients = [processes.client(f"client{n}", root) for n, root in enumerate(roots)]
    assert old.do("connect", peer=new.name, timeout=LIMIT)
    for client, own in ((old, X), (new, Y)):
        client.do("begin", abort_on_deadlock=True)
        assert client.do("lock", lock_id=own) == "have_all_locks"
    waits = [old.ask("lock", lock_id=Y), new.ask("lock", lock_id=X)]
    answers = [wait.message() for wait in waits]
    loser = next(n for n, answer in enumerate(answers) if "error" in answer)
    assert answers[loser]["error"][0] == "DeadlockAborted"
    assert answers[1 - loser]["result"] == "have_all_locks"
    winner = clients[1 - loser]
    for client in clients:
        assert len(client.do("holders", "looks", lock_id=X)) == 1
    eventually(lambda: len(processes.rows(ROOT)) == 2)
    eventually(lambda: processes.rows(earlier) == processes.rows(ROOT))
    later = clients[loser]
    later.do("begin", client="second")
    waiting = later.ask("lock", client="second", lock_id=X, timeout=LIMIT)
    eventually(lambda: winner.do("waiting", "looks", lock_id=X, node=NAMES[0]) == 1)
    for root in roots:
        assert processes.command(root, "why", "x").status == 0
    holder = next(agent for agent, state, *_ in processes.rows(ROOT, "x") if state == "granted")
    breaker = roots[loser]  # of the other version than what it ends
    done = processes.command(breaker, "break", holder, "--reason", "a test")
    assert done.status == 0, done
    assert waiting.get() == "have_all_locks"
    with pytest.raises(Exception, match="a test"):
        winner.do("ensure_held")
    for client in clients:
        client.end()


@pytest.mark.explore
def test_the_present_version_opens_a_tunnel(processes: Both, earlier: Path) -> None:
    """A client of the present version is connected with one of the earlier one, as that one is with it above."""
    old, new = (processes.client(f"end{n}", root) for n, root in enumerate((earlier, ROOT)))
    assert old.do("alive", client="looks")
    assert new.do("connect", peer=old.name, timeout=LIMIT)
    assert new.do("hidden", client="looks") == [old.name]
    for client in (old, new):
        client.end()


@pytest.mark.explore
def test_commands_of_both_versions(processes: Both, earlier: Path) -> None:
    """Each command that looks works with servers of both versions, and `locks run` excludes the other one's."""
    client = processes.client("looked_at", earlier)
    client.do("begin")
    assert client.do("lock", lock_id=X) == "have_all_locks"
    looks: list[tuple[str, ...]] = [("ps",), ("graph",), ("deadlocks",), ("status",)]
    looks += [("leaders",), ("groups",), ("top", "--once"), ("why", "x")]
    for root, command in itertools.product((earlier, ROOT), looks):
        done = processes.command(root, *command)
        assert (done.status, done.error) == (0, ""), done
    for run in (partial(processes.command, earlier, "run"), partial(run_command, processes)):
        assert run("--timeout", "0", "x", "--", "true")[0] == 124
        assert run("y", "--", "true")[0] == 0
    client.end()


@pytest.mark.explore
def test_once_on_servers_that_do_not_know_it(earlier: Path) -> None:
    """Nothing is run, and the error names the servers that are too old; when all are new, it runs once."""
    with World() as world:
        servers = Both(world, (earlier, ROOT, earlier))
        once = ("--once", "--timeout", "2", "job", "--", "echo", "ran")
        status, out, error = run_command(servers, *once)
        assert (status, out) == (125, ""), error
        for name in (NAMES[0], NAMES[2]):
            assert f"{name}: it does not support this question: it runs an older version" in error
        for index in (0, 2):
            servers.update(index, ROOT)
        eventually(lambda: run_command(servers, *once)[1] == "ran\n")
        assert run_command(servers, *once)[0] == 122


# --- Elections ----------------------------------------------------------------------------------


class Loaded(Member):
    """A candidate of one version."""

    program = "tests.versions.worker"


class Mixed(Cluster):
    """Candidates of both versions in turn."""

    def __init__(self, world: World, roots: Sequence[Path]) -> None:
        super().__init__(world)
        self._roots = itertools.cycle(roots)

    def _start(self, name: str) -> Member:
        member = Loaded(name, peers=[], mesh=False, net_ticktime=15, root=next(self._roots))
        self.world.processes.append(member)
        return member


@pytest.mark.explore
def test_candidates_of_both_versions(earlier: Path) -> None:
    """The state is handed over from leader to leader as these are killed, and both sides of a split meet again."""
    with World() as world:
        cluster = Mixed(world, (earlier, ROOT))
        members = cluster.meet(5)
        cluster.stand(members)
        content: dict[str, int] = {}
        led = set()
        for number in range(4):
            leader, others = the_leader(members)
            led.add(leader.do("version", client="looks"))
            content[f"key {number}"] = number
            store(others[0], f"key {number}", number)
            have(members, **content)
            if number < 3:
                leader.kill()
                cluster.forget(leader)
                members = others
        assert len(led) == 2, "all leaders were of one version"
        one, other = members
        cluster.part([one], [other])
        agreed([one])
        agreed([other])
        cluster.join(members)
        agreed(members)
        have(members, **content)


# --- Rolling updates ----------------------------------------------------------------------------


class Rolling:
    """Three servers and some clients under load, which are updated one after the other.

    Args:
        world: What ends them.
        roots: The version with which all begin, and the other one.
        clients: How many clients there are.
        rng: Decides the order.
    """

    def __init__(
        self, world: World, roots: Sequence[Path], clients: int, rng: random.Random
    ) -> None:
        self._servers = Both(world, [roots[0]] * len(NAMES))
        self._folder = str(world.folder)
        self._roots = roots
        self._rng = rng
        self.times: dict[str, list[float]] = {}
        self.restarts: list[float] = []
        self.failed: dict[str, int] = {}
        self._clients = [self._start(number, roots[0]) for number in range(clients)]
        for number, client in enumerate(self._clients):
            client.do("begin_load", folder=self._folder, number=number)
        self._until_all_work()

    def _start(self, number: int, root: Path) -> Client:
        return self._servers.client(f"load{number}", root)

    def update(self) -> None:
        """Update all, in any order, to the other version."""
        self._roots = self._roots[::-1]
        members = [*range(-len(NAMES), 0), *range(len(self._clients))]
        self._rng.shuffle(members)
        for member in members:
            began = time.monotonic()
            if member < 0:
                self._until_held()
                self._servers.update(member, self._roots[0])
                self.restarts.append(time.monotonic() - began)
            else:
                self._end(member)
                self._clients[member] = client = self._start(member, self._roots[0])
                client.do("begin_load", folder=self._folder, number=member)
            self._until_all_work()

    def _until_held(self) -> None:
        """Wait until each client's own lock is on all servers, as an operator does (`locks status --before-restart`)."""

        def held() -> int:
            rows = self._servers.rows(ROOT, "held")
            return sum(len(names) for _, state, _, names in rows if state == "granted")

        eventually(lambda: held() == len(NAMES) * len(self._clients))

    def _until_all_work(self) -> None:
        """Wait until each client has done more of each kind than now."""
        before = [client.do("counts", client="looks")["done"] for client in self._clients]
        for client, done in zip(self._clients, before, strict=True):
            for what in ("moves", "sums", "terms", "views"):
                eventually(
                    lambda c=client, d=done, w=what: (  # type: ignore[misc]
                        c.do("counts", client="looks")["done"].get(w, 0) > d.get(w, 0)
                    ),
                    limit=5 * LIMIT,
                )

    def _end(self, number: int) -> None:
        client = self._clients[number]
        for what, times in client.do("end_load").items():
            self.times.setdefault(what, []).extend(times)
        counts = client.do("counts", client="looks")
        for error, number_of in counts["failed"].items():
            self.failed[error] = self.failed.get(error, 0) + number_of
        client.end()

    def end(self) -> tuple[int, int]:
        """End all clients; return how often money was moved, and how often somebody led."""
        for number in range(len(self._clients)):
            self._end(number)
        folder = Path(self._folder)
        return Bank(folder / "bank", ACCOUNTS).check(), Ledger(folder / "terms").check()


def roll(roots: Sequence[Path], clients: int, seed: int) -> tuple[Rolling, tuple[int, int]]:
    """One update of all, forth and back; the outcome, and what the files have."""
    with World() as world:
        rolling = Rolling(world, roots, clients, random.Random(seed))
        rolling.update()
        rolling.update()
        return rolling, rolling.end()


@pytest.mark.explore
@pytest.mark.parametrize("number", range(20 if EXPLORE else 1))
def test_a_rolling_update_forth_and_back(earlier: Path, number: int) -> None:
    """Three servers and ten clients: no lock is lost that is kept throughout, money and terms are right, and all go on working."""
    roots = (earlier, ROOT) if (SEED + number) % 2 == 0 else (ROOT, earlier)
    _, (moved, led) = roll(roots, 10, SEED + number)
    assert moved > 0
    assert led > 0


def main(runs: int, seed: int, clients: int = 10) -> None:
    """Run rolling updates, and print what became of each."""
    with tempfile.TemporaryDirectory() as folder:
        earlier = unpacked(Path(folder))
        for number in range(seed, seed + runs):
            roots = (earlier, ROOT) if number % 2 == 0 else (ROOT, earlier)
            rolling, (moved, led) = roll(roots, clients, number)
            pauses = {
                what: round(max(b - a for a, b in itertools.pairwise(sorted(times))), 1)
                for what, times in rolling.times.items()
            }
            print(
                f"seed {number}: {moved} moves, {led} terms; longest times in which nobody did any {pauses}; restarts of servers "
                f"{min(rolling.restarts):.1f} to {max(rolling.restarts):.1f} s; errors {rolling.failed}",
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
