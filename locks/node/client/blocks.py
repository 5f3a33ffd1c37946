"""`with` blocks in generators, which may be left in another thread or task than they were entered in.

FastAPI resumes a dependency with `yield` in whatever worker thread is free, and pytest-asyncio sets an async fixture up in one
task and tears it down in another one. The client that is seen at the entry has done its part then, and goes on with something else, or ends.

So the agent notes what its client holds by such blocks (`Agent.note_block`). As long as nothing says otherwise, a block is the
client's like any other: a context manager that is a generator is mostly used in one thread. It is *parted* from the client, with an owner of its
own, when

* the client ends; or
* the client requests or waits for something in a context in which the block was not entered, as pools of threads run each call in a copy of
  its caller's context; or
* the client does so when the generator does not run, and a pool of threads had called nothing but the generator; or
* somebody else uses its transaction.

It ends when it is left, in any thread, or when its generator is closed or collected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextvars import ContextVar
from types import FrameType

from locks.model import LockId
from locks.runtime.leaving import CONTEXTLIB, IN_GENERATOR, Hold
from locks.runtime.monitor import Ending, acting

__all__ = ["has_entered", "note_block"]

_POOL = "concurrent.futures.thread"

_entered: ContextVar[tuple[Hold, ...]] = ContextVar("locks_blocks", default=())


def note_block(
    hold: Hold,
    note: Callable[[Hold, LockId | None], object],
    owner: Ending | None,
    lock_id: LockId | None = None,
    frame: FrameType | None = None,
) -> None:
    """A block of a generator was entered, for the caller or for an owner.

    Args:
        hold: What the block has.
        note: Notes it in the agent of the transaction (`Agent.note_block`).
        owner: Whom the program has named as the owner, if anybody: the block is the owner's then.
        lock_id: The lock that the block holds; `None` for the transaction.
        frame: The generator's; of a task it does not matter.
    """
    if owner is None and acting.get() is None:
        hold.within = None if frame is None else _called_by_pool(frame)
        if hold.within is None:  # those that were left are forgotten
            _entered.set((*(each for each in _entered.get() if each.held is not None), hold))
        note(hold, lock_id)


def _called_by_pool(frame: FrameType) -> int | None:
    """The `id` of the outermost generator's frame, if only generators are between this one and a pool of threads."""
    above: FrameType | None = frame
    outermost = id(frame)
    while above is not None:
        if above.f_code.co_flags & IN_GENERATOR:
            outermost = id(above)
        elif above.f_globals is not CONTEXTLIB:
            return outermost if above.f_globals.get("__name__") == _POOL else None
        above = above.f_back
    return None


def has_entered(holds: Collection[Hold]) -> bool:
    """Whether the caller is in one of these blocks, as far as can be told."""
    if not set(holds).isdisjoint(_entered.get()):
        return True
    within = {each.within for each in holds} - {None}
    frame: FrameType | None = sys._getframe() if within else None
    while frame is not None and id(frame) not in within:
        frame = frame.f_back
    return frame is not None
