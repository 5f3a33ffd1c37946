"""What may be said of a transaction or a lock, by name: as in `locks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from locks.errors import LockLost
from locks.model import Require
from locks.node.client.owner import Owner
from locks.node.client.scope import Nodes
from locks.transactions import OnDeadlock

__all__ = ["LockOptions", "RunOptions", "TransactionOptions"]


class LockOptions(TypedDict, total=False):
    """What `locks.Lock` takes by name."""

    nodes: Nodes | None
    require: Require | None
    timeout: float | None
    owner: Owner | None
    label: str | None


class RunOptions(LockOptions, total=False):
    """What `locks.run_transaction` takes by name, but for what is said of running it again."""

    await_nodes: bool
    on_lost: Callable[[LockLost], object] | None


class TransactionOptions(RunOptions, total=False):
    """What `locks.transaction` takes."""

    on_deadlock: OnDeadlock
