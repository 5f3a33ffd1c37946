"""Thin locks, the rule: when a lock needs no agent, its token, and what the lock server takes in once somebody looks.

A client that takes a free lock is only noted as its holder. The lock table knows neither these locks nor those that were released
meanwhile. *Inflation* puts the table where it would be: it counts the locks that were released, and requests those that are held, each for an
agent of the age of its transaction. So each lock has the version that its client was given as a token. An agent of another node is
answered the same as by the lock server (`Thin.serve`).

`locks.node.client.thin` is the shell, which says what inflates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from locks.core.agent.machine import AgentMachine, Object
from locks.core.messages import AgentMessage, Remove, Request, RequestStates
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, LockId, RequestRecord, State

__all__ = ["Granted", "Guest", "Holder", "Remote", "Thin"]


MOST_HERE: Final = 1000  # locks at once: one turn inflates all of them
MOST: Final = 16  # locks on another node: they are copied with each further one


class Holder(Protocol):
    """A transaction whose agent has no machine, or whose agent the lock table does not know.

    Attributes:
        id: The reference of its agent.
        name: The name of its client.
        thin_ids: The ids of its thin locks.
    """

    id: AgentId
    name: str
    thin_ids: dict[LockId, None]


class Guest:
    """A transaction of another node that has thin locks here."""

    __slots__ = ("id", "name", "thin_ids")

    def __init__(self, agent: AgentId, name: str) -> None:
        self.id = agent
        self.name = name
        self.thin_ids: dict[LockId, None] = {}


class Granted(NamedTuple):
    """A thin lock.

    Attributes:
        holder: Who holds it.
        wanted: The lock as it was requested.
        token: Its token.
        before: How many thin locks were granted before it, since the last inflation.
        since: When it was granted, in seconds.
        call: The call that has got it.
        elsewhere: Whether its agent, of another node, has requests at other nodes.
    """

    holder: Any
    wanted: Object
    token: int
    before: int
    since: float
    call: Any
    elsewhere: bool = False


class Remote(NamedTuple):
    """What a thin transaction has at the lock server of another node. It is replaced as a whole.

    Only the client's node has no agent's machine for them; the lock server knows the agent.

    Attributes:
        node: The node.
        held: Each lock that it holds: as it was requested, the lock server's record, and the call that has got it.
        asked: The lock that is requested and not answered yet, and its call.
    """

    node: str
    held: tuple[tuple[Object, RequestRecord, Any], ...] = ()
    asked: tuple[Object, Any] | None = None

    def may_ask(self, wanted: Object) -> bool:
        """Whether another lock may be requested as well: on the same node, when all others were granted, not again, and not too many."""
        lock_id, _, nodes, _ = wanted
        if self.asked is not None or nodes != (self.node,) or len(self.held) >= MOST:
            return False
        return all(mine[0] != lock_id for mine, _, _ in self.held)

    def ask(self, holder: Holder, wanted: Object, call: Any) -> tuple[Remote, Request]:
        """What it has when it requests another lock, and the message for that."""
        message = Request(holder.id, holder.name, wanted[0], wanted[1])
        return type(self)(self.node, self.held, (wanted, call)), message

    def granted(self, speaker: str, agent: AgentId, message: AgentMessage) -> Remote | None:
        """What it has after a node's message to its agent, if that only grants what is asked; else `None`."""
        if self.asked is None or type(message) is not RequestStates or len(message.records) != 1:
            return None
        wanted, call = self.asked
        (record,) = message.records
        if record.state != "granted" or not speaker == message.node == record.node == self.node:
            return None
        if record.agent != agent or (record.lock_id, record.mode) != wanted[:2]:
            return None
        return type(self)(self.node, (*self.held, (wanted, record, call)))

    def end(self, agent: AgentId) -> Remove | None:
        """The message that ends the transaction; `None` if that must take the usual way."""
        return Remove(agent) if self.asked is None else None

    def steps(
        self, machine: AgentMachine, sent: bool
    ) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The events of the agent's machine that were left out.

        Args:
            machine: The machine, which is new.
            sent: Whether the request that is not answered was surely sent; else it may be sent twice.
        """
        for wanted, record, call in self.held:
            yield machine.ask_told, (wanted, (record,), call)
        if self.asked is not None:
            wanted, call = self.asked
            if sent:
                yield machine.has_asked, (wanted, call)
            else:
                yield machine.ask_all, ((wanted,), call)


class Thin:
    """The thin locks of one node.

    A lock is held from one assignment to `held` on, and released by one. A grant that is interrupted before counts as one that was
    released at once.

    Args:
        machine: The node's lock server.

    Attributes:
        held: Those that are held, by their ids, in the order of their tokens.
        given: How many were granted since the last inflation.
        changes: How many grants and releases there were since then. The lock table would have given each a version.
        guests: The holders of other nodes.
    """

    def __init__(self, machine: ServerMachine) -> None:
        self.machine = machine
        self.held: dict[LockId, Granted] = {}
        self.given = 0
        self.changes = 0
        self.guests: dict[AgentId, Guest] = {}
        self._above: dict[LockId, int] = {}  # how many of those that are held are below an id

    def is_free(self, lock_id: LockId) -> bool:
        """Whether nobody holds or has requested anything related, and one lock more can be thin."""
        held = self.held
        if lock_id in held or lock_id in self._above or len(held) >= MOST_HERE:
            return False
        if len(lock_id) > 1 and any(above in held for above in ids_above(lock_id)):
            return False
        # Nearly always there is nothing below the id's first element.
        table = self.machine.table
        return lock_id[0] not in table.root.children or next(table.related(lock_id), None) is None

    def give(self, holder: Holder, wanted: Object, now: float, call: Any) -> int | None:
        """Give a holder a lock if it is free; return its token, else `None`."""
        return self.put(holder, wanted, now, call) if self.is_free(wanted[0]) else None

    def put(
        self, holder: Holder, wanted: Object, now: float, call: Any, elsewhere: bool = False
    ) -> int:
        """Give a holder a lock, which is free; return its token."""
        lock_id, before = wanted[0], self.given
        self.given += 1
        self.changes += 1
        token = self.machine.table.version + self.changes
        holder.thin_ids[lock_id] = None
        if len(lock_id) > 1:
            for above in ids_above(lock_id):
                self._above[above] = self._above.get(above, 0) + 1
        self.held[lock_id] = Granted(holder, wanted, token, before, now, call, elsewhere)
        return token

    def may_serve(self, message: Request) -> bool:
        """Whether `serve` can answer a request of another node: it is for a free lock, and the lock table does not know its agent, which waits nowhere."""
        lock_id = message.lock_id
        if message.waits_elsewhere or message.spare:
            return False
        if type(lock_id[-1]) is tuple or message.agent in self.machine.table.requesters:
            return False
        return self.is_free(lock_id)

    def serve(self, message: Request, now: float) -> RequestStates:
        """Give the agent of another node a lock, if `may_serve`; return what the lock server would answer."""
        node, place = self.machine.node, self.machine.table.last_place + self.given + 1
        agent, name, lock_id, mode = message.agent, message.client, message.lock_id, message.mode
        guest = self.guests.get(agent)
        if guest is None:
            guest = self.guests[agent] = Guest(agent, name)
        wanted: Object = lock_id, mode, (node,), "all"
        token = self.put(guest, wanted, now, None, message.requests_elsewhere)
        standing: tuple[State, int, int] = "granted", place, token
        record = RequestRecord(node, token, agent, name, lock_id, mode, *standing, False, token)
        return RequestStates(node, (record,))

    def part(self, message: Remove) -> bool:
        """Release all that a guest holds; returns whether the agent is one."""
        guest = self.guests.get(message.agent)
        if guest is None:
            return False
        self.release_all(guest)
        del self.guests[message.agent]
        return True

    def release_all(self, holder: Holder) -> None:
        """A transaction releases its thin locks."""
        for lock_id in list(holder.thin_ids):
            granted = self.held.get(lock_id)
            if granted is not None and granted.holder is holder:
                self.release(granted)

    def release(self, granted: Granted) -> None:
        """A thin lock is released."""
        lock_id, holder = granted.wanted[0], granted.holder
        self.changes += 1
        del self.held[lock_id]
        holder.thin_ids.pop(lock_id, None)
        if len(lock_id) > 1:
            for above in ids_above(lock_id):
                left = self._above[above] - 1
                if left:
                    self._above[above] = left
                else:
                    del self._above[above]

    def steps(self) -> list[tuple[Callable[..., Any], tuple[Any, ...], Granted | None]]:
        """The events of the lock server that were left out, each with the lock that it requests, if it requests one."""
        machine, counted = self.machine, 0
        version = machine.table.version
        steps: list[tuple[Callable[..., Any], tuple[Any, ...], Granted | None]] = []
        for granted in self.held.values():
            holder, (lock_id, mode, *_) = granted.holder, granted.wanted
            steps.append((machine.pass_over, (granted.before - counted, granted.token - 1), None))
            standing = (True,) if granted.elsewhere else ()
            args = (holder.id, holder.name, lock_id, mode, *standing)
            steps.append((machine.request, args, granted))
            counted = granted.before + 1
        over = self.given - counted
        return [*steps, (machine.pass_over, (over, version + self.changes), None)]

    def conclude(self) -> None:
        """The lock server has taken them in."""
        self.held.clear()
        self.guests.clear()
        self._above.clear()
        self.given = self.changes = 0


def ids_above(lock_id: LockId) -> list[LockId]:
    """The ids that cover an id, but for itself."""
    return [lock_id[:depth] for depth in range(1, len(lock_id))]
