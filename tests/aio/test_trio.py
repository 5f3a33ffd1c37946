"""What is trio's own: nurseries and their children, cancel scopes, threads, runs that end, guests of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import greenlet
import pytest
import trio

import locks
import locks_leader.aio
from locks import aio
from tests.aio.steps import nothing_held, pause, until
from tests.aio.test_ends import script
from tests.helpers import LIMIT, eventually

A, B = ("a",), ("b",)


async def hold(
    lock_id: Any = A, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Have a lock until cancelled."""
    async with aio.transaction() as tx:
        await tx.write_lock(lock_id)
        task_status.started()
        await trio.sleep_forever()


async def waiting_for(lock_id: Any, number: int = 1) -> None:
    """See that so many wait for a lock."""
    await until(lambda: len(locks.queue(lock_id).waiting) == number)


@contextlib.asynccontextmanager
async def held(lock_id: Any = A) -> AsyncIterator[trio.Nursery]:
    """Another task has a lock, and is cancelled at the end."""
    async with trio.open_nursery() as nursery:
        await nursery.start(hold, lock_id)
        yield nursery
        nursery.cancel_scope.cancel()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function; an error of a nursery is raised itself."""
    try:
        trio.run(main)
    except BaseException as error:
        while len(getattr(error, "exceptions", ())) == 1:
            error = error.exceptions[0]  # type: ignore[attr-defined]
        raise error from None


# --- What blocks is refused ------------------------------------------------------------------------


def in_transaction() -> None:
    """Locks, works and releases."""
    with locks.transaction() as tx:
        tx.write_lock(A)


@pytest.mark.parametrize(
    "call",
    [
        lambda: locks.Lock(A).acquire(),
        lambda: locks.RLock(A).acquire(),
        lambda: locks.Semaphore(A, 2).acquire(),
        lambda: greenlet.greenlet(in_transaction).switch(),
        in_transaction,
    ],
)
def test_what_may_wait_is_refused(call: Callable[[], object]) -> None:
    """It would stop all tasks. Nothing was locked, and the error names what works, which does."""

    async def main() -> None:
        with pytest.raises(locks.errors.BlocksEventLoop, match=r"use locks\.aio"):
            call()
        assert not locks.holders(A)
        await aio.call(locks.Lock(A).acquire)
        assert locks.holders(A)

    run(main)


# --- Who the client is -----------------------------------------------------------------------------


def test_each_task_is_a_client() -> None:
    """Children of a nursery exclude each other and their parent; the locks of one are free when it ends."""
    inside: list[int] = []

    async def one(number: int) -> None:
        for lock in (aio.Lock(A), aio.RLock(A), aio.RWLock(A).write_lock()):
            async with lock:
                inside.append(number)
                await trio.sleep(0)
                assert inside.pop() == number
                assert not inside
        await aio.Lock(A).acquire()  # which ends with the task

    async def main() -> None:
        assert await aio.Lock(A).acquire()
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(one, number)
            await waiting_for(A, 5)
            aio.Lock(A).release()
        assert await aio.Lock(A).acquire(timeout=LIMIT)
        (mine,) = locks.holders(A)
        assert mine.client.startswith("task tests.aio.test_trio.")

    run(main)


def test_threads_are_other_clients() -> None:
    """A function in a thread waits for the task, and the task for it; what it calls back is the task's."""

    async def main() -> None:
        lock = aio.Lock(A)

        def in_thread() -> None:
            assert not locks.Lock(A).acquire(blocking=False)
            trio.from_thread.run_sync(lock.release)
            with locks.Lock(A):
                assert not trio.from_thread.run(partial(lock.acquire, timeout=0))
            assert trio.from_thread.run(partial(lock.acquire, timeout=LIMIT))

        await lock.acquire()
        await trio.to_thread.run_sync(in_thread)
        assert lock.owned()
        lock.release()
        await trio.to_thread.run_sync(in_transaction)

    run(main)


def test_trio_as_a_guest_of_asyncio() -> None:
    """Both kinds of tasks, in one thread, exclude each other."""
    inside: list[str] = []

    async def one(name: str, sleep: Callable[[float], Any]) -> None:
        for _ in range(10):
            async with aio.Lock(A):
                inside.append(name)
                await sleep(0)
                assert inside.pop() == name
                assert not inside

    async def guest() -> str:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, f"guest {number}", trio.sleep)
        return "all"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=done.set_result,
        )
        await asyncio.gather(*(one(f"host {number}", asyncio.sleep) for number in range(3)))
        assert (await done).unwrap() == "all"
        await nothing_held()

    asyncio.run(main())


