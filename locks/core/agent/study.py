"""What simulators and their checks look at in an agent. The product itself uses none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.gate import gate
from locks.core.agent.ledger import Ledger
from locks.model import AgentId, LockId, Mode, RequestRecord, Require

__all__ = ["Asked", "Study"]


class Asked(NamedTuple):
    """What an agent has asked for on one lock id, for study.

    Attributes:
        mode: The strongest mode asked for.
        require: How many of the nodes are needed.
        records: What is known of the own requests, by node.
    """

    mode: Mode
    require: Require
    records: dict[str, tuple[RequestRecord, ...]]


class Study(NamedTuple):
    """An agent's parts, as `AgentMachine.study` shows them."""

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
        """What was lost with a node, and the client was not told since that it has it again."""
        return tuple(request.lock_id for request in self.ledger.requests.values() if request.lost)

    @property
    def giving_up(self) -> Mapping[str, Sequence[LockId | None]]:
        """What is given up by surrenders without an answer, by node: ids, or everything (`None`)."""
        return self.resolver.giving_up

    @property
    def acquaintances(self) -> set[AgentId]:
        """The agents that it may tell something from now on, or tell others of."""
        return self.resolver.acquaintances

    @property
    def remains(self) -> list[str]:
        """Names of what it still keeps; once it has ended there is nothing."""
        tokens = ["waits for tokens"] if self.tokens and self.tokens.waits else []
        return self.ledger.remains + self.resolver.remains + tokens
