"""Bridges are ended when nobody keeps them: beyond the list of a thread, and with the thread."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

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


def test_a_dropped_bridge_is_freed() -> None:
    """An idle bridge is referenced by its list alone, so dropping it frees it at once."""
    bridge = Bridge.idle()
    assert bridge.begin_function(lambda: 17, "a client", threading.Lock) is None  # type: ignore[arg-type]
    seen = weakref.ref(bridge)
    bridges_of_thread = bridge_module._idle.__dict__.setdefault("bridges", [])
    full, bridges_of_thread[:] = list(bridges_of_thread), [bridge] * MOST_IDLE
    try:
        assert bridge.outcome() == 17
    finally:
        bridges_of_thread[:] = full
    del bridge
    assert seen() is None
