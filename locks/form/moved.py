"""Names that have moved, and where each is now: the old name works for one release, with a `DeprecationWarning`.

Type checkers accept old names as well, by the imports in the blocks for them.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

__all__ = ["MOVED", "at_its_place"]


def _to(place: str, names: str) -> dict[str, str]:
    return {name: f"{place}.{name}" for name in names.split()}


MOVED: dict[str, dict[str, str]] = {
    "locks": {
        **_to("locks.actors", "Agent Down GeventActor LockAgent LockServer Monitor kill monitor"),
        **_to(
            "locks.errors",
            "BlocksEventLoop ConflictingRequest InvalidLockId InvalidOption NodeNotRunning NotClient "
            "NotHeld NotMarked OperatingError ReentrantCall TransactionBroken WaitsForItself",
        ),
        **_to("locks.facts", "NodeStatistics RequestFact break_transaction waits"),
        **_to("locks.node", "Node NodeDown NodeUp RemoteError RemoteRef"),
        **_to(
            "locks.values",
            "AgentId Atom Contender Deadlock Edge Key LockId LockInfo LockResult Mode Notification RequestRecord "
            "Require View units",
        ),
        "AgentEnded": "locks.TransactionEnded",
        "Wait": "locks.facts.WaitEdge",
        "Waits": "locks.facts.WaitReport",
    },
    "locks.mvcc": {
        "Deadlock": "locks.mvcc.TxnDeadlock",
        "DeadlockAborted": "locks.mvcc.TxnDeadlockAborted",
        "LockTimeout": "locks.mvcc.TxnLockTimeout",
        "Wait": "locks.mvcc.TxnWait",
    },
}
"""For each package its old names, and the full new name of each."""


def at_its_place(package: str, name: str, level: int) -> Any:
    """What an old name of a package stands for.

    Args:
        package: The package.
        name: The name.
        level: How many calls are between the code that uses the name and this one, this one included.

    Raises:
        AttributeError: The package has not had such a name.
    """
    new = MOVED.get(package, {}).get(name)
    if new is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warnings.warn(
        f"{package}.{name} is deprecated: use {new}; the next release no longer has the old name",
        DeprecationWarning,
        stacklevel=level + 1,
    )
    place, _, there = new.rpartition(".")
    return getattr(import_module(place), there)
