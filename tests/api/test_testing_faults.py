"""`locks.testing` with several nodes: what breaks at random, planted bugs that it shows, and programs that stand it."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

import locks
from locks.testing import Simulation, simulate

A, B = ("a",), ("b",)


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
