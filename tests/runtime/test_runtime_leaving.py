"""Blocks that always release what they hold."""

from __future__ import annotations

import sys
from typing import Any

from locks.runtime.leaving import Block, entering
from tests.helpers import eventually


class Deep(Block):
    """A block whose release needs many frames."""

    def __init__(self) -> None:
        self.taken = self.released = False

    def __enter__(self) -> Deep:
        entering(self).take(self)
        self.taken = True
        return self

    def _leave(self, held: Any, error: BaseException | None) -> None:
        self._release(10)

    def _let_go(self, held: Any) -> None:
        self._release(10)

    def _release(self, frames: int) -> None:
        if frames:
            self._release(frames - 1)
        else:
            self.released = True


def test_what_a_block_holds_is_released_where_the_stack_ends() -> None:
    """However few frames are left for the block: if the release finds too few, a thread with a stack of its own does it."""
    blocks, before, depth = [], sys.getrecursionlimit(), 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back

    def use(block: Deep) -> None:
        with block:
            pass

    for left in range(3, 40):
        blocks.append(Deep())
        try:
            sys.setrecursionlimit(depth + left)
            use(blocks[-1])
        except RecursionError:
            pass
        finally:
            sys.setrecursionlimit(before)
    taken = [block for block in blocks if block.taken]
    assert len(taken) > 20
    eventually(lambda: all(block.released for block in taken))
