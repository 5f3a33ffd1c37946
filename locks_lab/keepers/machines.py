"""What a node may do with a grant that it keeps, and what a lock server does with it. Pure.

Theory of operation
-------------------
When a transaction ends, its node sends `Keep` instead of a release. If nobody else is interested, the server notes the node's *keeper*
as the holder, and answers `Kept`. From then on the node gives the lock to its own next agents without a message (*uses*), one at a time.

* **Lease.** The server takes an idle grant back when `LEASE` is over, by its own clock. The node counts from before it sent `Keep`, by
  its clock, and lets no use begin after half of it. A use that lasts longer is handed over at that time.
* **Hand-over.** When anybody else requests the lock, the server sends `Recall`. A node that does not use the grant releases it. In a
  use, the node sends the request (`Ask`) of the agent that uses it, with the version of the grant: the agent takes the keeper's
  place, with its own reference, and so its age. From then on it is an agent like all others. If the server has taken the grant back
  before, it answers `Lost`.
* **Asking again** is an ordinary `Ask`. It takes back what the node keeps at that server: an idle grant, behind which others may wait.
* **Tokens.** The largest version of the node's grants is M. With `Keep` each server promises to assign only versions larger than M +
  `BLOCK`. The uses have the tokens M + 1 to M + `BLOCK`. A use needs a majority of servers that have promised and whose lease is
  not half over. Any later holder has a grant of one of these servers, and so a larger token.

A line is one lock id, all requests are for writing, and ids are not related. All states are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from locks.model import AgentId, majority

__all__ = [
    "BLOCK",
    "LEASE",
    "Answer",
    "Ask",
    "Done",
    "Granted",
    "Keep",
    "Keeping",
    "Kept",
    "Lease",
    "Line",
    "Lost",
    "Message",
    "Place",
    "Raise",
    "Raised",
    "Recall",
    "Refused",
    "Server",
    "keeper_of",
]

LEASE = 12  # in units of a clock
BLOCK = 2  # tokens

Lock = int  # the number of a lock id


def keeper_of(node: str) -> AgentId:
    """The reference of a node's keeper."""
    return AgentId(0, node, 0)


# --- Messages -----------------------------------------------------------------------------------


class Ask(NamedTuple):
    """An agent requests a lock.

    Attributes:
        agent: The agent.
        lock: The lock.
        since: The version of the kept grant that the agent uses already; 0 if it uses none.
    """

    agent: AgentId
    lock: Lock
    since: int = 0


class Done(NamedTuple):
    """An agent, or a keeper, releases a lock, or withdraws its request."""

    agent: AgentId
    lock: Lock


class Keep(NamedTuple):
    """An agent has ended, and its node wants to keep its grant.

    Attributes:
        agent: The agent.
        lock: The lock.
        since: The version of the grant.
        upto: The last token of the block.
    """

    agent: AgentId
    lock: Lock
    since: int
    upto: int


class Raise(NamedTuple):
    """An agent wants a token confirmed, for its grant of this version."""

    agent: AgentId
    lock: Lock
    since: int
    upto: int


class Granted(NamedTuple):
    """An agent has been granted a lock."""

    agent: AgentId
    lock: Lock
    since: int


class Raised(NamedTuple):
    """A token is confirmed."""

    agent: AgentId
    lock: Lock
    since: int
    upto: int


class Lost(NamedTuple):
    """What an agent uses was taken back before."""

    agent: AgentId
    lock: Lock
    since: int


class Kept(NamedTuple):
    """The node keeps a grant."""

    lock: Lock
    since: int


class Refused(NamedTuple):
    """The node does not keep a grant: it was released."""

    lock: Lock
    since: int


class Recall(NamedTuple):
    """Others are interested in a lock that the node keeps."""

    lock: Lock
    since: int


Message = Ask | Done | Keep | Raise
Answer = Granted | Raised | Lost | Kept | Refused | Recall
Answers = tuple[tuple[str, Answer], ...]  # each with its node
Messages = tuple[tuple[str, Message], ...]  # each with its server
NO_ANSWERS: Answers = ()


# --- The lock server ----------------------------------------------------------------------------


