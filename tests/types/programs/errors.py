"""What errors carry."""

from __future__ import annotations

from typing_extensions import assert_type

import locks
import locks_leader
from locks import mvcc, ownership

try:
    locks.stop()
except mvcc.DeadlockAborted as error:
    assert_type(error.deadlock, mvcc.Deadlock | None)
except mvcc.LockTimeout as error:
    assert_type(error.holder, mvcc.Txn)
except locks.LockTimeout as error:
    assert_type(error.holders, tuple[locks.Contender, ...])
    assert_type(error.lock_ids, tuple[locks.LockId, ...])
    assert_type(error.timeout, float | None)
    assert_type(error.holders[0].client, str)
    print(error.holder)  # E
except locks.CannotServe as error:
    assert_type(error.nodes, tuple[str, ...])
    assert_type(error.lock_id, locks.LockId | None)
except locks.DeadlockAborted as error:
    assert_type(error.deadlock.run_again, locks.AgentId)
    assert_type(error.deadlock.action, str)  # E
except locks.LockLost as error:
    assert_type(error.lock_ids, tuple[locks.LockId, ...])
    print(error.lock_id)  # E
except (locks.TransactionEnded, locks.AgentEnded, locks.NotClient) as error:
    assert_type(error.agent, locks.AgentId)
except locks.WaitsForItself as error:
    assert_type((error.lock_id, error.holder), tuple[locks.LockId, locks.AgentId])
except (locks.NotHeld, locks.ConflictingRequest) as error:
    assert_type(error.lock_id, locks.LockId)
except locks.RemoteError as error:
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

raise locks.AgentEnded("over")  # E
