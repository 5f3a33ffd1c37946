"""What has moved still checks by its old name, for one release."""

from __future__ import annotations

from typing_extensions import assert_type

import locks
from locks import AgentEnded, Node, mvcc


def old(
    node: Node, error: locks.NotHeld, waits: locks.Waits, wait: locks.Wait, cycle: mvcc.Deadlock
) -> None:
    assert_type(node, locks.node.Node)
    assert_type(error.lock_id, locks.values.LockId)
    assert_type(waits, locks.facts.WaitReport)
    assert_type(wait, locks.facts.WaitEdge)
    assert_type(cycle.cycle, tuple[mvcc.TxnWait, ...])
    assert_type(locks.units(("a",), 3), locks.LockId)
    print(locks.Nodes)  # E


try:
    locks.stop()
except (AgentEnded, locks.OperatingError, mvcc.LockTimeout, mvcc.DeadlockAborted) as error:
    print(error.about)
