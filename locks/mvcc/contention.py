"""Who waited how long, for what: for each key, and for each transaction.

The table has no clock. At the end of each turn its shell says which requests have begun to wait, or wait
no more, and what time it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from locks.mvcc.model import Contention, LongWait, Txn
from locks.mvcc.records import Guard, Standing
from locks.mvcc.waiting import Waits

__all__ = ["Contentions"]

KEPT = 1000


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
        self._keys: dict[Hashable, _Sum] = {}
        self._txns: dict[Hashable, _Sum] = {}

    def note(self, changed: Iterable[Guard], now: float) -> None:
        """These guards have begun to wait, or wait no more."""
        for guard in changed:
            lock, standing = guard.waits_at, guard.standing
            if standing is not None and (lock is None or lock.key is not standing.key):
                guard.standing = None
                for sums, of in ((self._keys, standing.key), (self._txns, guard.txn.id)):
                    known = sums.get(of)
                    if known is None:
                        if len(sums) >= self._kept:
                            self._forget(sums)
                        known = sums[of] = _Sum()
                    known.add(guard.txn, standing, now - standing.since)
            if lock is not None and guard.standing is None:
                guard.standing = Standing(lock.key, self._waits.front(lock), now)

    def seen(
        self, guards: Iterable[Guard], now: float
    ) -> tuple[tuple[Contention, ...], tuple[Contention, ...]]:
        """What there is to see of keys and of transactions, waits that are under way counted in."""
        keys = {key: known.seen(key) for key, known in self._keys.items()}
        txns = {txn: known.seen(txn) for txn, known in self._txns.items()}
        for guard in guards:
            if guard.standing is not None:
                key, holder, since = guard.standing
                wait = LongWait(guard.txn, holder, key, now - since, False)
                for seen, of in ((keys, key), (txns, guard.txn.id)):
                    seen[of] = _with(seen.get(of), of, wait)
        return _ordered(keys.values()), _ordered(txns.values())

    def _forget(self, sums: dict[Hashable, _Sum]) -> None:
        order = sorted(sums, key=lambda of: sums[of].seconds)
        for of in order[: len(order) // 2 + 1]:
            del sums[of]


class _Sum:
    """What is counted of a key, or of a transaction."""

    __slots__ = ("longest", "seconds", "standing", "txn", "waits")

    txn: Txn
    standing: Standing

    def __init__(self) -> None:
        self.waits = 0
        self.seconds = 0.0
        self.longest = -1.0

    def add(self, txn: Txn, standing: Standing, seconds: float) -> None:
        self.waits += 1
        self.seconds += seconds
        if seconds > self.longest:
            self.longest, self.txn, self.standing = seconds, txn, standing

    def seen(self, of: Hashable) -> Contention:
        longest = LongWait(self.txn, self.standing.holder, self.standing.key, self.longest, True)
        return Contention(of, self.waits, self.seconds, longest)


def _with(known: Contention | None, of: Hashable, wait: LongWait) -> Contention:
    """A contention with one more wait."""
    if known is None:
        return Contention(of, 1, wait.seconds, wait)
    longest = wait if wait.seconds > known.longest.seconds else known.longest
    return Contention(of, known.waits + 1, known.seconds + wait.seconds, longest)


def _ordered(seen: Iterable[Contention]) -> tuple[Contention, ...]:
    return tuple(sorted(seen, key=lambda each: each.seconds, reverse=True))
