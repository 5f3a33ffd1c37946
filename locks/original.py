"""The functions of the Erlang original, under their names.

An agent is the first argument of most of them, and `begin_transaction` and `spawn_agent` make one. The original
lacks `ensure_held`, `fencing_token`, `fencing_token_nowait` and `unlock`.

    from locks import original

    agent, result = original.begin_transaction([(("a",), "write")])
"""

from locks.api import (
    await_all_locks,
    begin_transaction,
    change_flag,
    end_transaction,
    ensure_held,
    fencing_token,
    fencing_token_nowait,
    lock,
    lock_info,
    lock_nowait,
    lock_objects,
    spawn_agent,
    surrender_nowait,
    transaction_status,
    unlock,
    unwatch,
    watch,
    watchers,
)

__all__ = [
    "await_all_locks",
    "begin_transaction",
    "change_flag",
    "end_transaction",
    "ensure_held",
    "fencing_token",
    "fencing_token_nowait",
    "lock",
    "lock_info",
    "lock_nowait",
    "lock_objects",
    "spawn_agent",
    "surrender_nowait",
    "transaction_status",
    "unlock",
    "unwatch",
    "watch",
    "watchers",
]
