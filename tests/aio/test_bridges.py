"""Bridges are ended when nobody keeps them: beyond the list of a thread, and with the thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import greenlet

import locks
from locks import aio
from locks.runtime import bridge as bridge_module
from locks.runtime.bridge import MOST_IDLE, Bridge


def bridges() -> int:
    """How many bridges of this process are alive."""
    gc.collect()
    return sum(type(each) is Bridge for each in gc.get_objects())


async def burst(tasks: int) -> None:
    """Let many tasks be in a call at the same time."""

    async def request() -> None:
        async with aio.Lock(("hot",), timeout=60):
            await asyncio.sleep(0)

    await asyncio.gather(*(request() for _ in range(tasks)))


def test_bridges_beyond_the_list_of_a_thread_end() -> None:
    """A burst of tasks leaves no more bridges than a thread keeps, and none when the thread has ended."""
    before = bridges()
    kept: list[int] = []

    def serve() -> None:
        for _ in range(3):
            asyncio.run(burst(3 * MOST_IDLE))
            kept.append(bridges() - before)

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert max(kept) <= MOST_IDLE
    assert bridges() <= before


def test_a_bridge_beyond_the_list_is_freed() -> None:
    """It ends at once."""
    asyncio.run(burst(1))
    bridge = Bridge.idle()
    assert bridge.begin_function(lambda: 17, "a client", threading.Lock) is None  # type: ignore[arg-type]
    seen = weakref.ref(bridge)
    bridges_of_thread = bridge_module._idle.__dict__["bridges"].bridges
    full, bridges_of_thread[:] = list(bridges_of_thread), [bridge] * MOST_IDLE
    try:
        assert bridge.outcome() == 17
    finally:
        bridges_of_thread[:] = full
    del bridge
    assert seen() is None


def test_bridges_end_with_their_thread_though_an_error_refers_to_them() -> None:
    """What a greenlet refers to that outlives its thread is never freed."""
    errors: list[locks.LockTimeout] = []

    async def fails() -> None:
        async with aio.Lock(("held",)), aio.Semaphore(("full",), 1):
            await asyncio.create_task(waits())

    async def waits() -> None:
        async with aio.Lock(("held",), timeout=0.001):
            pass

    def serve() -> None:
        try:
            asyncio.run(fails())
        except locks.LockTimeout as error:
            errors.append(error)

    def left() -> int:
        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
        errors.pop()  # after the thread
        gc.collect()
        return sum(isinstance(each, (greenlet.greenlet, locks.Lock)) for each in gc.get_objects())

    before = max(left() for _ in range(4))  # greenlets of other threads come and go
    assert min(left() for _ in range(4)) <= before
