"""Functions that are run again: how often, after which pause, and what a run takes first.

After an abort, a run first takes the locks that the earlier runs requested (`Learned`). It tries to take them in one
request, without waiting. If one of them is not free, it releases the others, waits for that one, and tries again. So it
holds nothing while it waits, and blocks no other transaction. After a few failed attempts it queues for the locks one after
the other, in an order that is the same for all transactions. Then it is in no cycle with others that do the same, since each
waits for a holder of locks that come earlier in this order. (Decision 0012.)
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

from locks.core.agent.machine import Object
from locks.errors import CannotServe, DeadlockAborted, InvalidOption, LocksError, LockTimeout
from locks.lock_ids import shown
from locks.model import SERIAL_BITS, Deadlock, LockId, check_bool, join, show_all
from locks.node.client.agent import Agent

__all__ = ["Learned", "Retries"]

logger = logging.getLogger("locks")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before a failed function is run again
ATTEMPTS = 2  # to take all learned locks together, before it queues for them one by one


class Learned:
    """The locks that the runs of a function requested in their transactions.

    It contains locks that were granted, even if they were released before, and locks that a run was aborted for. It does not
    contain requests that timed out or were refused: these no longer wait when the run is aborted.
    """

    __slots__ = ("_late", "_limit", "_taken", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[LockId, Object] = {}
        self._limit = 0.0  # the longest time limit of these requests, in seconds
        self._taken: dict[
            LockId, Object
        ] = {}  # locks that this run's function has not requested itself
        self._late: LockTimeout | None = None

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, objects: Sequence[Object], timeout: float | None) -> None:
        """Add locks that a run requested; each is taken in a mode that covers all its requested modes."""
        for wanted in objects:
            lock_id, mode, nodes, require = wanted
            known = self._wanted.get(lock_id)
            self._wanted[lock_id] = (
                wanted if known is None else (lock_id, join(mode, known[1]), nodes, require)
            )
        self._limit = max(self._limit, inf if timeout is None else timeout)

    def take_locks(self, agent: Agent) -> tuple[LockId, ...]:
        """Take all these locks for a new run, within the longest time limit of these requests.

        Locks that can't be taken in time, or not at present, are left to the function: it requests them itself, and
        gets the error then. It may be able to handle it.

        Returns:
            The locks that were taken.

        Raises:
            LocksError: The transaction has ended, or another transaction of the client.
        """
        self._taken = {}
        self._late = None
        until = inf if self._limit == inf else agent.node.clock() + self._limit
        order = [self._wanted[lock_id] for lock_id in sorted(self._wanted, key=_order)]
        try:
            if not self._take_what_is_free(agent, order, until):
                for wanted in order:
                    agent.lock_all((wanted,), _time_left(agent, until))
                    self._taken[wanted[0]] = wanted
        except (LockTimeout, CannotServe) as error:
            if not agent.is_alive():
                raise
            self._late = error if isinstance(error, LockTimeout) else None
        return tuple(self._taken)

    def _take_what_is_free(self, agent: Agent, order: Sequence[Object], until: float) -> bool:
        """Take all the locks together, if they are free within a few attempts; holds no lock while it waits for one of them."""
        for left in reversed(range(ATTEMPTS + 1)):
            if agent.lock_free(order, _time_left(agent, until) if left else 0):
                self._taken = {wanted[0]: wanted for wanted in order}
                return True
        return False

    def asking(self, agent: Agent, objects: Sequence[Object]) -> None:
        """The function requests these locks itself: behave as if they had not been taken for it.

        Raises:
            LockTimeout: The wait for the lock has already timed out.
        """
        for lock_id, _, nodes, require in objects:
            taken = self._taken.pop(lock_id, None)
            if taken is not None and (set(nodes), require) != (set(taken[2]), taken[3]):
                agent.unlock(lock_id)  # it is requested with other nodes now
            late = self._late
            if late is not None and lock_id in late.lock_ids:
                self._late = None
                raise late


def _time_left(agent: Agent, until: float) -> float | None:
    """The seconds until a time limit; `None` if there is none."""
    return None if until == inf else max(0.0, until - agent.node.clock())


def _order(lock_id: LockId) -> tuple[tuple[int, Any], ...]:
    """The sort key of an id, the same for all transactions: an id comes after the ids above it."""
    return tuple([_place(element) for element in lock_id])


def _place(element: Any) -> tuple[int, Any]:
    kind = type(element)
    if kind is int or kind is float or kind is bool:  # equal numbers are the same lock
        return (0, element)
    if kind is str:
        return (1, element)
    if kind is bytes:
        return (2, element)
    if kind is tuple:
        return (3, _order(element))
    return (4, repr(element))


class HasAgent(Protocol):
    """A transaction, of `locks` or of `locks.aio`."""

    @property
    def agent(self) -> Agent:
        """Its agent."""


class Retries:
    """Whether a failed transaction is run again, and after which pause: the rule of `run_transaction`.

    Args:
        retries: The most runs after the first without progress of others.
        retry_on: Errors besides deadlocks after which it is run again.
        learn: Whether a run first takes the locks that earlier runs requested.

    Attributes:
        learned: The locks that they requested; `None` if `learn` is false.

    Raises:
        InvalidOption: An argument is wrong.
    """

    def __init__(
        self,
        retries: int,
        retry_on: type[LocksError] | tuple[type[LocksError], ...],
        learn: bool = True,
    ) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InvalidOption(
                f"retries={shown(retries)} is not an int >= 0", value=shown(retries)
            )
        again = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        if not all(isinstance(kind, type) and issubclass(kind, LocksError) for kind in again):
            raise InvalidOption(
                f"retry_on={retry_on!r} is wrong; use a subclass of LocksError or a tuple of these",
                value=repr(retry_on),
            )
        check_bool(learn, "learn")
        self.learned = Learned() if learn else None
        self._retries = self._left = retries
        self._runs = 1
        self._again = again
        self._pause = SHORTEST_PAUSE
        self._served: set[tuple[int, str, LockId]] = set()

    def pause_after(self, error: LocksError, failed: HasAgent) -> float | None:
        """Seconds to wait before the transaction is run again; `None` if it is not run again.

        Raises:
            DeadlockAborted: The retries are used up.
        """
        pause = 0.0
        if isinstance(error, DeadlockAborted):
            if error.deadlock.run_again != failed.agent.id:
                return None
            serves = self._serves(error.deadlock)
        elif isinstance(error, self._again):
            serves = False
            pause = self._pause * random.uniform(0.5, 1)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        else:
            return None
        if not (serves and self._retries):
            if self._left == 0:
                if self._retries and isinstance(error, DeadlockAborted):
                    raise self._given_up(error) from error
                return None
            self._left -= 1
        self._runs += 1
        learned = show_all(list(self.learned._wanted)) if self.learned else "nothing"
        logger.debug("%s is run again (run %d); learned: %s", failed.agent, self._runs, learned)
        return pause

    def _serves(self, deadlock: Deadlock) -> bool:
        """Whether it was aborted for a transaction for the first time; then others make progress.

        That transaction is identified by its age, which it keeps when it is run again, and by the lock that it waits for. A
        transaction gives way to older ones, and there are only so many of these. If it gives way twice to the same one for
        the same lock, the other transaction has made no progress with the lock.
        """
        if not deadlock.cycle:
            return False
        waiter = deadlock.cycle[0].waiter
        served = (waiter.agent.created >> SERIAL_BITS, waiter.agent.node, waiter.lock_id)
        if served in self._served:
            return False
        self._served.add(served)
        return True

    def _given_up(self, error: DeadlockAborted) -> DeadlockAborted:
        learned = "learn=False"
        if self.learned is not None:
            learned = f"each run took {show_all(list(self.learned._wanted))} first"
        return DeadlockAborted(
            f"run_transaction gave up after {self._runs} runs: the last {self._retries} retries gave way to transactions "
            f"that had been given way to before and made no progress ({learned}). {error}",
            deadlock=error.deadlock,
        )