# --- Scopes ----------------------------------------------------------------------------------------


def test_time_limits() -> None:
    """`move_on_after` and `fail_after` withdraw a wait; the transaction, and the task, go on."""

    async def main() -> None:
        async with held(A), aio.transaction() as tx:
            await tx.write_lock(B)
            with trio.move_on_after(0.01) as scope:
                await tx.write_lock(A)
            assert scope.cancelled_caught
            assert not locks.queue(A).waiting
            with pytest.raises(trio.TooSlowError), trio.fail_after(0.01):
                await aio.Lock(A).acquire()
            assert not await aio.Lock(A).acquire(timeout=0.01)
            with pytest.raises(locks.LockTimeout, match="held by task tests"):
                await tx.write_lock(A, timeout=0.01)
            assert not locks.queue(A).waiting
            tx.ensure_held(B)
        await nothing_held()

    run(main)


def test_a_call_is_a_checkpoint() -> None:
    """In a cancelled scope it raises before it requests anything; a free lock lets others run."""

    async def main() -> None:
        lock = aio.Lock(A)
        with trio.CancelScope() as scope:
            scope.cancel()
            await lock.acquire()
        assert scope.cancelled_caught
        assert not lock.owned()
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.sleep(0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            while turns < 10:
                async with lock:
                    pass
            nursery.cancel_scope.cancel()

    run(main)


@pytest.mark.usefixtures("here")
def test_a_wait_on_the_way_out_is_shielded() -> None:
    """A cancelled leader waits until its part in the election is over: it can take part again at once."""

    async def main() -> None:
        election = locks_leader.aio.Election("report")
        for _ in range(5):
            with trio.CancelScope() as scope:
                async with election.lead(timeout=LIMIT):
                    scope.cancel()
                    await trio.sleep_forever()
            assert scope.cancelled_caught

            async def lead(leadership: Any) -> None:
                try:
                    await held_by_nursery()
                finally:
                    leadership.ensure_leading()

            async def held_by_nursery() -> None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    scope.cancel()

            with trio.CancelScope() as scope:
                await election.run(lead, timeout=LIMIT)

    run(main)


# --- Ends ------------------------------------------------------------------------------------------


def test_a_run_that_crashes_lets_go() -> None:
    """trio ends a run at once if a callback of it fails; its tasks are cancelled, and their locks are free."""

    async def main() -> None:
        async with held(A) as nursery:
            nursery.start_soon(hold, A)
            await waiting_for(A)

            def fail() -> None:
                raise ZeroDivisionError

            trio.lowlevel.current_trio_token().run_sync_soon(fail)
            await trio.sleep_forever()

    with pytest.raises(trio.TrioInternalError):
        trio.run(main)
    eventually(lambda: locks.statistics().agents == 0)


def test_runs_and_loops_in_threads() -> None:
    """Runs of trio in two threads, loops of asyncio in two, and a thread without one, share a counter."""
    count = 0

    async def add(number: int) -> None:
        nonlocal count
        async with aio.transaction() as tx:
            await tx.lock_all([A, ("n", number)])
            now = count
            await pause()
            count = now + 1

    async def by_trio() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(25):
                nursery.start_soon(add, number)

    async def by_asyncio() -> None:
        await asyncio.gather(*(add(number) for number in range(25)))

    threads = [
        threading.Thread(target=target)
        for target in 2 * (partial(trio.run, by_trio), lambda: asyncio.run(by_asyncio()))
    ]
    for thread in threads:
        thread.start()
    for _ in range(25):
        with locks.transaction() as tx:
            tx.write_lock(A)
            count += 1
    for thread in threads:
        thread.join(LIMIT)
    assert count == 125


def test_ctrl_c_with_locks_held() -> None:
    """Ctrl-C in `trio.run`, if the node is started in it: the main task is interrupted, and no lock is kept."""
    assert (
        script(
            """
            import locks, time, trio
            from locks import aio
            async def hold(n):
                async with aio.Lock(("a",)), aio.Lock(("n", n)):
                    print("ready", flush=True)
                    while True:
                        await trio.sleep(0.001)
            async def main():
                async with trio.open_nursery() as nursery:
                    for n in range(5):
                        nursery.start_soon(hold, n)
            try:
                trio.run(main)
            except BaseException as error:
                end = time.monotonic() + 60
                while locks.statistics().agents and time.monotonic() < end:
                    time.sleep(0.001)
                print(error.exceptions, locks.statistics().agents, locks.holders(("a",)))
            """,
            interrupt=True,
        )
        == "(KeyboardInterrupt(),) 0 ()\n"
    )
