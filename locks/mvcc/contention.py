"""Contention: how long transactions waited, for each key and for each transaction.

The table has no clock. At the end of each turn, its shell reports which requests began or stopped
waiting, and the time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from locks.mvcc.model import Contention, LongWait, Txn
from locks.mvcc.records import Guard, Standing
from locks.mvcc.waiting import Waits

__all__ = ["Contentions"]

KEPT = 1000
TOGETHER = 64
"""So many waits are added up at a time."""

Sums = dict[Hashable, list[Any]]
"""For each key or transaction: the number of waits, their seconds, and the longest wait."""


class Contentions:
    """The waits so far, of the keys and of the transactions that waited most.

    Args:
        waits: The wait-for graph.
        kept: How many keys, and how many transactions. When there are more, the half with the
            shorter waits is forgotten.
    """

    def __init__(self, waits: Waits, kept: int = KEPT) -> None:
        self._waits = waits
        self._kept = kept
        self._keys: Sums = {}
        self._txns: Sums = {}
        self._over: list[tuple[float, Txn, Standing]] = []  # not added up yet

    def note(self, changed: Iterable[Guard], now: float) -> None:
        """Note that these guards began or stopped waiting."""
        for guard in changed:
            lock, standing = guard.waits_at, guard.standing
            if standing is not None and (lock is None or lock.key is not standing[0]):
                self._over.append((now - standing[2], guard.txn, standing))
                if len(self._over) >= TOGETHER:
                    self._add_up()
                standing = guard.standing = None
            if lock is not None and standing is None:
                guard.standing = (lock.key, lock.holder or self._waits.front(lock), now)

    def _add_up(self) -> None:
        for seconds, txn, standing in self._over:
            for sums, of in ((self._keys, standing[0]), (self._txns, txn[0])):
                known = sums.get(of)
                if known is None:
                    if len(sums) >= self._kept:
                        forget(sums)
                    sums[of] = [1, seconds, seconds, txn, standing]
                else:
                    known[0] += 1
                    known[1] += seconds
                    if seconds > known[2]:
                        known[2:] = seconds, txn, standing
        self._over.clear()

    def seen(
        self, guards: Iterable[Guard], now: float
    ) -> tuple[tuple[Contention, ...], tuple[Contention, ...]]:
        """The contention of keys and of transactions, present waits included."""
        self._add_up()
        keys = {key: as_seen(key, known) for key, known in self._keys.items()}
        txns = {txn: as_seen(txn, known) for txn, known in self._txns.items()}
        for guard in guards:
            if guard.standing is not None:
                key, holder, since = guard.standing
                wait = LongWait(guard.txn, holder, key, now - since, False)
                for seen, of in ((keys, key), (txns, guard.txn.id)):
                    seen[of] = with_wait(seen.get(of), of, wait)
        return in_order(keys.values()), in_order(txns.values())


def forget(sums: Sums) -> None:
    """Forget the half with the shorter waits."""
    order = sorted(sums, key=lambda of: sums[of][1])
    for of in order[: len(order) // 2 + 1]:
        del sums[of]


def as_seen(of: Hashable, known: list[Any]) -> Contention:
    """A sum as users see it."""
    waits, seconds, longest, txn, (key, holder, _) = known
    return Contention(of, waits, seconds, LongWait(txn, holder, key, longest, True))


def with_wait(known: Contention | None, of: Hashable, wait: LongWait) -> Contention:
    """A contention with one more wait."""
    if known is None:
        return Contention(of, 1, wait.seconds, wait)
    longest = wait if wait.seconds > known.longest.seconds else known.longest
    return Contention(of, known.waits + 1, known.seconds + wait.seconds, longest)


def in_order(seen: Iterable[Contention]) -> tuple[Contention, ...]:
    """The longest waits first."""
    return tuple(sorted(seen, key=lambda each: each.seconds, reverse=True))
