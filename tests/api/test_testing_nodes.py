"""`locks.testing` with several nodes: majorities, cuts, crashes, restarts, what is watched, and programs that stand all of it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import locks
from locks import aio
from locks.actors import GeventActor
from locks.core.server.machine import ServerMachine
from locks.program.default import default_node
from locks.runtime.port import World
from locks.testing import Simulation, Violation, seeds, simulate
from locks.testing.node import SimulatedNode
from locks.testing.nodes import SimulatedNodes
from locks.values import View
from tests.helpers import EXPLORE

A, B = ("a",), ("b",)


# --- Where clients run, and where locks are taken -----------------------------------------------


@seeds(20, nodes=["east@a", "west@a", "north@a"])
def test_a_majority_by_default(simulation: Simulation) -> None:
    """Locks are taken as by programs that were started with all nodes as servers; nobody else has one at the same time."""
    inside: list[str] = []

    def work(name: str) -> None:
        with locks.transaction() as tx:
            tx.write_lock(A)
            (info,) = locks.original.lock_info(tx.agent)
            assert info.nodes == ("east@a", "west@a", "north@a")
            assert info.require == "majority"
            assert len(info.granted) >= 2
            inside.append(name)
            simulation.sleep(0.01)
            assert inside == [name]
            inside.clear()

    for name in "xyz":
        simulation.client(work, name)
    simulation.run()


# --- Cuts ---------------------------------------------------------------------------------------


@seeds(30, nodes=3, expect=("cut", "loss"))
def test_a_client_that_is_cut_off(simulation: Simulation) -> None:
    """It is told that its lock is lost; another one gets the lock, with a larger token."""
    tokens: list[int] = []

    def old() -> None:
        with locks.transaction() as tx:
            tokens.append(tx.write_lock(A))
            tx.ensure_held(A)
            simulation.cut("n1")
            assert tx.lost.wait(1e6)
            tx.ensure_held(A)
            tokens.clear()

    def cut_off() -> None:
        with pytest.raises(locks.LockLost):
            old()

    def new() -> None:
        simulation.sleep(1)
        with locks.transaction() as tx:
            tokens.append(tx.write_lock(A))

    simulation.client(cut_off, node="n1")
    simulation.client(new, node="n2")
    simulation.run()
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 2


@seeds(20, nodes=3)
def test_without_enough_nodes(simulation: Simulation) -> None:
    """Who is cut off from a majority gets nothing, or waits until there is one again, as it has said."""

    def hold() -> None:
        with locks.transaction() as tx:
            tx.write_lock(A)
            while True:  # it may be granted before the node has noticed
                tx.ensure_held()
                simulation.sleep(1)

    def refused() -> None:
        with pytest.raises((locks.CannotServe, locks.LockLost)):
            hold()

    def patient() -> float:
        with locks.transaction(await_nodes=True) as tx:
            tx.write_lock(B)
            return simulation.time

    def mend() -> None:
        simulation.sleep(1e6)
        simulation.mend("n1", "n2")

    simulation.cut("n1", "n2", "n3")
    refuser = simulation.client(refused, node="n1")
    patience = simulation.client(patient, node="n1")
    simulation.client(mend, node="n2")
    simulation.run()
    assert not refuser.killed
    assert patience.value > 1e6


# --- Crashes ------------------------------------------------------------------------------------


@seeds(30, nodes=3, expect=("crash",))
def test_a_crash(simulation: Simulation) -> None:
    """Its clients are gone, and can do nothing more; what they have locked is free for others, with larger tokens."""
    tokens: list[int] = []
    done: list[str] = []

    def old() -> None:
        try:
            with locks.transaction() as tx:
                tokens.append(tx.write_lock(A))
                simulation.crash("n1")
                done.append("after the crash")
        finally:
            simulation.sleep(1)
            done.append("after the end")

    def new() -> None:
        while not tokens:
            simulation.sleep(0.1)
        with locks.transaction() as tx:
            tokens.append(tx.write_lock(A))

    ended = simulation.client(old, node="n1")
    simulation.client(new, node="n3")
    simulation.run()
    assert ended.killed
    assert not done
    assert tokens == sorted(set(tokens))


@seeds(30, nodes=3)
def test_a_restart(simulation: Simulation) -> None:
    """A node that is started again has an empty lock table and can have clients; its tokens are above all before."""
    tokens: list[int] = []

    def lock() -> None:
        with locks.transaction(await_nodes=True) as tx:
            for _ in range(3):
                tokens.append(tx.write_lock(A, nodes=None))
                tx.unlock(A)

    def crash() -> None:
        lock()
        for node in ("n1", "n2", "n3"):
            if node != "n3":
                simulation.crash(node)
        with pytest.raises(locks.MisuseError, match="n1 has crashed"):
            simulation.client(lock, node="n1")
        simulation.restart("n1")
        simulation.client(lock, node="n1")

    simulation.client(crash, node="n3")
    simulation.run()
    assert len(tokens) == 6
    assert tokens == sorted(set(tokens))


def test_tokens_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that begins anew with old versions is found."""

    def server(self: SimulatedNodes, node: str, first_version: int = 0) -> ServerMachine:
        made = self.by_name[node] = SimulatedNode(self, node, 0)
        return made.server.machine

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            for _ in range(3):
                with locks.transaction(await_nodes=True) as tx:
                    tx.write_lock(A, nodes=["n2"])
                    tx.token(A)

        def begin_anew() -> None:
            simulation.crash("n2")
            simulation.restart("n2")

        simulation.client(work, node="n1")
        simulation.client(begin_anew, node="n1")
        simulation.run()

    def forgiving(simulation: Simulation) -> None:
        with suppress(locks.LocksError):  # the node has crashed just then
            scenario(simulation)

    simulate(forgiving, 20, nodes=2)
    monkeypatch.setattr(SimulatedNodes, "server", server)
    monkeypatch.setattr(ServerMachine, "raise_to", lambda *_: None)
    with pytest.raises(Violation, match=r"fencing tokens of .* fall"):
        simulate(forgiving, 50, nodes=2, shrink=False)


