"""The journal of an MVCC lock table's turns, and the handling of an interrupted turn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from locks.mvcc.table import LockStates
from locks.runtime.inline import Work, raised_in

__all__ = ["Journal"]

T = TypeVar("T")

_log = logging.getLogger("locks.mvcc")


class Journal:
    """The journal of a table's turns.

    An operation that is refused raises before it changes anything. An operation that is interrupted
    can't be undone. Then the table is no longer reliable, and is stopped.
    """

    news = ()
    thin = False

    def __init__(
        self,
        states: LockStates,
        finish: Callable[[], object],
        stop: Callable[[object], object],
    ) -> None:
        self._states = states
        self._finish = finish
        self._stop = stop
        self.torn = False

    def inflate(self) -> None:
        """Never called: nothing is thin."""
        raise AssertionError("a lock table has nothing that is thin")

    def conclude(self, work: Work | None = None) -> None:
        """A turn is done: wake whose wait is over."""
        if self._states.changed or self._states.searches:
            self._finish()
        if work is not None:
            work.done = True
        self.torn = False

    def mend(self, error: BaseException | None = None) -> None:
        """A turn was cut short: stop the table, unless it was a refusal."""
        if self.torn and (error is None or not self.refuses(error)):
            _log.error("a lock table was interrupted, and is stopped", exc_info=error)
            self._stop(error or "an operation was cut short")
        self.torn = False

    def refuses(self, error: BaseException) -> bool:
        """Whether an operation has refused something, and so changed nothing."""
        return self.is_refusal(error)

    def is_refusal(self, error: BaseException) -> bool:
        """The same, without the turn."""
        return raised_in(error, "locks.mvcc.")

    def cannot_do(self, work: Work, error: BaseException) -> bool:
        """Work of others has failed: log it."""
        _log.error("%s has failed in a lock table", work.function, exc_info=error)
        return False

    def can_tell_past(self, question: Callable[..., object]) -> bool:
        """Whether a question can be answered from before the turn: none can."""
        return False

    def tell_past(self, question: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Never called: see `can_tell_past`."""
        raise AssertionError("a lock table does not know its past")

    def tell(self) -> None:
        """Do nothing: there is no one to notify."""

    def leave_it(self, function: Callable[[], object]) -> None:
        """Leave the work to the next turn, because there is no background."""
