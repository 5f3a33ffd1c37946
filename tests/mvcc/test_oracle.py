"""The lock table and the slow, obvious one take the same operations, and are always the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from locks.errors import LocksError
from locks.mvcc import (
    Aborted,
    Committed,
    Guard,
    Intent,
    LockNotAvailable,
    Moved,
    Request,
    Span,
    Txn,
    TxnDeadlock,
)
from locks.mvcc.deadlocks import Deadlocks
from locks.mvcc.lines import Lines
from locks.mvcc.model import Strength
from locks.mvcc.records import KeyLock
from locks.mvcc.table import LockStates
from tests.helpers import EXPLORE
from tests.mvcc.invariants import check_invariants
from tests.mvcc.oracle import Ask, Oracle

KEYS = "abc"
IDS = range(1, 6)

keys = st.sampled_from(KEYS)
spans = st.one_of(
    keys.map(Span),
    keys.map(Span),
    st.lists(st.sampled_from(KEYS + "d"), min_size=2, max_size=2, unique=True).map(
        lambda pair: Span(min(pair), max(pair))
    ),
)
policies = st.sampled_from(["block", "block", "block", "error", "skip locked"])
requests = st.one_of(
    st.builds(Request, writes=st.lists(spans, min_size=1, max_size=2), wait=policies),
    st.builds(Request, reads=st.lists(spans, min_size=1, max_size=2), wait=policies),
    st.builds(Request, st.lists(spans, max_size=2), st.lists(spans, max_size=2), policies),
)
strengths = st.sampled_from(["intent", "intent", "update"])
timestamps = st.integers(0, 9)


class Lockstep(RuleBasedStateMachine):
    """Both tables; each of the transactions begins anew, with a new id, when it has ended."""

    detect = True
    steps = 1000
    kind: type[LockStates] = LockStates
    lines = Lines

    def __init__(self) -> None:
        super().__init__()
        self.table = self.kind(detect=self.detect, steps=self.steps)
        self.table._lines.__class__ = self.lines
        self.oracle = Oracle()
        self.txns: dict[Any, Txn] = {}
        self.pairs: list[tuple[Guard, Ask]] = []
        self.next_id = len(IDS)

    @initialize(given=st.lists(st.tuples(timestamps, st.sampled_from([None, 1, 2]))))
    def begin(self, given: list[tuple[int, int | None]]) -> None:
        given = given + [(5, None)] * len(IDS)
        for number, (timestamp, priority) in zip(IDS, given, strict=False):
            self.txns[number] = Txn(number, timestamp, priority)

    # --- Operations

    @rule(number=st.sampled_from(IDS), request=requests)
    def scan(self, number: int, request: Request) -> None:
        txn = self.live(number)
        if txn is None:
            return
        expected = self.oracle.scan(request, txn, None)
        if expected is None:
            with pytest.raises(LockNotAvailable):
                self.table.scan_and_enqueue(request, txn)
            return
        must_wait, guard = self.table.scan_and_enqueue(request, txn)
        should, ask = expected
        self.pairs.append((guard, ask))
        assert must_wait == should
        assert guard.number == ask.number

    @precondition(lambda self: self.pairs)
    @rule(choice=st.integers(0, 99), later=st.sampled_from([0, 0, 0, 1, 3]))
    def rescan(self, choice: int, later: int) -> None:
        guard, ask = self.pairs[choice % len(self.pairs)]
        txn = guard.txn._replace(timestamp=guard.txn.timestamp + later)
        if ask.lost or txn.id in self.oracle.ended:
            with pytest.raises(LocksError):
                self.table.scan_and_enqueue(guard.request, txn, guard)
            return
        expected = self.oracle.scan(guard.request, txn, ask)
        if expected is None:
            with pytest.raises(LockNotAvailable):
                self.table.scan_and_enqueue(guard.request, txn, guard)
            return
        must_wait, same = self.table.scan_and_enqueue(guard.request, txn, guard)
        assert same is guard
        assert must_wait == expected[0]

    @rule(
        number=st.sampled_from(IDS),
        key=keys,
        later=st.sampled_from([0, 0, 1, 4]),
        strength=strengths,
    )
    def acquire(self, number: int, key: str, later: int, strength: Strength = "intent") -> None:
        txn = self.live(number)
        if txn is None or self.oracle.holders.get(key, txn).id != txn.id:
            return
        txn = txn._replace(timestamp=txn.timestamp + later)
        self.table.acquire_lock(key, txn, strength)
        self.oracle.acquire(key, txn, strength)

    @precondition(lambda self: self.pairs)
    @rule(choice=st.integers(0, 99), number=st.sampled_from(IDS), key=keys)
    def discover(self, choice: int, number: int, key: str) -> None:
        guard, ask = self.pairs[choice % len(self.pairs)]
        txn = self.txns[number]
        in_request = any(s.covers(key) for s in guard.request.reads + guard.request.writes)
        if (
            guard.txn.id in self.oracle.ended
            or not in_request
            or self.oracle.holders.get(key, txn).id != txn.id
        ):
            return
        waits = self.table.add_discovered_lock(guard, Intent(key, txn))
        assert waits == self.oracle.discover(ask, Intent(key, txn))

    @precondition(lambda self: self.pairs)
    @rule(choice=st.integers(0, 99))
    def dequeue(self, choice: int) -> None:
        guard, ask = self.pairs.pop(choice % len(self.pairs))
        self.table.dequeue(guard)
        self.oracle.dequeue(ask)

    @rule(
        number=st.sampled_from(IDS),
        span=spans,
        commits=st.booleans(),
        anew=st.sampled_from([True, True, False]),
    )
    def finish(self, number: int, span: Span, commits: bool, anew: bool) -> None:
        txn = self.txns[number]
        known = self.oracle.ended.get(txn.id)
        if known in ("committed", "aborted"):
            commits = known == "committed"
        update = Committed(txn, 20) if commits else Aborted(txn)
        assert self.table.update_locks(span, update) == self.oracle.update(span, update)
        if anew:
            self.next_id += 1
            self.txns[number] = txn._replace(id=self.next_id)
            # What is left of the old one is released, or nobody could.
            rest = Span("a", "z")
            assert self.table.update_locks(rest, update) == self.oracle.update(rest, update)

    @rule(number=st.sampled_from(IDS), span=spans, timestamp=timestamps)
    def move(self, number: int, span: Span, timestamp: int) -> None:
        txn = self.txns[number]
        if self.oracle.ended.get(txn.id) in ("committed", "aborted"):
            return
        update = Moved(txn, timestamp)
        assert self.table.update_locks(span, update) == self.oracle.update(span, update)

    def live(self, number: int) -> Txn | None:
        """The transaction of a number, unless it has ended: then it must be refused."""
        txn = self.txns[number]
        if txn.id not in self.oracle.ended:
            return txn
        with pytest.raises(LocksError):
            self.table.scan_and_enqueue(Request(), txn)
        with pytest.raises(LocksError):
            self.table.acquire_lock("a", txn)
        return None

    # --- Comparison

    @invariant()
    def same(self) -> None:
        self.take_victims()
        for key in KEYS:
            assert self.table.state(key) == self.oracle.state(key)
        for guard, ask in self.pairs:
            assert (guard.waits_at is not None) == (ask.waits is not None)
            assert (guard.ending is not None) == ask.lost
            assert set(guard.skipped) == set(ask.skipped)
            assert guard.txn == ask.txn
            if ask.waits is not None:
                assert self.table.waits_for(guard) is not None
        check_invariants(self.table)

    def take_victims(self) -> None:
        """Let the oracle check the deadlocks, and see to it that none is left."""
        reports: dict[Any, TxnDeadlock] = {}
        for guard in self.table.woken:
            if isinstance(guard.ending, TxnDeadlock):
                reports[guard.ending.victim.id] = guard.ending
        self.table.woken.clear()
        if self.table.searches:
            for report in reports.values():
                self.oracle.lose(report, self.known())
            self.table.go_on_searching()
            self.take_victims()
            return
        known = self.known()
        cycles = self.oracle.cycles()
        if len(cycles) == 1 and self.steps == Lockstep.steps:
            assert len(reports) == self.detect
        for report in reports.values():
            self.oracle.lose(report, known)
        if self.detect:
            assert self.oracle.cycles() == []

    def known(self) -> dict[Any, Txn]:
        """The transactions that the table knows."""
        return {i: txn_state.txn for i, txn_state in self.table._waits.active.items()}


class LockstepInSmallTurns(Lockstep):
    """A turn looks at one edge only: searches go on while the table changes, before all is compared."""

    steps = 1

    def __init__(self) -> None:
        super().__init__()
        self.rest = 0
        self.spread = 0

    @invariant()
    def same(self) -> None:
        """Compare; but let some operations come before a search is over."""
        self.rest = (self.rest + 1) % 4
        if self.rest and self.table.searches:
            self.spread += 1
            reports = {
                guard.ending.victim.id: guard.ending
                for guard in self.table.woken
                if isinstance(guard.ending, TxnDeadlock)
            }
            self.table.woken.clear()
            for report in reports.values():
                self.oracle.lose(report, self.known())
        else:
            super().same()


class LockstepWithoutDetection(Lockstep):
    """Deadlocks stay until somebody pushes."""

    detect = False

    @rule(number=st.sampled_from(IDS))
    def push(self, number: int) -> None:
        txn = self.txns[number]
        before = [cycle for cycle in self.oracle.cycles() if txn.id in cycle]
        report = self.table.resolve_deadlocks(txn.id)
        assert (report is not None) == bool(before)
        reports = {
            guard.ending.victim.id: guard.ending
            for guard in self.table.woken
            if isinstance(guard.ending, TxnDeadlock)
        }
        self.table.woken.clear()
        known = {i: txn_state.txn for i, txn_state in self.table._waits.active.items()}
        for report in reports.values():
            assert txn.id in report.ids
            self.oracle.lose(report, known)
        assert not [cycle for cycle in self.oracle.cycles() if txn.id in cycle]

    def take_victims(self) -> None:
        assert not any(isinstance(guard.ending, TxnDeadlock) for guard in self.table.woken)
        self.table.woken.clear()


MACHINES = pytest.mark.parametrize(
    "machine", [Lockstep, LockstepInSmallTurns, LockstepWithoutDetection]
)


@pytest.mark.slow
@MACHINES
def test_the_table_is_as_the_obvious_one(machine: type[Lockstep]) -> None:
    """Any operations in any order: states, waits, victims are the same, the invariants hold."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=1000 if EXPLORE else 20,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


