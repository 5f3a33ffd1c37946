"""What the steps of the lock table cost, counted and not timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from locks.core.messages import Remove, Request, StandingElsewhere
from locks.core.server import notifier, waits
from locks.core.server import table as lock_table
from locks.core.server import tree as lock_tree
from locks.core.server.machine import ServerMachine
from locks.core.server.table import LockTable
from locks.core.server.tree import Entry
from locks.model import LockId, Mode
from tests.helpers import lines_of
from tests.lockstep import agent

# Whether an agent has requests elsewhere, and whether it waits there: by its number, of how many.
Standing = Callable[[int, int], tuple[bool, bool]]


class Looks:
    """Counts how often the table looks for an entry's reason to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = LockTable._look

        def counted(table: LockTable, entry: Entry, alone: bool = False) -> None:
            self.count += 1
            look(table, entry, alone)

        monkeypatch.setattr(LockTable, "_look", counted)

    def during(self, do: Callable[[], Any]) -> int:
        before = self.count
        do()
        return self.count - before


def work(do: Callable[[], object]) -> int:
    """How many lines of the lock table are carried out."""
    return lines_of(do, lock_table, lock_tree)


def table_with(*requests: tuple[int, LockId, Mode]) -> LockTable:
    """A table with these requests, each by the agent of the number."""
    table = LockTable()
    for who, lock_id, mode in requests:
        table.request(agent(who), "c", lock_id, mode)
    return table


@pytest.mark.parametrize("lock_id", [("a",), ("a", 1, 2)])
def test_handing_a_lock_on_looks_at_one_waiter(
    lock_id: LockId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 500 that wait for it, and the work is the same as with 1."""
    looks = Looks(monkeypatch)
    table = table_with(*((n, lock_id, "write") for n in range(501)))
    assert looks.count == 501
    costs = set()
    for n in range(500):
        before = looks.count
        costs.add(work(partial(table.remove, agent(n))))
        assert looks.count == before + 1
    assert len(costs) == 1
    assert [entry.granted for entry in table.view(lock_id)] == [True]


@pytest.mark.parametrize("owners", ["each its own", "all one's"])
@pytest.mark.parametrize("rows", [1_000, 10_000])
def test_a_table_lock_over_held_rows_costs_a_look_for_each_row(
    rows: int, owners: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one for each pair of rows: it counts down to its grant."""
    looks = Looks(monkeypatch)
    many = owners == "each its own"
    table = table_with(*((n if many else 0, ("a", n), "write") for n in range(rows)))
    (entry,) = table.request(agent(rows), "c", ("a",), "write")
    for n in range(rows):
        assert not entry.granted
        table.release(agent(n if many else 0), ("a", n))
    assert entry.granted
    assert looks.count <= rows + 2


def test_an_unrelated_id_costs_nothing_more_in_a_full_table() -> None:
    """A request and its release are the same work in a table of 1,000 ids with waiters on each."""
    rows = [(root, k) for root in ("a", "b") for k in range(500)]
    full = table_with(*((n, row, "write") for n in range(3) for row in rows))
    empty = table_with((0, ("c", 0), "write"))
    full.request(agent(0), "c", ("c", 0), "write")

    def request_and_release(table: LockTable, who: int) -> int:
        request = work(lambda: table.request(agent(who), "c", ("c", 1, "x"), "write"))
        return request + work(lambda: table.release(agent(who), ("c", 1, "x")))

    assert request_and_release(full, 9) == request_and_release(empty, 9)
    # The same for one who has requests elsewhere in the table.
    assert request_and_release(full, 0) == request_and_release(empty, 0)


def notifying(do: Callable[[], object]) -> int:
    """How many lines the search for cycles takes."""
    return lines_of(do, notifier, lock_tree, waits)


def ask(server: ServerMachine, who: int, lock_id: LockId, elsewhere: bool = False) -> None:
    """An agent asks for a write lock; perhaps at other nodes as well, where it waits."""
    server.handle(Request(agent(who), "c", lock_id, "write", elsewhere, elsewhere))


def crowd(size: int, standing: Standing) -> ServerMachine:
    """A lock server with a lock that many want, some of whom want it at other nodes as well, and wait there."""
    server = ServerMachine("a@h")
    for n in range(size):
        server.handle(Request(agent(n), "c", ("a",), "write", *standing(n, size)))
    return server


@pytest.mark.parametrize(
    "act",
    [
        lambda server: server.handle(Remove(agent(0))),
        lambda server: ask(server, 9999, ("a",), True),
        lambda server: server.handle(StandingElsewhere(agent(5), True, False)),
        lambda server: server.handle(Remove(agent(5))),
    ],
    ids=["hand over", "one more", "waits no more elsewhere", "gives up"],
)
@pytest.mark.parametrize(
    "standing",
    [
        lambda n, size: (True, True),
        lambda n, size: (n < 5, n < 5),
        lambda n, size: (n > size - 5, n > size - 5),
        lambda n, size: (True, n < 5),
        lambda n, size: (n > size - 5, n < 5),
    ],
    ids=["all", "the first", "the last", "all, and the first wait", "the first wait for the last"],
)
def test_a_step_among_many_who_wait_elsewhere_too_costs_in_proportion(
    standing: Standing, act: Callable[[ServerMachine], object]
) -> None:
    """Each may lie on a cycle with each other one; but what the step has not changed is not looked at again."""
    small, large = crowd(50, standing), crowd(200, standing)
    assert notifying(lambda: act(large)) < 5 * notifying(lambda: act(small)) + 100


def test_deadlocks_of_others_cost_nothing() -> None:
    """Who asks for a lock that is free pays for no deadlock of others, however many are not resolved."""

    def one_more(deadlocks: int) -> int:
        server = ServerMachine("a@h")
        for n in range(0, 2 * deadlocks, 2):
            for who, row in ((n, n), (n + 1, n + 1), (n, n + 1), (n + 1, n)):
                ask(server, who, ("a", row))

        def act() -> None:
            ask(server, 9999, ("b",))
            server.handle(Remove(agent(9999)))

        return notifying(act)

    assert one_more(100) <= one_more(1)
