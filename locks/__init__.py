"""A decentralised, deadlock-resolving, hierarchical read/write lock manager.

A Python port, on Pykka actors and gevent, of the Erlang application `locks` by Ulf Wiger, whose
algorithm Thomas Arts model-checked and refined.

    import locks

    with locks.transaction(timeout=5) as tx:
        tx.write_lock(("accounts", 17))
        ...
"""

import os
from typing import TYPE_CHECKING, Any

# isort: off
from locks.form import COMPILED  # first: it decides which of the modules are found

# isort: on
from locks.api import (
    await_all_locks,
    begin_transaction,
    change_flag,
    end_transaction,
    ensure_held,
    fencing_token,
    fencing_token_nowait,
    holders,
    lock,
    lock_info,
    lock_nowait,
    lock_objects,
    queue,
    spawn_agent,
    surrender_nowait,
    transaction_status,
    unlock,
    unwatch,
    watch,
    watchers,
)
from locks.core.facts import RequestFact
from locks.core.statistics import NodeStatistics
from locks.errors import (
    AgentEnded,
    BlocksEventLoop,
    BrokenBarrier,
    CannotServe,
    ConflictingRequest,
    DeadlockAborted,
    InvalidLockId,
    InvalidOption,
    LockLost,
    LocksError,
    LockTimeout,
    MisuseError,
    NodeNotRunning,
    NotClient,
    NotHeld,
    OperatingError,
    ReentrantCall,
    TransactionBroken,
    WaitsForItself,
)
from locks.facts.gather import break_transaction, statistics, waits
from locks.facts.graph import Wait, Waits
from locks.model import (
    AgentId,
    Contender,
    Deadlock,
    Edge,
    Key,
    LockId,
    LockInfo,
    LockResult,
    Mode,
    Notification,
    RequestRecord,
    Require,
    View,
)
from locks.node.client.actors import LockAgent, LockServer
from locks.node.client.agent import Agent
from locks.node.client.owner import Owner
from locks.node.client.scope import HERE
from locks.node.node import Node
from locks.node.peers.cluster import NodeDown, NodeUp
from locks.otp.bytes.terms import Atom
from locks.otp.names.discovery import Discovery
from locks.otp.options import TLS
from locks.otp.process.remote import RemoteError, RemoteRef
from locks.primitives import Lock, RWLock
from locks.program import start, stop
from locks.runtime import Down, GeventActor, Monitor, kill, monitor
from locks.shapes.barrier import Barrier
from locks.shapes.decorator import locked
from locks.shapes.reentrant import RLock
from locks.shapes.semaphore import Semaphore, units
from locks.transactions import Transaction, run_transaction, transaction

if TYPE_CHECKING:
    from locks import aio

__version__ = "0.2.0"
__compiled__ = COMPILED
"""Whether this process uses compiled modules."""

__all__ = [
    "HERE",
    "TLS",
    "Agent",
    "AgentEnded",
    "AgentId",
    "Atom",
    "Barrier",
    "BlocksEventLoop",
    "BrokenBarrier",
    "CannotServe",
    "ConflictingRequest",
    "Contender",
    "Deadlock",
    "DeadlockAborted",
    "Discovery",
    "Down",
    "Edge",
    "GeventActor",
    "InvalidLockId",
    "InvalidOption",
    "Key",
    "Lock",
    "LockAgent",
    "LockId",
    "LockInfo",
    "LockLost",
    "LockResult",
    "LockServer",
    "LockTimeout",
    "LocksError",
    "MisuseError",
    "Mode",
    "Monitor",
    "Node",
    "NodeDown",
    "NodeNotRunning",
    "NodeStatistics",
    "NodeUp",
    "NotClient",
    "NotHeld",
    "Notification",
    "OperatingError",
    "Owner",
    "RLock",
    "RWLock",
    "ReentrantCall",
    "RemoteError",
    "RemoteRef",
    "RequestFact",
    "RequestRecord",
    "Require",
    "Semaphore",
    "Transaction",
    "TransactionBroken",
    "View",
    "Wait",
    "Waits",
    "WaitsForItself",
    "aio",
    "await_all_locks",
    "begin_transaction",
    "break_transaction",
    "change_flag",
    "end_transaction",
    "ensure_held",
    "fencing_token",
    "fencing_token_nowait",
    "holders",
    "kill",
    "lock",
    "lock_info",
    "lock_nowait",
    "lock_objects",
    "locked",
    "monitor",
    "queue",
    "run_transaction",
    "spawn_agent",
    "start",
    "statistics",
    "stop",
    "surrender_nowait",
    "transaction",
    "transaction_status",
    "units",
    "unlock",
    "unwatch",
    "waits",
    "watch",
    "watchers",
]


def __getattr__(name: str) -> Any:
    """Import `locks.aio`, `locks.metrics` and `locks.tracing` when they are first used; not every program needs them.

    Raises:
        ImportError: The name belongs to another distribution, installed beside this one.
    """
    if name == "aio":
        import locks.aio

        return locks.aio
    if name == "metrics":
        import locks.metrics

        return locks.metrics
    if name == "tracing":
        import locks.tracing

        return locks.tracing
    if name == "Mutex" and os.path.exists(f"{__path__[0]}.py"):
        raise ImportError(
            f"there is no locks.Mutex here: it belongs to the distribution `locks` ({__path__[0]}.py), which the package `locks` of pykka-locks hides; "
            "install the two in separate environments. The exclusive lock between programs of pykka-locks is `locks.Lock` with servers='local'"
        )
    raise AttributeError(f"module 'locks' has no attribute {name!r}")
