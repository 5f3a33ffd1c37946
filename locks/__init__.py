"""A decentralised, deadlock-resolving, hierarchical read/write lock manager.

A Python port, on Pykka actors and gevent, of the Erlang application `locks` by Ulf Wiger, whose
algorithm Thomas Arts model-checked and refined.

    import locks

    with locks.transaction(timeout=5) as tx:
        tx.write_lock(("accounts", 17))
        ...
"""

# `import locks` loads next to nothing. The first name that is used loads all that a program needs which is alone; a few names
# are loaded by themselves, and what meets other nodes when a node is started that does. Type checkers see the imports below.

import os
from typing import TYPE_CHECKING

from locks.form import COMPILED  # before all others: it says which of them are found
from locks.form.first_use import at_first_use

if TYPE_CHECKING:
    from locks import aio
    from locks import metrics as metrics
    from locks import tracing as tracing
    from locks.actors import LockAgent, LockServer
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
        AlreadyDone,
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
        NotMarked,
        OperatingError,
        ReentrantCall,
        TransactionBroken,
        TransactionEnded,
        WaitsForItself,
    )
    from locks.facts.gather import break_transaction, statistics, waits
    from locks.facts.graph import Wait, Waits
    from locks.lock_ids import Atom, Key
    from locks.model import (
        AgentId,
        Contender,
        Deadlock,
        Edge,
        LockId,
        LockInfo,
        LockResult,
        Mode,
        Notification,
        RequestRecord,
        Require,
        View,
    )
    from locks.node.client.agent import Agent
    from locks.node.client.owner import Owner
    from locks.node.client.scope import HERE
    from locks.node.node import Node
    from locks.node.peers.cluster import NodeDown, NodeUp
    from locks.otp.names.discovery import Discovery
    from locks.otp.options import TLS
    from locks.otp.process.remote import RemoteError, RemoteRef
    from locks.primitives import Lock, RWLock
    from locks.program.default import start, stop
    from locks.runtime.actor import GeventActor, kill
    from locks.runtime.monitor import Down, Monitor, monitor
    from locks.shapes.barrier import Barrier
    from locks.shapes.decorator import locked
    from locks.shapes.once import once
    from locks.shapes.reentrant import RLock
    from locks.shapes.semaphore import Semaphore, units
    from locks.transactions import Transaction, run_transaction, transaction

__version__ = "0.2.0"
__compiled__ = COMPILED
"""Whether this process uses compiled modules."""

__all__ = [
    "HERE",
    "TLS",
    "Agent",
    "AgentEnded",
    "AgentId",
    "AlreadyDone",
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
    "NotMarked",
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
    "TransactionEnded",
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
    "once",
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

_get, __dir__ = at_first_use(
    "locks",
    __all__,
    together=(  # what a program needs that is alone
        "locks.errors",
        "locks.lock_ids",
        "locks.model",
        "locks.core.facts",
        "locks.core.statistics",
        "locks.runtime.actor",
        "locks.runtime.monitor",
        "locks.node.client.agent",
        "locks.node.node",
        "locks.node.client.owner",
        "locks.node.client.scope",
        "locks.program.default",
        "locks.api",
        "locks.actors",
        "locks.primitives",
        "locks.shapes.reentrant",
        "locks.transactions",
    ),
    apart={
        "Barrier": "locks.shapes.barrier",
        "Discovery": "locks.otp.names.discovery",
        "NodeDown": "locks.node.peers.cluster",
        "NodeUp": "locks.node.peers.cluster",
        "RemoteError": "locks.otp.process.remote",
        "RemoteRef": "locks.otp.process.remote",
        "Semaphore": "locks.shapes.semaphore",
        "TLS": "locks.otp.options",
        "Wait": "locks.facts.graph",
        "Waits": "locks.facts.graph",
        "break_transaction": "locks.facts.gather",
        "locked": "locks.shapes.decorator",
        "once": "locks.shapes.once",
        "statistics": "locks.facts.gather",
        "units": "locks.shapes.semaphore",
        "waits": "locks.facts.gather",
    },
    modules=("aio", "metrics", "tracing", "wire"),
)

if not TYPE_CHECKING:  # or any name would do for type checkers

    def __getattr__(name: str) -> object:
        """Load what a name stands for.

        Raises:
            ImportError: The name is of another distribution, which is installed beside this one.
        """
        if name == "Mutex" and os.path.exists(f"{__path__[0]}.py"):
            raise ImportError(
                f"locks.Mutex is of the distribution `locks`, {__path__[0]}.py, and this is the package `locks` of pykka-locks, "
                "which hides it there: one environment can't have both. Our exclusive lock between programs is `locks.Lock` with "
                "servers='local'"
            )
        return _get(name)
