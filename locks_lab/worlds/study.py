"""The internal state of machines that simulators, checkers and tests read, besides their public methods.

A machine is a plain object. An agent's machine consists of a ledger, a resolver and perhaps tokens,
a lock server's machine of a table and a notifier. The product contains nothing for the study of
machines: this module reads these parts, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.gate import gate
from locks.core.agent.ledger import Ledger
from locks.core.agent.machine import AgentMachine
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, LockId, Mode, RequestRecord, Require

__all__ = ["Asked", "Study", "all_watchers", "study", "subjects"]

KEPT = ("requests", "open", "waiting", "hidden", "_unanswered")  # the state of a ledger


class Asked(NamedTuple):
    """The requests of an agent for one lock id.

    Attributes:
        mode: The strongest requested mode.
        require: How many of the nodes are needed.
        records: The known records of its own requests, by node.
    """

    mode: Mode
    require: Require
    records: dict[str, tuple[RequestRecord, ...]]


class Study(NamedTuple):
    """The parts of an agent's machine."""

    ledger: Ledger
    resolver: Resolver
    tokens: Tokens | None

    def asked(self, lock_id: LockId) -> Asked | None:
        """The requests for exactly this id, and their known records; `None` if there are none."""
        request = self.ledger.requests.get(lock_id)
        if request is None:
            return None
        records = {
            node: tuple(each.records.values()) for node, each in request.node_requests.items()
        }
        return Asked(request.mode, request.require, records)

    @property
    def alive(self) -> frozenset[str]:
        """The nodes whose lock servers are up."""
        return frozenset(self.ledger.alive)

    def gate(self, lock_id: LockId) -> str | None:
        """The node where a lock must be granted first, whether it is held or not, if there is one."""
        request = self.ledger.requests.get(lock_id)
        first = None if request is None else gate(request, self.ledger.alive, self.ledger.silent)
        return None if first is None else first.node

    @property
    def gates(self) -> dict[LockId, str]:
        """The gates of locks that are not held: the nodes where requests must be granted first."""
        found = {
            i: gate(each, self.ledger.alive, self.ledger.silent)
            for i, each in self.ledger.open.items()
        }
        return {lock_id: first.node for lock_id, first in found.items() if first is not None}

    @property
    def lost(self) -> tuple[LockId, ...]:
        """Locks that were lost with a node, and of whose new grant the client was not notified yet."""
        return tuple(request.lock_id for request in self.ledger.requests.values() if request.lost)

    @property
    def giving_up(self) -> Mapping[str, Sequence[LockId | None]]:
        """The ids of unanswered surrenders, by node; `None` stands for an abort, that is all ids."""
        return self.resolver.giving_up

    @property
    def knowledge(self) -> tuple[RequestRecord, ...]:
        """The records of requests that it knows and that are not gone; none while it does not wait."""
        graph = self.resolver.graph
        records = () if graph is None else graph._records.values()
        return tuple(record for record in records if record.state != "gone")

    @property
    def acquaintances(self) -> set[AgentId]:
        """The agents that it may send records to, or send records of, from now on."""
        resolver = self.resolver
        records = () if resolver.graph is None else resolver.graph._records.values()
        return {*resolver._passed_on, *resolver._sources, *(record.agent for record in records)}

    @property
    def remains(self) -> list[str]:
        """Names of the parts that are not empty; after its end there are none."""
        kept = {name.strip("_"): getattr(self.ledger, name) for name in KEPT}
        kept["active"] = self.resolver.graph is not None
        kept["passed on"] = self.resolver._passed_on
        kept["waits for tokens"] = self.tokens is not None and self.tokens.waits
        return [name for name, what in kept.items() if what]


def study(agent: AgentMachine) -> Study:
    """The parts of an agent's machine."""
    return Study(agent._ledger, agent._resolver, agent._tokens)


def subjects(server: ServerMachine) -> set[AgentId]:
    """The agents that may occur in a lock server's next notifications, or receive them."""
    found = {owner.id for owner in server._notifier.closers}
    for owner in server.table.requesters.values():
        if owner.waits or owner.waited:
            found.add(owner.id)
        for entry in owner.all():
            if entry.notified:
                found.add(owner.id)
                # Agents that are gone have forgotten it.
                found |= {other.id for other in entry.notified if other.total}
    return found


def all_watchers(server: ServerMachine) -> list[Hashable]:
    """The watchers of any lock id."""
    return list(dict.fromkeys(each for _, there in server._watchers.all() for each in there))
