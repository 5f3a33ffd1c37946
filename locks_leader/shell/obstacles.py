"""Why an election has no leader, or another one than this program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from locks.errors import LocksError, causes
from locks.lock_ids import shown
from locks.model import check_lock_id
from locks.node import Node
from locks.runtime.port import is_simulated
from locks_leader.policy import Policy

__all__ = ["Obstacles", "too_few", "who_leads"]

logger = logging.getLogger("locks.leader")

SOON = 0.5  # seconds until the first look: a program waits for its servers before that, or knows why they don't serve it
AGAIN = 5.0  # seconds between two looks
PATIENCE = 1.0  # seconds to ask a server who leads


def too_few(node: Node, policy: Policy) -> str:
    """Why no candidate on this node can be elected: too few nodes that count can be asked. Empty if they are enough."""
    there = policy.asked(node.alive)
    if policy.enough(there):
        return ""
    needed = f"{policy.quorum} {'is' if policy.quorum == 1 else 'are'} needed"
    if policy.electorate is None:
        return f"{len(there)} nodes are connected; {needed}"
    away = sorted(policy.electorate - there)
    why = causes({name: node.why_away(name) for name in away})
    return (
        f"{len(there)} of {len(policy.electorate)} lock servers serve this program; {needed}. {why}"
    )


def who_leads(node: Node, policy: Policy, lock_id: tuple[Any, ...]) -> str:
    """The client that holds the election's lock, by name, as a server says that can be asked; empty if none knows."""
    if is_simulated():
        return ""
    checked = check_lock_id(lock_id)
    for name in sorted(policy.asked(node.alive)):
        with suppress(LocksError):
            for holder in node.view(checked, name, PATIENCE, patient=False).holders:
                return f"{holder.client} ({holder.agent})"
    return ""


class Obstacles:
    """Warns if an instance is not elected, and no other one is, because servers are missing.

    Args:
        node: Its node.
        policy: Which nodes count.
        resource: What the election is about.
        waits: Whether it has no leader yet.
    """

    def __init__(
        self, node: Node, policy: Policy, resource: Any, waits: Callable[[], bool]
    ) -> None:
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
        why = too_few(self._node, self._policy)
        if why and not self._said:
            logger.warning("waiting to be elected in %s: %s", shown(self._resource), why)
        self._said = bool(why)
        self._node.cluster.executor.run_later(AGAIN, self._look)
