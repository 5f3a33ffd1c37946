"""The keyword options of transactions and locks, as in `locks`."""

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
    """The keyword options of `locks.Lock`."""

    nodes: Nodes | None
    require: Require | None
    timeout: float | None
    owner: Owner | None
    label: str | None


class RunOptions(LockOptions, total=False):
    """The keyword options of `locks.run_transaction`, without those for retries."""

    await_nodes: bool
    on_lost: Callable[[LockLost], object] | None


class TransactionOptions(RunOptions, total=False):
    """The options of `locks.transaction`."""

    on_deadlock: OnDeadlock