# --- For people, and what is refused ------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "call", "says"),
    [
        (1, lambda s: s.cut("n1", "n2"), "has one node"),
        (1, lambda s: s.crash("n1"), "has one node"),
        (1, lambda s: s.run(cuts=1), "has one node"),
        (3, lambda s: s.cut("n1", "n7"), "n7' is none of this simulation, which has n1, n2 and n3"),
        (3, lambda s: s.mend("n1", "n1"), "always connected with itself"),
        (3, lambda s: s.client(print, node="n4"), "'n4' is none"),
        (3, lambda s: s.run(crashes=-1), "crashes=-1"),
    ],
)
def test_misuse(nodes: int, call: Callable[[Simulation], object], says: str) -> None:
    """What makes no sense is refused, and says why."""
    simulation = Simulation(nodes=nodes)
    simulation.client(str)
    with pytest.raises(locks.LocksError, match=says):
        call(simulation)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: default_node().connect("n3@x:1"), "connect"),
        (lambda: default_node().disconnect("n3@x"), "disconnect"),
        (lambda: default_node().await_nodes(["n3@x"]), "await_nodes"),
    ],
)
def test_what_connects_nodes_is_refused(call: Callable[[], object], name: str) -> None:
    """What is not simulated over several nodes is refused by its name, at once."""
    simulation = Simulation(nodes=3)

    def client() -> None:
        with pytest.raises(locks.MisuseError, match=rf"^locks.*{name} is not simulated"):
            call()

    simulation.client(client, node="n2")
    simulation.run()


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_try_waits_for_answers_alone(nodes: int) -> None:
    """Who does not want to wait for others is told as soon as lock servers have answered."""

    def scenario(simulation: Simulation) -> None:
        def hold() -> None:
            with locks.Lock(A):
                simulation.sleep(100)

        def look() -> None:
            simulation.sleep(10)
            assert not locks.Lock(A).acquire(blocking=False)
            assert simulation.time < 13

        simulation.client(hold)
        simulation.client(look)
        simulation.run()

    simulate(scenario, 40, nodes=nodes)


