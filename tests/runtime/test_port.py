"""The port by which a simulation stands in for the world."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import locks
from locks.runtime.port import REAL, World, is_simulated, stand_in, world
from locks.runtime.waiter import Waiter


class Own(World):
    """A world of the thread that has made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.looked = 0

    def is_here(self) -> bool:
        return threading.get_ident() == self.thread

    def look(self) -> None:
        self.looked += 1


def test_the_real_world_is_the_callers_unless_a_simulation_calls() -> None:
    """`stand_in` is for those who are in the simulation: other threads stay in the real world, and so does what comes after it."""
    simulated = Own()
    found: list[Any] = []
    assert world() is REAL
    with stand_in(simulated):
        assert world() is simulated
        assert is_simulated()
        other = threading.Thread(target=lambda: found.append(world()))
        other.start()
        other.join()
        with stand_in(Own()):
            assert world() is not simulated
        assert world() is simulated
    assert found == [REAL]
    assert not is_simulated()


def test_the_real_world_is_that_again_after_an_error() -> None:
    """An error in a simulation ends it."""
    with pytest.raises(ZeroDivisionError), stand_in(Own()):
        raise ZeroDivisionError
    assert world() is REAL


def test_who_does_not_wait_looks_first() -> None:
    """A wait of no time at all lets a simulation do what is under way, and then says whether it was woken."""
    simulated = Own()
    waiter = Waiter()
    with stand_in(simulated):
        assert not waiter.wait(0)
        assert simulated.looked == 1
        waiter.wake()
        assert waiter.wait(0)
    assert simulated.looked == 1


def test_a_node_is_made_of_what_it_is_given() -> None:
    """Its clocks and the first version of its lock table are arguments; by default, versions go on from the time."""
    node = locks.node.Node("one@localhost", clocks=(lambda: 5_000_000, lambda: 7.0))
    try:
        assert (node.now(), node.clock()) == (5_000_000, 7.0)
        assert node.server.machine.version == 5_000
    finally:
        node.stop()
    node = locks.node.Node("one@localhost", first_version=17)
    try:
        assert node.server.machine.version == 17
    finally:
        node.stop()