SOME_REQUESTS = [
    Request(writes=["a"]),
    Request(writes=["b"]),
    Request(writes=["a", "b"]),
    Request(writes=["c", "a"]),
    Request(writes=[Span("a", "d")]),
    Request(reads=["a"]),
    Request(reads=["b"]),
    Request(reads=["a"], writes=["b"]),
    Request(reads=[Span("a", "d")]),
    Request(reads=["a"], writes=["b", "c"], wait="error"),
    Request(writes=[Span("a", "d")], wait="skip locked"),
]


@MACHINES
@pytest.mark.parametrize("seed", range(300 if EXPLORE else 6))
def test_long_runs_are_as_the_obvious_one(machine: type[Lockstep], seed: int) -> None:
    """Hundreds of operations where there is much contention, from one seed (the test's name)."""
    long_run(machine, seed)


@pytest.mark.explore
@MACHINES
def test_schedules_by_the_hundred(machine: type[Lockstep]) -> None:
    """Many more of them; the seed of one that fails is printed last."""
    for seed in range(1000, 2400 if EXPLORE else 1400):
        print("seed", seed)
        long_run(machine, seed)


def long_run(machine: type[Lockstep], seed: int) -> Lockstep:
    """Carry out random operations, and compare after each."""
    draw = random.Random(seed)
    both = machine()
    both.begin([(draw.randrange(9), draw.choice([None, 1, 2])) for _ in IDS])
    for _ in range(300):
        number, key = draw.choice(IDS), draw.choice(KEYS)
        operation = draw.choices(OPERATIONS, WEIGHTS)[0]
        if operation == "scan" and len(both.pairs) < 12:
            both.scan(number, draw.choice(SOME_REQUESTS))
        elif operation == "acquire":
            both.acquire(number, key, draw.choice([0, 0, 3]), draw.choice(["intent", "update"]))
        elif operation == "finish":
            both.finish(number, Span(key), draw.random() < 0.5, draw.random() < 0.9)
        elif operation == "move":
            both.move(number, Span("a", "d"), draw.randrange(12))
        elif operation == "push" and isinstance(both, LockstepWithoutDetection):
            both.push(number)
        elif both.pairs and operation == "rescan":
            both.rescan(draw.randrange(99), draw.choice([0, 0, 0, 1]))
        elif both.pairs and operation == "discover":
            both.discover(draw.randrange(99), number, key)
        elif both.pairs and operation == "dequeue":
            both.dequeue(draw.randrange(99))
        both.same()
    return both


