"""What agents tell each other, on its way between nodes: directly, or by way of lock servers.

Which way is taken says `locks.core.paths`, what a lock server passes on `locks.core.server.relays`. Here are the
connections. What is relayed is not kept here: if much waits already for a node that does not read, it is
not put to that. Who has sent it is remembered, and told when the node has read on (`Undelivered.again`): then it
says it again, if that still matters. So a stopped client holds up nobody, and costs little.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from locks.core.messages import Knowledge, Relay, ToAgent, ToServer, Undelivered
from locks.core.parts import in_parts
from locks.core.paths import way
from locks.core.server.relays import Pair
from locks.model import AgentId
from locks.node.client.agent import Agent
from locks.node.peers.local_node import LocalNode
from locks.otp.bytes.fields import BadMessage
from locks.otp.distribution import Distribution
from locks.runtime import Executor

__all__ = ["MOST_WAITING", "Relaying"]

logger = logging.getLogger("locks.nodes")

MOST_WAITING = 1 << 20  # bytes for a node, beside which nothing is put that is relayed


class Relaying:
    """Sends what agents, and the lock server as their relay, have for agents of other nodes.

    Args:
        node: The node.
        executor: Where it is logged what can't be done.
        distribution: The connections.
        members: The nodes with a lock server, and whether it is the original's.
    """

    def __init__(
        self,
        node: LocalNode,
        executor: Executor,
        distribution: Distribution,
        members: Mapping[str, bool],
    ) -> None:
        self._node = node
        self._executor = executor
        self._links = distribution.links
        self._members = members
        self._held: dict[str, dict[Pair, None]] = {}  # what was not put to a node, by the agents
        self._warned = False

    def _relays(self, name: str) -> bool:
        """Whether there is a lock server on a node that relays: the original's don't."""
        return self._members.get(name) is False

    def first_steps(self, sender: Agent, effect: ToAgent) -> list[ToAgent | ToServer]:
        """What is to be sent for an agent that says something to one of another node."""
        agent, message, over, own = effect
        home = self._node.name
        to = way(home, agent.node, over, own, self._links.__contains__, self._relays)
        if to == agent.node:
            return [effect]
        if to is None:
            self._warn(agent, (*over, *own))
            self._node.deliver(sender, Undelivered("", agent))
            return []
        assert isinstance(message, Knowledge)
        others = tuple(node for node in over if node != to)
        parts = [part for part in in_parts(message, agent) if isinstance(part, Knowledge)]
        relays = [Relay(sender.id, agent, others, part) for part in parts]
        if to != home:
            return [ToServer(to, each) for each in relays]
        for each in relays:
            self._node.deliver(self._node.server, each)
        return []

    def next_step(self, effect: ToAgent | ToServer) -> bool:
        """Whether the lock server may send something to another node now, as it wants to."""
        told: object = effect.message
        if isinstance(effect, ToServer):
            assert isinstance(told, Relay)
            name, receiver, told = effect.node, told.to, told.message
        else:
            name, receiver = effect.agent.node, effect.agent
        link = self._links.get(name)
        if not isinstance(told, Knowledge) or link is None or link.waiting <= MOST_WAITING:
            return True
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = {}
            link.drained[partial(self._drained, name)] = None
        held[told.sender, receiver] = None
        return False

    def _drained(self, name: str) -> None:
        """A node has read what had waited for it: what was held back can be said again."""
        held = self._held.pop(name, {})
        if held:
            self._node.server.relay_again(tuple(held))

    def lost(self, name: str) -> None:
        """The connection with a node is lost; the lock server tells the senders."""
        self._held.pop(name, None)

    def check(self, name: str, relay: Relay) -> None:
        """Make sure that a node passes on what it may.

        Raises:
            BadMessage: It speaks for agents of others, and not as their relay.
        """
        agent, _, _, told, via = relay
        if via:
            right = via == name and self._relays(name)
        else:
            right = agent.node == name and isinstance(told, Knowledge)
        if not right or (isinstance(told, Knowledge) and told.sender != agent):
            raise BadMessage(f"{name} can't send messages for {agent} through {via or 'itself'}")

    def _warn(self, agent: AgentId, nodes: tuple[str, ...]) -> None:
        """Say once that the original's lock servers relay nothing."""
        original = next((node for node in nodes if self._members.get(node)), None)
        if original is not None and not self._warned:
            self._warned = True
            text = (
                "%s is not connected with the node of %s, and the lock server of %s is the Erlang "
                "original, which does not relay. Deadlocks between the two may not be found until they are "
                "connected (node.connect)"
            )
            self._executor.run_soon(logger.warning, text, self._node.name, agent, original)
