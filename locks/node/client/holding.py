"""What the locks of `locks.Lock` and its like need of an agent: to release, and to take back, one id at a time.

The transaction of a client's `Lock`s begins with the first one and ends with the last one. A `locks.RLock` is
acquired several times; each time has an *acquisition* here. A client has an id either by a `Lock` or by `RLock`s: the release of
one would else be that of the other.
"""

from __future__ import annotations

from locks.core.messages import Ended
from locks.model import LockId, LockResult
from locks.node.client.refusals import not_held
from locks.node.client.waiting import Waiting
from locks.node.history import History
from locks.node.ports import AskedAlready, PendingCall
from locks.runtime.native import insist

__all__ = ["Acquisition", "Entered", "Holding"]


class Acquisition:
    """One time that a client has acquired a `locks.RLock`; or one `release`, which takes such a one out.

    Attributes:
        entered: Whether it was put in; true of a release.
        taken: What was taken out for it: itself, but for a release and for what somebody's release has taken out before.
        last: Whether none was left then, of those that have the id.
    """

    __slots__ = ("entered", "last", "taken")

    def __init__(self, *, is_release: bool = False) -> None:
        self.entered = is_release
        self.taken: Acquisition | None = None
        self.last = False


class Entered:
    """The acquisitions of one id.

    Attributes:
        own: Those that were put in, oldest first.
        asked: Whether the id was asked for by one of them, if it was asked for at all; else a `Lock` has it.
    """

    __slots__ = ("asked", "own")

    def __init__(self) -> None:
        self.own: dict[Acquisition, None] = {}
        self.asked = False