OPERATIONS = ["scan", "acquire", "finish", "move", "push", "rescan", "discover", "dequeue"]
WEIGHTS = [8, 5, 6, 1, 1, 8, 1, 3]


# --- The checkers can fail ----------------------------------------------------------------------


class ReadsPastItsOwnTimestamp(Lines):
    """A reader at exactly the intent's timestamp goes on."""

    def in_the_way(self, lock: KeyLock, guard: Guard, writes: bool) -> Txn | None:
        same = lock.holder is not None and lock.holder.timestamp == guard.txn.timestamp
        return None if same and not writes else super().in_the_way(lock, guard, writes)


class KeepsReservations(Lines):
    """A younger request's reservation is not taken by an older one."""

    def in_the_way(self, lock: KeyLock, guard: Guard, writes: bool) -> Txn | None:
        other = lock.reservation
        if writes and other is not None and other.txn.id != guard.txn.id:
            return other.txn
        return super().in_the_way(lock, guard, writes)


class WaitsForUpdates(Lines):
    """A reader waits for a lock that nothing was written under."""

    def in_the_way(self, lock: KeyLock, guard: Guard, writes: bool) -> Txn | None:
        holder = lock.holder
        if holder is not None and holder.id != guard.txn.id and lock.strength == "update":
            return holder
        return super().in_the_way(lock, guard, writes)


