"""`locks.testing` with several nodes: what is watched and asked of other nodes, under cuts and crashes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import locks
from locks import aio, facts
from locks.actors import GeventActor
from locks.errors import LocksError, NodeNotRunning
from locks.program.default import default_node
from locks.testing import Simulation, simulate
from locks.values import View
from tests.helpers import EXPLORE

A = ("a",)
LONG = 60.0


class Refused(Exception):
    """A larger token was seen."""


class Counter:
    """A value in a file that all share. With `fenced` it refuses clients whose token is too small."""

    def __init__(self, fenced: bool = True) -> None:
        self.value = self.newest = 0
        self.fenced = fenced

    def check(self, token: int) -> None:
        if self.fenced and token < self.newest:
            raise Refused
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

    locks.watch(A, watcher=changed)
    while not news and simulation.time < LONG:
        simulation.sleep(0.1)
    locks.unwatch(A, watcher=changed)


def hasty(simulation: Simulation, **faults: int) -> None:
    """Whoever is told that the lock was released goes on without it. One node has to be cut off to show that this is wrong."""
    counter = Counter(fenced=False)

    def first() -> None:
        with suppress(locks.LockLost, locks.CannotServe), locks.transaction() as tx:
            tx.write_lock(A)
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
    counter = Counter()
    done: list[int] = []

    def add() -> None:
        with (
            suppress(locks.LockLost, locks.CannotServe, locks.TransactionEnded, Refused),
            locks.transaction() as tx,
        ):
            token = tx.write_lock(A)
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
            locks.watch(A, watcher=actor)
            locks.watch(A, watcher=told.setdefault("callable", []).append)
            simulation.sleep(10)
            actor.stop()
            simulation.sleep(10)

        async def read() -> None:
            async for view in aio.watch(A):
                told.setdefault("task", []).append(view)
                if {v.node for v in told["task"] if v.holders} == {"n1", "n2", "n3"}:
                    break

        def work() -> None:
            simulation.sleep(1)
            with locks.transaction() as tx:
                tx.write_lock(A)
                simulation.sleep(1)
            simulation.sleep(14)
            assert len(locks.original.watchers(A)) == 1
            with locks.Lock(A):
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
            locks.watch(A, ["n2"], watcher=lambda view: told.append((simulation.time, view.node)))
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
            locks.watch(A, ["n1"], watcher=lambda view: gone.append(simulation.time))
            simulation.sleep(LONG * 1000)

        def later() -> None:
            simulation.sleep(50_000)
            simulation.client(lambda: locks.Lock(A, nodes=["n1"]).acquire(), node="n1")

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
                pytest.raises(locks.CannotServe, match="has begun without a memory"),
                locks.once(A),
            ):
                pass

        simulation.client(job)
        simulation.run()

    simulate(scenario, 1, nodes=3)


# --- What is asked ------------------------------------------------------------------------------


def test_queries_to_other_nodes() -> None:
    """`queue`, `holders`, `waits` and `statistics` ask other nodes; there is an answer, or an error in virtual time."""
    found: set[str] = set()

    def scenario(simulation: Simulation) -> None:
        def hold() -> None:
            with locks.Lock(A, nodes=["n2@x"]):
                simulation.sleep(100)

        def ask() -> None:
            simulation.sleep(10)
            (holder,) = locks.holders(A, node="n2@x")
            assert holder.client == "hold-1"
            assert locks.queue(A, node="n3@x").requests == ()
            assert len(facts.waits().requests) == 1
            assert locks.statistics("n2@x").table.entries == 1
            simulation.cut("n1@x", "n2@x")
            before = simulation.time
            try:
                locks.queue(A, node="n2@x", timeout=5)
            except LocksError as error:
                found.add(type(error).__name__)
            assert simulation.time < before + 6
            simulation.sleep(10_000)
            with pytest.raises(NodeNotRunning, match="n1@x can't read the locks of n2@x"):
                locks.queue(A, node="n2@x")

        simulation.client(hold, node="n2@x")
        simulation.client(ask, node="n1@x")
        simulation.run()

    simulate(scenario, 80, nodes=["n1@x", "n2@x", "n3@x"])
    assert found == {"LockTimeout", "NodeNotRunning"}


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
