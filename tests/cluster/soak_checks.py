"""What must be true of locks that were held by majority, judged from what their holders have put down.

Each holder puts down one `Hold`: when it asked, when it had the lock, its fencing token, when it was last
told that it holds it (`ensure_held`), and when it had released it. All by the clock that the processes of
one machine share. What fencing promises, and what is checked:

* *Tokens rise.* Whoever had a lock after another one had released it has a larger token. No two have the same.
* *The resource is safe*: `Ledger` refuses who comes with a smaller token than one that was seen, and
  notices an increment that got lost.
* *Two holders.* A majority grants a lock to one at a time. A holder that was cut off or paused may take
  itself for the holder, at most `net_ticktime` longer than that, and than it was paused. Longer is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Hold", "Pause", "overlaps", "percentiles", "violations"]

SLACK = 3.0  # seconds; for processes that wait for a processor, and for how often silence is judged


class Hold(NamedTuple):
    """One lock that was held.

    Attributes:
        lock_id: Which one.
        owner: Who held it.
        process: The name of its node.
        token: The fencing token.
        asked: When it was asked for.
        had: When it was there.
        sure: When the holder was told last that it is still there.
        gone: When it was released.
    """

    lock_id: int
    owner: str
    process: str
    token: int
    asked: float
    had: float
    sure: float
    gone: float


class Pause(NamedTuple):
    """A process that was stopped, from when until when."""

    process: str
    begin: float
    end: float


def violations(holds: Iterable[Hold], pauses: Sequence[Pause], ticktime: float) -> list[str]:
    """What is wrong, in words."""
    found = []
    for lock_id, each in _by_id(holds).items():
        found += _order(lock_id, each)
        for first, second, seconds in overlaps(each):
            paused = sum(
                max(0.0, min(first.sure, pause.end) - max(second.had, pause.begin))
                for pause in pauses
                if pause.process == first.process
            )
            if seconds > ticktime + paused + SLACK:
                found.append(
                    f"id {lock_id}: {first.owner} was told that it holds the lock {seconds:.2f} s after "
                    f"{second.owner} had it (at {second.had:.2f}), and was paused for {paused:.2f} s of that"
                )
    return found


def _by_id(holds: Iterable[Hold]) -> dict[int, list[Hold]]:
    found: dict[int, list[Hold]] = defaultdict(list)
    for hold in holds:
        found[hold.lock_id].append(hold)
    return found


def _order(lock_id: int, holds: Sequence[Hold]) -> list[str]:
    found = []
    owners: dict[int, str] = {}
    largest: Hold | None = None  # of those that are released
    released = sorted(holds, key=lambda hold: hold.gone)
    at = 0
    for hold in sorted(holds, key=lambda hold: hold.had):
        while at < len(released) and released[at].gone < hold.had:
            if largest is None or released[at].token > largest.token:
                largest = released[at]
            at += 1
        if largest is not None and hold.token <= largest.token:
            found.append(
                f"id {lock_id}: {hold.owner} had the lock at {hold.had:.2f} with token {hold.token}; "
                f"{largest.owner} had released it at {largest.gone:.2f} with token {largest.token}"
            )
        if owners.setdefault(hold.token, hold.owner) != hold.owner:
            found.append(
                f"id {lock_id}: {owners[hold.token]} and {hold.owner} had token {hold.token}"
            )
    return found


def overlaps(holds: Iterable[Hold]) -> list[tuple[Hold, Hold, float]]:
    """Pairs of which the second one had the lock while the first one was told that it has it."""
    found = []
    longest: Hold | None = None
    for hold in sorted(holds, key=lambda hold: hold.had):
        if longest is not None and longest.sure > hold.had:
            found.append((longest, hold, min(longest.sure, hold.gone) - hold.had))
        if longest is None or hold.sure > longest.sure:
            longest = hold
    return found


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """How many there are, the median, the 99th percentile and the largest."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    return {
        "count": len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[int(len(ordered) * 0.99)],
        "max": ordered[-1],
    }
