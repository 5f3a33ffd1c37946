"""How an agent reaches others, and who has to hear that it has forgotten.

Agents whose nodes are not connected tell each other what they know by way of lock servers (`locks.core.paths`).
What is lost on such a way has to be said again, for nothing else says it:

* `Undelivered` comes from a relay that has no way to the receiver, or has lost it with messages on it. The
  sender does not use that way for that receiver again until it learns something newer of a request that the
  receiver has there, or is told that it can, or is connected with another node.
* Who has told this agent something is told when it has forgotten that. If that went over a relay, it is said
  again when the relay is lost.

When a connection of its own node is lost, an agent forgets, and begins anew (`locks.core.agent.deadlocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from locks.core.messages import AgentEffect, Knowledge, ToAgent
from locks.core.paths import in_order
from locks.model import AgentId, RequestRecord
from locks.ranges import MOST_WAYS

__all__ = ["Reach"]

MOST_ASKED = 1000  # agents of whom it is kept that they were told so over a relay: the newest ones


class Reach:
    """How one agent reaches others.

    Args:
        me: The agent.
        out: Where effects are put.

    Attributes:
        alive: The nodes with lock servers that the agent's own node is connected with.
        used: Of the lock servers, those where the agent has requests.
        sources: Who has told the agent something since it forgot, and where they have requests.
        unsaid: To whom it is still to be said that the agent has forgotten, and where they have requests.
    """

    __slots__ = ("_asked", "_barred", "_me", "_out", "alive", "sources", "unsaid", "used")

    def __init__(self, me: AgentId, out: list[AgentEffect]) -> None:
        self._me = me
        self._out = out
        self.alive: Collection[str] = ()
        self.used: Collection[str] = ()
        self._barred: dict[AgentId, dict[str, None]] = {}  # the ways that are not used
        self.sources: dict[AgentId, tuple[str, ...]] = {}
        self._asked: dict[AgentId, tuple[str, ...]] = {}  # was told so, over a relay
        self.unsaid: dict[AgentId, tuple[str, ...]] = {}

    @property
    def in_touch(self) -> bool:
        """Whether connections that come or go may matter to it."""
        return not self.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether it knows nothing: it is as if it were made anew."""
        return not (self.sources or self.unsaid or self._asked or self._barred)

    @property
    def acquaintances(self) -> set[AgentId]:
        """For study: the agents that it may tell something without knowing of their requests."""
        return {*self.sources, *self._asked, *self.unsaid}

    def tell(self, receiver: AgentId, message: Knowledge, nodes: Iterable[str]) -> bool:
        """Send an agent a message, unless there is no way to it.

        Args:
            receiver: The agent.
            message: The message.
            nodes: Where it has requests.
        """
        if self._is_near(receiver):
            self._out.append(ToAgent(receiver, message))
            return True
        barred = self._barred.get(receiver, {})
        over = [node for node in in_order(nodes, self.used) if node not in barred]
        if barred and not over:
            return False
        own = sorted(node for node in self.used if node not in barred)
        self._out.append(
            ToAgent(receiver, message, tuple(over[:MOST_WAYS]), tuple(own[:MOST_WAYS]))
        )
        return True

    def _is_near(self, agent: AgentId) -> bool:
        return agent.node in self.alive or agent.node == self._me.node

    def told_by(self, source: AgentId, nodes: Iterable[str]) -> None:
        """An agent that has requests on these nodes has told this one something."""
        before = self.sources.get(source, ())
        near = self._is_near(source)
        self.sources[source] = () if near else tuple(sorted({*before, *nodes}))

    def say_forgot(self) -> None:
        """Let those who have told something know that it is forgotten."""
        for source, nodes in sorted(self.sources.items()):
            self._say(source, nodes)
        self.sources.clear()
        self.say_unsaid()

    def say_unsaid(self) -> None:
        """Say it again to those whom it has perhaps not reached."""
        for source, nodes in sorted(self.unsaid.items()):
            self._say(source, nodes)

    def _say(self, source: AgentId, nodes: tuple[str, ...]) -> None:
        self.unsaid.pop(source, None)
        said = self.tell(source, Knowledge(self._me, (), forgot=True), nodes)
        if self._is_near(source):
            return
        self._asked.pop(source, None)
        if said:
            self._asked[source] = nodes
            if len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]
        else:
            self.unsaid[source] = nodes

    # --- Ways that are there, or not --------------------------------------------------------------

    def undelivered(self, node: str, receiver: AgentId, again: bool, nodes: Iterable[str]) -> None:
        """What was said to an agent did not get there; it is known to have requests on some nodes."""
        if receiver in self._asked:
            self.unsaid[receiver] = self._asked.pop(receiver)
        if again:
            self._barred.pop(receiver, None)
            return
        barred = self._barred.setdefault(receiver, {})
        barred[node] = None
        if not node:  # neither over those, nor over the own ones
            there = (*nodes, *self.unsaid.get(receiver, ()), *self.used)
            barred.update(dict.fromkeys(there))

    def learned(self, record: RequestRecord, nodes: Iterable[str]) -> None:
        """Something newer of another agent is known; it has requests on these nodes."""
        barred = self._barred.get(record.agent)
        if barred is not None and record.state != "gone":
            left = [node for node in nodes if node in barred and node != record.node]
            if left:
                self._barred[record.agent] = dict.fromkeys(left)
            else:
                del self._barred[record.agent]

    def cease(self) -> None:
        """The agent does not wait: what it finds out about ways it finds out anew."""
        self._barred.clear()

    def up(self) -> None:
        """Its node is connected with another one: there may be other ways."""
        self._barred.clear()

    def down(self, node: str) -> None:
        """The connection with a node is lost, with what was on its way over it.

        Who has told something from there forgets as well, and needs not be told.
        """
        for source in [source for source in self.sources if source.node == node]:
            del self.sources[source]
        for receiver, nodes in list(self._asked.items()):
            if node in nodes or node in self.used:
                self.unsaid[receiver] = self._asked.pop(receiver)
