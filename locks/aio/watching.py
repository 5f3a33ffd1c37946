"""Changes of a lock id, for `async for`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from locks.aio.tasks import call, current_owner
from locks.api import unwatch_on, watch_on
from locks.errors import MisuseError, NodeNotRunning
from locks.model import LockId, View, check_lock_id, show
from locks.node.client.scope import Nodes
from locks.program.default import default_node
from locks.runtime.monitor import Down, Monitor
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from locks.node.node import Node

__all__ = ["Views", "watch"]


class _Feed:
    """The views that a reader has not read yet: the newest of each node. The watch refers to the feed, not to the reader."""

    def __init__(self) -> None:
        self._newest: dict[str, View] = {}
        self._waiter: Waiter | None = None
        self._ends: list[Monitor] = []
        self._end_watch: partial[None] | None = None
        self._node: Node | None = None
        self.is_over = False
        self.error: NodeNotRunning | None = None

    def begin_watch(self, lock_id: LockId, nodes: Nodes | None) -> None:
        """Watch until this feed, the reader's task or the node ends. Call it where waiting is allowed."""
        node = self._node = default_node()
        self._end_watch = partial(unwatch_on, node, lock_id, nodes, self.take_view)
        try:
            watch_on(node, lock_id, nodes, self.take_view)
            for end, told in ((current_owner(), self._reader_down), (node.server, self._node_down)):
                monitor = Monitor(told)
                self._ends.append(monitor)
                monitor.begin_monitoring(end)
        except BaseException:
            self.end_watch()
            raise

    def take_view(self, view: View) -> None:
        """Take a view; called by the node's executor."""
        self._newest[view.node] = view
        self._wake()

    def next(self) -> View | None:
        """The next view; waits while there is none, and returns `None` at the end."""
        while True:
            for name in self._newest:
                return self._newest.pop(name)
            if self.is_over:
                return None
            waiter = self._waiter = Waiter()
            try:
                if not (self._newest or self.is_over):
                    waiter.wait()
            finally:
                self._waiter = None

    def end_watch(self) -> None:
        """Stop watching. It may be called anywhere, and repeatedly."""
        self.is_over = True
        end_watch, self._end_watch = self._end_watch, None
        if end_watch is not None and self._node is not None:
            self._node.executor.run_soon(end_watch)
        while self._ends:
            self._ends.pop().cancel()
        self._wake()

    def _reader_down(self, _: Down) -> None:
        self.end_watch()

    def _node_down(self, _: Down) -> None:
        if self._node is not None and not self.is_over:
            self.error = NodeNotRunning(
                f"can't watch any longer: node {self._node.name} was stopped",
                nodes=(self._node.name,),
            )
        self.end_watch()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.wake()


class Views:
    """The views of a lock id, the current one and one after each change; `locks.aio.watch` creates it.

    A slow reader next gets the newest view, without those in between: only the newest one is kept.

    It watches from the first `async for` on, until `aclose`, or until the end of its `async with` block or its task, or
    until it is dropped, for example by a `break` out of the loop. It has one reader at a time; use one object per task.
    """

    def __init__(self, lock_id: Sequence[Any], nodes: Nodes | None = None) -> None:
        self.lock_id = check_lock_id(lock_id)
        self._nodes = nodes
        self._feed: _Feed | None = None
        self._is_read = False

    def __repr__(self) -> str:
        return f"<aio.Views of {show(self.lock_id)}>"

    def __aiter__(self) -> Views:
        return self

    async def __anext__(self) -> View:
        if self._is_read:
            raise MisuseError(
                f"another task is already reading these views of {show(self.lock_id)}, and each view goes to one reader; "
                "use a second locks.aio.watch(lock_id) here",
                lock_id=self.lock_id,
            )
        self._is_read = True
        try:
            view = await call(self._next)
        finally:
            self._is_read = False
        if view is None:
            raise StopAsyncIteration
        return view

    def _next(self) -> View | None:
        feed = self._feed
        if feed is None:
            new = _Feed()
            new.begin_watch(self.lock_id, self._nodes)
            feed = self._feed = new
        view = feed.next()
        if view is None and feed.error is not None:
            raise feed.error
        return view

    async def aclose(self) -> None:
        """Stop watching; a waiting reader gets `StopAsyncIteration`."""
        if self._feed is None:
            self._feed = _Feed()
        self._feed.end_watch()

    async def __aenter__(self) -> Views:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        feed = getattr(self, "_feed", None)
        if feed is not None:
            feed.end_watch()


def watch(lock_id: Sequence[Any], nodes: Nodes | None = None) -> Views:
    """Read the changes of a lock id: `async for view in aio.watch(lock_id): ...`.

    Args:
        lock_id: The lock id.
        nodes: Names of the nodes; by default those on which this program takes its locks.

    Returns:
        The current view of each node, and the newest view after each change. Reading raises
        `NodeNotRunning` if a node can't be reached, or when this program's node was stopped.
    """
    return Views(lock_id, nodes)