class QueuesWhoDoesNotWait(LockStates):
    """A request that leaves locked keys out stands in line for them."""

    def _pass_by(self, guard: Guard, parts: Any) -> None:
        super()._pass_by(guard, parts)
        for writes, locks in parts:
            for lock in locks:
                if writes and lock.key in guard.skipped:
                    self._lines.take_place(lock, guard)


class ForgetsWhoRoams(LockStates):
    """Looks at the front of each queue only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._deadlocks.__class__ = AtTheFront


class AtTheFront(Deadlocks):
    """A search that knows holders and reservations only."""

    def _look_ahead(self, *_: Any) -> bool:
        return True


class SearchesTooLittle(LockStates):
    """Looks for deadlocks only when somebody begins to wait."""

    def acquire_lock(self, key: Any, txn: Txn, strength: Strength = "intent") -> None:
        self._detect, before = False, self._detect
        super().acquire_lock(key, txn, strength)
        self._detect = before


@pytest.mark.parametrize(
    "wrong",
    [
        ReadsPastItsOwnTimestamp,
        KeepsReservations,
        WaitsForUpdates,
        SearchesTooLittle,
        QueuesWhoDoesNotWait,
        ForgetsWhoRoams,
    ],
)
def test_a_wrong_table_is_caught(wrong: type[Any]) -> None:
    """By the comparison with the oracle, within a few runs."""

    class Wrong(LockstepInSmallTurns):
        kind = wrong if issubclass(wrong, LockStates) else LockStates
        lines = wrong if issubclass(wrong, Lines) else Lines

    def runs() -> None:
        for seed in range(60):
            long_run(Wrong, seed)

    with pytest.raises(AssertionError):
        runs()


def test_searches_are_spread_over_turns_in_these_runs() -> None:
    """Or the small turns would prove little."""
    spread = 0
    for seed in range(6):
        machine = long_run(LockstepInSmallTurns, seed)
        assert isinstance(machine, LockstepInSmallTurns)
        spread += machine.spread
    assert spread > 20


def two_writers() -> tuple[LockStates, KeyLock]:
    """A key that is held, a reader and two writers that wait for it."""
    table = LockStates()
    table.acquire_lock("a", Txn(1, 10))
    for number, request in ((2, Request(reads=["a"])), (3, Request(writes=["a"]))):
        table.scan_and_enqueue(request, Txn(number, 20))
    table.scan_and_enqueue(Request(writes=["a"]), Txn(4, 20))
    check_invariants(table)
    lock = table._locks.get("a")
    assert lock is not None
    return table, lock


BROKEN: dict[str, Callable[[LockStates, KeyLock], object]] = {
    "holder and reservation": lambda table, lock: setattr(lock, "reservation", lock.queue[0]),
    "neither": lambda table, lock: setattr(lock, "holder", None),
    "readers without a holder": lambda table, lock: (
        setattr(lock, "holder", None), setattr(lock, "reservation", lock.queue.pop(0))),
    "order": lambda table, lock: lock.queue.reverse(),
    "twice": lambda table, lock: lock.queue.append(lock.queue[-1]),
    "waits for itself": lambda table, lock: setattr(lock, "holder", Txn(3, 10)),
    "a reader without a reason": lambda table, lock: setattr(lock, "holder", Txn(1, 21)),
    "waits nowhere": lambda table, lock: lock.readers.clear(),
    "does not wait": lambda table, lock: setattr(lock.queue[0], "waits_at", None),
    "a lost place": lambda table, lock: lock.queue[0].places.clear(),
    "a forgotten lock": lambda table, lock: table._waits.active[1].held.clear(),
    "a wrong count": lambda table, lock: setattr(table._waits.active[1], "contended", 0),
    "roams without a reason": lambda table, lock: lock.roaming.append(lock.queue[0]),
    "left over": lambda table, lock: table._waits.activate(Txn(9, 9)),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_invariant_is_caught(fault: str) -> None:
    """Each of them."""
    table, lock = two_writers()
    BROKEN[fault](table, lock)
    with pytest.raises(AssertionError):
        check_invariants(table)
