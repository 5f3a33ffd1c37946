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
import sys
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("locks runs on Linux and macOS; Windows is not supported")

from locks.runtime import forked as _forked  # noqa: F401  # forks are noted from here on
from locks.runtime.first_use import at_first_use
from locks.version import __version__ as __version__

if TYPE_CHECKING:
    from locks import actors as actors
    from locks import aio
    from locks import errors as errors
    from locks import facts as facts
    from locks import metrics as metrics
    from locks import node as node
    from locks import original as original
    from locks import tracing as tracing
    from locks import values as values
    from locks.api import holders, queue, unwatch, watch
    from locks.errors import (
        AlreadyDone,
        CannotServe,
        DeadlockAborted,
        LockLost,
        LocksError,
        LockTimeout,
        MisuseError,
        TransactionEnded,
    )
    from locks.facts.gather import statistics
    from locks.net.tls import TLS
    from locks.node.client.owner import Owner
    from locks.node.client.scope import HERE
    from locks.primitives import Lock, RWLock
    from locks.program.default import start, stop
    from locks.shapes.decorator import locked
    from locks.shapes.once import once
    from locks.shapes.reentrant import RLock
    from locks.shapes.semaphore import Semaphore
    from locks.transactions import Transaction, run_transaction, transaction


# What everyday programs need.
__all__ = [
    "HERE",
    "TLS",
    "AlreadyDone",
    "CannotServe",
    "DeadlockAborted",
    "Lock",
    "LockLost",
    "LockTimeout",
    "LocksError",
    "MisuseError",
    "Owner",
    "RLock",
    "RWLock",
    "Semaphore",
    "Transaction",
    "TransactionEnded",
    "aio",
    "holders",
    "locked",
    "once",
    "queue",
    "run_transaction",
    "start",
    "statistics",
    "stop",
    "transaction",
    "unwatch",
    "watch",
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
        "locks.original",
        "locks.actors",
        "locks.primitives",
        "locks.shapes.reentrant",
        "locks.transactions",
    ),
    apart={
        "Semaphore": "locks.shapes.semaphore",
        "TLS": "locks.net.tls",
        "locked": "locks.shapes.decorator",
        "once": "locks.shapes.once",
        "statistics": "locks.facts.gather",
    },
    modules=(
        *("actors", "aio", "errors", "facts", "metrics", "node"),
        *("original", "tracing", "values", "wire"),
    ),
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
