"""How often a client has acquired each of its `locks.RLock`s.

Each time that a client acquires a `locks.RLock`, there is an *acquisition* here. A client holds an
id either by a `Lock` or by `RLock`s, never by both: otherwise the release of one would release the
other.
"""

from __future__ import annotations

from gevent import getcurrent

from locks.model import LockId

__all__ = ["Acquisition", "Acquisitions"]


class Acquisition:
    """One acquisition of a `locks.RLock`; or one `release`, which removes an acquisition.

    Attributes:
        by: The `id` of the greenlet that made it; a thread is its main greenlet.
        entered: Whether it was added; true for a release.
        taken: The acquisition that was removed for it. This is another one for a release, and if an
            earlier release has removed this one.
        last: Whether no acquisition that holds the id was left then.
    """

    __slots__ = ("by", "entered", "last", "taken")

    def __init__(self, *, is_release: bool = False) -> None:
        self.by = id(getcurrent())
        self.entered = is_release
        self.taken: Acquisition | None = None
        self.last = False

    def renew(self) -> None:
        """It was given back, or not added; now it can be added to a transaction."""
        self.entered = False
        self.taken = None
        self.last = False


class Entered:
    """The acquisitions of one id.

    Attributes:
        own: Those that were added, oldest first.
        asked: Whether one of them requested the id, if it was requested at all; otherwise a `Lock`
            did.
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
        """Add an acquisition, before the lock is requested; an owner may do so in several threads."""
        while True:
            entered = self.by_id.setdefault(lock_id, Entered())
            entered.own[acquisition] = None
            # Otherwise the last acquisition was removed meanwhile.
            if self.by_id.get(lock_id) is entered:
                acquisition.entered = True
                return

    def add(self, lock_id: LockId, others: Acquisitions) -> None:
        """Add those of an id, whose `take_out` may have been interrupted; calling it again has no effect."""
        entered = others.by_id.get(lock_id)
        if entered is not None:
            own = self.by_id.setdefault(lock_id, entered)
            own.own.update(entered.own)
            own.asked = own.asked or entered.asked

    def ask(self, lock_id: LockId, acquisition: Acquisition | None) -> bool:
        """Note a request for the id by an acquisition or by a `Lock`; return whether it has acquisitions."""
        entered = self.by_id.get(lock_id)
        if entered is None:
            return False
        entered.asked = acquisition is not None
        return True

    def has(self, lock_id: LockId) -> bool:
        """Whether there is an acquisition of the id."""
        entered = self.by_id.get(lock_id)
        return entered is not None and bool(entered.own)

    def made_here(self, lock_id: LockId) -> list[Acquisition]:
        """The acquisitions of the id that the calling greenlet has made, oldest first."""
        entered = self.by_id.get(lock_id)
        by = id(getcurrent())
        return [] if entered is None else [each for each in list(entered.own) if each.by == by]

    def asked(self, lock_id: LockId) -> bool:
        """Whether acquisitions have the id, or wait for it, and no `Lock` does."""
        entered = self.by_id.get(lock_id)
        return entered is not None and entered.asked

    def take_out(self, lock_id: LockId, acquisition: Acquisition) -> bool:
        """Remove one acquisition; calling it again has no effect. Return whether to release the lock.

        A release removes the newest acquisition, in whatever thread of the owner it was made. So
        does an acquisition that finds itself removed by a release: only their number counts.
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
        if left is not None:  # others remain, perhaps added just now by another thread of an owner
            left.asked = acquisition.last
            acquisition.last = False
        return acquisition.last
