"""The agent of the original: its requests, its knowledge of queues, and what it does about circles.

It handles all messages that have arrived, and only then examines its knowledge once: does it hold
all that it requested? If not, is there a circle in the queues that it knows? It knows whole queues.

* If it finds a circle in which it must give way, it surrenders.
* If another agent must give way, it forgets the queue in question.
* If there is no circle, it sends each interesting queue to each larger agent that holds something
  and is not in that queue, even if it has done so before.

A request that was served once counts as served, whatever is surrendered later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from locks.errors import InvalidOption, assert_never
from locks.model import AgentId, LockId, Mode, Require, covers, show
from locks_lab.original.circles import Place, circle
from locks_lab.original.messages import Ask, End, Info, Key, Message, Surrender, Surrendered
from locks_lab.original.queues import Queue, agents_in
from locks_lab.original.saved import Saved
from locks_lab.original.table import Row, order
from locks_lab.original.variants import ORIGINAL, Variant
from locks_lab.worlds.host import needed

__all__ = ["Agent", "Finding", "Known", "Look", "Request", "Sent", "in_order"]


class Request(NamedTuple):
    """A request of an agent."""

    lock_id: LockId
    mode: Mode
    nodes: tuple[str, ...]
    require: Require
    claim: int  # how often it had been granted everything before


class Known(NamedTuple):
    """A queue, as an agent knows it."""

    key: Key
    version: int
    queue: Queue

    @property
    def holders(self) -> list[AgentId]:
        """The holders of the lock; none if several writers were merged."""
        head = self.queue[0] if self.queue else None
        if head is None or (head.mode == "write" and len(head.entries) > 1):
            return []
        return [entry.agent for entry in head.entries]


class Finding(NamedTuple):
    """A circle that an agent has found.

    Attributes:
        circle: The circle.
        place: The agent that must give way, and the lock that it must give up.
        aborts: Whether the agent aborts instead, because its client was notified that it holds this
            lock.
    """

    circle: tuple[Place, ...]
    place: Place
    aborts: bool = False


Sent = tuple[str | AgentId, Message]


class Look(NamedTuple):
    """The result of examining what is known.

    Attributes:
        answered: Whether the client is answered, because it holds everything.
        sent: The messages of the agent.
        found: The circle that it finds.
    """

    answered: bool
    sent: list[Sent]
    found: Finding | None = None


NOTHING = Look(False, [])
Status = (
    Literal["no locks", "waiting"] | int
)  # or it holds everything: the number of deadlocks of which it was notified


class Agent(Saved):
    """An agent of the original. All of its mutable state is in `state`, a tuple.

    Args:
        me: Its reference.
        variant: The rules.
        aborts: Whether it aborts instead of surrendering a lock of whose grant its client was
            notified.
    """

    STATE: ClassVar[tuple[str, ...]] = (
        "known",
        "holders",
        "interesting",
        "pending",
        "served",
        "claim",
        "has_all",
        "status",
        "awaited",
        "deadlocks",
        "unseen",
        "news",
        "unanswered",
    )

    def __init__(self, me: AgentId, variant: Variant = ORIGINAL, aborts: bool = False) -> None:
        self.me = me
        self.variant = variant
        self.aborts = aborts
        self.known: tuple[Known, ...] = ()
        self.holders: frozenset[tuple[AgentId, Key]] = frozenset()
        self.interesting: tuple[Key, ...] = ()  # queues with waiting agents, the newest first
        self.pending: tuple[Request, ...] = ()
        self.served: tuple[Request, ...] = ()
        self.claim = 0
        self.has_all = False
        self.status: Status = "no locks"
        self.awaited = False  # whether its client waits for an answer
        self.deadlocks: frozenset[Place] = frozenset()
        self.unseen = False  # whether it has still to look whether it has all
        self.news = False  # and whether there are circles
        self.unanswered: tuple[Key, ...] = ()  # surrendered, and not yet acknowledged

    # --- The client

    def ask(
        self, lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require, wait: bool
    ) -> list[Sent]:
        """The client requests a lock; with `wait`, it waits until it holds everything."""
        repeated = self._repeated(lock_id, mode, nodes, require)
        self.awaited = self.awaited or wait
        self.unseen = True
        if repeated is not None:
            return repeated
        self.pending += (Request(lock_id, mode, nodes, require, self.claim),)
        return [(node, Ask(self.me, lock_id, mode)) for node in nodes]

    def _repeated(
        self, lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require
    ) -> list[Sent] | None:
        """The messages if it has requested this lock before; None if it must request it now."""
        for request in (*self.pending, *self.served):
            if request.lock_id != lock_id:
                continue
            if (request.mode, request.require) == (mode, require):
                return self._more_nodes(request, nodes)
            if (request.nodes, request.require) != (nodes, require):
                raise InvalidOption(
                    f"{show(lock_id)} was asked for on other nodes, or on other terms, before: the "
                    "original's agent crashes then"
                )
            if request.mode == "write":
                return []
            # An upgrade: it forgets what it knows about the lock.
            self.known = tuple(each for each in self.known if each.key[0] != lock_id)
            self.holders = frozenset(
                (agent, key) for agent, key in self.holders if agent != self.me or key[0] != lock_id
            )
            self.interesting = tuple(key for key in self.interesting if key[0] != lock_id)
        return None

    def _more_nodes(self, request: Request, nodes: tuple[str, ...]) -> list[Sent]:
        new = tuple(node for node in nodes if node not in request.nodes)
        if new:
            self.served = tuple(each for each in self.served if each is not request)
            self.pending = tuple(each for each in self.pending if each is not request)
            self.pending += (request._replace(nodes=(*new, *request.nodes)),)
        return [(node, Ask(self.me, request.lock_id, request.mode)) for node in new]

    def wait(self) -> Look:
        """The client waits until it has all; the agent looks first, if there is anything new."""
        found = self.look() if self.unseen else NOTHING
        if isinstance(self.status, int):
            return found._replace(answered=True)
        self.awaited = self.unseen = True
        return found

    def end(self) -> list[Sent]:
        """The agent ends: lock servers notice."""
        nodes = {node for r in (*self.pending, *self.served) for node in r.nodes}
        return [(node, End(self.me)) for node in sorted(nodes)]

    # --- Messages

    def receive(self, message: Info | Surrendered) -> None:
        """It takes something in, and looks at it later."""
        match message:
            case Surrendered(agent, key, _):
                self.deadlocks |= {Place(agent, key)}
            case Info():
                self._learn(message)
            case _:
                assert_never(message)

    def _learn(self, info: Info) -> None:
        key, row, note = info.key, info.row, info.note
        if note is not None and note.agent != self.me:
            self.deadlocks |= {Place(note.agent, key)}
        elif note is not None:
            self.unanswered = tuple(each for each in self.unanswered if each != key)
        if key in self.unanswered:
            return
        before = self._knows(key)
        if before is not None and before.version >= row.version:
            return
        now = Known(key, row.version, row.queue)
        others = set(before.holders) if before is not None else set()
        self.holders -= {(agent, key) for agent in others - set(now.holders)}
        self.holders |= {(agent, key) for agent in now.holders}
        self._put(key, now)
        was, is_ = before is not None and len(before.queue) > 1, len(now.queue) > 1
        if is_ and not was:
            self.interesting = (key, *self.interesting)
        elif was and not is_:
            self._uninteresting(key)
        self.unseen = self.news = True

    def _knows(self, key: Key) -> Known | None:
        return next((each for each in self.known if each.key == key), None)

    def _put(self, key: Key, known: Known | None) -> None:
        others = [each for each in self.known if each.key != key]
        there = [*others, *([known] if known else [])]
        self.known = tuple(sorted(there, key=lambda each: in_order(each.key)))

    def _uninteresting(self, key: Key) -> None:
        self.interesting = tuple(each for each in self.interesting if each != key)

    # --- Looking

    def look(self) -> Look:
        """It examines what it knows."""
        answered = self._look_what_it_has()
        if not self.news or self.has_all:
            self.news = False
            return Look(answered, [])
        self.news = False
        found = circle([(key, self._queue(key)) for key in self.interesting])
        if not found:
            return Look(answered, self._tell())
        place = found[0]
        for other in found[1:]:
            larger = place.agent > other.agent
            if not (larger if self.variant.yields == "largest" else place.agent < other.agent):
                place = other
        finding = Finding(tuple(found), place)
        if place.agent == self.me and self.aborts and self._is_claimed(place.key[0]):
            return Look(answered, [], finding._replace(aborts=True))
        return Look(answered, self._yield(finding), finding)

    def _look_what_it_has(self) -> bool:
        """Whether it has all; returns whether its client is answered."""
        self.unseen = False
        status = self._status()
        if status == self.status:
            return False
        self.status = status
        if not isinstance(status, int):
            self.has_all = False
            return False
        self.claim += not self.has_all
        self.has_all = True
        answered, self.awaited = self.awaited, False
        return answered

    def _status(self) -> Status:
        if not self.known:
            return "waiting" if self.pending else "no locks"
        served = tuple(request for request in self.pending if self._is_served(request))
        self.pending = tuple(request for request in self.pending if request not in served)
        self.served += served
        return "waiting" if self.pending else len(self.deadlocks)

    def _is_served(self, request: Request) -> bool:
        there = set(self.where(request.lock_id, request.mode)) & set(request.nodes)
        return len(there) >= needed(request.require, request.nodes, request.nodes)

    def where(self, lock_id: LockId, mode: Mode) -> list[str]:
        """The nodes on which it holds a lock, as far as it knows."""
        return [
            known.key[1]
            for known in self.known
            if known.key[0] == lock_id
            and (self.me, known.key) in self.holders
            and covers(known.queue[0].mode, mode)
        ]

    def _is_claimed(self, lock_id: LockId) -> bool:
        """Whether its client was notified that it holds the lock."""
        return any(r.claim < self.claim for r in self.served if r.lock_id == lock_id)

    def _queue(self, key: Key) -> Queue:
        known = self._knows(key)
        return known.queue if known is not None else ()

    # --- Circles

    def _yield(self, finding: Finding) -> list[Sent]:
        """An agent must give way. If it is another one, forget the queue, and inform nobody."""
        agent, key = finding.place
        sent: list[Sent] = []
        if agent != self.me and self.variant.keeps:
            return self._tell()
        others = {holder for holder, _ in self.holders}
        keys = [key]
        if agent == self.me and self.variant.gives == "all":
            keys += sorted({k for a, k in self.holders if a == self.me and k != key}, key=in_order)
        for each in keys:
            known = self._knows(each)
            if known is None:
                continue
            self._forget(known)
            self.deadlocks |= {Place(agent, each)}
            if agent == self.me:
                if self.variant.reopens:
                    self._reopen(each[0])
                sent += self._surrender(known, finding.circle)
                told = others - set(agents_in(known.queue))
                sent += [(o, Surrendered(agent, each, known.version)) for o in sorted(told)]
        if agent == self.me:
            self.status, self.has_all = "waiting", False
        return sent

    def _forget(self, known: Known) -> None:
        self._put(known.key, None)
        self.holders -= {(agent, known.key) for agent in known.holders}
        if len(known.queue) > 1:
            self._uninteresting(known.key)

    def _reopen(self, lock_id: LockId) -> None:
        """It waits again for the lock that it surrenders."""
        again = tuple(request for request in self.served if request.lock_id == lock_id)
        self.served = tuple(request for request in self.served if request not in again)
        self.pending += again

    def _surrender(self, known: Known, found: Sequence[Place]) -> list[Sent]:
        (lock_id, node), version, queue = known
        behind = None
        if self.variant.gives in ("swap", "place") and len(queue) > 1:
            group = queue[1]
            if self.variant.gives == "place":
                there = {place.agent for place in found}
                waiting = [g for g in queue[1:] if there & {e.agent for e in g.entries}]
                group = (waiting or queue[1:])[0]
            behind = group.entries[0].agent
        if self.variant.acknowledges == "heeded" and known.key not in self.unanswered:
            self.unanswered += (known.key,)
        return [(node, Surrender(self.me, lock_id, version, behind))]

    def _tell(self) -> list[Sent]:
        """It sends what it knows to others."""
        queues = [each for key in self.interesting if (each := self._knows(key)) is not None]
        receivers = {holder for holder, _ in self.holders}
        match self.variant.tells:
            case "larger":
                receivers = {agent for agent in receivers if agent > self.me}
            case "smaller":
                receivers = {agent for agent in receivers if agent < self.me}
            case "everyone":
                receivers |= {agent for each in queues for agent in agents_in(each.queue)}
            case "forward":
                receivers = self._beyond(queues, 1)
                queues = self._around(queues, 0)
            case "back":
                receivers = self._beyond(queues, 0)
                queues = self._around(queues, 1)
            case _:
                assert_never(self.variant.tells)
        return [
            (agent, _info(known))
            for agent in sorted(receivers - {self.me})
            for known in queues
            if agent not in agents_in(known.queue)
        ]

    def _beyond(self, queues: Sequence[Known], side: int) -> set[AgentId]:
        """The agents that it waits for (1), or that wait for it (0), in these queues."""
        return {
            pair[side] for known in queues for pair in _pairs(known) if pair[1 - side] == self.me
        }

    def _around(self, queues: Sequence[Known], side: int) -> list[Known]:
        """The queues by which others wait for it (0), or it waits for others (1), also indirectly."""
        reached, before = {self.me}, 0
        while len(reached) > before:
            before = len(reached)
            reached |= {
                pair[side]
                for known in queues
                for pair in _pairs(known)
                if pair[1 - side] in reached
            }
        return [
            known for known in queues if any(pair[1 - side] in reached for pair in _pairs(known))
        ]


def in_order(key: Key) -> tuple[Any, ...]:
    """The sort key of a lock in lists of locks."""
    return order(key[0]), key[1]


def _info(known: Known) -> Info:
    return Info(known.key[1], Row(known.key[0], known.version, known.queue))


def _pairs(known: Known) -> list[tuple[AgentId, AgentId]]:
    """Pairs of a waiting agent and one at the head of the queue."""
    head, *tail = known.queue
    waiting = {entry.agent for group in tail for entry in group.entries}
    return [
        (agent, entry.agent) for entry in head.entries for agent in sorted(waiting - {entry.agent})
    ]
