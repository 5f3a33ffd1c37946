"""`locks` for asyncio and trio: nothing here blocks the event loop.

    from locks import aio

    async def transfer():
        async with aio.transaction(timeout=5) as tx:
            await tx.write_lock(("accounts", 17))

The client is the task: its locks are released when the task ends, in any way. A wait that is cancelled
is withdrawn. If the task acts for a `locks.Owner`, that owner is the client.

Theory of operation: the calls of `locks` run unchanged in a `Bridge`, a greenlet that belongs to the task. Where a call
would block, the task waits in the way of its event loop, and continues in the bridge when lock servers or other clients
have ended the wait. What depends on the event loop is an `EventLoop`; there are two, `on_asyncio` and `on_trio`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.aio.primitives import Lock, RLock, RWLock, Semaphore
    from locks.aio.runs_once import Once, once
    from locks.aio.starting import start
    from locks.aio.tasks import call
    from locks.aio.transactions import Lost, Transaction, run_transaction, transaction
    from locks.aio.watching import Views, watch

__all__ = [
    "Lock",
    "Lost",
    "Once",
    "RLock",
    "RWLock",
    "Semaphore",
    "Transaction",
    "Views",
    "call",
    "once",
    "run_transaction",
    "start",
    "transaction",
    "watch",
]

_get, __dir__ = at_first_use(
    "locks.aio",
    __all__,
    together=(
        "locks.aio.runs_once",
        "locks.aio.primitives",
        "locks.aio.starting",
        "locks.aio.tasks",
        "locks.aio.transactions",
        "locks.aio.watching",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