# --- What a simulation is made of ---------------------------------------------------------------


def test_a_simulated_world_has_its_own_version_of_each_method() -> None:
    """So a new method of `World` that a simulation does not know is noticed."""
    own = {name for name, _ in inspect.getmembers(World, inspect.isfunction)}
    assert own
    assert {name for name in own if getattr(SimulatedNodes, name) is getattr(World, name)} == set()


# --- `locks.testing` with several nodes: what breaks at random, planted bugs that it shows, and programs that stand it. ---


class Refused(Exception):
    """Somebody has a larger token."""


class Counter:
    """A counter somewhere else, which is read and written back by those who have its lock.

    Args:
        fenced: What looks at tokens: `"read"` and `"write"`, or less.
    """

    def __init__(self, *fenced: str) -> None:
        self.value = self.added = 0
        self._fenced = fenced
        self._newest = -1

    def _check(self, what: str, token: int) -> None:
        if what in self._fenced:
            if token < self._newest:
                raise Refused
            self._newest = token

    def add(self, simulation: Simulation) -> None:
        """What a client does."""
        try:
            with locks.transaction() as tx:
                token = tx.write_lock(A)
                self._check("read", token)
                value = self.value
                simulation.sleep(1)
                self._check("write", token)
                self.value = value + 1
                self.added += 1
        except (locks.LocksError, Refused):
            pass  # too few nodes, or the lock is lost


def count(simulation: Simulation, *fenced: str, **may: int) -> None:
    """Three clients add to a counter; nothing that was added is lost."""
    counter = Counter(*fenced)
    for _ in range(3):
        simulation.client(counter.add, simulation)
    simulation.run(**may)
    assert counter.value == counter.added


# --- At random ----------------------------------------------------------------------------------


def test_a_program_without_tokens_is_found(caplog: pytest.LogCaptureFixture) -> None:
    """The planted bug, which several nodes alone show, is found within a few seeds, and told as short as can be."""
    with pytest.raises(AssertionError) as caught:
        simulate(lambda s: count(s, cuts=2), 10, nodes=3)
    (note,) = getattr(caught.value, "__notes__", [caplog.text])  # Python 3.10 has none
    assert "breaks" in note
    assert "loses a" in note or "notices that" in note
    assert "2 of 3 clients" in note
    assert "2 of 2 faults" in note
    schedule = note.partition('schedule="')[2].partition('"')[0]
    assert "cut:" in schedule
    with pytest.raises(AssertionError):
        count(Simulation(nodes=3, schedule=schedule), cuts=2)


def test_fences_hold() -> None:
    """The program with tokens passes, whatever breaks; connections and nodes do break."""
    summary = simulate(
        lambda s: count(s, "read", "write", cuts=2, crashes=1),
        60,
        nodes=3,
        expect=("cut", "crash", "loss", "wait"),
    )
    assert summary.cuts > 30
    assert summary.crashes > 20
    assert f"{summary.cuts} cuts, {summary.crashes} crashes, {summary.losses} loss" in str(summary)


@pytest.mark.explore
@pytest.mark.parametrize("strategy", ["mixed", "uniform", "pct"])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_fences_hold_under_many_seeds(nodes: int, strategy: Any) -> None:
    """The same under 1,000 seeds of each strategy."""
    simulate(
        lambda s: count(s, "read", "write", cuts=3, crashes=1, deaths=1),
        1000,
        nodes=nodes,
        strategy=strategy,
        expect=("cut", "crash", "death"),
    )


