"""What errors carry."""

from __future__ import annotations

from typing_extensions import assert_type

import locks
import locks_leader
from locks import mvcc, ownership

try:
    locks.stop()
except mvcc.TxnDeadlockAborted as error:
    assert_type(error.deadlock, mvcc.TxnDeadlock | None)
except mvcc.TxnLockTimeout as error:
    assert_type(error.holder, mvcc.Txn)
except locks.LockTimeout as error:
    assert_type(error.holders, tuple[locks.values.Contender, ...])
    assert_type(error.lock_ids, tuple[locks.values.LockId, ...])
    assert_type(error.timeout, float | None)
    assert_type(error.holders[0].client, str)
    print(error.holder)  # E
except locks.CannotServe as error:
    assert_type(error.nodes, tuple[str, ...])
    assert_type(error.lock_id, locks.values.LockId | None)
except locks.DeadlockAborted as error:
    assert_type(error.deadlock.run_again, locks.values.AgentId)
    assert_type(error.deadlock.action, str)  # E
except locks.LockLost as error:
    assert_type(error.lock_ids, tuple[locks.values.LockId, ...])
    print(error.lock_id)  # E
except (locks.TransactionEnded, locks.errors.NotClient) as error:
    assert_type(error.agent, locks.values.AgentId)
except locks.errors.WaitsForItself as error:
    assert_type((error.lock_id, error.holder), tuple[locks.values.LockId, locks.values.AgentId])
except (locks.errors.NotHeld, locks.errors.ConflictingRequest) as error:
    assert_type(error.lock_id, locks.values.LockId)
except locks.node.RemoteError as error:
    assert_type(error.kind, str | None)
except locks_leader.NotLeader as error:
    print(error.leader, error.about)
except locks_leader.LeaderTimeout as error:
    assert_type(error.timeout, float | None)
except ownership.NotOwner as error:
    assert_type(error.group, int)
except ownership.StaleToken as error:
    assert_type((error.token, error.newest), tuple[int, int])
except locks.MisuseError as error:
    print(error.lock_id)  # E

raise locks.TransactionEnded("over")  # E