class Place(NamedTuple):
    """A request in a line, or the grant of a keeper; `since` is 0 while it waits."""

    agent: AgentId
    since: int


class Line(NamedTuple):
    """The requests for one lock id, in order: the first one is granted.

    Attributes:
        places: The requests.
        until: When the lease of an idle grant is over; 0 if the first place is not a keeper's.
        recalled: Whether its node knows that others are interested.
    """

    places: tuple[Place, ...] = ()
    until: int = 0
    recalled: bool = False

    def is_over(self, now: int) -> bool:
        """Whether an idle grant can be taken back."""
        return 0 < self.until <= now


class Server(NamedTuple):
    """A lock server: the last version that it has assigned or promised, and a line for each lock."""

    version: int
    lines: tuple[Line, ...]

    def handle(self, message: Message, now: int) -> tuple[Server, Answers]:
        """Take in a message; return the answers, and what else is to be sent."""
        match message:
            case Ask(agent, lock, since):
                return self.ask(agent, lock, since)
            case Done(agent, lock):
                return self._without(lock, agent)
            case Keep(agent, lock, since, upto):
                return self._keep(agent, lock, since, upto, now)
            case Raise(agent, lock, since, upto):
                if Place(agent, since) not in self.lines[lock].places:
                    return self, ()
                raised = self._replace(version=max(self.version, upto))
                return raised, ((agent.node, Raised(*message)),)

    def ask(self, agent: AgentId, lock: Lock, since: int) -> tuple[Server, Answers]:
        """Take in a request, or a hand-over."""
        places, until, _ = self.lines[lock]
        if since:
            if not until or places[0] != Place(keeper_of(agent.node), since):
                return self, ((agent.node, Lost(agent, lock, since)),)
            return self._with(lock, Line((Place(agent, since), *places[1:]))), ()
        server, answers = self._without(lock, keeper_of(agent.node))
        line = server.lines[lock]
        line = line._replace(places=(*line.places, Place(agent, 0)))
        server, more = server._with(lock, line)._next(lock)
        return server, answers + more

    def _keep(
        self, agent: AgentId, lock: Lock, since: int, upto: int, now: int
    ) -> tuple[Server, Answers]:
        if self.lines[lock].places == (Place(agent, since),):
            kept = Line((Place(keeper_of(agent.node), since),), now + LEASE)
            server = self._replace(version=max(self.version, upto))._with(lock, kept)
            return server, ((agent.node, Kept(lock, since)),)
        server, answers = self._without(lock, agent)
        return server, ((agent.node, Refused(lock, since)), *answers)

    def is_due(self, now: int) -> bool:
        """Whether an idle grant has to be taken back."""
        return any(line.is_over(now) for line in self.lines)

    def expire(self, now: int) -> tuple[Server, Answers]:
        """Take the idle grants back whose lease is over."""
        server, answers = self, NO_ANSWERS
        for lock, line in enumerate(self.lines):
            if line.is_over(now):
                server, more = server._without(lock, line.places[0].agent)
                answers += more
        return server, answers

    def forget(self, node: str) -> tuple[Server, Answers]:
        """The connection with a node is lost: so are all its requests, and what it keeps."""
        server, answers = self, NO_ANSWERS
        for lock, line in enumerate(self.lines):
            for place in line.places:
                if place.agent.node == node:
                    server, more = server._without(lock, place.agent)
                    answers += more
        return server, answers

    def _without(self, lock: Lock, agent: AgentId) -> tuple[Server, Answers]:
        line = self.lines[lock]
        places = tuple(place for place in line.places if place.agent != agent)
        if places[:1] == line.places[:1]:
            return self._with(lock, line._replace(places=places)), ()
        return self._with(lock, Line(places))._next(lock)

    def _next(self, lock: Lock) -> tuple[Server, Answers]:
        """Grant the lock to the first one, or recall a grant for which others wait."""
        line = self.lines[lock]
        if not line.places:
            return self, ()
        first, *others = line.places
        if not first.since:
            version = self.version + 1
            place = Place(first.agent, version)
            server = self._replace(version=version)._with(lock, Line((place, *others)))
            return server, ((first.agent.node, Granted(first.agent, lock, version)),)
        if line.until and others and not line.recalled:
            recalled = self._with(lock, line._replace(recalled=True))
            return recalled, ((first.agent.node, Recall(lock, first.since)),)
        return self, ()

    def _with(self, lock: Lock, line: Line) -> Server:
        return self._replace(lines=(*self.lines[:lock], line, *self.lines[lock + 1 :]))


