"""The queue of messages between a node's actors, and how effects are carried out.

All actors of a node take one turn (`locks.runtime.inline`): the caller runs what follows from its call at
once, in its own thread or greenlet, until every message is delivered. Then agents that learned something
look for deadlocks (so an agent has taken in all that has come before it looks), and the messages that
this brings about are delivered in the same way. Messages between two actors keep their order. Foreign code
(notifications, watchers, monitors) never runs within a turn; it is handed to the node's executor.

Everything here is for the turn.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pykka

from locks.core.agent.machine import AgentMachine
from locks.core.messages import (
    AgentEffect,
    AgentMessage,
    AnswerWait,
    Ended,
    Knowledge,
    Lost,
    Notify,
    ServerEffect,
    ServerMessage,
    Surrendered,
    ToAgent,
    ToServer,
    ToWatcher,
)
from locks.errors import AgentEnded, assert_never
from locks.model import AgentId
from locks.node.agent import Agent
from locks.node.cluster import Cluster
from locks.node.ports import Background
from locks.node.server import Server
from locks.node.statistics import Counters
from locks.runtime import tell

__all__ = ["Dispatch", "Trace"]

logger = logging.getLogger("locks")

Trace = Callable[[Any, Any, Any], object]
Actor = Server | Agent


class Dispatch:
    """Carries messages between the actors of one node, and does what their machines want done.

    Args:
        name: The node's name.
        executor: Where foreign code is called.
        counters: What is counted.
        trace: See `Node`.
        on_ended: Called when an agent has ended.
        on_broken: Called when the lock server has crashed.

    Attributes:
        server: The lock server.
        agents: The agents that live.
        cluster: The other nodes, if there are any.
        trace: Called with sender, receiver and message for each message, if it is not `None`.
    """

    server: Server

    def __init__(
        self,
        name: str,
        executor: Background,
        counters: Counters,
        trace: Trace | None,
        on_ended: Callable[[Agent], object],
        on_broken: Callable[[], object],
    ) -> None:
        self.agents: dict[AgentId, Agent] = {}
        self.cluster: Cluster | None = None
        self._name = name
        self._executor = executor
        self._counters = counters
        self.trace = trace
        self._on_ended = on_ended
        self._on_broken = on_broken
        self._queue: deque[tuple[Actor, Any]] = deque()
        self._unsettled: dict[Agent, None] = {}

    def deliver(self, receiver: Actor, message: ServerMessage | AgentMessage) -> None:
        """Put a message into the queue."""
        self._queue.append((receiver, message))

    def perform(self, sender: Actor, effects: Sequence[ServerEffect | AgentEffect]) -> None:
        """Do what a machine wants done."""
        for effect in effects:
            receiver: Actor | None
            if isinstance(effect, ToServer):
                if effect.node != self._name:
                    self._send(sender, effect.node, effect.message)
                    continue
                receiver = self.server
            elif isinstance(effect, ToAgent):
                if effect.agent.node != self._name:
                    self._send(sender, effect.agent, effect.message)
                    continue
                receiver = self.agents.get(effect.agent)
            else:
                self.perform_here(sender, effect)
                continue
            if receiver is not None:
                self._queue.append((receiver, effect.message))
                if self.trace is not None:
                    self.trace(sender, receiver, effect.message)

    def perform_here(
        self, sender: Actor, effect: AnswerWait | Notify | Lost | Ended | ToWatcher
    ) -> None:
        """Carry out an effect that is not a message to an actor."""
        if isinstance(effect, ToWatcher):
            self._tell_watcher(effect)
            return
        assert isinstance(sender, Agent)
        if isinstance(effect, AnswerWait):
            wait: Any = effect.wait  # the shell's own: `PendingCall`, or one for another node
            wait.answer(effect.result)
        elif isinstance(effect, Ended):
            self.agents.pop(sender.id, None)
            self._unsettled.pop(sender, None)
            self._on_ended(sender)
            sender.has_ended(effect)
        elif isinstance(effect, Notify):
            sender.notify(effect.notification)
        elif isinstance(effect, Lost):
            sender.has_lost(effect)
        else:
            assert_never(effect)

    def _tell_watcher(self, effect: ToWatcher) -> None:
        watcher: Any = effect.watcher
        if self.cluster is not None and self.cluster.tell_watcher(watcher, effect.view):
            return
        told = partial(tell, watcher) if isinstance(watcher, pykka.ActorRef) else watcher
        self._executor.run_soon(told, effect.view)

    def _send(self, sender: Actor, receiver: str | AgentId, message: Any) -> None:
        """Send a message to a lock server, or an agent, of another node."""
        if self.trace is not None:
            self.trace(sender, receiver, message)
        if self.cluster is None:
            return  # an agent that has never been here: the simulator's
        if isinstance(receiver, AgentId):
            self.cluster.to_agent(receiver, message)
        else:
            assert isinstance(sender, Agent)
            self.cluster.to_server(receiver, sender.id, message)

    # --- The end of a turn ----------------------------------------------------------------------

    def finish(self) -> None:
        """Deliver all messages, let agents look for deadlocks, and so on until all is quiet."""
        queue = self._queue
        unsettled = self._unsettled
        while True:
            while queue:
                receiver, message = queue.popleft()
                try:
                    receiver.handle(message)
                except Exception as error:
                    self.crashed(receiver, error)
                    continue
                if type(receiver) is Agent:
                    kind = type(message)
                    if kind is Knowledge:
                        self._counters.knowledge += 1
                    elif kind is Surrendered:
                        self._count_deadlock(message)
                    if receiver.machine.unsettled:
                        unsettled[receiver] = None
            if unsettled:
                agent = next(iter(unsettled))
                del unsettled[agent]
                try:
                    agent.settle()
                except Exception as error:
                    self.crashed(agent, error)
            elif self.cluster is None or not self.cluster.flush():
                return

    def _count_deadlock(self, answer: Surrendered) -> None:
        report = answer.message.report
        if answer.done and report is not None:
            self._counters.deadlocks += 1
            self._counters.aborted += report.action == "aborted"

    def tell_agents(self, event: Callable[[AgentMachine, str], list[Any]], node: str) -> None:
        """Another node's lock server is there, or gone: tell all agents."""
        for agent in list(self.agents.values()):
            try:
                agent.event(event, agent.machine, node)
            except Exception as error:
                self.crashed(agent, error)
            if agent.machine.unsettled:
                self._unsettled[agent] = None

    def end_agents(self, why: str) -> None:
        """End all transactions, with the node: it `why`."""
        for agent in list(self.agents.values()):
            text = f"node {self._name} {why}; transaction {agent.id} has ended"
            agent.event(agent.machine.end, AgentEnded(text, agent=agent.id))

    def crashed(self, actor: Actor, error: Exception) -> None:
        """An actor broke down in the middle of a message; what it knows can't be trusted any more.

        An agent goes alone. Without its lock server, a node can vouch for nothing.
        """
        self._executor.run_soon(partial(logger.error, "%s has crashed", actor, exc_info=error))
        if isinstance(actor, Agent):
            text = f"transaction {actor.id} has crashed: {error!r}"
            actor.event(actor.machine.end, AgentEnded(text, agent=actor.id))
        else:
            self._queue.clear()
            self._on_broken()
