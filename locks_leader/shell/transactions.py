"""The two transactions of a candidate: one contends for the election's lock, one takes the merge lock.

They are ordinary transactions of `locks`, whose client is the instance. It never waits for them: their
agents notify it. What they say belongs to a round of the contest, or to a number of the merge lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pykka

import locks
from locks import Atom, Down, LocksError, Node, Notification
from locks.runtime import tell
from locks_leader.core.contest import nodes_of
from locks_leader.core.messages import Contend, ContestStanding, Grants, TakeMerge
from locks_leader.policy import Policy

__all__ = ["LOCKS_LEADER", "AgentGone", "Transactions"]

Ref = pykka.ActorRef[Any]
LOCKS_LEADER = Atom("locks_leader")
SYNC = Atom("sync")


class AgentGone(NamedTuple):
    """A transaction has ended."""

    agent: Ref


class Transactions:
    """The transactions of one instance.

    Args:
        node: Its node.
        client: The instance.
        resource: What the election is about.

    Attributes:
        lock_id: The lock that they contend for, as the original names it.
        merge_id: The merge lock.
        contest: The agent of the contest, if it takes part.
        round: Its round.
        merge: The agent of the merge lock, if that is wanted.
        merge_number: Its number.
    """

    __slots__ = (
        "_client",
        "_node",
        "contest",
        "lock_id",
        "merge",
        "merge_id",
        "merge_number",
        "round",
    )

    def __init__(self, node: Node, client: Ref, resource: Any) -> None:
        self._node = node
        self._client = client
        self.lock_id = (LOCKS_LEADER, resource)
        self.merge_id = (LOCKS_LEADER, SYNC, resource)
        self.contest: locks.Agent | None = None
        self.round = 0
        self.merge: locks.Agent | None = None
        self.merge_number = 0

    def contend(self, wanted: Contend) -> None:
        """Begin a round."""
        self.round = wanted.round
        self.contest = self._begin(await_nodes=True)
        self.include(wanted.nodes)

    def include(self, nodes: Iterable[str]) -> None:
        """Ask for the lock on some nodes."""
        assert self.contest is not None
        locks.lock_nowait(self.contest, self.lock_id, "write", sorted(nodes), "all_alive")

    def withdraw(self, _: object = None) -> None:
        """End the round."""
        agent, self.contest = self.contest, None
        _end(agent)

    def ask_term(self, _: object = None) -> None:
        """Have the fencing token established; it is notified."""
        assert self.contest is not None
        try:
            locks.fencing_token_nowait(self.contest, self.lock_id)
        except LocksError as error:
            self._client.tell(Notification(self.contest.id, "token", (self.lock_id, error)))

    def take_merge(self, wanted: TakeMerge) -> None:
        """Ask for the merge lock."""
        self.merge_number = wanted.number
        self.merge = self._begin(abort_on_deadlock=True)
        nodes = sorted(wanted.nodes)
        locks.lock_nowait(self.merge, self.merge_id, "write", nodes, "all_alive")

    def drop_merge(self, _: object = None) -> None:
        """Release it."""
        agent, self.merge = self.merge, None
        _end(agent)

    def end(self) -> None:
        """Release all."""
        self.drop_merge()
        self.withdraw()

    def standing(self) -> ContestStanding | None:
        """How the contest stands now; nothing if it takes no part."""
        agent = self.contest
        if agent is None:
            return None
        try:
            held = locks.transaction_status(agent).status == "have_all_locks"
            (info,) = locks.lock_info(agent)
        except LocksError:
            return None  # it has ended; that will be told
        grants = frozenset(zip(info.granted, info.versions, strict=True))
        return ContestStanding(grants, held=held and info.held)

    def objection(self, ground: Grants, policy: Policy) -> object | None:
        """Why one who leads this ground must not rely on it any more; from any thread.

        The agent knows of a loss before it is notified.
        """
        agent = self.contest
        if agent is None:
            return "it takes no part in the contest now"
        try:
            locks.ensure_held(agent, self.lock_id)
            (info,) = locks.lock_info(agent)
        except LocksError as error:
            return error
        now = dict(zip(info.granted, info.versions, strict=True))
        if any(now.get(node, version) != version for node, version in ground):
            return "the lock was lost, and regained since"
        if not policy.enough(nodes_of(ground) & now.keys()):
            return f"only {len(now)} of the nodes that count can be reached"
        return None

    def _begin(self, **options: bool) -> locks.Agent:
        agent = self._node.spawn_agent(self._client, notify=True, **options)
        locks.monitor(agent, partial(_tell_gone, self._client, agent))
        return agent


def _end(agent: locks.Agent | None) -> None:
    if agent is not None and agent.is_alive():
        locks.end_transaction(agent)


def _tell_gone(client: Ref, agent: Ref, _: Down) -> None:
    tell(client, AgentGone(agent))
