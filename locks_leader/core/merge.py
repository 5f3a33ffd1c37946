"""The merge plane: the lock under which a leader merges states and announces itself.

It is taken on the nodes that are led, by its own agent, which aborts if it would have to give up a
lock. The holder of the merge lock on a node may ask the instances there for their state, and wait.
"""

from __future__ import annotations

from locks_leader.core.events import BeginMerge, Effect, EndMerge

__all__ = ["Merge"]


class Merge:
    """The merge lock of one candidate.

    Args:
        out: Where effects are put.
    """

    __slots__ = ("_held", "_nodes", "_number", "_out")

    def __init__(self, out: list[Effect]) -> None:
        self._out = out
        self._number = 0
        self._nodes: frozenset[str] | None = None
        self._held = False

    def take_lock(self, nodes: frozenset[str]) -> bool:
        """Whether it holds the lock on these nodes; if not, request it."""
        if self._nodes is None or not nodes <= self._nodes:
            self.drop()
            self._number += 1
            self._nodes = nodes
            self._out.append(BeginMerge(self._number, nodes))
        return self._held

    def nodes(self, alive: frozenset[str]) -> None:
        """Take in the nodes that are up; on a node that was gone, the lock must be taken again."""
        if self._nodes is not None:
            self._nodes &= alive

    def told(self, number: int, held: bool) -> None:
        """The lock was taken, or its transaction was aborted."""
        if number == self._number and self._nodes is not None:
            self._held = held
            if not held:
                self._nodes = None

    def drop(self) -> None:
        """Release the lock, if it is held or requested."""
        if self._nodes is not None:
            self._nodes = None
            self._held = False
            self._out.append(EndMerge(self._number))
