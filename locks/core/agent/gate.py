"""A majority by one rule: the *gate* first.

If agents requested a majority lock on all nodes at once, they would queue in a different order at
each node, and each pair of them would be a deadlock. So one node decides the order, the gate. It is
the first by name of the lock's nodes that are up and not silent (`locks.node.peers.silence`).

* An agent requests the lock at the gate. When the gate has granted it, the agent requests it at the
  other nodes, all at once. It holds the lock as soon as a majority has granted it.
* An agent without the gate's grant has requests at no other node. So all agents that see the same
  nodes wait in one queue, and no two of them form a cycle. If agents see different nodes, they may
  have different gates. Then cycles are possible, and are resolved like all others.
* While it holds the lock, it requests it at the nodes that have not granted it, too. The agent does
  not wait for these *spare* requests. A node grants them before all requests that wait there. If
  the grant of an agent without the lock blocks one, that agent surrenders its grant: it can't get
  the lock before the holder releases it. So once no message is in flight, a held lock is granted on
  every node that is up.
* A lock that the agent surrenders in a deadlock on one node is given up on all of them. The agent
  requests it again when it waits for nothing else.

A read lock that waits for its upgrade keeps its grants, because its client relies on them.
(Decisions 0014, 0015.)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from locks.core.agent.requests import LockRequest, NodeRequest

__all__ = ["NOBODY", "answered", "gate", "is_wanted"]

NOBODY: frozenset[str] = frozenset()  # the usual case: no node is silent
BY_MAJORITY: Final = frozenset(("majority", "majority_alive"))


def gate(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> NodeRequest | None:
    """The node request that must be granted first; `None` if there is no gate.

    The gate is the first node by name that is up and not silent. If all are silent, it is the first
    that is up.
    """
    if request.require not in BY_MAJORITY or len(request.node_requests) == 1:
        return None
    up = [node for node in request.node_requests if node in alive]
    if silent:
        up = [node for node in up if node not in silent] or up
    return request.node_requests[min(up)] if up else None


def is_wanted(request: LockRequest, each: NodeRequest, first: NodeRequest | None) -> bool:
    """Whether a lock request is to have a request at this node now.

    Args:
        request: The lock request.
        each: Its part for the node.
        first: Its gate.
    """
    if request.postponed:
        return False
    if request.held:
        # If one node was enough (`any`), others may get the lock where it is not granted.
        return request.require != "any" or each.grant(request.mode) is not None
    return first is None or each is first or first.grant(request.mode) is not None


def answered(request: LockRequest, alive: frozenset[str], silent: frozenset[str] = NOBODY) -> bool:
    """Whether it is known that a lock request is held or must wait, silent nodes apart."""
    first = gate(request, alive, silent)
    return request.held or all(
        each.grant(request.mode) is not None
        or each.waits(request.mode)
        or not is_wanted(request, each, first)
        for node, each in request.node_requests.items()
        if node in alive and node not in silent
    )
