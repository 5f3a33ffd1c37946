"""Agreements: each one is a lock that is held briefly, and its number is the fencing token."""

from __future__ import annotations

from typing import Any

import locks
from locks.model import LockId
from locks.node.node import Node

__all__ = ["OWNERSHIP", "take_token"]

OWNERSHIP = "locks.ownership"
"""The lock of a name is `(OWNERSHIP, name)`."""


def take_token(node: Node, lock_id: LockId, label: str, *where: Any) -> int:
    """Make an agreement.

    Args:
        node: The node whose agent takes the lock.
        lock_id: The lock.
        label: The label of the lock's holder.
        *where: The nodes, and how many of them are needed, as for `locks.original.lock`.

    Returns:
        The fencing token, which is larger than that of each agreement before,
        unless a server was restarted after its clock was set back.
    """
    agent = node.spawn_agent(label=label)
    try:
        locks.original.lock(agent, lock_id, "write", *where)
        return locks.original.fencing_token(agent, lock_id)
    finally:
        if agent.is_alive():
            locks.original.end_transaction(agent)
