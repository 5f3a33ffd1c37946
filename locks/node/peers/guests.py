"""The limits of other nodes at this node's lock server.

Each message of another node to the lock server goes through here. The node's agents, locks and
watches there are counted (`locks.otp.links.budgets`). A message with a version that is ahead of
this node's clock waits for the clock (`locks.wire.versions`).
"""

from __future__ import annotations

from collections.abc import Callable

from locks.core.messages import RaiseVersion, Remove, Request, ServerMessage, Unwatch, Watch
from locks.model import AgentId, LockId
from locks.node.server import Server
from locks.otp.links.budgets import (
    MOST_AGENTS,
    MOST_CALLS,
    MOST_LOCKS,
    MOST_WATCHES,
    Tally,
    check_budget,
)
from locks.runtime.executor import Executor
from locks.wire.versions import seconds_ahead

__all__ = ["Guests"]

SOME = 50  # agents that are taken out in one turn
BREATH = 0.001  # seconds between such turns


class _Guest:
    """One node's use of the lock server.

    Attributes:
        agents: Counts its agents.
        locks: Counts their requests.
        watches: The watches of its processes.
        early: How many of its messages wait for the clock.
    """

    __slots__ = ("agents", "early", "locks", "watches")

    def __init__(self, agents: Tally, locks: Tally) -> None:
        self.agents = agents
        self.locks = locks
        self.watches: dict[tuple[object, LockId], None] = {}
        self.early = 0


class Guests:
    """The nodes that have something at a node's lock server.

    Args:
        server: The lock server.
        executor: Where messages wait for the clock.
        is_connected: Whether a node is connected.
    """

    def __init__(
        self, server: Server, executor: Executor, is_connected: Callable[[str], bool]
    ) -> None:
        self._server = server
        self._executor = executor
        self._is_connected = is_connected
        self._known: dict[str, _Guest] = {}
        self._leaving: dict[str, list[AgentId]] = {}  # of nodes that are gone

    def admit(self, name: str, message: ServerMessage) -> bool:
        """Whether a message of another node is for the lock server now; else it will be. In the turn.

        Raises:
            OverBudget: The node would have more than it may; nothing was done.
        """
        guest = self._known.get(name)
        if guest is None:
            guest = self._known[name] = self._new(name)
        if type(message) is Request:
            if message.agent not in self._server.machine.table.owners:
                guest.agents.add()
            guest.locks.add()
        elif type(message) is Watch:
            guest.watches[message.watcher, message.lock_id] = None
            check_budget(len(guest.watches), MOST_WATCHES, "watches")
        elif type(message) is Unwatch:
            guest.watches.pop((message.watcher, message.lock_id), None)
        elif type(message) is RaiseVersion:
            early = seconds_ahead(message.version)
            if early:
                check_budget(guest.early + 1, MOST_CALLS, "messages that wait for the clock")
                guest.early += 1
                turn = self._server.turn
                self._executor.run_later(early, turn.run, self._in_time, name, guest, message)
                return False
        return True

    def lost(self, name: str) -> None:
        """A node is gone, and all that it has at the lock server; of thousands of agents a few at a time."""
        server = self._server
        self._known.pop(name, None)  # its watches are in `locks.node.views.sender`
        agents = [agent for agent in server.machine.table.owners if agent.node == name]
        if agents:
            owners = server.machine.table.owners
            if any(entry.granted for agent in agents for entry in owners[agent].all()):
                server.node.counters.clients_lost += 1
            self._leaving[name] = agents
            self._take_some_out(name)

    def is_back(self, name: str) -> None:
        """Take out at once what is left of a node that is connected again."""
        while name in self._leaving:
            self._take_some_out(name)

    def _take_some_out(self, name: str) -> None:
        agents = self._leaving.get(name, [])
        for agent in agents[:SOME]:
            self._server.node.deliver(self._server, Remove(agent))
        del agents[:SOME]
        if agents:
            # Between parts, others are served.
            self._executor.run_later(BREATH, self._server.turn.post, self._take_some_out, name)
        else:
            self._leaving.pop(name, None)

    def _new(self, name: str) -> _Guest:
        machine = self._server.machine

        def agents() -> int:
            return sum(agent.node == name for agent in machine.table.owners)

        def locks() -> int:
            owners = machine.table.owners.items()
            return sum(owner.total for agent, owner in owners if agent.node == name)

        return _Guest(
            Tally(MOST_AGENTS, "agents", agents), Tally(MOST_LOCKS, "locks and requests", locks)
        )

    def _in_time(self, name: str, guest: _Guest, message: RaiseVersion) -> None:
        if self._known.get(name) is guest and self._is_connected(name):
            guest.early -= 1
            if self.admit(name, message):
                self._server.node.deliver(self._server, message)