class Holding(Waiting):
    """An agent, as `locks.Lock` and its like see it."""

    __slots__ = ()

    acquisitions: dict[LockId, Entered] | None
    history: History

    def unlock_now(self, lock_id: LockId) -> None:
        """Release one id, in the turn."""
        self._check_unlock(lock_id)
        self.event(self.machine.unlock, lock_id)

    def _check_unlock(self, lock_id: LockId) -> None:
        guard = self.node.guard
        if guard is not None:
            guard.check_unlock(self.machine, lock_id)

    def enter(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """Put an acquisition in, before the lock is asked for; an owner may do so in several threads."""
        if self.acquisitions is None:
            self.acquisitions = {}
        while True:
            entered = self.acquisitions.setdefault(lock_id, Entered())
            entered.own[acquisition] = None
            # Else the last one was taken out meanwhile.
            if self.acquisitions.get(lock_id) is entered:
                acquisition.entered = True
                return

    def check_first(self, lock_id: LockId, acquisition: Acquisition | None) -> None:
        """Refuse what a `Lock` asks for twice, or what one asks for and an `RLock`, too; in the turn that asks for it.

        Args:
            lock_id: The id.
            acquisition: Whose it is; `None`: a `Lock`'s.

        Raises:
            AskedAlready: It is asked for already, and not by acquisitions alone.
        """
        entered = self._entered(lock_id)
        if not self.machine.asks_for(lock_id):
            if entered is not None:
                entered.asked = acquisition is not None
            elif acquisition is not None:  # somebody's release has taken it out
                self.enter(lock_id, acquisition)
                self.check_first(lock_id, acquisition)
        elif acquisition is None or entered is None or not entered.asked:
            raise AskedAlready

    def has_acquired(self, lock_id: LockId) -> bool:
        """Whether there is an acquisition."""
        entered = self._entered(lock_id)
        return entered is not None and bool(entered.own)

    def _entered(self, lock_id: LockId) -> Entered | None:
        return None if self.acquisitions is None else self.acquisitions.get(lock_id)

    def _is_acquired(self, lock_id: LockId) -> bool:
        """Whether acquisitions have the id, or wait for it, and no `Lock` does."""
        entered = self._entered(lock_id)
        return entered is not None and entered.asked

    def _take_out(self, lock_id: LockId, acquisition: Acquisition) -> bool:
        """Take an acquisition out, once or twice, as turns are taken; return whether the id is to be released, as none is left.

        A release takes the newest one, whosesoever it is. So does whoever finds that his own was taken by one: they count together.
        """
        entered = self._entered(lock_id)
        if acquisition.taken is None:
            others = entered is not None and acquisition.entered and acquisition not in entered.own
            acquisition.taken = (
                list(entered.own)[-1] if entered and entered.own and others else acquisition
            )
        if self.acquisitions is None or entered is None:
            return acquisition.last
        entered.own.pop(acquisition.taken, None)
        entered.asked = acquisition.last = entered.asked or acquisition.last
        if not entered.own:
            self.acquisitions.pop(lock_id, None)
            for each in list(entered.own):
                self.enter(lock_id, each)
        left = self._entered(lock_id)
        if left is not None:  # other ones, put in by another thread of an owner, perhaps just now
            left.asked = acquisition.last
            acquisition.last = False
        return acquisition.last

    def give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """Take an acquisition out, and with the last one release the id. In whatever thread.

        Raises:
            NotHeld: It is not held.
        """
        self.turn.run_surely(self._give_back, lock_id, acquisition)

    def _give_back(self, lock_id: LockId, acquisition: Acquisition) -> None:
        if self._take_out(lock_id, acquisition):
            self._release(lock_id)
        elif not (self._is_acquired(lock_id) and self._has(lock_id)):
            raise not_held(lock_id)

    def withdraw_acquisition(
        self, call: PendingCall | None, lock_id: LockId, acquisition: Acquisition
    ) -> None:
        """Take an acquisition out, and give up the call that it was made for; it is done in any case."""
        insist(self.turn.run_surely, self._withdraw_acquisition, call, lock_id, acquisition)

    def _withdraw_acquisition(
        self, call: PendingCall | None, lock_id: LockId, acquisition: Acquisition
    ) -> None:
        last = self._take_out(lock_id, acquisition)
        if call is not None and call.begun:
            self.event(self.machine.abandon, call)
        if last:
            self._let_go_of(lock_id)
        else:
            self._end_if_idle()

    def asks_for(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for."""
        # A client that has just begun has asked for nothing, and needs no turn to know it.
        return len(self.history) > 1 and self.turn.ask(self.machine.asks_for, lock_id)

    def holds(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for and is held, in a transaction that has not ended."""
        return self.turn.ask(lambda: self._has(lock_id))

    def _has(self, lock_id: LockId) -> bool:
        return self.machine.ended is None and self.machine.holds(lock_id)

    def release(self, lock_id: LockId) -> None:
        """Release one id that is held; with the last one the transaction ends. In whatever thread.

        Raises:
            NotHeld: It is not held.
        """
        self.turn.run_surely(self._release, lock_id)

    def _release(self, lock_id: LockId) -> None:
        machine = self.machine
        if machine.ended is not None or not machine.holds(lock_id):
            raise not_held(lock_id)
        if self.acquisitions and self._is_acquired(lock_id):
            raise not_held(lock_id, by="an RLock")
        self._unlock_or_end(lock_id)

    def withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        """Give up a call, if there is one, and what it has asked for; it is done in any case."""
        insist(self.turn.run_surely, self._withdraw, call, lock_id)

    def _withdraw(self, call: PendingCall | None, lock_id: LockId) -> None:
        if call is not None and call.begun:
            self.event(self.machine.abandon, call)
            if isinstance(call.result, LockResult):
                self._let_go_of(lock_id)
                return
        # What is asked for still, another thread of an owner has asked for.
        self._end_if_idle()

    def let_go_of(self, lock_id: LockId) -> None:
        """Release one id if it is held or asked for; it is done in any case."""
        self.turn.run_surely(self._let_go_of, lock_id)

    def _let_go_of(self, lock_id: LockId) -> None:
        if self.machine.ended is None:
            if self.machine.asks_for(lock_id) and not self._is_acquired(lock_id):
                self._unlock_or_end(lock_id)
            else:
                self._end_if_idle()

    def _unlock_or_end(self, lock_id: LockId) -> None:
        """Release one id that is asked for; if it is the last one, by the end of the transaction."""
        if self.machine.size > 1:
            self.unlock_now(lock_id)
            return
        if self.node.is_clustered:
            self._check_unlock(lock_id)
        self.event(self.machine.end)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has ended normally."""
        return not self.is_alive() and self.machine.ended == Ended(None)

    def _end_if_idle(self) -> None:
        if self.machine.ended is None and self.machine.empty:
            self.event(self.machine.end)
