"""A node: one running instance of `locks`, with its lock server and its agents.

The node carries messages between its actors. All of them take one turn (`locks.runtime.inline`):
whoever calls runs what follows from the call at once, in its own thread or greenlet, until every
message is delivered; then agents that learned something look for deadlocks (so that an agent has
taken in all that there is before it does), and what that brings about is delivered in turn.
Messages between two actors keep their order. Foreign code (notifications, watchers, monitors)
never runs within a turn; it is handed to the node's `Home`.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pykka

from locks.agent import Agent
from locks.errors import AgentEnded, InvalidOption, MisuseError, NodeNotRunning
from locks.lock_table import TableStatistics
from locks.messages import (
    Answer,
    Ended,
    Knowledge,
    Notify,
    Surrendered,
    ToAgent,
    ToServer,
    ToWatcher,
)
from locks.model import AgentId, LockId, View
from locks.runtime import Client, Home, current_client, interrupts
from locks.runtime.inline import Turn, native_lock
from locks.server import Server

__all__ = ["Node", "NodeStatistics", "default_node", "stand_in", "start", "stop"]

logger = logging.getLogger("locks")

Trace = Callable[[Any, Any, Any], object]


class NodeStatistics(NamedTuple):
    """Counters of a node since it was started, and its size now.

    Attributes:
        name: The node's name.
        transactions: Transactions begun.
        aborted: Transactions that were aborted to resolve a deadlock.
        deadlocks: Deadlocks resolved on this node, by surrender or abort.
        agents: Agents alive now.
        knowledge: Messages by which agents passed knowledge on.
        table: Counters of the lock table.
    """

    name: str
    transactions: int
    aborted: int
    deadlocks: int
    agents: int
    knowledge: int
    table: TableStatistics


class Node:
    """One running instance of `locks`. `locks.start` makes it.

    Args:
        name: Its name, `name@host`.
        trace: Called with sender, receiver and message for each message between actors, within
            the turn: it must be quick, and must not call `locks`.

    Attributes:
        agent_class: What its agents are.
        now: Says the time of creation of an agent, in nanoseconds.
    """

    agent_class: ClassVar[type[Agent]] = Agent
    now: Callable[[], int] = staticmethod(time.time_ns)

    def __init__(self, name: str, trace: Trace | None = None) -> None:
        if not isinstance(name, str) or name.count("@") != 1 or not all(name.split("@")):
            raise InvalidOption(
                f'node name {name!r} is not of the form "name@host"', name=repr(name)
            )
        self.name = name
        self.alive = frozenset((name,))
        self.running = True
        self.trace = trace
        self.home = Home.choose()
        self.turn = Turn(self._finish)
        # Versions go on rising across restarts: nothing makes a million changes a second.
        self.server = Server(self, time.time_ns() // 1000)
        self.agents: dict[AgentId, Agent] = {}
        self.clients: dict[Client, dict[Agent, None]] = {}  # the transactions of each client
        self.holders: dict[Client, Agent] = {}  # the transactions of `locks.Lock`s
        self._queue: deque[tuple[Server | Agent, Any]] = deque()
        self._unsettled: dict[Agent, None] = {}
        self._serial = itertools.count(1)
        self._shielded = interrupts.install()
        self._transactions = self._aborted = self._deadlocks = self._knowledge = 0

    def __repr__(self) -> str:
        return f"<Node {self.name} {'running' if self.running else 'stopped'}>"

    # --- Its life -------------------------------------------------------------------------------

    def spawn_agent(
        self, client: Client | None = None, created: int | None = None, **options: Any
    ) -> Agent:
        """Begin a transaction.

        Args:
            client: Whose it is; the caller by default.
            created: The time of creation that the agent's reference says; now by default.
            **options: See `locks.begin_transaction`.
        """
        self.check_running()
        if client is None:
            client = current_client()
        if options.get("link") and not _can_be_linked(client):
            raise InvalidOption(
                f"a thread can't be linked: {client!r} can't be stopped from outside. Use "
                "link=False; the transaction ends with its client in any case",
                client=repr(client),
            )
        ref = AgentId(self.now() if created is None else created, self.name, next(self._serial))
        agent = self.agent_class(self, ref, client, **options)
        self.agents[ref] = agent
        self.clients.setdefault(client, {})[agent] = None
        try:
            agent.start_monitoring()
        except (TypeError, ValueError) as error:
            del self.agents[ref]
            self._forget(agent)
            raise InvalidOption(
                f"client {client!r} can't have a transaction: {error}", client=repr(client)
            ) from error
        self._transactions += 1
        return agent

    def stop(self) -> None:
        """Stop the node: transactions end, those who wait are told, everything is released."""
        if self.running:
            self.running = False
            self.turn.run(self._end_agents)
        if self.server.is_alive():
            if self._shielded:
                interrupts.uninstall()
            watch = self.server.ended()
            if watch is not None:
                self.home.run_soon(watch.fire, self.server, "normal")
            self.home.stop(timeout=5)

    def _end_agents(self, why: str = "was stopped") -> None:
        for agent in list(self.agents.values()):
            text = f"node {self.name} {why}; transaction {agent.id} has ended"
            agent.event(agent.machine.end, AgentEnded(text, agent=agent.id))

    def _crashed(self, actor: Server | Agent, error: Exception) -> None:
        """An actor broke down in the middle of a message; what it knows can't be trusted any more.

        An agent goes alone. Without its lock server, a node can vouch for nothing.
        """
        self.home.run_soon(partial(logger.error, "%s has crashed", actor, exc_info=error))
        if isinstance(actor, Agent):
            text = f"transaction {actor.id} has crashed: {error!r}"
            actor.event(actor.machine.end, AgentEnded(text, agent=actor.id))
        else:
            self.running = False
            self._queue.clear()
            self._end_agents("has lost its lock server")

    def check_running(self) -> None:
        """Raise `NodeNotRunning` when the node was stopped."""
        if not self.running:
            raise NodeNotRunning(
                f"node {self.name} was stopped; start one with locks.start()", node=self.name
            )

    # --- Messages, in a turn --------------------------------------------------------------------

    def deliver(self, receiver: Server | Agent, message: Any) -> None:
        """Put a message into the queue."""
        self._queue.append((receiver, message))

    def perform(self, sender: Server | Agent, effects: Sequence[Any]) -> None:
        """Do what a machine wants done."""
        for effect in effects:
            kind = type(effect)
            if kind is ToServer:
                receiver: Server | Agent | None = self.server
            elif kind is ToAgent:
                receiver = self.agents.get(effect.agent)
            else:
                self._perform_other(sender, effect)
                continue
            if receiver is not None:
                self._queue.append((receiver, effect.message))
                if self.trace is not None:
                    self.trace(sender, receiver, effect.message)

    def _perform_other(self, sender: Any, effect: Any) -> None:
        kind = type(effect)
        if kind is Answer:
            effect.wait.answer(effect.result)
        elif kind is Ended:
            self.agents.pop(sender.id, None)
            self._forget(sender)
            self._unsettled.pop(sender, None)
            sender.has_ended(effect)
        elif kind is Notify:
            sender.notify(effect.notification)
        elif kind is ToWatcher:
            watcher = effect.watcher
            tell = watcher.tell if isinstance(watcher, pykka.ActorRef) else watcher
            self.home.run_soon(tell, effect.view)
        else:
            raise AssertionError(f"unknown effect {effect!r}")

    def _forget(self, agent: Agent) -> None:
        client = agent.client
        own = self.clients.get(client)
        if own is not None:
            own.pop(agent, None)
            if not own:
                self.clients.pop(client, None)
        if self.holders.get(client) is agent:
            del self.holders[client]

    def _finish(self) -> None:
        queue = self._queue
        unsettled = self._unsettled
        while True:
            while queue:
                receiver, message = queue.popleft()
                try:
                    receiver.handle(message)
                except Exception as error:
                    self._crashed(receiver, error)
                    continue
                if type(receiver) is Agent:
                    kind = type(message)
                    if kind is Knowledge:
                        self._knowledge += 1
                    elif kind is Surrendered and message.done and message.message.report:
                        self._deadlocks += 1
                        self._aborted += message.message.report.action == "aborted"
                    if receiver.machine.unsettled:
                        unsettled[receiver] = None
            if not unsettled:
                return
            agent = next(iter(unsettled))
            del unsettled[agent]
            try:
                agent.settle()
            except Exception as error:
                self._crashed(agent, error)

    def log(self, text: str, *args: Any) -> None:
        """Log an error, outside of the turn."""
        self.home.run_soon(logger.error, text, *args)

    # --- Questions ------------------------------------------------------------------------------

    def view(self, lock_id: LockId) -> View:
        """What is known of a lock id on this node."""
        return self.turn.ask(self.server.machine.view, lock_id)

    def statistics(self) -> NodeStatistics:
        """Counters and present size."""
        return NodeStatistics(
            self.name,
            self._transactions,
            self._aborted,
            self._deadlocks,
            len(self.agents),
            self._knowledge,
            self.turn.ask(self.server.machine.statistics),
        )


def _can_be_linked(client: Client) -> bool:
    return isinstance(client, pykka.ActorRef) or not hasattr(client, "is_alive")


_default: Node | None = None
_starting = native_lock()


def start(name: str | None = None, *, trace: Trace | None = None) -> Node:
    """Start this program's node, unless it runs already.

    The first use of `locks` starts it, too. In a program that is monkey-patched by gevent, or
    whose calling thread has a gevent hub, its background work is done in that hub; in any other
    program it has a thread of its own.

    Args:
        name: The node's name, `name@host`; `node@localhost` by default.
        trace: For study: called with sender, receiver and message for each message between
            actors. It must be quick, and must not call `locks`.

    Returns:
        The node.

    Raises:
        MisuseError: A node with another name runs already.
        InvalidOption: The name is not of the form `name@host`.
    """
    global _default
    with _starting:
        if _default is not None and _default.running:
            if name not in (None, _default.name):
                raise MisuseError(
                    f"node {_default.name} runs already; stop it with locks.stop() before you "
                    f"start {name}",
                    node=_default.name,
                )
            return _default
        if _default is not None:
            _default.stop()  # its lock server has crashed
        _default = Node("node@localhost" if name is None else name, trace)
        return _default


def stop() -> None:
    """Stop this program's node, if it runs: transactions end, everything is released."""
    global _default
    node, _default = _default, None
    if node is not None:
        node.stop()


def default_node() -> Node:
    """This program's node; it is started if it does not run."""
    node = _default
    if node is not None and node.running:
        return node
    return start()


@contextmanager
def stand_in(node: Node) -> Iterator[None]:
    """Let another node take the place of this program's node for a while: a simulated one."""
    global _default
    before, _default = _default, node
    try:
        yield
    finally:
        _default = before


def _forget_node() -> None:
    """In a forked child there is no node: its agents' clients are in the parent."""
    global _default, _starting
    node, _default = _default, None
    _starting = native_lock()
    if node is not None:
        node.running = False
        node.turn.reset()
        for agent in list(node.agents.values()):
            text = f"transaction {agent.id} lives in the parent process"
            agent.machine.end(AgentEnded(text, agent=agent.id))
            agent.ended()


os.register_at_fork(after_in_child=_forget_node)
