"""A client's waits for locks, and what they mean for its other transactions.

A client may have several transactions, each with an agent of its own: nested ones, or `Lock`s beside
one. It blocks in one call of one of them at a time. While it does, it can't end the others: who wants
what it has there waits for that call, too. That is an edge of the wait-for graph which no lock has brought
about. So one is made for it. As long as the wait lasts,

* the agent in whose call the client blocks has a lock that stands for this wait, to write (`hold_up`);
* the client's other agents wait to read it: they are *held up* (`held_up`).

These are requests at the lock server of their node like any others, with ids that nobody else has
(`HELD_UP`). So they are found in cycles by the same rules, on any number of nodes. The client knows nothing
of them. They are taken out in the event that answers the wait, or in which it is given up; then those
who are held up are granted what they asked for, and let go of it.

Such a lock is never surrendered: if the agent that has it must yield, it aborts
(`locks.core.agent.deadlocks`). If another agent of the client is aborted, the call in which the client
waits is answered with that (`interrupt`), or it would go on in the belief that it has the other locks.

To read: of two that are held up none waits for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import ClientWait
from locks.core.messages import AgentEffect, AnswerWait
from locks.model import HELD_UP, AgentId, Deadlock, LockId, LockResult, Status

__all__ = ["Waits"]


class Waits:
    """Who waits for the locks of one agent.

    Args:
        agent: The agent.
        ledger: Its lock requests.
        out: Where effects are put.

    Attributes:
        pending: The waits that are not answered.
        blocking: Those in which the client blocks, and can't go on elsewhere; with their hidden ids.
    """

    __slots__ = ("_agent", "_ledger", "_number", "_out", "blocking", "pending")

    def __init__(self, agent: AgentId, ledger: Ledger, out: list[AgentEffect]) -> None:
        self._agent = agent
        self._ledger = ledger
        self._out = out
        self._number = 0
        self.pending: dict[Hashable, ClientWait] = {}
        self.blocking: dict[Hashable, LockId] = {}

    def add(self, wait: Hashable, undo: Sequence[Callable[[], None] | None] = ()) -> None:
        """A client waits for all that was asked for so far; `undo` withdraws what only it wants."""
        self.pending[wait] = ClientWait(self._ledger.seq, undo)

    def abandon(self, wait: Hashable) -> None:
        """A client gave up waiting: withdraw what only this wait was for."""
        waiting = self.pending.pop(wait, None)
        if waiting is not None:
            for undo in waiting.undo:
                if undo is not None:
                    undo()

    def answer(self, reports: Iterable[Deadlock]) -> None:
        """Answer those who wait for nothing that is not held."""
        ledger = self._ledger
        for wait, waiting in list(self.pending.items()):
            upto = waiting.upto
            if not any(request.seq <= upto for request in ledger.open.values()):
                del self.pending[wait]
                status: Status = "have_all_locks" if ledger.requests else "no_locks"
                self._out.append(AnswerWait(wait, LockResult(status, tuple(reports))))
                ledger.acknowledge(upto)

    def end(self, reason: Exception) -> None:
        """The agent ends: tell those who wait."""
        self._out += [AnswerWait(wait, reason) for wait in self.pending]
        self.pending.clear()
        self.blocking.clear()

    # --- The client's other transactions --------------------------------------------------------

    def hold_up(self, wait: Hashable) -> None:
        """The client blocks in this wait, unless it is answered; it is not held up here any more."""
        for lock_id in self._held_up_by():
            self._ledger.drop(lock_id)
        if wait in self.pending and wait not in self.blocking:
            self._number += 1
            lock_id = (HELD_UP, self._agent.node, self._agent.created, self._number)
            self.blocking[wait] = lock_id
            self._ledger.hide(lock_id, "write")

    def held_up(self, lock_id: LockId) -> None:
        """The client blocks in another transaction of its own; it may have something in this one."""
        if self._ledger.requests and lock_id not in self._ledger.hidden:
            self._ledger.hide(lock_id, "read")

    def interrupt(self, error: Exception) -> None:
        """Answer all waits with an error, and withdraw their requests."""
        for wait in list(self.pending):
            self.abandon(wait)
            self._out.append(AnswerWait(wait, error))

    def tidy(self) -> None:
        """After each event: nobody is held up by a wait that is over."""
        for wait, lock_id in list(self.blocking.items()):
            if wait not in self.pending:
                del self.blocking[wait]
                self._ledger.drop(lock_id)
        for lock_id in self._held_up_by():
            if self._ledger.hidden[lock_id].held:
                self._ledger.drop(lock_id)

    def _held_up_by(self) -> list[LockId]:
        """The ids that stand for waits in other transactions of the client."""
        return [i for i, request in self._ledger.hidden.items() if request.mode == "read"]