@pytest.mark.explore
def test_every_moment_of_a_cut() -> None:
    """In a small scenario the connection is cut at every moment, and noticed at every moment."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            try:
                lock = locks.Lock(A, nodes=["n2"])
                lock.acquire()
                found.add("granted")
                lock.release()
                found.add("released")
            except locks.LocksError as error:
                found.add(type(error).__name__)

        simulation.client(work, node="n1")
        simulation.run(cuts=1)

    found: set[str] = set()
    summary = simulate(scenario, nodes=2, strategy="every")
    assert summary.all
    assert summary.cuts > 1000
    assert found == {"granted", "released", "CannotServe", "NotHeld"}


def any_program(simulation: Simulation, rng: random.Random) -> None:
    """A client that does what clients do, with what was drawn; errors of `locks` are as they should be."""

    def steps(tx: locks.Transaction) -> None:
        for _ in range(rng.randint(1, 3)):
            lock_id = rng.choice([A, A + B, B])
            lock = rng.choice([tx.write_lock, tx.read_lock])
            where: Any = rng.choice([None, None, ["n1"], ["n2", "n3"], locks.HERE])
            require: Any = rng.choice([None, "all", "majority", "all_alive", "majority_alive"])
            lock(lock_id, nodes=where, require=require, timeout=rng.choice([None, 0, 1, 10]))
            match rng.randrange(8):
                case 0 | 1:
                    tx.token(lock_id)
                case 2 | 3:
                    simulation.sleep(rng.choice([0, 0.01, 1]))
                case 4:
                    tx.ensure_held()
                case 5:
                    tx.unlock(lock_id)
                case 6:
                    tx.lost.wait(3)

    for _ in range(rng.randint(1, 4)):
        action: Any = rng.choice(["abort", "surrender"])
        patient, timeout = rng.random() < 0.3, rng.choice([None, 5, 50])
        with suppress(locks.LocksError):
            with locks.transaction(await_nodes=patient, on_deadlock=action, timeout=timeout) as tx:
                steps(tx)
            with locks.Lock(("l",), timeout=20), locks.Semaphore(("s",), 2):
                simulation.sleep(0.1)


def any_programs(simulation: Simulation) -> None:
    """Some of them, while things break."""
    rng = random.Random(f"programs {simulation.seed}")
    for _ in range(rng.randint(2, 5)):
        simulation.client(any_program, simulation, random.Random(rng.random()))
    simulation.run(
        cuts=rng.choice([0, 1, 2, 4]), crashes=rng.choice([0, 1, 2]), deaths=rng.choice([0, 1])
    )


SEEN = ("deadlock", "abort", "wait", "timeout", "death", "cut", "crash", "loss")


def test_any_programs() -> None:
    """Nothing is wrong with locks and tokens, nobody is stuck, and nothing is left, whatever programs do and what breaks."""
    simulate(any_programs, 30, nodes=3, expect=SEEN[2:])


@pytest.mark.explore
@pytest.mark.parametrize("strategy", ["uniform", "pct"])
def test_many_programs(strategy: Any) -> None:
    """The same under many seeds."""
    simulate(any_programs, 1000, nodes=3, strategy=strategy, expect=SEEN)


# --- `locks.testing` with several nodes: what is watched and asked of other nodes, under cuts and crashes. ---


WATCHED = ("a",)
LONG = 60.0


class TokenRefused(Exception):
    """A larger token was seen."""


class WatchedCounter:
    """A value in a file that all share. With `fenced` it refuses clients whose token is too small."""

    def __init__(self, fenced: bool = True) -> None:
        self.value = self.newest = 0
        self.fenced = fenced

    def check(self, token: int) -> None:
        if self.fenced and token < self.newest:
            raise TokenRefused
        self.newest = max(self.newest, token)

    def add(self, simulation: Simulation, token: int = 0) -> None:
        self.check(token)
        value = self.value
        simulation.sleep(1)
        self.check(token)
        self.value = value + 1


def released(simulation: Simulation) -> None:
    """Wait until some node has told of a holder, and then of none; not for ever."""
    held: set[str] = set()
    news: list[str] = []

    def changed(view: View) -> None:
        if view.holders:
            held.add(view.node)
        elif view.node in held:
            news.append(view.node)

    locks.watch(WATCHED, watcher=changed)
    while not news and simulation.time < LONG:
        simulation.sleep(0.1)
    locks.unwatch(WATCHED, watcher=changed)


def hasty(simulation: Simulation, **faults: int) -> None:
    """Whoever is told that the lock was released goes on without it. One node has to be cut off to show that this is wrong."""
    counter = WatchedCounter(fenced=False)

    def first() -> None:
        with suppress(locks.LockLost, locks.CannotServe), locks.transaction() as tx:
            tx.write_lock(WATCHED)
            counter.add(simulation)

    def second() -> None:
        released(simulation)
        counter.add(simulation)

    simulation.client(first)
    simulation.client(second)
    simulation.run(**faults)
    assert counter.value >= 2


def careful(simulation: Simulation, **faults: int) -> None:
    """Whoever is told so takes the lock, and the counter refuses those who have lost it."""
    counter = WatchedCounter()
    done: list[int] = []

    def add() -> None:
        with (
            suppress(locks.LockLost, locks.CannotServe, locks.TransactionEnded, TokenRefused),
            locks.transaction() as tx,
        ):
            token = tx.write_lock(WATCHED)
            counter.add(simulation, token)
            done.append(token)

    def second() -> None:
        released(simulation)
        add()

    simulation.client(add)
    simulation.client(second)
    simulation.run(**faults)
    assert counter.value == len(done)


@pytest.mark.slow
def test_news_of_a_node_that_is_cut_off() -> None:
    """Acting on it without asking again is found, replayed by its schedule, and made short; without a cut, and on one node, it is right."""
    simulate(hasty, 100)
    simulate(hasty, 100, nodes=3)
    with pytest.raises(AssertionError) as found:
        simulate(lambda simulation: hasty(simulation, cuts=1), 200, nodes=3)
    note = "\n".join(getattr(found.value, "__notes__", ["the shortest way cut:"]))
    assert "the shortest way" in note
    assert "cut:" in note


def test_asking_again_is_right() -> None:
    """No schedule shows a fault in the program that takes the lock, whatever is cut or crashes: 500 seeds with LOCKS_EXPLORE=1."""
    simulate(
        lambda simulation: careful(simulation, cuts=2, crashes=1),
        500 if EXPLORE else 40,
        nodes=3,
        expect=("cut", "crash", "loss"),
    )


# --- What is told -------------------------------------------------------------------------------


def test_views_of_all_nodes() -> None:
    """A callable, an actor, and a task are told of the first view of each node, and of changes; who has ended is told no more."""

    class Watching(GeventActor):
        def on_receive(self, message: Any) -> None:
            told.setdefault("actor", []).append(message)

    told: dict[str, list[View]] = {}

    def scenario(simulation: Simulation) -> None:
        told.clear()

        def watch() -> None:
            actor = Watching.start()
            locks.watch(WATCHED, watcher=actor)
            locks.watch(WATCHED, watcher=told.setdefault("callable", []).append)
            simulation.sleep(10)
            actor.stop()
            simulation.sleep(10)

        async def read() -> None:
            async for view in aio.watch(WATCHED):
                told.setdefault("task", []).append(view)
                if {v.node for v in told["task"] if v.holders} == {"n1", "n2", "n3"}:
                    break

        def work() -> None:
            simulation.sleep(1)
            with locks.transaction() as tx:
                tx.write_lock(WATCHED)
                simulation.sleep(1)
            simulation.sleep(14)
            assert len(locks.original.watchers(WATCHED)) == 1
            with locks.Lock(WATCHED):
                simulation.sleep(1)

        simulation.client(watch, node="n1")
        simulation.client(read, node="n2")
        simulation.client(work, node="n3")
        simulation.run()
        for views in told.values():
            assert {view.node for view in views} == {"n1", "n2", "n3"}
            for node in "n1", "n2", "n3":
                versions = [view.version for view in views if view.node == node]
                assert versions == sorted(versions)
        held = [[view.node for view in told[who] if view.holders] for who in ("actor", "callable")]
        assert sorted(set(held[0])) == sorted(set(held[1])) == ["n1", "n2", "n3"]
        assert len(held[0]) < len(held[1])

    simulate(scenario, 12, nodes=3)


def test_a_watch_goes_on_when_its_node_is_back() -> None:
    """Views of a node that was cut off, or was started again, come anew; those of a node that has crashed go to nobody."""

    def scenario(simulation: Simulation) -> None:
        told: list[tuple[float, str]] = []
        gone: list[float] = []
        back: list[float] = []

        def watch() -> None:
            locks.watch(
                WATCHED, ["n2"], watcher=lambda view: told.append((simulation.time, view.node))
            )
            simulation.sleep(10)
            for breaks, mends in (
                (lambda: simulation.cut("n1", "n2"), lambda: simulation.mend("n1", "n2")),
                (lambda: simulation.crash("n2"), lambda: simulation.restart("n2")),
            ):
                before = len(told)
                breaks()
                simulation.sleep(10_000)
                assert len(told) == before
                mends()
                simulation.sleep(10_000)
                assert len(told) == before + 1
            back.append(simulation.time)

        def work() -> None:
            locks.watch(WATCHED, ["n1"], watcher=lambda view: gone.append(simulation.time))
            simulation.sleep(LONG * 1000)

        def later() -> None:
            simulation.sleep(50_000)
            simulation.client(lambda: locks.Lock(WATCHED, nodes=["n1"]).acquire(), node="n1")

        simulation.client(watch, node="n1")
        simulation.client(work, node="n2")
        simulation.client(later, node="n1")
        simulation.run(leaks=True)
        assert back
        assert max(gone) < 20_000  # its program is gone

    simulate(scenario, 20, nodes=2)


def test_what_is_done_once_over_nodes() -> None:
    """Simulated servers have just begun, without a memory and without a list that changes: the error says so."""

    def scenario(simulation: Simulation) -> None:
        def job() -> None:
            with (
                pytest.raises(locks.CannotServe, match="have begun without a memory"),
                locks.once(WATCHED),
            ):
                pass

        simulation.client(job)
        simulation.run()

    simulate(scenario, 1, nodes=3)


# --- What is asked ------------------------------------------------------------------------------


def test_nodes_are_monitored_and_actors_are_called_by_name() -> None:
    """`monitor_nodes` tells of nodes that are lost and are back; an actor is asked from another node."""

    class Adding(GeventActor):
        def on_receive(self, message: Any) -> Any:
            return message + 1

    def scenario(simulation: Simulation) -> None:
        news: list[str] = []

        def serve() -> None:
            actor = Adding.start()
            default_node().register("adding", actor)
            simulation.sleep(100)
            actor.stop()

        def ask() -> None:
            simulation.sleep(1)
            default_node().monitor_nodes(
                lambda said: news.append(f"{type(said).__name__} {said.node}")
            )
            assert default_node().remote("adding", "n1").ask(1) == 2
            simulation.cut("n1", "n2")
            simulation.sleep(10_000)
            assert news == ["NodeDown n1"]
            simulation.mend("n1", "n2")
            simulation.sleep(10_000)
            assert news == ["NodeDown n1", "NodeUp n1"]

        simulation.client(serve, node="n1")
        simulation.client(ask, node="n2")
        simulation.run()

    simulate(scenario, 20, nodes=3)
