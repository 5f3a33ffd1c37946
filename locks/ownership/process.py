"""Ownership among the workers of one process.

There is one session for each name. It lives in the hub of the node. So does a small actor for each
worker, its *participant*: it receives grants and revocations, runs the worker's callbacks, and ends
with the worker. A session begins with its first participant, ends with its last one, and is open
from the start. An agreement is a lock of this node, and its fencing token is the agreement's
number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, get_args
from weakref import WeakKeyDictionary

import pykka

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import LockId, check_lock_id
from locks.node.node import Node
from locks.ownership.agreements import OWNERSHIP, take_token
from locks.ownership.backlog import Among
from locks.ownership.groups import Grouping
from locks.ownership.messages import (
    Agree,
    AgreementFailed,
    FromWorker,
    Gone,
    Report,
    SessionEffect,
    ToParticipant,
    ToSession,
)
from locks.ownership.part import Part
from locks.ownership.session import CoordinatorSession
from locks.ownership.worker import Worker, check_node, node_of
from locks.program.default import default_node
from locks.runtime.actor import GeventActor, tell
from locks.runtime.monitor import watch_end
from locks.runtime.port import world

__all__ = ["Ownership"]

Ref = pykka.ActorRef[Any]
Heard = FromWorker | ToParticipant | AgreementFailed
HEARD = frozenset(get_args(Heard))


class Ownership(Worker):
    """One worker among those of this process that share resources out.

        with Ownership("ingest", groups=64) as mine:
            mine.run(backlog, handler)

    Make one for each worker, and join in the thread or greenlet that works: when that ends, its
    groups are taken over at once. For workers on several nodes there is `locks_leader.Ownership`.

    Args:
        name: What is shared out; workers of the same name do so among each other.
        groups: How many groups of resources there are, the same for all: at least as many as
            workers, better several times as many.
        group_for: Returns the group of a resource, from 0 to `groups - 1`; by default a hash that
            is the same on every machine, of text, bytes, whole numbers, and tuples of them.
        on_gained: Called with a group and its token when it is granted, before its first task.
        on_lost: Called with a group that it no longer has, after its last task, before the next
            owner gets it.
        node: The node; this program's by default.

    The callbacks run in the background and must be quick. An exception in one ends this worker's
    part.
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
        self._lock_id = check_lock_id((OWNERSHIP, name))
        self._node = check_node(node)

    def _among(self) -> Among:
        return Among("locks.ownership.Ownership", node_of(self._node), self._lock_id)

    def _start(self, part: Part) -> None:
        node = self._node or default_node()
        node.check_running()
        part.seen_in(node.counters.workers, self.groups)
        node.executor.call(_join, node, self._lock_id, self.grouping, part)


class _Participant(GeventActor):
    """A worker's part, in the hub."""

    def __init__(self, part: Part, session: _LocalSession) -> None:
        super().__init__()
        self._part = part
        self._session = session
        part.took_part(partial(tell, self.actor_ref))
        watch_end(self.actor_ref, part.participant_ended)

    def on_receive(self, message: Any) -> None:
        """Take in a message of the worker or the session; ignore others, which anyone may broadcast."""
        if type(message) in HEARD:
            self._hear(message)

    def _hear(self, message: Heard) -> None:
        self._part.agreements = self._session.core.agreements
        if isinstance(message, Gone):
            self.stop()
        elif isinstance(message, AgreementFailed):
            raise message.error
        else:
            answer = self._part.told(message)
            if answer is not None:
                self._session.received(self.actor_ref, answer)

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


class _LocalSession:
    """The session of a name, in the hub."""

    def __init__(self, node: Node, lock_id: LockId, grouping: Grouping) -> None:
        self.grouping = grouping
        self.core: CoordinatorSession[Ref] = CoordinatorSession(grouping.groups)
        self._node = node
        self._lock_id = lock_id

    def join(self, part: Part) -> None:
        """A worker joins."""
        participant = _Participant.start(part, self)
        self._node.add_dependent(participant)
        self.received(participant, Report({}, 0))

    def received(self, participant: Ref, message: ToSession) -> None:
        """Take in a message of a participant."""
        self._perform(self.core.received(participant, message))

    def gone(self, participant: Ref) -> None:
        """A participant has ended."""
        self._node.dependents.discard(participant)
        self._perform(self.core.gone(participant))
        if not self.core.coordinator.workers:
            self._close()

    def _perform(self, effects: Sequence[SessionEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Agree):
                world().new_greenlet(self._agree, self.core.newest).start()
            else:
                tell(effect.worker, effect)

    def _agree(self, newest: int) -> None:
        try:
            token = take_token(self._node, self._lock_id, f"ownership {shown(self._lock_id[1])}")
            self._perform(self.core.agreed(token, newest))
        except Exception as error:  # the node was stopped, or its clock was set back
            self._close()  # the next worker begins another one
            for participant in self.core.coordinator.workers:
                tell(participant, AgreementFailed(error))

    def _close(self) -> None:
        sessions = _sessions.get(self._node, {})
        if sessions.get(self._lock_id) is self:
            del sessions[self._lock_id]


_sessions: WeakKeyDictionary[Node, dict[LockId, _LocalSession]] = WeakKeyDictionary()


def _join(node: Node, lock_id: LockId, grouping: Grouping, part: Part) -> None:
    sessions = _sessions.setdefault(node, {})
    session = sessions.get(lock_id)
    if session is None:
        session = sessions[lock_id] = _LocalSession(node, lock_id, grouping)
    elif session.grouping != grouping:
        raise InvalidOption(
            f"the workers of {part.name!r} have {session.grouping.groups} groups, or another group_for, "
            f"and this one has groups={grouping.groups}: give all the same",
            groups=grouping.groups,
        )
    session.join(part)
