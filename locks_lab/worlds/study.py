"""What simulators, checkers and tests read of machines, besides what everybody can ask them.

A machine is a plain object without secrets: an agent's is made of a ledger, a resolver and perhaps tokens, a lock server's of a table and a
notifier. The product has nothing for its study. All that is read of these parts is here, and nothing here changes anything.
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

KEPT = ("requests", "open", "waiting", "hidden", "_unanswered")  # by a ledger


class Asked(NamedTuple):
    """What an agent has asked for on one lock id.

    Attributes:
        mode: The strongest mode asked for.
        require: How many of the nodes are needed.
        records: What is known of its own requests, by node.
    """

    mode: Mode
    require: Require
    records: dict[str, tuple[RequestRecord, ...]]


class Study(NamedTuple):
    """An agent's parts."""

    ledger: Ledger
    resolver: Resolver
    tokens: Tokens | None

    def asked(self, lock_id: LockId) -> Asked | None:
        """What was asked for on this very id, and what is known of it; `None` if nothing was."""
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

    @property
    def gates(self) -> dict[LockId, str]:
        """For what is not held: the node where it has to be granted first, if there is one."""
        found = {
            i: gate(each, self.ledger.alive, self.ledger.silent)
            for i, each in self.ledger.open.items()
        }
        return {lock_id: first.node for lock_id, first in found.items() if first is not None}

    @property
    def lost(self) -> tuple[LockId, ...]:
        """What was lost with a node, and the client was not notified since that it holds it again."""
        return tuple(request.lock_id for request in self.ledger.requests.values() if request.lost)

    @property
    def giving_up(self) -> Mapping[str, Sequence[LockId | None]]:
        """What is given up by surrenders without an answer, by node: ids, or everything (`None`)."""
        return self.resolver.giving_up

    @property
    def acquaintances(self) -> set[AgentId]:
        """The agents that it may notify of something from now on, or notify others of."""
        resolver = self.resolver
        records = () if resolver.graph is None else resolver.graph._records.values()
        return {*resolver._passed_on, *resolver._sources, *(record.agent for record in records)}

    @property
    def remains(self) -> list[str]:
        """Names of what it still keeps; once it has ended there is nothing."""
        kept = {name.strip("_"): getattr(self.ledger, name) for name in KEPT}
        kept["active"] = self.resolver.graph is not None
        kept["passed on"] = self.resolver._passed_on
        kept["waits for tokens"] = self.tokens is not None and self.tokens.waits
        return [name for name, what in kept.items() if what]


def study(agent: AgentMachine) -> Study:
    """The parts of an agent's machine."""
    return Study(agent._ledger, agent._resolver, agent._tokens)


def subjects(server: ServerMachine) -> set[AgentId]:
    """The agents of which a lock server may notify others, or that it may notify, whatever comes next."""
    found = {owner.id for owner in server._notifier.closers}
    for owner in server.table.owners.values():
        if owner.waits or owner.waited:
            found.add(owner.id)
        for entry in owner.all():
            if entry.notified:
                found.add(owner.id)
                # Who is gone forgot it.
                found |= {other.id for other in entry.notified if other.total}
    return found


def all_watchers(server: ServerMachine) -> list[Hashable]:
    """The watchers of any lock id."""
    return list(dict.fromkeys(each for _, there in server._watchers.all() for each in there))
