"""A lock server that is told to end waits for the programs that use it: `locks node --drain`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from locks.metrics import serving
from tests.cluster.harness import World
from tests.cluster.nodes import A, B, C, Nodes
from tests.cluster.servers import LIMIT, NAMES, Servers, hear, locks, running, tell
from tests.cluster.test_rolling_restart import standing
from tests.helpers import eventually
from tests.warm import Program, run_program

HOLDER = """
import sys, locks
with locks.transaction(label="holder") as tx:
    tx.write_lock(("first",))
    print("ready", flush=True)
    sys.stdin.readline()
    tx.write_lock(("second",))  # what it needs to come to its end
    tx.ensure_held()
    print("held", flush=True)
    sys.stdin.readline()
    tx.ensure_held()
print("kept", flush=True)
sys.stdin.readline()
"""
IDLE = """
import sys, time, locks
with locks.transaction() as tx:
    tx.write_lock(("before",))
print("ready", flush=True)
sys.stdin.readline()
with locks.transaction() as tx:
    tx.write_lock(("after",))
    tx.ensure_held()
while not (refusals := locks.start().refusals):
    time.sleep(0.01)
print(refusals, flush=True)
"""
CANDIDATE = """
import sys, time, locks_leader
election = locks_leader.Election("scheduler")
election.start()
while {leads} and election.leadership is None:
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
print(election.leadership is not None, flush=True)
sys.stdin.readline()
"""


def say(program: Program) -> str:
    """Let a program go on, and return its next line."""
    tell(program)
    return hear(program)


@contextmanager
def servers(*arguments: str, names: tuple[str, ...] = NAMES) -> Iterator[Servers]:
    """Lock servers with these arguments."""
    with World() as world:
        yield Servers(world, names, arguments=["--log-level=locks.nodes=INFO", *arguments])


def test_who_holds_something_goes_on_and_who_does_not_is_turned_away() -> None:
    """The holder comes to its end, with a further lock; idle and new programs use the other servers; then the server ends."""
    with servers("--drain=60") as three, running(three, HOLDER, IDLE) as (holder, idle):
        first = three.processes[0]
        # A majority has the lock without it, as soon as all know what is done.
        eventually(lambda: locks(three, "status", "--before-restart", NAMES[0]).status == 0)
        first.signal(signal.SIGTERM)
        eventually(
            lambda: "is about to end; programs that still use locks here: 1" in first.errors()
        )
        assert "is about to end, and takes nothing new" in say(idle)
        assert "2 of 3 lock servers answer" in locks(three, "status", "--timeout", "2").out
        assert say(holder) == "held"
        assert standing(three) == 4, "both of its locks, on the two others"
        assert first.process.poll() is None
        assert say(holder) == "kept"
        assert first.process.wait(LIMIT) == 0
        assert "WARNING" not in first.errors()


@pytest.mark.parametrize("how", ["limit", "again", "interrupt"])
def test_it_ends_at_the_limit_or_when_it_is_told_again(how: str) -> None:
    """The log names the programs that it did not wait for; a majority's locks stay. Ctrl-C does not wait."""
    with (
        servers(f"--drain={0.3 if how == 'limit' else 600}") as three,
        running(three, HOLDER) as (holder,),
    ):
        first = three.processes[0]
        first.signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)
        if how == "again":
            eventually(lambda: "programs that still use locks here: 1" in first.errors())
            first.signal(signal.SIGTERM)
        assert first.process.wait(LIMIT) == 0
        told = (
            "ends after 0.3 s; programs that still use locks here: 1, such as client-"
            in first.errors()
        )
        assert told == (how == "limit")
        assert [say(holder), say(holder)] == ["held", "kept"]


def test_elections_do_not_hold_it_up() -> None:
    """The leader leads on by the other servers, and candidates stand there."""
    leads = CANDIDATE.format(leads=True)
    stands = CANDIDATE.format(leads=False)
    with servers("--drain=600") as three, running(three, leads, stands) as (leader, candidate):
        eventually(lambda: standing(three) == 3)
        first = three.processes[0]
        first.signal(signal.SIGTERM)
        assert first.process.wait(LIMIT) == 0
        assert [say(leader), say(candidate)] == ["True", "False"]


def test_one_server_is_down_for_all_others() -> None:
    """Where there is only one, a new program is told why it gets no lock."""
    with servers("--drain=600", names=NAMES[:1]) as one, running(one, HOLDER) as (holder,):
        server = one.processes[0]
        server.signal(signal.SIGTERM)
        eventually(lambda: "programs that still use locks here: 1" in server.errors())
        said = one.run('import locks\nwith locks.Lock(("new",), timeout=1): pass')
        assert f"{NAMES[0]} is about to end, and takes nothing new; use the other servers" in said
        assert [say(holder), say(holder)] == ["held", "kept"]
        assert server.process.wait(LIMIT) == 0


def test_the_limit_is_checked() -> None:
    """It is a number of seconds."""
    done = run_program([sys.executable, "-m", "locks", "node", "--name", "a@x", "--drain", "-1"])
    assert (done.returncode, done.stderr) == (
        2,
        "locks node: --drain -1 is not a number of seconds from 0 on\n",
    )


def test_readyz_says_so(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes nothing new is alive and not ready; those that may stay are connected."""
    a, b, c = nodes.meet(A, B, C, mesh=False)
    monkeypatch.setattr(serving, "node_at_hand", lambda: a)
    ready = serving.health("/readyz")
    assert ready is not None
    assert ready[0] == serving.OK
    assert a.cluster is not None
    a.turn.run(a.cluster.network.turn_away, {B})
    assert serving.health("/readyz") == (
        *(serving.DOWN, "the node is about to end, and takes nothing new"),
    )
    alive = serving.health("/healthz")
    assert alive is not None
    assert alive[0] == serving.OK
    assert a.nodes() == [B]
    assert b.nodes() != []
    eventually(lambda: "is about to end, and takes nothing new" in c.refusals.get(A, ""))
