"""What other nodes may have at this node's lock server.

Each message of another node to the lock server goes through here. The node's transactions, requests
and watches there are counted (`locks.net.messages.Limits`). A request beyond a limit is refused; nothing
else changes. A message with a version that is ahead of this node's clock waits for the clock
(`locks.net.versions`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from locks.core.messages import (
    RaiseVersion,
    Refused,
    Remove,
    Request,
    ServerMessage,
    StandingElsewhere,
)
from locks.model import AgentId, covers
from locks.net.budgets import MOST_CALLS, check_budget
from locks.net.messages import FromAgent, Limits
from locks.net.versions import seconds_ahead
from locks.node.server import Guarded, Server
from locks.runtime.executor import Executor

__all__ = ["Guests"]

SOME = 50  # agents that are taken out in one turn
ROOM = 100  # agents that had requests, and are not forgotten
LONGEST = 10.0  # seconds until it is looked whether who waits for the clock is still there
BREATH = 0.001  # seconds between such turns


class Visitor:
    """One node's use of the lock server.

    Attributes:
        guarded: Takes in its requests when they may exceed a limit, and those behind them.
        queued: How many of these are still in the queue.
        agents: Its agents that have requests, and others that had some.
        room: With more agents than this, those without requests are forgotten.
        requests: At least the number of their requests.
        waits: At least the number of those that wait.
        watches: Its readings of views.
        early: How many of its messages wait for the clock.
    """

    __slots__ = (
        *("_limits", "agents", "early", "guarded", "queued", "requests", "room", "waits"),
        "watches",
    )

    def __init__(self, guarded: Guarded, limits: Limits) -> None:
        self._limits = limits
        self.guarded = guarded
        self.queued = 0
        self.agents: dict[AgentId, None] = {}
        self.room = min(limits.transactions, ROOM)
        self.requests = 0
        self.waits = 0
        self.watches: set[int] = set()
        self.early = 0

    def has_room(self, agent: AgentId) -> bool:
        """Whether a request can't exceed a limit, whatever else the node has."""
        limits = self._limits
        if self.queued or self.requests >= limits.requests or self.waits >= limits.waits:
            return False
        return agent in self.agents or len(self.agents) < self.room

    def count(self, agent: AgentId) -> None:
        """Count a request of an agent."""
        self.agents[agent] = None
        self.requests += 1

    def parted(self, agent: AgentId) -> None:
        """An agent has no requests any more."""
        self.agents.pop(agent, None)


