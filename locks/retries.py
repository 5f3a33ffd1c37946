"""Functions that are run again: how often, after which pause, and what a run takes first.

A run that follows on an abort takes first what the earlier runs asked for (`Learned`). It waits for one of these locks,
and then tries to take the others in one request, without a wait; if one is not free, it releases the first and waits for
that one. So it holds nothing while it waits, and is in nobody's way. After a few attempts in vain it queues for the
locks one after the other, in an order that is the same for all: then it is in no circle with others that have learned,
since each waits for somebody who holds only locks that come earlier in this order. (Decision 0077.)
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
from locks.model import Deadlock, LockId, join, show_all
from locks.node.client.agent import Agent
from locks.wire import SERIAL_BITS

__all__ = ["Learned", "Retries"]

logger = logging.getLogger("locks")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds before what has failed is run again
ATTEMPTS = 2  # to take all that was learned at once, before it queues for one after the other


class Learned:
    """What the runs of a function have asked for in their transactions.

    It is what was granted, and what a run was aborted for, also if it was given back before. A request that has
    timed out, or was refused, is none: nobody waits for it when the run is aborted.
    """

    __slots__ = ("_late", "_limit", "_taken", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[LockId, Object] = {}
        self._limit = 0.0  # seconds that the longest of these requests would have waited
        self._taken: dict[LockId, Object] = {}  # what this run has not asked for itself
        self._late: LockTimeout | None = None

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, objects: Sequence[Object], timeout: float | None) -> None:
        """A run has asked for these locks: each is wanted in a mode that covers all in which it was."""
        for wanted in objects:
            lock_id, mode, nodes, require = wanted
            known = self._wanted.get(lock_id)
            self._wanted[lock_id] = (
                wanted if known is None else (lock_id, join(mode, known[1]), nodes, require)
            )
        self._limit = max(self._limit, inf if timeout is None else timeout)

    def take(self, agent: Agent) -> tuple[LockId, ...]:
        """Take it all for a new run, within the time that the longest of these requests would have waited.

        What can't be had in time, or not now, is left to the function, with all that follows: it asks for it itself, and is
        told then. It may know what to do about it.

        Returns:
            What was taken.

        Raises:
            LocksError: The transaction has ended, or another one of the client.
        """
        self._taken = {}
        self._late = None
        until = inf if self._limit == inf else agent.node.clock() + self._limit
        order = [self._wanted[lock_id] for lock_id in sorted(self._wanted, key=_order)]
        try:
            if not self._take_what_is_free(agent, order, until):
                for wanted in order:
                    _wait_for(agent, wanted, until)
                    self._taken[wanted[0]] = wanted
        except (LockTimeout, CannotServe) as error:
            if not agent.is_alive():
                raise
            self._late = error if isinstance(error, LockTimeout) else None
        return tuple(self._taken)

    def _take_what_is_free(self, agent: Agent, order: Sequence[Object], until: float) -> bool:
        """Take everything at a moment when it is free, if one comes soon: nothing is held while it waits for one of them."""
        missing = agent.try_all(order)
        for _ in range(ATTEMPTS):
            if missing is None:
                break
            _wait_for(agent, self._wanted[missing], until)
            first = missing
            missing = agent.try_all(order)
            if missing is not None:
                agent.unlock(first)
        if missing is None:
            self._taken = {wanted[0]: wanted for wanted in order}
        return missing is None

    def asking(self, agent: Agent, objects: Sequence[Object]) -> None:
        """The function asks for these locks itself: as if nothing had been taken for it.

        Raises:
            LockTimeout: It was waited for already, and that has timed out.
        """
        for lock_id, _, nodes, require in objects:
            taken = self._taken.pop(lock_id, None)
            if taken is not None and (set(nodes), require) != (set(taken[2]), taken[3]):
                agent.unlock(lock_id)  # it is asked for on other terms now
            late = self._late
            if late is not None and lock_id in late.lock_ids:
                self._late = None
                raise late


def _wait_for(agent: Agent, wanted: Object, until: float) -> None:
    """Lock one of them."""
    agent.lock_all((wanted,), None if until == inf else max(0.0, until - agent.node.clock()))


def _order(lock_id: LockId) -> tuple[tuple[int, Any], ...]:
    """Where an id stands in the order that is the same for all: what is above it comes first."""
    return tuple([_place(element) for element in lock_id])


def _place(element: Any) -> tuple[int, Any]:
    kind = type(element)
    if kind is int or kind is float or kind is bool:  # equal ones are the same lock
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
    """Whether, and after which pause, what was given up is run again: the rule of `run_transaction`.

    Args:
        retries: How many times at most, without anybody else getting on.
        retry_on: After which errors besides deadlocks.
        learn: Whether a run takes first what those before it have asked for.

    Attributes:
        learned: What they have asked for; `None` if nothing is learned.

    Raises:
        InvalidOption: These are no such things.
    """

    def __init__(
        self,
        retries: int,
        retry_on: type[LocksError] | tuple[type[LocksError], ...],
        learn: bool = True,
    ) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise InvalidOption(
                f"retries={shown(retries)} is not a number >= 0", value=shown(retries)
            )
        again = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        if not all(isinstance(kind, type) and issubclass(kind, LocksError) for kind in again):
            raise InvalidOption(
                f"retry_on={retry_on!r} is neither a kind of LocksError nor a tuple of such",
                value=repr(retry_on),
            )
        if not isinstance(learn, bool):
            raise InvalidOption(f"learn={shown(learn)} is not True or False", value=shown(learn))
        self.learned = Learned() if learn else None
        self._retries = self._left = retries
        self._runs = 1
        self._again = again
        self._pause = SHORTEST_PAUSE
        self._served: set[tuple[int, str, LockId]] = set()

    def pause_after(self, error: LocksError, failed: HasAgent) -> float | None:
        """For how many seconds to wait before a transaction is run again; `None` if it is not.

        Raises:
            DeadlockAborted: It was run again as often as it may be.
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
        """Whether it was aborted for somebody for whom it was not before: then others get on.

        Who goes first is told by its age, which it keeps when it is run again, and by the lock that it waits for. A
        transaction gives way to older ones, of which there are only so many. If it does so twice for one of them and
        the same lock, that one has not got on by what it was given.
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
            learned = f"it took {show_all(list(self.learned._wanted))} first"
        return DeadlockAborted(
            f"run_transaction gave up after {self._runs} runs: the last {self._retries} retries were for transactions "
            f"that had been given way to before, and did not get on ({learned}). {error}",
            deadlock=error.deadlock,
        )
