"""`locks.testing`: `async def` clients, tasks of an event loop in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import locks
import locks.testing
from locks import aio
from locks.testing import Simulation, seeds, simulate
from tests.warm import run_program

ROOT = Path(__file__).parents[2]
A, B = ("a",), ("b",)


class Bank:
    """Accounts, and transfers of tasks and of threads."""

    def __init__(self, simulation: Simulation, accounts: int = 3) -> None:
        self.simulation = simulation
        self.balances = dict.fromkeys(range(accounts), 100)
        for n in range(accounts):
            simulation.client(self.transfer, n, (n + 1) % accounts)
        simulation.client(self.blocking_transfer, 0, 1)
        simulation.client(self.blocking_transfer, 1, 0)

    @property
    def total(self) -> int:
        return sum(self.balances.values())

    async def transfer(self, source: int, target: int) -> None:
        async def move(tx: aio.Transaction) -> None:
            await tx.write_lock(("bank", source))
            await tx.write_lock(("bank", target))
            left = self.balances[source] - 1
            await asyncio.sleep(0.01)
            self.balances[source] = left
            await asyncio.sleep(0)
            self.balances[target] += 1

        await aio.run_transaction(move)

    def blocking_transfer(self, source: int, target: int) -> None:
        def move(tx: locks.Transaction) -> None:
            tx.write_lock(("bank", source))
            tx.write_lock(("bank", target))
            left = self.balances[source] - 1
            self.simulation.sleep(0.01)
            self.balances[source] = left
            self.balances[target] += 1

        locks.run_transaction(move)


def trace_of(seed: int) -> list[str]:
    """What has happened with a seed, to the microsecond."""
    simulation = Simulation(seed)
    bank = Bank(simulation)
    simulation.client(group_of_tasks)
    simulation.run(deaths=1)
    return [*simulation.trace, *map(repr, simulation.deadlocks), str(bank.balances)]


async def group_of_tasks() -> None:
    """Several tasks that nobody has named, each a client."""

    async def one(number: int) -> None:
        async with aio.Lock(("bank", number)):
            await asyncio.sleep(0.001)

    await asyncio.gather(*(one(number) for number in range(3)))


# --- Orders ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_same_seed_same_trace() -> None:
    """A seed says everything, in each run and in each process, whatever the hashes of strings and ids of objects."""
    traces = [trace_of(seed) for seed in range(10)]
    keep = [object() for _ in range(1000)]  # others get other addresses
    assert [trace_of(seed) for seed in range(10)] == traces
    assert any("Task-" in line for line in traces[0])
    assert len(set(map(str, traces))) == 10
    del keep
    program = "from tests.api.test_testing_tasks import trace_of; print(*trace_of(7), sep='\\n')"
    done = run_program(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout.splitlines() == "\n".join(traces[7]).splitlines()


def test_between_two_awaits_no_task_goes_first() -> None:
    """What stands between two awaits is one step for tasks, also if it calls `locks`; for threads it is not."""
    kinds = set()

    def scenario(simulation: Simulation) -> None:
        steps: list[str] = []

        async def step(name: str) -> None:
            lock = aio.Lock((name,))
            await lock.acquire()
            await asyncio.sleep(0)
            steps.append(name)
            lock.release()
            steps.append(name)

        def look() -> None:
            for _ in range(10):
                locks.holders(A)
                steps.append("-")

        simulation.client(step, "a")
        simulation.client(step, "b")
        simulation.client(look)
        simulation.run()
        seen = "".join(steps)
        assert seen.replace("-", "") in ("aabb", "bbaa")
        kinds.add("a-" in seen.replace("aa", "").replace("bb", ""))

    simulate(scenario, seeds=50)
    assert kinds == {True, False}


# --- What is right ----------------------------------------------------------------------------------


@seeds(50)
def test_transfers(simulation: Simulation) -> None:
    """Tasks and threads take the same locks; under no schedule is money lost."""
    bank = Bank(simulation)
    simulation.run()
    assert bank.total == 300


@seeds(10)
def test_time_is_virtual(simulation: Simulation) -> None:
    """Sleeping, time limits of `locks` and of asyncio go by the virtual clock; a wait that is given up is withdrawn."""
    found: dict[str, float] = {}

    async def hold() -> None:
        async with aio.Lock(A):
            await asyncio.sleep(7200)

    async def give_up(name: str, wait: Callable[[], Awaitable[Any]]) -> None:
        await asyncio.sleep(1)
        with pytest.raises((locks.LockTimeout, asyncio.TimeoutError)):
            await wait()
        found[name] = asyncio.get_running_loop().time()

    async def by_locks() -> None:
        async with aio.transaction(timeout=3600) as tx:
            await tx.write_lock(A)

    async def by_asyncio() -> None:
        async with aio.transaction() as tx:
            await asyncio.wait_for(tx.write_lock(A), 1800)

    async def last() -> None:
        await asyncio.sleep(3700)
        assert not locks.queue(A).waiting  # nobody waits any more
        async with aio.Lock(A):
            found["last"] = simulation.time

    simulation.client(hold)
    simulation.client(give_up, "locks", by_locks)
    simulation.client(give_up, "asyncio", by_asyncio)
    simulation.client(last)
    simulation.run()
    assert 3601 <= found["locks"] < 3602
    assert 1801 <= found["asyncio"] < 1802
    assert 7200 <= found["last"] < 7201


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no task groups")
@seeds(20)
def test_task_group(simulation: Simulation) -> None:
    """Tasks of a group lock in their parent's transaction; if one fails, the others are cancelled where they wait."""
    cancelled: list[str] = []

    async def parent() -> None:
        async with aio.transaction() as tx:
            async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined, unused-ignore]
                for number in range(3):
                    group.create_task(tx.write_lock(("part", number)))
            for number in range(3):
                tx.ensure_held(("part", number))
            await asyncio.sleep(100)

    async def wait() -> None:
        try:
            async with aio.Lock(("part", 1)):
                raise AssertionError("it is held")
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise

    async def fail() -> None:
        await asyncio.sleep(10)
        raise ZeroDivisionError

    async def failing() -> None:
        await asyncio.sleep(50)
        try:
            async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined, unused-ignore]
                group.create_task(wait())
                group.create_task(fail())
        except Exception as error:
            cancelled.append(type(error).__name__)
        assert not locks.queue(("part", 1)).waiting

    async def limited() -> None:
        await asyncio.sleep(50)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):  # type: ignore[attr-defined, unused-ignore]
                await aio.Lock(("part", 2)).acquire()

    for function in (parent, failing, limited):
        simulation.client(function)
    simulation.run()
    assert cancelled == ["wait", "ExceptionGroup"]


