"""Hold-ups: how a client's wait in one transaction blocks its other transactions.

A client may have several transactions, each with its own agent: nested ones, or `Lock`s beside a
transaction. It blocks in one call of one of them at a time. During that call it can't end the
others. So an agent that waits for the locks of the others waits for that call, too. No lock causes
this edge of the wait-for graph, so the client's agents make one. As long as the wait lasts,

* the agent in whose call the client blocks holds a write lock that stands for this wait
  (`HoldUps.begin_hold_up`);
* the client's other agents wait for a read lock on the same id: they are *held up*
  (`HoldUps.join_hold_up`).

These are ordinary requests at the lock server of their node, on ids that no other client uses
(`HELD_UP`). So cycles through them are found by the same rules, on any number of nodes. The client
does not see them. They are taken out in the event that answers the wait, or that ends it otherwise.
Then the requests of the other agents are granted, and released at once.

A hold-up lock is never surrendered: if its holder must yield, it aborts
(`locks.core.agent.deadlocks`). If another agent of the client is aborted, the call in which the
client waits raises that error. Otherwise the client would continue in the belief that it still
holds the locks of the aborted transaction.

Held-up agents request to read, so that they do not wait for each other.

An owner (`locks.Owner`) may wait in several of its transactions at once, from several threads, and
may get a lock in one while it waits in another. While both transaction A and transaction B wait,
neither is held up by the other, because each depends on its own wait. A becomes held up by B when
the wait of A is over and A has requests, if B still waits then.
"""

from __future__ import annotations

from collections.abc import Hashable

from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import ClientWaits
from locks.model import HELD_UP, AgentId, LockId

__all__ = ["HoldUps"]


class HoldUps:
    """The hold-ups of one agent: those that it causes, and those that it suffers.

    Args:
        agent: The agent.
        ledger: Its lock requests.
        waits: The client's waits for them.

    Attributes:
        by_wait: The waits in which the client blocks, each with the id of its hold-up lock.
    """

    __slots__ = ("_agent", "_ledger", "_number", "_postponed", "_waits", "by_wait")

    def __init__(self, agent: AgentId, ledger: Ledger, waits: ClientWaits) -> None:
        self._agent = agent
        self._ledger = ledger
        self._waits = waits
        self._number = 0
        self._postponed: dict[LockId, None] = {}  # waits that do not hold it up yet
        self.by_wait: dict[Hashable, LockId] = {}

    def begin_hold_up(self, wait: Hashable) -> None:
        """Begin a hold-up: the client blocks in this wait. This agent itself is not held up then."""
        for lock_id in self._held_up_by():
            self._ledger.drop(lock_id)
            self._postponed[lock_id] = None
        if wait in self._waits.unanswered and wait not in self.by_wait:
            self._number += 1
            lock_id = (HELD_UP, self._agent.node, self._agent.created, self._number)
            self.by_wait[wait] = lock_id
            self._ledger.hide(lock_id, "write")

    def join_hold_up(self, lock_id: LockId, beside: bool = False) -> None:
        """Hold this agent up if it has requests: the client blocks in another of its transactions.

        Args:
            lock_id: The id of the hold-up lock for that wait.
            beside: Whether the client is an owner, which may use this transaction, or wait in it,
                at the same time.
        """
        if beside and (self.by_wait or not self._ledger.requests):
            self._postponed[lock_id] = None
        elif self._ledger.requests and lock_id not in self._ledger.hidden:
            self._ledger.hide(lock_id, "read")

    def tidy(self) -> None:
        """After each event: end hold-ups of waits that are over, and begin postponed ones."""
        unanswered = self._waits.unanswered
        for wait in [wait for wait in self.by_wait if wait not in unanswered]:
            self._ledger.drop(self.by_wait.pop(wait))
        for lock_id in self._held_up_by():
            if self._ledger.hidden[lock_id].held:
                self._ledger.drop(lock_id)
        if self._postponed and not self.by_wait and self._ledger.requests:
            postponed, self._postponed = self._postponed, {}
            # Between the two waits the agent may have forgotten its knowledge; lock servers must
            # know that.
            self._ledger.tell_standing()
            for lock_id in postponed:  # if that wait is over, the request is granted at once
                self.join_hold_up(lock_id)

    def _held_up_by(self) -> list[LockId]:
        """The ids of hold-up locks of the client's other transactions."""
        return [i for i, request in self._ledger.hidden.items() if request.mode == "read"]