# --- The node -----------------------------------------------------------------------------------


class Lease(NamedTuple):
    """What a node keeps at one server.

    Attributes:
        server: The server.
        since: The version of the grant.
        asked: The time before the node sent `Keep`, by its clock.
        kept: Whether the server has answered.
    """

    server: str
    since: int
    asked: int
    kept: bool = False


class Keeping(NamedTuple):
    """A lock that a node keeps.

    Attributes:
        node: The node.
        lock: The lock.
        servers: The number of servers that the lock is requested on.
        leases: What it keeps there.
        token: The last token that it has used; it begins with the largest version of the grants.
        upto: The last token of the block.
        user: The agent that uses the lock.
    """

    node: str
    lock: Lock
    servers: int
    leases: tuple[Lease, ...]
    token: int
    upto: int
    user: AgentId | None = None

    @classmethod
    def begin(
        cls,
        agent: AgentId,
        lock: Lock,
        servers: int,
        grants: Iterable[tuple[str, int]],
        token: int,
        now: int,
    ) -> tuple[Keeping, Messages]:
        """An agent has ended; keep its grants.

        Args:
            agent: The agent.
            lock: The lock.
            servers: The number of servers that the lock is requested on.
            grants: The servers that have granted it, with the versions of the grants.
            token: The agent's token.
            now: The present time, by the node's clock.
        """
        leases = tuple(Lease(server, since, now) for server, since in grants)
        last = max(token, *(lease.since for lease in leases))
        upto = last + BLOCK
        messages = ((each.server, Keep(agent, lock, each.since, upto)) for each in leases)
        return cls(agent.node, lock, servers, leases, last, upto), tuple(messages)

    def has_time(self, lease: Lease, now: int) -> bool:
        """Whether less than half of a lease is over."""
        return 2 * (now - lease.asked) < LEASE

    def has_tokens(self) -> bool:
        """Whether the block has tokens left."""
        return self.token < self.upto

    def stands(self, now: int) -> bool:
        """Whether the node keeps it at enough servers, by what it knows."""
        good = [lease for lease in self.leases if lease.kept and self.has_time(lease, now)]
        return len(good) >= majority(self.servers)

    def may_use(self, now: int) -> bool:
        """Whether an agent may have the lock without a message."""
        return self.user is None and self.has_tokens() and self.stands(now)

    def use(self, agent: AgentId) -> Keeping:
        """Give the lock to an agent, with the next token."""
        return self._replace(user=agent, token=self.token + 1)

    def ended(self) -> Keeping:
        """The agent has ended."""
        return self._replace(user=None)

    def is_due(self, now: int) -> bool:
        """Whether the lock has to be handed over to the agent that uses it."""
        return self.user is not None and not self.stands(now)

    def answered(self, server: str, since: int) -> Keeping:
        """A server has answered `Kept`."""
        leases = (
            lease._replace(kept=True) if (lease.server, lease.since) == (server, since) else lease
            for lease in self.leases
        )
        return self._replace(leases=tuple(leases))

    def names(self, server: str, since: int) -> bool:
        """Whether an answer of a server is about this, and not about an earlier grant."""
        return any((lease.server, lease.since) == (server, since) for lease in self.leases)

    def without(self, server: str) -> Keeping:
        """The connection with a server is lost, or it has refused."""
        leases = tuple(lease for lease in self.leases if lease.server != server)
        return self._replace(leases=leases)

    def give_up(self) -> Messages:
        """Hand the lock over to the agent that uses it; or else, release it."""
        return tuple((lease.server, self.last_word(lease)) for lease in self.leases)

    def last_word(self, lease: Lease) -> Message:
        """The message with which the node gives up what it keeps at a server."""
        if self.user is not None:
            return Ask(self.user, self.lock, lease.since)
        return Done(keeper_of(self.node), self.lock)
