"""`Semaphore`: so many clients at once, in their order; deadlocks through it, loss of its holders, misuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import locks
from locks import aio
from locks.testing import Simulation, simulate
from tests.api.clients import Run
from tests.helpers import eventually

POOL = ("pool",)
UNITS = locks.values.units(POOL, 2)


def until_waiting(lock_id: tuple[Any, ...], number: int = 1) -> None:
    """Wait until so many wait for a lock, as everybody can see."""
    eventually(lambda: len(locks.queue(lock_id).waiting) == number)


def outcome(job: Any) -> Any:
    """What a job returns, or the error that it raises."""
    try:
        return job()
    except locks.LocksError as error:
        return error


@pytest.mark.every_kind
def test_so_many_at_once_and_the_next_one_in_order(run: Run) -> None:
    """Two have it, the others wait in line; each unit has one holder, and tokens of it rise."""
    clients = [run.client() for _ in range(4)]
    pool = locks.Semaphore(POOL, 2)
    assert all(client.call(pool.acquire) for client in clients[:2])
    had = {client.call(pool.unit): client.call(pool.token) for client in clients[:2]}
    assert sorted(had) == [0, 1]
    assert clients[0].call(pool.locked)
    assert not clients[2].call(lambda: pool.acquire(blocking=False))
    assert not clients[2].call(lambda: pool.acquire(timeout=0.01))
    waits = []
    for client in clients[2:]:
        waits.append(client.do(pool.acquire))
        until_waiting(UNITS, len(waits))
    freed = clients[1].call(pool.unit)
    clients[1].call(pool.release)
    assert waits[0].get()
    assert not waits[1].ready
    assert clients[2].call(pool.unit) == freed
    assert clients[2].call(pool.token) > had[freed]
    clients[0].call(pool.release)
    assert waits[1].get()
    for client in clients[2:]:
        client.call(pool.release)
    assert not clients[0].call(pool.locked)


def test_a_deadlock_through_all_holders_has_one_victim(run: Run) -> None:
    """Both who have a unit wait for the third, who waits for a unit: one is aborted, the others go on."""
    clients = [run.client() for _ in range(3)]
    pool, x = locks.Semaphore(POOL, 2), locks.Lock(("x",))

    def work(first: locks.Lock, second: locks.Lock) -> str:
        with first:
            eventually(lambda: len(locks.holders(POOL)) == 2 and locks.Lock(("x",)).locked())
            with second:
                return "done"

    pairs = [(pool, x), (pool, x), (x, pool)]
    answers = [
        client.do(outcome, lambda pair=pair: work(*pair))
        for client, pair in zip(clients, pairs, strict=True)
    ]
    results = [answer.get() for answer in answers]
    assert results.count("done") == 2
    (error,) = (result for result in results if result != "done")
    assert isinstance(error, locks.DeadlockAborted)
    assert error.deadlock.agent == max(error.deadlock.agents)
    assert "a unit of pool*2" in str(error)


def test_misuse(run: Run) -> None:
    """Errors say what was wrong and with which value, and change nothing."""
    one, two = run.client(), run.client()
    pool = locks.Semaphore(POOL, 2)

    def refused(client: Any, job: Any, kind: type[Exception], *words: str) -> None:
        error = client.call(outcome, job)
        assert type(error) is kind, error
        for word in words:
            assert word in str(error)

    refused(one, pool.release, locks.errors.NotHeld, "pool*2")
    refused(one, pool.unit, locks.errors.NotHeld, "pool*2")
    one.call(pool.acquire)
    refused(one, pool.acquire, locks.MisuseError, "pool*2", "already")
    other = locks.Semaphore(POOL, 3)
    refused(two, other.acquire, locks.errors.ConflictingRequest, "with 3 units", "with 2 units")
    refused(two, pool.release, locks.errors.NotHeld)
    assert two.call(pool.acquire)
    for client in (one, two):
        client.call(pool.release)
    assert two.call(other.acquire)
    two.call(other.release)


@pytest.mark.parametrize("value", [0, -1, 10_001, True, 2.0, "2", None])
def test_what_is_no_number_of_units(value: Any) -> None:
    """It is refused with the value, before anything is asked for."""
    with pytest.raises(locks.errors.InvalidOption, match=r"value=.* is wrong"):
        locks.Semaphore(POOL, value)
    with pytest.raises(locks.errors.InvalidOption, match="already a counted lock"):
        locks.values.units(UNITS, 2)


def test_coroutines() -> None:
    """Tasks have units as other clients do, and never more of them at once than there are."""
    inside: list[int] = []
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        async with aio.Semaphore(POOL, 2) as pool:
            inside.append(number)
            most = max(most, len(inside))
            await asyncio.sleep(0)
            inside.remove(number)
            return pool.unit()

    async def all_of_them() -> list[int]:
        return list(await asyncio.gather(*map(work, range(10))))

    assert set(asyncio.run(all_of_them())) == {0, 1}
    assert most == 2


def test_in_a_simulation() -> None:
    """A program with semaphores is simulated as it is: under each schedule all finish, and at most one is aborted."""

    def scenario(simulation: Simulation) -> None:
        done: list[str] = []

        def work(first: Any, second: Any) -> None:
            try:
                with first(), second():
                    done.append("done")
            except locks.DeadlockAborted:
                done.append("aborted")

        def pool() -> locks.Semaphore:
            return locks.Semaphore(POOL, 2)

        def x() -> locks.Lock:
            return locks.Lock(("x",))

        for pair in ((pool, x), (pool, x), (x, pool)):
            simulation.client(work, *pair)
        simulation.run()
        assert sorted(done) in (["done"] * 3, ["aborted", "done", "done"])

    simulate(scenario, 60)