class Guests:
    """The nodes that have something at a node's lock server.

    Args:
        server: The lock server.
        executor: Where messages wait for the clock.
        is_connected: Whether a node is connected.
        limits: What each node may have.
        refuse: Called with a node and the answer to its refused request of an agent.
    """

    def __init__(
        self,
        server: Server,
        executor: Executor,
        is_connected: Callable[[str], bool],
        limits: Limits,
        refuse: Callable[[str, AgentId, Refused], object],
    ) -> None:
        self._server = server
        self._executor = executor
        self._is_connected = is_connected
        self._limits = limits
        self._refuse = refuse
        self._known: dict[str, Visitor] = {}
        self._leaving: dict[str, list[AgentId]] = {}  # of nodes that are gone

    def admit(self, name: str, message: FromAgent) -> bool:
        """Whether a message of another node is for the lock server now; else it will be, or is refused. In the turn.

        Raises:
            OverBudget: The node would have more early messages than it may; nothing was done.
        """
        guest = self.of(name)
        if type(message) is Request:
            has_room = guest.has_room(message.agent)
            guest.count(message.agent)
            guest.waits += 1
            if not has_room:
                # What it released before may still be in the queue.
                guest.queued += 1
                self._server.node.deliver(guest.guarded, message)
                return False
        elif type(message) is Remove:
            guest.parted(message.agent)
        elif type(message) is RaiseVersion:
            early = seconds_ahead(message.version)
            if early:
                check_budget(guest.early + 1, MOST_CALLS, "messages that wait for the clock")
                guest.early += 1
                turn, wait = self._server.turn, min(early, LONGEST)
                self._executor.run_later(wait, turn.run, self._in_time, name, guest, message)
                return False
        return True

    def reads(self, name: str, reading: int) -> None:
        """A node begins to read a view.

        Raises:
            OverBudget: It would have more watches than it may; nothing was done.
        """
        watches = self.of(name).watches
        if reading not in watches:
            check_budget(len(watches) + 1, self._limits.watches, "watches")
            watches.add(reading)

    def ends_reading(self, name: str, reading: int) -> None:
        """A node ends a reading."""
        self.of(name).watches.discard(reading)

    def of(self, name: str) -> Visitor:
        """A node's use of the lock server."""
        guest = self._known.get(name)
        if guest is None:
            take_in = partial(self._take_in, name)
            guest = self._known[name] = Visitor(Guarded(self._server, take_in), self._limits)
        return guest

    def _take_in(self, name: str, message: Request) -> ServerMessage:
        """What the lock server takes in of a request that may exceed a limit."""
        guest = self._known.get(name)
        if guest is None:
            return message
        guest.queued -= 1
        over = self._over(guest, message)
        if over is None:
            return message
        what, limit, present = over
        agent = message.agent
        self._server.node.counters.refused += 1
        here = self._server.node.name
        answer = Refused(here, message.lock_id, 0, message.mode, what, limit, present)
        self._refuse(name, agent, answer)
        return StandingElsewhere(agent, message.requests_elsewhere, message.waits_elsewhere)

    def _over(
        self, guest: Visitor, message: Request
    ) -> tuple[Literal["requests", "waits", "transactions"], int, int] | None:
        """The limit that a request would exceed, and how much of it is in use; counts the node's requests."""
        table, limits = self._server.machine.table, self._limits
        agent, lock_id, mode = message.agent, message.lock_id, message.mode
        requesters = [table.requesters[each] for each in guest.agents if each in table.requesters]
        guest.agents = dict.fromkeys([requester.id for requester in requesters])
        transactions, requests, waits = len(requesters), 0, 0
        for requester in requesters:
            requests += requester.total
            waits += requester.waiting
        guest.requests, guest.waits = requests, waits
        guest.room = min(limits.transactions, 2 * transactions + ROOM)
        is_new = not any(covers(each.mode, mode) for each in table.own(agent, lock_id))
        if is_new and agent not in guest.agents and transactions >= limits.transactions:
            return "transactions", limits.transactions, transactions
        if is_new and requests >= limits.requests:
            return "requests", limits.requests, requests
        if (
            is_new
            and not message.spare
            and waits >= limits.waits
            and table.must_wait(agent, lock_id, mode)
        ):
            return "waits", limits.waits, waits
        guest.agents[agent] = None
        guest.requests += 1
        guest.waits += 1
        return None

    def fullest(self) -> int:
        """The largest share of a limit that a node uses, in percent. It is looked at in turns, and without one."""
        limits = self._limits
        requesters = (
            self._server.machine.table.requesters.copy()
        )  # in one step: a turn may change it
        used: dict[str, list[int]] = {}
        for agent, requester in requesters.items():
            there = used.setdefault(agent.node, [0, 0, 0])
            there[0] += requester.total
            there[1] += requester.waiting
            there[2] += 1
        most = (limits.requests, limits.waits, limits.transactions)
        shares = [
            100 * len(guest.watches) // limits.watches for guest in list(self._known.values())
        ]
        for name, counts in used.items():
            if name in self._known:
                shares += [100 * count // limit for count, limit in zip(counts, most, strict=True)]
        return max(shares, default=0)

    def lost(self, name: str) -> None:
        """A node is gone, and all that it has at the lock server; of thousands of agents a few at a time."""
        server = self._server
        self._known.pop(name, None)  # its watches are in `locks.node.views.sender`
        agents = [agent for agent in server.machine.table.requesters if agent.node == name]
        if agents:
            requesters = server.machine.table.requesters
            if any(entry.granted for agent in agents for entry in requesters[agent].all()):
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

    def _in_time(self, name: str, guest: Visitor, message: RaiseVersion) -> None:
        if self._known.get(name) is guest and self._is_connected(name):
            guest.early -= 1
            if self.admit(name, message):
                self._server.node.deliver(self._server, message)
