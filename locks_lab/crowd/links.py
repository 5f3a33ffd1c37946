"""Links between parties, each a first-in-first-out queue, and schedulers that choose the next link."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from locks.core.messages import Release, Remove, StandingElsewhere
from locks.model import AgentId

__all__ = ["Fair", "Link", "Links", "Mail", "RoundRobin", "Scheduler", "is_urgent"]

URGENT = (Remove, Release, StandingElsewhere)


def is_urgent(message: Any) -> bool:
    """Whether a message to a lock server gives something up, so that others can continue."""
    return isinstance(message, URGENT)


class Mail(NamedTuple):
    """A message that has arrived or is in flight.

    Attributes:
        agent: The agent that has sent it to a lock server, or that receives it.
        message: The message; on a program's own queue, the function to call.
    """

    agent: AgentId | None
    message: Any


class Unread(NamedTuple):
    """A message that has arrived and was not read yet.

    Attributes:
        mail: The message.
        since: How many messages that are not urgent had been read from the link when it arrived.
        free: Whether it is urgent, and no unread message of its agent that is not urgent is ahead
            of it.
    """

    mail: Mail
    since: int
    free: bool


class Link:
    """The messages from one party to another.

    Args:
        source: The sender.
        urgent_first: Whether urgent messages are read before requests of other agents. Messages of
            one agent keep their order.
        unread: The links of its reader that have unread messages; this one is kept in it.

    Attributes:
        last: When the last message that was sent arrives.
        epoch: How often the connection was lost. Messages that were sent before are lost with it.
        up: Whether the parties are connected.
        passed: The largest number of messages of other agents that were read while an urgent one
            was unread.
        tag: For schedulers: how much time the link has used.
    """

    __slots__ = (
        *("_plain", "_read", "_ready", "_unread", "_urgent", "epoch", "last", "passed", "source"),
        *("tag", "up", "urgent_first"),
    )

    def __init__(
        self, source: str, urgent_first: bool = False, unread: dict[Link, None] | None = None
    ) -> None:
        self.source = source
        self.urgent_first = urgent_first
        self._ready: dict[Link, None] = {} if unread is None else unread
        self.last = 0.0
        self.epoch = 0
        self.up = True
        self.passed = 0
        self.tag = 0.0
        self._unread: deque[Unread] = deque()
        self._urgent: deque[Unread] = deque()
        self._plain: Counter[AgentId | None] = Counter()  # unread in order, by agent
        self._read = 0

    def __len__(self) -> int:
        return len(self._unread) + len(self._urgent)

    def arrive(self, mail: Mail) -> None:
        """A message can be read from now on."""
        self._ready[self] = None
        free = is_urgent(mail.message) and not self._plain[mail.agent]
        if free and self.urgent_first:
            self._urgent.append(Unread(mail, self._read, free))
            return
        if not free:
            self._plain[mail.agent] += 1
        self._unread.append(Unread(mail, self._read, free))

    def take(self) -> Mail:
        """Read the next message."""
        mail, since, free = (self._urgent or self._unread).popleft()
        if free:
            self.passed = max(self.passed, self._read - since)
        else:
            self._read += 1
            left = self._plain[mail.agent] - 1
            if left:
                self._plain[mail.agent] = left
            else:
                del self._plain[mail.agent]
        if not len(self):
            del self._ready[self]
        return mail

    def lose(self) -> None:
        """The connection is gone, and all that was on it."""
        self.epoch += 1
        self.up = False
        for kept in (self._unread, self._urgent, self._plain):
            kept.clear()
        self._ready.pop(self, None)


class Links(dict[str, Link]):
    """The links to one reader, by name of the sender; each is made when it is first used.

    Args:
        urgent_first: As `Link` says.

    Attributes:
        unread: Those with unread messages, in the order in which they got the first of these.
    """

    def __init__(self, urgent_first: bool = False) -> None:
        super().__init__()
        self.unread: dict[Link, None] = {}
        self._urgent_first = urgent_first

    def __missing__(self, source: str) -> Link:
        link = self[source] = Link(source, self._urgent_first, self.unread)
        return link


class Scheduler(Protocol):
    """Decides in which order a party reads its links."""

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        """Which of the links that have unread messages is read; or when to ask again, if none of them is now."""
        ...

    def served(self, link: Link, took: float, now: float) -> None:
        """A message of a link has taken some seconds, until now."""
        ...


class RoundRobin:
    """One message of each link in turn. It never leaves a processor idle that has something to read."""

    def __init__(self) -> None:
        self._turn = 0.0

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        """The link that has been waiting for its turn the longest."""
        return min(ready, key=lambda link: link.tag)

    def served(self, link: Link, took: float, now: float) -> None:
        """It is last now."""
        self._turn += 1.0
        link.tag = self._turn


class Fair:
    """Chooses the link that has used the least time, of those with unread messages.

    This is start-time fair queueing. It never leaves a processor idle while there are unread
    messages. A link that had no messages for a while has not saved any time by that.
    """

    def __init__(self) -> None:
        self._virtual = 0.0

    def next(self, ready: Sequence[Link], now: float) -> Link | float:
        """The link that has used the least."""
        link = min(ready, key=lambda link: max(link.tag, self._virtual))
        self._virtual = max(link.tag, self._virtual)
        return link

    def served(self, link: Link, took: float, now: float) -> None:
        """It has used so much more."""
        link.tag = max(link.tag, self._virtual) + took
