"""The lock server as an actor: it runs a `ServerMachine` in its node's turn.

Its messages are `locks.core.messages.ServerMessage`. The node's executor notifies watchers, so that
a slow watcher does not block others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from logging import INFO
from typing import Any, ClassVar

import pykka
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from locks.core.messages import (
    Refused,
    Request,
    ServerEffect,
    ServerMessage,
    Surrender,
    Surrendered,
    ToAgent,
    Unwatch,
    ViewChange,
    Watch,
)
from locks.core.server.machine import ServerMachine
from locks.core.server.tree import Entry
from locks.core.views import FollowedView
from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import AgentId, Deadlock, LockId, Mode, RequestRecord, View
from locks.node.client.holders import Holders
from locks.node.history import Event, begin
from locks.node.observing.audit import Audit
from locks.node.observing.record import Record
from locks.node.observing.times import Times
from locks.node.ports import NodePort
from locks.runtime.addressed import InlineActor
from locks.runtime.identity import Listener
from locks.runtime.logs import audit_logger
from locks.runtime.monitor import Down, Monitor, current_client, watch_end

__all__ = ["Guarded", "Server", "Watcher"]

Watcher = pykka.ActorRef[Any] | Callable[[View], object]


class Server(InlineActor):
    """One node's lock server.

    Args:
        node: The node.
        first_version: Where the versions of its lock table start.

    Attributes:
        times: The times of its requests and grants.
        record: Its record for observers.
        audit: What logs who held which lock; a simulated node has none.
        changed: The entries that were changed in this turn; their times are recorded after the
            commit.
        broken: Deadlocks that were broken in this turn; likewise.
        by_messages: Whether agents of this node make all requests by messages.
        fenced: Whether it is broken, and takes nothing in.
    """

    long: ClassVar[int] = 200

    def __init__(self, node: NodePort, first_version: int) -> None:
        super().__init__(node.turn)
        self.node = node
        self.machine = ServerMachine(node.name, first_version)
        self.times = Times(node.clock)
        self.record = Record(self.machine, self.times, node.now, node.counters, first_version)
        self.audit: Audit | None = None
        self.history = begin(self.machine)
        self.changed: list[Entry] = []
        self.broken: list[Deadlock] = []
        self.by_messages = False
        self.fenced = False
        self._touched = node.touched
        self._monitors: dict[Listener, Monitor] = {}
        self._followed: dict[LockId, FollowedView] = {}  # the watched views; for the executor
        self.own: Holders[Any] = Holders(node)  # agents of callers that lock by it without one

    def __str__(self) -> str:
        return f"lock-server@{self.node.name}"

    # --- Operations -----------------------------------------------------------------------------

    def agent_of_caller(self, begin: bool = True) -> Any:
        """The agent of a caller that locks by the lock server itself.

        Args:
            begin: Whether one begins if there is none; else `None` is returned.
        """
        client = current_client()
        return self.own.living_or_new(client) if begin else self.own.living(client)

    def watch_for(self, lock_id: LockId, watcher: Watcher | None, on: bool = True) -> None:
        """Begin or end a watch of an id; the watcher is the calling actor by default."""
        who: Any = current_client() if watcher is None else watcher
        (self.add_watcher if on else self.remove_watcher)(lock_id, who)

    # --- Carrying out ---------------------------------------------------------------------------

    def handle(self, message: Any) -> None:
        """Carry a message out."""
        if not self.fenced:
            machine = self.machine
            if self not in self._touched:
                self._touched[self] = len(self.history)
            self.history.append((machine.handle, (message,)))
            effects = machine.handle(message)
            self.changed += machine.changed
            if type(message) is Surrender and message.report is not None:
                self._surrendered(message.report, effects)
            if effects:
                self.node.perform(self, effects)

    def request(
        self, agent: AgentId, client: str, lock_id: LockId, mode: Mode
    ) -> tuple[RequestRecord, ...]:
        """Carry out a request that an agent of this node makes by a direct call, within its step.

        Nothing can happen in between, so the effect is the same as with messages there and back.

        Returns:
            The records for the agent; none if it must send a message.
        """
        if self.by_messages or self.fenced:
            return ()
        machine = self.machine
        if self not in self._touched:
            self._touched[self] = len(self.history)
        self.history.append((machine.request, (agent, client, lock_id, mode)))
        told, effects = machine.request(agent, client, lock_id, mode)
        self.changed += machine.changed
        if effects:
            self.node.perform(self, effects)
        assert not isinstance(told, Refused)  # that is of counted locks
        return told

    def _surrendered(self, report: Deadlock, effects: Sequence[ServerEffect]) -> None:
        """Record a deadlock if a surrender has broken it."""
        messages = [each.message for each in effects if isinstance(each, ToAgent)]
        if any(isinstance(each, Surrendered) and each.done for each in messages):
            self.broken.append(report)

    def put_down(self) -> None:
        """Record the times of changes after the turn was committed; calling it again has no effect."""
        audit = self.audit
        if 0 < audit_logger.level <= INFO and audit is not None:  # without a call
            audit.note(self.changed, self.broken)
        self.times.note(self.changed)
        if self.broken:
            for report in self.broken:
                self.record.broke(report)
            self.broken.clear()
        self.changed.clear()

    def fence(self) -> None:
        """It is broken: from now on it takes nothing in, so nothing is granted."""
        self.fenced = True

    def raise_to(self, version: int) -> None:
        """Give no version from now on that is not larger; in a turn."""
        self.carry_out((self.machine.raise_to, (version,)))

    def carry_out(self, step: Event) -> None:
        """Record one event of its machine, and run it; in a turn."""
        self._touched.setdefault(self, len(self.history))
        self.history.append(step)
        step[0](*step[1])

    def take_over(self, step: Event) -> None:
        """The same for a request of another node that was answered without its machine (`locks.core.thin`)."""
        self.carry_out(step)
        self.changed += self.machine.changed

    def failed(self, message: Any, error: Exception) -> None:
        """Log it; the lock table is as it was."""
        self.node.log("%s failed to handle %r: %s", self, message, error)

    def stop_inline(self, reason: object) -> None:
        """The node stops with its lock server."""
        self.node.executor.run_soon(self.node.stop)

    def put(self, envelope: Envelope[Any]) -> None:
        """Carry out an operation, or handle a message; a stop is answered when it is complete."""
        if not isinstance(envelope.message, _ActorStop):
            super().put(envelope)
            return
        executor = self.node.executor
        # The executor itself would wait for itself; a stopped one does nothing any more.
        if executor.is_here() or not executor.run_soon(self._stop, envelope.reply_to):
            self._stop(envelope.reply_to)

    def _stop(self, future: pykka.Future[Any] | None) -> None:
        try:
            self.node.stop()
        finally:
            if future is not None:
                future.set(None)

    # --- Watchers -------------------------------------------------------------------------------

    def add_watcher(self, lock_id: LockId, watcher: Watcher) -> None:
        """Tell a watcher the views of an id: the present one, and each later one."""
        target = listener(watcher)
        self.turn.run(self.handle, Watch(target, lock_id))
        self.watch_over(target)  # a watcher that is dead already is taken out at once

    def watch_over(self, watcher: Listener) -> None:
        """End the watches of an actor when it ends."""
        if watcher.is_actor and watcher not in self._monitors:
            monitor = watch_end(watcher.target, partial(self._watcher_down, watcher))
            if (
                self._monitors.setdefault(watcher, monitor) is not monitor
            ):  # another thread was first
                monitor.cancel()
            if not watcher.target.is_alive():
                self._monitors.pop(watcher, None)

    def remove_watcher(self, lock_id: LockId, watcher: Watcher) -> None:
        """Stop telling a watcher of an id."""
        target = listener(watcher)
        self.turn.run(self.handle, Unwatch(target, lock_id))
        self.node.executor.run_soon(self._forget_view, lock_id)
        if not self.turn.ask(self.machine.watched, target):
            monitor = self._monitors.pop(target, None)  # another thread may be faster
            if monitor is not None:
                monitor.cancel()

    def tell_watcher(self, watcher: Listener, news: View | ViewChange) -> None:
        """Tell a watcher of this node a view; by the executor, in the order of the news."""
        if isinstance(news, View):
            self._followed[news.lock_id] = FollowedView.of(news)
            watcher.tell(self.node.executor, news)
            return
        followed = self._followed.get(news.lock_id)
        if followed is not None:  # it is no longer watched
            watcher.tell(self.node.executor, followed.changed(news))

    def _forget_view(self, lock_id: LockId) -> None:
        """Forget a view that is no longer watched here; by the executor."""
        watchers = self.turn.ask(self.machine.watchers, lock_id)
        if not any(isinstance(each, Listener) for each in watchers):
            self._followed.pop(lock_id, None)

    def watchers(self, lock_id: LockId) -> list[Any]:
        """The watchers of exactly this lock id."""
        watchers = self.turn.ask(self.machine.watchers, lock_id)
        here = [each.target for each in watchers if isinstance(each, Listener)]
        others = [each for each in watchers if not isinstance(each, Listener)]
        return here + others + self.node.watchers_elsewhere(lock_id)

    def _watcher_down(self, watcher: Listener, _: Down) -> None:
        self._monitors.pop(watcher, None)
        for lock_id in self.machine.watched(watcher):
            self.turn.post(self.handle, Unwatch(watcher, lock_id))
            self.node.executor.run_soon(self._forget_view, lock_id)
        self.turn.post(self.node.watcher_down, watcher)


class Guarded:
    """Stands before a lock server in the queue, for requests that must be checked when it is their turn.

    Args:
        server: The lock server.
        check: Returns what it takes in instead of a request.
    """

    __slots__ = ("_check", "_server")

    def __init__(self, server: Server, check: Callable[[Request], ServerMessage]) -> None:
        self._server = server
        self._check = check

    def handle(self, message: Request) -> None:
        """Have a request carried out, or what stands for it."""
        self._server.handle(self._check(message))


def listener(watcher: Any) -> Listener:
    """The listener for a watcher; raises `InvalidOption` if it can't be one."""
    if isinstance(watcher, Listener):
        return watcher
    try:
        return Listener(watcher)
    except TypeError as error:
        raise InvalidOption(
            f"can't use {shown(watcher)} as a watcher: {error}; pass watcher=function or "
            "watcher=actor_ref",
            watcher=shown(watcher),
        ) from None
