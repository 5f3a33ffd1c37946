"""Deadlocks of many: rings in every order, and clients that take several locks one by one.

In the original rings of four stay deadlocked in four of six orders, and clients that take three
locks one by one get stuck within 50 transactions.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import locks
from tests.api.clients import EXPLORE, Client, Run, many
from tests.helpers import eventually


def resolve(
    run: Run,
    clients: Sequence[Client],
    ages: Iterable[int],
    order: Iterable[int],
    abort: bool,
    paced: bool,
) -> None:
    """One ring: client i holds lock i and asks for the next one's.

    Args:
        run: The context.
        clients: The clients, in the order in which they stand in the ring.
        ages: The clients in the order in which their transactions begin.
        order: The clients in the order in which they ask.
        abort: Whether the transactions are aborted on deadlock.
        paced: Whether each waits before the next one asks.
    """
    size = len(clients)
    before = locks.statistics()
    for i in ages:
        clients[i].begin(abort_on_deadlock=abort)
    for i, client in enumerate(clients):
        client.lock(("ring", i)).get()
    youngest = max(client.agent.id for client in clients)

    def finish(client: Client, lock_id: tuple[Any, ...]) -> tuple[locks.values.Deadlock, ...]:
        try:
            deadlocks = locks.original.lock(client.agent, lock_id).deadlocks
        except locks.DeadlockAborted as error:
            return (error.deadlock,)
        locks.original.end_transaction(client.agent)
        return deadlocks

    answers = []
    for asked, i in enumerate(order, 1):
        wanted = ("ring", (i + 1) % size)
        answers.append(clients[i].do(finish, clients[i], wanted))
        if paced and asked < size:
            run.until_waiting(clients[i], wanted)
    reports = [answer.get() for answer in answers]
    after = locks.statistics()
    # Exactly one yields, and all are told.
    (report,) = set(itertools.chain(*reports))
    assert reports == [(report,)] * size
    assert report.action == ("aborted" if abort else "surrendered")
    assert report.agent == youngest
    assert set(report.agents) == {client.agent.id for client in clients}
    assert after.deadlocks - before.deadlocks == 1
    assert after.aborted - before.aborted == abort
    assert after.table.surrenders - before.table.surrenders == (not abort)
    eventually(lambda: locks.statistics().agents == 0)


@pytest.mark.every_kind
@pytest.mark.parametrize("number", [5, 10, pytest.param(20, marks=pytest.mark.explore)])
@pytest.mark.parametrize("on_deadlock", ["abort", "surrender"])
def test_clients_that_take_locks_one_by_one(run: Run, number: int, on_deadlock: Any) -> None:
    """Clients that each take three of as many locks, one by one, all finish all transactions."""
    transactions = many(8, 200)
    holders: dict[tuple[Any, ...], int] = {}

    def take(tx: locks.Transaction, chance: random.Random, me: int) -> None:
        wanted = [("lock", i) for i in chance.sample(range(number), 3)]
        for lock_id in wanted:
            tx.lock(lock_id)
            run.pause()
        for lock_id in wanted:  # here nobody else has any of them
            assert holders.setdefault(lock_id, me) == me
        run.pause()
        for lock_id in wanted:
            assert holders.pop(lock_id) == me

    def work(me: int) -> int:
        chance = random.Random(me)
        for _ in range(transactions):
            if on_deadlock == "abort":
                locks.run_transaction(lambda tx: take(tx, chance, me), retries=100)
            else:
                with locks.transaction(on_deadlock="surrender") as tx:
                    take(tx, chance, me)
        return transactions

    answers = [run.client().do(work, me) for me in range(number)]
    limit = 600.0 if EXPLORE else 60.0
    assert [answer.get(limit) for answer in answers] == [transactions] * number
    if run.in_hub:  # in threads it is a matter of luck
        assert locks.statistics().deadlocks > 0
