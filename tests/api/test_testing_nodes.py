"""`locks.testing` with several nodes: where locks are taken, cuts, crashes and restarts, and what clients see of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress

import pytest

import locks
from locks.core.server.machine import ServerMachine
from locks.program.default import default_node
from locks.runtime.port import World
from locks.testing import Simulation, Violation, seeds, simulate
from locks.testing.node import SimulatedNode
from locks.testing.nodes import SimulatedNodes

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


@seeds(20, nodes=2)
def test_each_node_has_a_lock_table(simulation: Simulation) -> None:
    """`locks.HERE` and `nodes=` name lock tables: on different ones, one id is two locks."""
    here: list[str] = []
    there: list[str] = []

    def on_its_own() -> None:
        with locks.transaction() as tx:
            tx.write_lock(A, nodes=locks.HERE)
            here.append("has it")
            while len(here) < 2:
                simulation.sleep(0.1)

    def on_one() -> None:
        with locks.transaction() as tx:
            tx.write_lock(A, nodes=["n1"], require="all")
            there.append("has it")
            other.sleep(0.1)
            assert len(there) == 1
            there.clear()

    for work in (on_its_own, on_its_own):
        simulation.client(work)
    simulation.run()
    other = Simulation(simulation.seed, nodes=2)
    for work in (on_one, on_one):
        other.client(work)
    other.run()


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