# --- Several at once, for one owner ---------------------------------------------------------------


# --- Deaths and ends --------------------------------------------------------------------------------


@seeds(10)
def test_kill(simulation: Simulation) -> None:
    """A task that is killed is cancelled, where it waits or before it began; its locks become free."""
    left: list[str] = []

    async def hold() -> None:
        try:
            async with aio.transaction() as tx:
                await tx.write_lock(A)
                await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            left.append("hold")
            raise

    async def heir() -> float:
        await asyncio.sleep(10)
        async with aio.Lock(A):
            return simulation.time

    async def kill() -> None:
        await asyncio.sleep(100)
        simulation.kill(holding)
        simulation.kill(simulation.client(hold))

    holding = simulation.client(hold)
    next_one = simulation.client(heir)
    simulation.client(kill)
    simulation.run()
    assert holding.killed
    assert left[:1] == ["hold"]
    assert 100 < next_one.value < 102


@seeds(40)
def test_deaths(simulation: Simulation) -> None:
    """Whoever dies wherever: a transfer is done or not begun, as far as cancelling lets it."""
    done: list[str] = []

    async def work() -> None:
        async with aio.transaction() as tx:
            await tx.lock_all([A, B])
            await asyncio.sleep(0.01)
            done.append("work")

    clients = [simulation.client(work) for _ in range(4)]
    simulation.run(deaths=2)
    assert len(done) >= 4 - sum(client.killed for client in clients)


def test_what_is_left_is_cancelled(simulation: Simulation) -> None:
    """When all clients are done, their background tasks are cancelled, as `asyncio.run` does; generators are closed."""
    ended: list[str] = []

    async def beat() -> None:
        try:
            while True:
                async with aio.Lock(("beat",)):
                    await asyncio.sleep(1)
        finally:
            async with aio.Lock(A):
                ended.append("beat")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append("numbers")

    async def work() -> None:
        beating = asyncio.get_running_loop().create_task(beat())
        async for _ in numbers():
            break
        await asyncio.sleep(10)
        assert not beating.done()

    simulation.client(work)
    simulation.run()
    assert sorted(ended) == ["beat", "numbers"]
    assert simulation.time < 20


# --- What is wrong is found -------------------------------------------------------------------------


@pytest.mark.slow
def test_ends_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    """However a run ends, Python warns of nothing: no task was destroyed, nothing never awaited or retrieved."""

    def scenario(simulation: Simulation) -> None:
        Bank(simulation)
        simulation.client(group_of_tasks)

        async def fail() -> None:
            await asyncio.sleep(0.005)
            raise ZeroDivisionError

        simulation.client(fail)
        with contextlib.suppress(ZeroDivisionError):  # unless it is the one who dies
            simulation.run(deaths=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(scenario, seeds=100)
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


# --- What can't be simulated ------------------------------------------------------------------------


async def in_a_thread() -> None:
    """A thread."""
    await asyncio.to_thread(print)


async def over_a_socket() -> None:
    """A connection."""
    await asyncio.open_connection("localhost", 1)


async def in_a_process() -> None:
    """A program."""
    await asyncio.create_subprocess_exec("true")


async def a_name() -> None:
    """A look-up."""
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


@pytest.mark.parametrize("function", [in_a_thread, over_a_socket, in_a_process, a_name])
@pytest.mark.filterwarnings("ignore:.*child watcher.*:RuntimeWarning")
def test_outside_is_refused(
    simulation: Simulation, function: Callable[[], Awaitable[None]]
) -> None:
    """Threads, sockets, processes: refused with what to do; the client goes on."""

    async def client() -> None:
        with pytest.raises(locks.MisuseError, match="a simulation can't wait for"):
            await function()
        async with aio.Lock(A):
            pass

    simulation.client(client)
    simulation.run()


@seeds(10)
def test_blocking_calls_are_refused(simulation: Simulation) -> None:
    """A call that may wait, in a coroutine without `await`: refused as in a program, before it has asked."""

    async def client() -> None:
        with pytest.raises(locks.errors.BlocksEventLoop), locks.transaction() as tx:
            tx.write_lock(A)
        assert not (await aio.call(locks.queue, A)).waiting
        with pytest.raises(locks.errors.BlocksEventLoop):
            locks.Lock(A).acquire()

    simulation.client(client)
    simulation.run()
