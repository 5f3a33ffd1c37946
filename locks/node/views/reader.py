"""Watching lock ids of other nodes: their views are put together from pages.

The node's executor takes in the pages, outside of the turn. Watchers of one lock id of one node
share a reading (`locks.node.views.sender` is its other side). They are notified of a view when it
is complete. It is the state of that lock table at the view's version. Changes that come faster than
they can be sent are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from locks.core.agent.refusals import over_limit
from locks.core.views import FollowedView
from locks.errors import LockTimeout, NodeNotRunning
from locks.model import LockId, View, show
from locks.net.exchange import NOCONNECTION
from locks.net.messages import AskView, BadMessage, EndRead, Large, Page, Read, Seen, Taken
from locks.node.client.refusals import check_may_wait, reasons
from locks.node.peers.calls import BlockingCalls
from locks.node.peers.local_node import Connections
from locks.runtime.identity import Listener
from locks.runtime.port import world
from locks.runtime.waiter import Waiter

__all__ = ["ViewReader"]

OFTEN = 8  # pages that a reader takes in before it confirms them


class OneView:
    """Waits for a view of another node that is read once.

    Attributes:
        view: The view, once it is complete.
        outcome: The error, if the view will not come.
        waiter: Woken by both.
    """

    def __init__(self) -> None:
        self.view: View | None = None
        self.outcome: tuple[str, bool, Any] | None = None
        self.waiter = Waiter()

    def __call__(self, view: View) -> None:
        self.view = view
        self.waiter.wake()


class _Reading:
    """The view of a lock id of another node, as it is read.

    Attributes:
        node: The other node.
        number: Its number, for the other node.
        listeners: The listeners.
        fresh: The listeners that were not notified yet.
    """

    def __init__(
        self, node: str, lock_id: LockId, number: int, take: Callable[[str, Taken], object]
    ) -> None:
        self.node = node
        self.number = number
        self.listeners: dict[Listener | OneView, None] = {}
        self.fresh: dict[Listener | OneView, None] = {}
        self._say_taken = take
        self._followed = FollowedView(lock_id, node)
        self._told: tuple[Any, ...] | None = None
        self._next = 0  # number of the next page; 0 before the first one
        self._unsaid = 0

    def take_page(self, page: Page) -> list[tuple[Listener | OneView, View]]:
        """Take in a page, outside of the turn; return the listeners to notify, each with a view.

        Raises:
            BadMessage: It is not the next one.
        """
        if page.anew:
            self._followed.clear()
            self._told = None
        elif page.number != self._next:
            raise BadMessage(f"got page {page.number} of a view instead of page {self._next}")
        self._next = page.number + 1
        self._followed.take_changes(page.gone, page.requests)
        self._unsaid += 1
        if not page.complete or self._unsaid >= OFTEN:
            self._unsaid = 0
            self._say_taken(self.node, Taken(self.number, page.number))
        if not page.complete:
            return []
        view = self._followed.view(page.version)
        same = view.requests == self._told
        self._told = view.requests
        views = []
        for listener in list(self.listeners):
            new = self.fresh.pop(listener, self) is not self
            if new or not same:
                views.append((listener, view))
        return views


class ViewReader:
    """Reads views of other nodes.

    Args:
        cluster: The node's relations with others.
    """

    def __init__(self, cluster: Connections) -> None:
        self._cluster = cluster
        self._readings: dict[tuple[str, LockId], _Reading] = {}
        self._by_number: dict[int, _Reading] = {}
        self._once: dict[OneView, _Reading] = {}

    def check(self, name: str) -> None:
        """Raise `NodeNotRunning` unless the views of a node can be read."""
        if name not in self._cluster.members:
            node = self._cluster.node
            why = reasons([name], node.refusals)
            text = f"{node.name} can't read the locks of {name}: {name} can't be reached{why}"
            raise NodeNotRunning(text, nodes=[name])

    def watch(self, name: str, lock_id: LockId, watcher: Listener, must_run: bool = True) -> None:
        """Notify a watcher of the views of a lock id of another node; again when that node comes back.

        Raises:
            NodeNotRunning: They can't be read, and it must run.
            LimitExceeded: This program may watch no more ids there.
        """
        if must_run:
            self.check(name)
        reading = self._readings.get((name, lock_id))
        if reading is None:
            self._check_room(name, lock_id)
            reading = self._readings[name, lock_id] = self._begin(name, lock_id)
        reading.fresh[watcher] = None
        if watcher not in reading.listeners:
            reading.listeners[watcher] = None
            self._cluster.executor.run_soon(self._cluster.node.server.watch_over, watcher)
        self._say(reading, lock_id)

    def unwatch(self, name: str, lock_id: LockId, watcher: Listener) -> None:
        """End what `watch` began."""
        reading = self._readings.get((name, lock_id))
        if reading is not None and watcher in reading.listeners:
            del reading.listeners[watcher]
            reading.fresh.pop(watcher, None)
            if not reading.listeners:
                self._end(reading)
                del self._readings[name, lock_id]

    def watcher_down(self, watcher: Listener) -> None:
        """A watcher has ended."""
        for name, lock_id in list(self._readings):
            self.unwatch(name, lock_id, watcher)

    def joined(self, name: str) -> None:
        """Read the watched views of a node again, because it is up; as many as it allows."""
        limits, watched = self._cluster.limits.get(name), 0
        for (where, lock_id), reading in self._readings.items():
            watched += where == name
            if where == name and limits is not None and watched > limits.watches:
                error = over_limit(
                    f"watched no {show(lock_id)}", name, "watches", limits.watches, watched - 1
                )
                self._cluster.node.notices.warn("limit", name, "%s", str(error))
            elif where == name:
                self._say(reading, lock_id)

    def lost(self, name: str) -> None:
        """End the waits for views of a node whose connection is lost."""
        for once, reading in list(self._once.items()):
            if reading.node == name:
                self._forget(once)
                once.outcome = (name, False, NOCONNECTION)
                once.waiter.wake()

    # --- A view that is read once ---------------------------------------------------------------

    def view(
        self, names: Sequence[str], lock_id: LockId, timeout: float | None, patient: bool = True
    ) -> View:
        """The view of a lock id on another node; outside of the turn.

        Args:
            names: The node, and others that are asked if it is silent.
            lock_id: The lock id.
            timeout: Seconds to wait at most; `None` waits for ever.
            patient: Whether to wait for the last of them even if it is silent.

        Raises:
            NodeNotRunning: The node can't be reached.
            LockTimeout: It does not answer in time.
        """
        check_may_wait()
        clock = world().clock()
        deadline = None if timeout is None else clock() + timeout
        turn = self._cluster.node.turn
        outcome = None
        with BlockingCalls(self._cluster) as calls:
            for name in names:
                turn.run(self._ask, name, lock_id, calls)
                left = None if deadline is None else max(0.0, deadline - clock())
                outcome = calls.take_outcome(left, of_silent=patient and name == names[-1])
                if outcome is not None:
                    name = outcome[0]
                    break
        if outcome is not None and outcome[1]:
            if isinstance(outcome[2], Seen):
                return outcome[2].view
            once = OneView()
            try:
                turn.run(self._read_once, name, lock_id, once)
                once.waiter.wait(None if deadline is None else max(0.0, deadline - clock()))
            finally:
                turn.run(self._forget, once)
            if once.view is not None:
                return once.view
            outcome = once.outcome
        if outcome is None:
            raise LockTimeout(
                f"timed out after {timeout} s waiting for {name} to list the holders of {show(lock_id)}"
            )
        raise NodeNotRunning(f"{name} does not answer: {outcome[2]}", nodes=[name])

    def ask_whether_wanted(
        self, name: str, lock_id: LockId, told: Callable[[bool | None], object]
    ) -> None:
        """Query, in the turn, whether a lock id is requested on another node; `told(None)` if it is lost.

        Raises:
            NodeNotRunning: The node can't be reached.
        """

        def answered(there: bool, answer: Any) -> None:
            wanted = isinstance(answer, Large) or (
                isinstance(answer, Seen) and bool(answer.view.requests)
            )
            told(wanted if there else None)

        self.check(name)
        self._cluster.exchange.call(name, AskView(lock_id), answered)

    def _ask(self, name: str, lock_id: LockId, calls: BlockingCalls) -> None:
        """Ask for a view."""
        self.check(name)
        calls.begin_call(name, name, AskView(lock_id))

    def _read_once(self, name: str, lock_id: LockId, once: OneView) -> None:
        """Read a view in pages; the caller calls `_forget` at the end."""
        self.check(name)
        self._check_room(name, lock_id)
        reading = self._begin(name, lock_id)
        self._once[once] = reading
        reading.listeners[once] = reading.fresh[once] = None
        self._say(reading, lock_id)

    def _forget(self, once: OneView) -> None:
        """Forget the wait for a view."""
        reading = self._once.pop(once, None)
        if reading is not None:
            self._end(reading)

    def _check_room(self, name: str, lock_id: LockId) -> None:
        """Raise `LimitExceeded` if this program may watch no more ids of a node."""
        limits = self._cluster.limits.get(name)
        watched = [where for where, _ in self._readings if where == name]
        watched += [reading.node for reading in self._once.values() if reading.node == name]
        if limits is not None and len(watched) >= limits.watches:
            wanted = f"could not watch {show(lock_id)}"
            raise over_limit(wanted, name, "watches", limits.watches, len(watched))

    # --- Readings -------------------------------------------------------------------------------

    def _begin(self, name: str, lock_id: LockId) -> _Reading:
        number = self._cluster.exchange.new_number()
        reading = self._by_number[number] = _Reading(name, lock_id, number, self._say_taken)
        return reading

    def _end(self, reading: _Reading) -> None:
        self._cluster.exchange.send(reading.node, EndRead(reading.number))
        self._by_number.pop(reading.number, None)

    def _say(self, reading: _Reading, lock_id: LockId) -> None:
        self._cluster.exchange.send(reading.node, Read(reading.number, lock_id))

    def _say_taken(self, node: str, taken: Taken) -> None:
        self._cluster.node.turn.run(self._cluster.exchange.send, node, taken)

    def page(self, speaker: str, page: Page) -> None:
        """A page of a view has come; in the turn."""
        reading = self._by_number.get(page.reading)
        if reading is not None and reading.node == speaker:
            self._cluster.executor.run_soon(self._take, reading, page)

    def _take(self, reading: _Reading, page: Page) -> None:
        """Take a page in; by the executor."""
        try:
            views = reading.take_page(page)
        except BadMessage as error:
            self._cluster.node.turn.run(self._lose, reading.node, str(error))
            return
        executor = self._cluster.executor
        for listener, view in views:
            if isinstance(listener, Listener):
                executor.run_soon(listener.tell, executor, view)
            else:
                executor.run_soon(listener, view)

    def _lose(self, name: str, error: str) -> None:
        """Close the connection to a node whose pages are wrong, so that it starts again."""
        link = self._cluster.network.links.get(name)
        if link is not None:
            link.lose(f"it sent an unreadable view: {error:.200}")
