"""Bad input: a specific error that says what to do, and nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from locks.errors import InvalidOption, LocksError, MisuseError
from locks.mvcc import (
    Aborted,
    BadTimestamp,
    Committed,
    Intent,
    InvalidKey,
    LockedByOther,
    LockNotAvailable,
    LockTable,
    Moved,
    Request,
    Span,
    Statistics,
    TransactionFinished,
    Txn,
    UnknownGuard,
)
from tests.mvcc.invariants import check_invariants

T1, T2, T3, T4, T9 = Txn(1, 10), Txn(2, 20), Txn(3, 30), Txn(4, 40), Txn(9, 90)
A = Request(writes=["a"])
ODD: Any = object()


def timeless(statistics: Statistics) -> Statistics:
    """Figures without the time that waits take meanwhile."""
    ordered = [
        tuple(sorted((each.of, each.waits) for each in seen))
        for seen in (statistics.contended_keys, statistics.contended_transactions)
    ]
    return statistics._replace(contended_keys=ordered[0], contended_transactions=ordered[1])  # type: ignore[arg-type]


class Scene:
    """A table where something of everything goes on."""

    def __init__(self) -> None:
        self.table = LockTable()
        self.table.acquire_lock("a", T1)
        self.table.acquire_lock("b", T1)
        _, self.writer = self.table.scan_and_enqueue(A, T2)
        _, self.reader = self.table.scan_and_enqueue(Request(reads=["a"]), T3)
        _, self.reserver = self.table.scan_and_enqueue(Request(writes=["b", "c"]), T2)
        _, self.behind = self.table.scan_and_enqueue(Request(writes=["b"]), T3)
        self.table.update_locks("b", Moved(T1, 12))
        self.table.acquire_lock("c", T4)
        _, self.gone = self.table.scan_and_enqueue(A, T4)
        self.table.dequeue(self.gone)
        self.table.update_locks("x", Committed(T9, 90))
        self.stranger = LockTable().scan_and_enqueue(A, T2)[1]

    def seen(self) -> Any:
        """All that can be seen of it."""
        guards = [self.writer, self.reader, self.reserver, self.behind]
        return (
            self.table.states(),
            timeless(self.table.statistics()),
            [self.table.locks(txn) for txn in (T1, T2, T3, T4, T9)],
            [(guard.number, guard.txn, guard.waits_at, guard.ending) for guard in guards],
        )


CASES: dict[str, tuple[Callable[[Scene], object], type[LocksError], str]] = {
    # Unknown guards.
    "wait for a dequeued guard": (
        lambda s: s.table.wait_for(s.gone), UnknownGuard, "was dequeued"),
    "another table's guard": (
        lambda s: s.table.wait_for(s.stranger), UnknownGuard, "of another lock table"),
    "no guard at all": (
        lambda s: s.table.dequeue(ODD), UnknownGuard, "scan_and_enqueue returns one"),
    # Guards of something else.
    "another transaction's guard": (
        lambda s: s.table.scan_and_enqueue(A, T3, s.writer), MisuseError, "not the guard of this"),
    # Locks of others.
    "acquire what another one holds": (
        lambda s: s.table.acquire_lock("a", T2), LockedByOther, "transaction 1 holds it"),
    # Timestamps.
    "scan at a negative timestamp": (
        lambda s: s.table.scan_and_enqueue(A, Txn(5, -1)), BadTimestamp, "-1 is not an integer >= 0"),
    "a timestamp that is not an integer": (
        lambda s: s.table.acquire_lock("z", Txn(5, 1.5)), BadTimestamp, "1.5"),  # type: ignore[arg-type]
    "scan again at an earlier timestamp": (
        lambda s: s.table.scan_and_enqueue(A, Txn(2, 19), s.writer), BadTimestamp, "back to 19"),
    "commit before a lock of the span": (
        lambda s: s.table.update_locks(Span("a", "c"), Committed(T1, 11)),
        BadTimestamp, "its lock on 'b' is at 12"),
    # Transactions that are finished, or can't be.
    "scan of a finished transaction": (
        lambda s: s.table.scan_and_enqueue(A, T9), TransactionFinished, "committed already"),
    "abort of a committed transaction": (
        lambda s: s.table.update_locks("a", Aborted(T9)), TransactionFinished, "committed"),
    "an id that can't be compared": (
        lambda s: s.table.acquire_lock("z", Txn("five", 5)), MisuseError, "can't be compared"),
    "a priority that is not an integer": (
        lambda s: s.table.acquire_lock("z", Txn(5, 5, "high")), MisuseError, "not an integer"),  # type: ignore[arg-type]
    "no transaction": (
        lambda s: s.table.acquire_lock("z", 5), MisuseError, "5 is no Txn"),  # type: ignore[arg-type]
    # Keys.
    "acquire a key of another kind": (
        lambda s: s.table.acquire_lock(17, T1), InvalidKey, "all keys of one kind"),
    "discover at a key that is not the request's": (
        lambda s: s.table.add_discovered_lock(s.reader, Intent("q", T4)),
        MisuseError, "in no span of the request"),
    "scan a span of another kind": (
        lambda s: s.table.scan_and_enqueue(Request(["a"], [Span(1, 3)]), T4), InvalidKey, "Span"),
    # Requests that do not wait, and strengths.
    "scan without a wait": (
        lambda s: s.table.scan_and_enqueue(Request(["c"], ["b"], wait="error"), T9._replace(id=8)),
        LockNotAvailable, "can't have 'b' without a wait: transaction 1 holds it"),
    "an unknown wait policy": (
        lambda s: Request(writes=["a"], wait="nowait"), InvalidOption, "block, error, skip locked"),  # type: ignore[arg-type]
    # Something else altogether.
    "no request": (
        lambda s: s.table.scan_and_enqueue(["a"], T1), MisuseError, "is no Request"),  # type: ignore[arg-type]
    "no time": (
        lambda s: s.table.wait_for(s.reader, -1), InvalidOption, "timeout=-1 is not a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_changes_nothing(case: str) -> None:
    """The error is the specific one, and all that can be seen is as before."""
    call, error, complaint = CASES[case]
    scene = Scene()
    before = scene.seen()
    with pytest.raises(error, match=complaint) as caught:
        call(scene)
    assert type(caught.value) is error
    assert scene.seen() == before
    check_invariants(scene.table._states)


@pytest.mark.parametrize(
    ("keys", "odd"),
    [
        ([], math.nan),
        ([1.0, 3.0], math.nan),
        ([(1, 2), (2, 1)], (1, math.nan)),
        ([frozenset({1})], frozenset({2})),
        ([], Span("a")),
    ],
)
def test_a_key_without_a_place_among_the_others_is_refused(keys: list[Any], odd: Any) -> None:
    """It can be compared, but is neither before nor after; it would hide others, or be lost."""
    table = LockTable()
    for key in keys:
        table.acquire_lock(key, T1)
    with pytest.raises(InvalidKey):
        table.acquire_lock(odd, T1)
    assert [state.key for state in table.states()] == keys
    for key in keys:
        table.update_locks(key, Aborted(T1))
    assert table.statistics().keys == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"reads": "abc"}, r"write \['abc'\]"),
        ({"writes": Span("a", "b")}, "is not a list of keys"),
        ({"reads": [Span("b", "a")]}, r"for a key alone write Span\('b'\)"),
        ({"reads": [Span("a", "a")]}, "is empty"),
        ({"writes": [["a"]]}, "unhashable"),
        ({"writes": [None]}, "not supported"),
        ({"writes": [Span("a", 1)]}, "not supported"),
        ({"reads": 17}, "not iterable"),
    ],
)
def test_a_request_is_checked_when_it_is_made(arguments: Any, complaint: str) -> None:
    """So a table meets no request that has no order."""
    with pytest.raises(InvalidOption, match=complaint):
        Request(**arguments)
