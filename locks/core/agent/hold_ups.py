"""What a client's wait in one transaction means for its other ones.

A client may have several transactions, each with an agent of its own: nested ones, or `Lock`s beside
one. It blocks in one call of one of them at a time. While it does, it can't end the others: who wants
what it has there waits for that call, too. That is an edge of the wait-for graph which no lock has brought
about. So one is made for it. As long as the wait lasts,

* the agent in whose call the client blocks has a lock that stands for this wait, to write (`HoldUps.begin`);
* the client's other agents wait to read it: they are *held up* (`HoldUps.join`).

These are requests at the lock server of their node like any others, with ids that nobody else has
(`HELD_UP`). So they are found in cycles by the same rules, on any number of nodes. The client knows nothing
of them. They are taken out in the event that answers the wait, or in which it is given up; then those
who are held up are granted what they asked for, and let go of it.

Such a lock is never surrendered: if the agent that has it must yield, it aborts
(`locks.core.agent.deadlocks`). If another agent of the client is aborted, the call in which the client
waits is answered with that, or it would go on in the belief that it has the other locks.

To read: of two that are held up none waits for the other.

An owner (`locks.Owner`) may wait in several of its transactions at once, by several threads, and get
something in one while it waits in another. Of two in which it waits none is held up by the other: each depends on its
own wait. It is when its wait is over, or as soon as it has asked for something, if the other wait lasts still.
"""

from __future__ import annotations

from collections.abc import Hashable

from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import ClientWaits
from locks.model import HELD_UP, AgentId, LockId

__all__ = ["HoldUps"]


class HoldUps:
    """How one agent waits for others of its client, and these for it.

    Args:
        agent: The agent.
        ledger: Its lock requests.
        waits: Who waits for them.

    Attributes:
        by_wait: The waits in which the client blocks, and can't go on elsewhere; with their ids.
    """

    __slots__ = ("_agent", "_ledger", "_number", "_postponed", "_waits", "by_wait")

    def __init__(self, agent: AgentId, ledger: Ledger, waits: ClientWaits) -> None:
        self._agent = agent
        self._ledger = ledger
        self._waits = waits
        self._number = 0
        self._postponed: dict[LockId, None] = {}  # other waits, which do not hold it up yet
        self.by_wait: dict[Hashable, LockId] = {}

    def begin(self, wait: Hashable) -> None:
        """The client blocks in this wait, unless it is answered; here it is not held up any more."""
        for lock_id in self._held_up_by():
            self._ledger.drop(lock_id)
            self._postponed[lock_id] = None
        if wait in self._waits.unanswered and wait not in self.by_wait:
            self._number += 1
            lock_id = (HELD_UP, self._agent.node, self._agent.created, self._number)
            self.by_wait[wait] = lock_id
            self._ledger.hide(lock_id, "write")

    def join(self, lock_id: LockId, beside: bool = False) -> None:
        """The client blocks in another transaction of its own; it may have something in this one.

        Args:
            lock_id: What stands for that wait.
            beside: Whether it is an owner, that may do something in this one meanwhile, or waits in it.
        """
        if beside and (self.by_wait or not self._ledger.requests):
            self._postponed[lock_id] = None
        elif self._ledger.requests and lock_id not in self._ledger.hidden:
            self._ledger.hide(lock_id, "read")

    def tidy(self) -> None:
        """After each event: nobody is held up by a wait that is over."""
        unanswered = self._waits.unanswered
        for wait in [wait for wait in self.by_wait if wait not in unanswered]:
            self._ledger.drop(self.by_wait.pop(wait))
        for lock_id in self._held_up_by():
            if self._ledger.hidden[lock_id].held:
                self._ledger.drop(lock_id)
        if self._postponed and not self.by_wait and self._ledger.requests:
            postponed, self._postponed = self._postponed, {}
            # It may have waited for nothing in between, and forgotten all: lock servers have to know that.
            self._ledger.tell_standing()
            for lock_id in postponed:  # of a wait that is over it is granted at once
                self.join(lock_id)

    def _held_up_by(self) -> list[LockId]:
        """The ids that stand for waits in other transactions of the client."""
        return [i for i, request in self._ledger.hidden.items() if request.mode == "read"]
