"""Why an election has no leader, or another one than this program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pykka

from locks.errors import LocksError, are_needed, causes
from locks.lock_ids import shown
from locks.model import check_lock_id
from locks.node import Node
from locks.runtime.port import is_simulated
from locks.words import ELECTION_ID
from locks_leader.policy import Policy

__all__ = ["Obstacles", "obstacles_of"]

logger = logging.getLogger("locks.leader")

SOON = 0.5  # seconds until the first look: a program waits for its servers before that, or knows why they don't serve it
AGAIN = 5.0  # seconds between two looks
PATIENCE = 1.0  # seconds to ask a server who leads


class Obstacles:
    """Why an instance is not elected; and a warning if no other one is.

    Args:
        node: Its node.
        policy: Which nodes count.
        resource: What the election is about.
        waits: Whether it has no leader yet.

    Attributes:
        refused: The refusals of the servers, by what was requested: the instance requests it again and again.
    """

    def __init__(
        self, node: Node, policy: Policy, resource: Any, waits: Callable[[], bool]
    ) -> None:
        self.refused: dict[type, LocksError] = {}
        self._node = node
        self._policy = policy
        self._resource = resource
        self._waits = waits
        self._said = False

    def begin(self) -> None:
        """Look in a while, until there is a leader."""
        if self._node.cluster is not None and not is_simulated():
            self._node.cluster.executor.run_later(SOON, self._look)

    def _look(self) -> None:
        if self._node.cluster is None or not (self._node.running and self._waits()):
            return
        why = self.why()
        if why and not self._said:
            logger.warning("waiting to be elected in %s: %s", shown(self._resource), why)
        self._said = bool(why)
        self._node.cluster.executor.run_later(AGAIN, self._look)

    def why(self) -> str:
        """Too few servers serve this program, or some refuse what it requests; empty if all is well. From any thread."""
        if is_simulated():
            return ""
        refused = next(iter(tuple(self.refused.values())), None)
        return self._too_few() or ("" if refused is None else str(refused))

    def _too_few(self) -> str:
        node, policy = self._node, self._policy
        there = policy.asked(node.alive)
        if policy.enough(there):
            return ""
        needed = are_needed(policy.quorum)
        if policy.electorate is None:
            return f"{len(there)} nodes are connected; {needed}"
        away = sorted(policy.electorate - there)
        why = causes({name: node.why_away(name) for name in away})
        number = len(policy.electorate)
        return f"{len(there)} of {number} lock servers serve this program; {needed}. {why}"

    def who_leads(self) -> str:
        """The client that holds the election's lock, by name, as a server says that can be asked; empty if none knows."""
        if is_simulated():
            return ""
        lock_id = check_lock_id((ELECTION_ID, self._resource))
        for name in sorted(self._policy.asked(self._node.alive)):
            with suppress(LocksError):
                for holder in self._node.view(lock_id, name, PATIENCE, patient=False).holders:
                    return f"{holder.client} ({holder.agent})"
        return ""


def obstacles_of(instance: pykka.ActorRef[Any] | None) -> Obstacles | None:
    """Those of an instance of this process."""
    return getattr(instance, "obstacles", None)
