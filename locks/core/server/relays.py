"""A lock server as a relay: it passes on what agents tell each other that are not connected.

It does so for an agent that has requests here, or sends the message on to another lock server where that has
some; the second one sends it no further. For anybody else it passes on nothing, so it is no way to strangers.

It keeps no messages, but remembers who has told whom something by way of it: when it loses the connection over
which the message went, the message may have been on it, and the sender is told (`Undelivered`). It is also told
when a way is there that was not there before. What is remembered goes with the agents, and is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import NamedTuple

from locks.core.messages import (
    Knowledge,
    Relay,
    ServerEffect,
    ToAgent,
    ToServer,
    Undelivered,
)
from locks.model import AgentId

__all__ = ["MOST_RELAYED", "Pair", "Passed", "Relays"]

MOST_RELAYED = 10_000  # pairs of agents that are remembered, for each node where messages come from

Pair = tuple[AgentId, AgentId]
"""Sender and receiver."""


class Passed(NamedTuple):
    """The way that messages from one agent to another have taken.

    Attributes:
        to: The node that they were sent to; empty if there was no way.
        over: The nodes that they could have been sent on to.
        via: The node of the lock server that has sent them here; empty if it was the sender's node.
    """

    to: str
    over: tuple[str, ...]
    via: str


class Relays:
    """What one lock server passes on.

    Args:
        node: Its node.
        has: The agents that have requests here.

    Attributes:
        peers: The nodes that are connected, and whether their lock servers relay.
        passed: Who has told whom something by way of this lock server.
    """

    def __init__(self, node: str, has: Container[AgentId]) -> None:
        self._node = node
        self._has = has
        self.peers: dict[str, bool] = {node: False}
        self.passed: dict[Pair, Passed] = {}
        self._of: dict[AgentId, dict[Pair, None]] = {}
        self._counts: Counter[str] = Counter()

    def relay(self, message: Relay) -> list[ServerEffect]:
        """Pass a message on, or tell the sender that there is no way."""
        agent, to, over, told, via = message
        if not isinstance(told, Knowledge):
            return [ToAgent(to, told)] if to.node in self.peers else []
        pair = (agent, to)
        if to in self._has and to.node in self.peers:
            if self._remember(pair, Passed(to.node, (), via)):
                return [ToAgent(to, told)]
        else:
            nodes = () if via else over
            next_one = next((n for n in nodes if n != self._node and self.peers.get(n)), "")
            kept = self._remember(pair, Passed(next_one, nodes, via)) if nodes else False
            if next_one and kept:
                return [ToServer(next_one, Relay(agent, to, (), told, self._node))]
        return self._undelivered(agent, to, via)

    def peer_up(self, node: str, relays: bool) -> list[ServerEffect]:
        """A node is connected; whether its lock server relays."""
        self.peers[node] = relays
        effects: list[ServerEffect] = []
        if relays:
            for pair in sorted(p for p, w in self.passed.items() if not w.to and node in w.over):
                via = self.passed[pair].via
                self._forget(pair)
                effects += self._undelivered(*pair, via, again=True)
        return effects

    def peer_down(self, node: str) -> list[ServerEffect]:
        """The connection with a node is lost; before the requests of its agents are taken out."""
        self.peers.pop(node, None)
        effects: list[ServerEffect] = []
        for pair in [pair for pair in self.passed if pair[0].node == node]:
            self._forget(pair)
        for pair in sorted(pair for pair, way in self.passed.items() if way.to == node):
            way = self.passed[pair]
            effects += self._undelivered(*pair, way.via)
            if node in way.over:
                self._remember(pair, way._replace(to=""))
            else:
                self._forget(pair)
        return effects

    def again(self, pairs: Iterable[Pair]) -> list[ServerEffect]:
        """What was held back between these agents can be said again."""
        effects: list[ServerEffect] = []
        for pair in pairs:
            if pair in self.passed:
                effects += self._undelivered(*pair, self.passed[pair].via, again=True)
        return effects

    def gone(self, agent: AgentId) -> None:
        """An agent has ended."""
        for pair in list(self._of.get(agent, ())):
            self._forget(pair)

    def load(self, peers: dict[str, bool], passed: dict[Pair, Passed]) -> None:
        """Go back to what was known."""
        self.peers = dict(peers)
        for pair, way in passed.items():
            self._remember(pair, way)

    def _undelivered(
        self, sender: AgentId, receiver: AgentId, via: str, again: bool = False
    ) -> list[ServerEffect]:
        """Tell a sender, the way that its message came."""
        told = Undelivered(self._node, receiver, again)
        if not via:
            return [ToAgent(sender, told)] if sender.node in self.peers else []
        if not self.peers.get(via):
            return []  # the lock server there has told it
        return [ToServer(via, Relay(sender, sender, (), told, self._node))]

    def _remember(self, pair: Pair, passed: Passed) -> bool:
        """Remember a way; returns whether there is room for it."""
        before = self.passed.get(pair)
        if before is not None:
            self._forget(pair)
        origin = passed.via or pair[0].node
        if self._counts[origin] >= MOST_RELAYED:
            self._make_room(origin)
            if self._counts[origin] >= MOST_RELAYED:
                return False
        self.passed[pair] = passed
        self._counts[origin] += 1
        for agent in {*pair}:
            self._of.setdefault(agent, {})[pair] = None
        return True

    def _make_room(self, origin: str) -> None:
        """Forget those of a node's pairs of which nobody has requests here any more."""
        for pair, passed in list(self.passed.items()):
            if (passed.via or pair[0].node) == origin and not any(a in self._has for a in pair):
                self._forget(pair)

    def _forget(self, pair: Pair) -> None:
        passed = self.passed.pop(pair)
        origin = passed.via or pair[0].node
        self._counts[origin] -= 1
        if not self._counts[origin]:
            del self._counts[origin]
        for agent in {*pair}:
            there = self._of[agent]
            del there[pair]
            if not there:
                del self._of[agent]
