"""How often a client has acquired each of its `locks.RLock`s.

A `locks.RLock` is acquired several times; each time has an *acquisition* here. A client has an id either by a `Lock` or by
`RLock`s: the release of one would else be that of the other.
"""

from __future__ import annotations

from locks.model import LockId

__all__ = ["Acquisition", "Acquisitions"]


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


class Acquisitions:
    """All acquisitions of one client.

    Attributes:
        by_id: Those of each lock id.
    """

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[LockId, Entered] = {}

    def enter(self, lock_id: LockId, acquisition: Acquisition) -> None:
        """Put an acquisition in, before the lock is asked for; an owner may do so in several threads."""
        while True:
            entered = self.by_id.setdefault(lock_id, Entered())
            entered.own[acquisition] = None
            # Else the last one was taken out meanwhile.
            if self.by_id.get(lock_id) is entered:
                acquisition.entered = True
                return

    def ask(self, lock_id: LockId, acquisition: Acquisition | None) -> bool:
        """The id is about to be asked for, by an acquisition or by a `Lock`; whether there is any acquisition of it."""
        entered = self.by_id.get(lock_id)
        if entered is None:
            return False
        entered.asked = acquisition is not None
        return True

    def has(self, lock_id: LockId) -> bool:
        """Whether there is an acquisition of the id."""
        entered = self.by_id.get(lock_id)
        return entered is not None and bool(entered.own)

    def asked(self, lock_id: LockId) -> bool:
        """Whether acquisitions have the id, or wait for it, and no `Lock` does."""
        entered = self.by_id.get(lock_id)
        return entered is not None and entered.asked

    def take_out(self, lock_id: LockId, acquisition: Acquisition) -> bool:
        """Take an acquisition out, once or twice, as turns are taken; return whether the id is to be released, as none is left.

        A release takes the newest one, whosesoever it is. So does whoever finds that his own was taken by one: they count together.
        """
        entered = self.by_id.get(lock_id)
        if acquisition.taken is None:
            others = entered is not None and acquisition.entered and acquisition not in entered.own
            acquisition.taken = (
                list(entered.own)[-1] if entered and entered.own and others else acquisition
            )
        if entered is None:
            return acquisition.last
        entered.own.pop(acquisition.taken, None)
        entered.asked = acquisition.last = entered.asked or acquisition.last
        if not entered.own:
            self.by_id.pop(lock_id, None)
            for each in list(entered.own):
                self.enter(lock_id, each)
        left = self.by_id.get(lock_id)
        if left is not None:  # other ones, put in by another thread of an owner, perhaps just now
            left.asked = acquisition.last
            acquisition.last = False
        return acquisition.last
