"""The lock server as an actor: it runs a `ServerMachine` in its node's turn.

Its messages are `locks.core.messages.ServerMessage`. What it wants told to watchers goes out by way of
the node's executor, so that a slow watcher does not hold up others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pykka

from locks.core.messages import ServerMessage, Unwatch, Watch
from locks.core.server.machine import ServerMachine
from locks.errors import MisuseError
from locks.model import LockId, View
from locks.node.history import begin
from locks.node.ports import NodePort
from locks.runtime import Down, Monitor, monitor
from locks.runtime.inline import InlineActor

__all__ = ["Server", "Watcher"]

Watcher = pykka.ActorRef[Any] | Callable[[View], object]


class Server(InlineActor):
    """One node's lock server.

    Args:
        node: The node.
        first_version: Where the versions of its lock table start.
    """

    long: ClassVar[int] = 200

    def __init__(self, node: NodePort, first_version: int) -> None:
        super().__init__(node.turn)
        self.node = node
        self.machine = ServerMachine(node.name, first_version)
        self.history = begin(self.machine)
        self._fenced = False
        self._monitors: dict[Watcher, Monitor] = {}

    def __str__(self) -> str:
        return f"lock-server@{self.node.name}"

    def receive(self, message: Any) -> None:
        """Take in a `ServerMessage`."""
        if not isinstance(message, ServerMessage):
            raise MisuseError(
                f"{message!r} is not a message for a lock server", value=repr(message)
            )
        self.node.deliver(self, message)

    def handle(self, message: Any) -> None:
        """Carry a message out."""
        if not self._fenced:
            machine = self.machine
            step = (machine.handle, (message,))
            self.node.touched.append((self, step))
            self.history.append(step)
            self.node.perform(self, machine.handle(message))

    def fence(self) -> None:
        """It is broken: from now on it takes nothing in, so nothing is granted."""
        self._fenced = True

    def raise_to(self, version: int) -> None:
        """Give no version from now on that is not larger; in a turn."""
        step = (self.machine.raise_to, (version,))
        self.node.touched.append((self, step))
        self.history.append(step)
        self.machine.raise_to(version)

    def failed(self, message: Any, error: Exception) -> None:
        """Log it; the lock table is as it was."""
        self.node.log("%s could not handle %r: %s", self, message, error)

    def stop_inline(self, reason: object) -> None:
        """The node stops with its lock server."""
        self.node.executor.run_soon(self.node.stop)

    def add_watcher(self, lock_id: LockId, watcher: Watcher) -> None:
        """Tell a watcher the views of an id: the present one, and each later one."""
        self.turn.run(self.handle, Watch(watcher, lock_id))
        self.watch_over(watcher)  # a watcher that is dead already is taken out at once

    def watch_over(self, watcher: Watcher) -> None:
        """End the watches of an actor when it ends."""
        if isinstance(watcher, pykka.ActorRef) and watcher not in self._monitors:
            self._monitors[watcher] = monitor(watcher, self._watcher_down)
            if not watcher.is_alive():
                self._monitors.pop(watcher, None)

    def remove_watcher(self, lock_id: LockId, watcher: Watcher) -> None:
        """Stop telling a watcher of an id."""
        self.turn.run(self.handle, Unwatch(watcher, lock_id))
        if not self.machine.watched(watcher) and watcher in self._monitors:
            self._monitors.pop(watcher).cancel()

    def _watcher_down(self, down: Down) -> None:
        self._monitors.pop(down.subject, None)
        for lock_id in self.machine.watched(down.subject):
            self.turn.post(self.handle, Unwatch(down.subject, lock_id))
        self.turn.post(self.node.watcher_down, down.subject)
