"""Ownership among the workers of one process.

There is one coordinator for each name. It lives in the hub of the node, and so does a small actor for
each worker, its *participant*: it hears what the worker is granted and what is asked back, runs its callbacks,
and ends with the worker. An agreement is a lock of this node: its fencing token is what makes one
agreement newer than another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import gevent
import pykka

import locks
from locks.errors import InvalidOption
from locks.model import LockId, check_lock_id
from locks.node.node import Node
from locks.ownership.coordinator import Agree, Coordinator, Effect, Grant, Revoke
from locks.ownership.groups import Grouping
from locks.ownership.part import Gone, Idle, Leaving, Part
from locks.ownership.worker import Worker, check_node
from locks.program import default_node
from locks.runtime import GeventActor, tell

__all__ = ["Ownership"]

OWNERSHIP = "locks.ownership"
Ref = pykka.ActorRef[Any]


class Ownership(Worker):
    """One worker among those of this process that share resources out.

        with Ownership("ingest", groups=64) as mine:
            mine.run(backlog, handler)

    Make one for each worker, and join in the thread or greenlet that works: when that ends, its
    groups are taken over at once. For workers on several nodes there is `locks_leader.Ownership`.

    Args:
        name: What is shared out; workers of the same name do so among each other.
        groups: How many groups of resources there are, the same for all: at least as many as
            workers, better some times as many.
        group_for: Tells the group of a resource, from 0 to `groups - 1`; by default a hash that is the
            same on every machine, of text, bytes, whole numbers, and tuples of them.
        on_gained: Called with a group and its token when it is granted, before its first task.
        on_lost: Called with a group that it has no more, after its last task, before the next owner
            gets it.
        node: The node; this program's by default.

    The callbacks run in the background and must be quick. An exception in one ends this worker's part.
    """

    def __init__(
        self,
        name: Hashable,
        groups: int = 64,
        *,
        group_for: Callable[[Any], int] | None = None,
        on_gained: Callable[[int, int], object] | None = None,
        on_lost: Callable[[int], object] | None = None,
        node: Node | None = None,
    ) -> None:
        super().__init__(name, groups, group_for=group_for, on_gained=on_gained, on_lost=on_lost)
        check_lock_id((OWNERSHIP, name))
        self._node = check_node(node)

    def _start(self, part: Part) -> None:
        node = self._node or default_node()
        node.check_running()
        node.executor.call(_join, node, part)


class _Failed(NamedTuple):
    """There is no agreement."""

    error: Exception


class _Participant(GeventActor):
    """What one worker hears from its coordinator."""

    def __init__(self, part: Part, session: _CoordinatorSession) -> None:
        super().__init__()
        self._part = part
        self._session = session
        part.took_part(partial(tell, self.actor_ref))

    def on_receive(self, message: Any) -> None:
        """Take in what the coordinator or the worker says."""
        part, session = self._part, self._session
        part.agreements = session.coordinator.agreements
        if isinstance(message, Grant):
            part.granted(message.groups, message.token)
        elif isinstance(message, Revoke):
            session.released(self.actor_ref, part.revoked(message.groups))
        elif isinstance(message, Idle):
            session.released(self.actor_ref, part.settle())
        elif isinstance(message, Leaving):
            session.leaving(self.actor_ref)
        elif isinstance(message, _Failed):
            raise message.error
        elif isinstance(message, Gone):
            self.stop()

    def on_stop(self) -> None:
        """End in good order."""
        try:
            self._part.left()
        finally:
            self._session.gone(self.actor_ref)

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """A callback has raised an exception, or the actor was killed."""
        self._part.ended(exception_value)
        self._session.gone(self.actor_ref)


class _CoordinatorSession:
    """The coordinator of a name, and what it wants done. In the hub."""

    def __init__(self, node: Node, name: Hashable, grouping: Grouping) -> None:
        self.grouping = grouping
        self.coordinator: Coordinator[Ref] = Coordinator(grouping.groups)
        self._node = node
        self._lock_id = (OWNERSHIP, name)

    def join(self, part: Part) -> None:
        """A worker joins."""
        participant = _Participant.start(part, self)
        self._node.dependents.add(participant)
        self._perform(self.coordinator.joined(participant))

    def released(self, participant: Ref, groups: list[int]) -> None:
        """A worker has let groups go."""
        self._perform(self.coordinator.released(participant, groups))

    def leaving(self, participant: Ref) -> None:
        """A worker is about to leave."""
        self._perform(self.coordinator.leaving(participant))

    def gone(self, participant: Ref) -> None:
        """A worker has left."""
        self._node.dependents.discard(participant)
        self._perform(self.coordinator.gone(participant))
        if not self.coordinator.workers:
            self._close()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Agree):
                gevent.spawn(self._agree)
            else:
                tell(effect.worker, effect)  # type: ignore[arg-type]

    def _agree(self) -> None:
        try:
            self._perform(self.coordinator.agreed(take_token(self._node, self._lock_id)))
        except Exception as error:  # the node was stopped, or its clock was set back
            self._close()  # who comes now has another one
            for participant in self.coordinator.workers:
                tell(participant, _Failed(error))

    def _close(self) -> None:
        sessions = _sessions.get(self._node, {})
        if sessions.get(self._lock_id) is self:
            del sessions[self._lock_id]


def take_token(node: Node, lock_id: LockId, *where: Any) -> int:
    """An agreement: the fencing token of a lock that is taken for a moment.

    Args:
        node: Whose agent takes it.
        lock_id: The lock.
        *where: On which nodes, and on how many of them, as for `locks.lock`.
    """
    agent = node.spawn_agent()
    try:
        locks.lock(agent, lock_id, "write", *where)
        return locks.fencing_token(agent, lock_id)
    finally:
        if agent.is_alive():
            locks.end_transaction(agent)


_sessions: WeakKeyDictionary[Node, dict[Hashable, _CoordinatorSession]] = WeakKeyDictionary()


def _join(node: Node, part: Part) -> None:
    sessions = _sessions.setdefault(node, {})
    lock_id = (OWNERSHIP, part.worker.name)
    session = sessions.get(lock_id)
    if session is None:
        session = sessions[lock_id] = _CoordinatorSession(
            node, part.worker.name, part.worker.grouping
        )
    elif session.grouping != part.worker.grouping:
        raise InvalidOption(
            f"the workers of {part.worker.name!r} have {session.grouping.groups} groups, or another "
            f"group_for, and this one has groups={part.worker.groups}: give all the same",
            groups=part.worker.groups,
        )
    session.join(part)
