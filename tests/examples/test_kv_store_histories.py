"""Transactions of the example store, in every order, are as if they had run one by one."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.kv_store import ReadCache, Restart, Store, Transaction, TxnDeadlockAborted
from examples.kv_store.sessions import Session, settle
from locks.mvcc import Span
from tests.examples.kv_oracle import Record, Step, complaints, content, judge, perform
from tests.helpers import EXPLORE

KEYS = "abc"
KINDS = ["get", "put", "put", "append", "append", "scan", "delete"]
READS = {"get": "get", "scan": "scan", "put": "get", "append": "get", "delete": "scan"}


class Program(NamedTuple):
    """What a client does: its steps, and for a snapshot how far it looks back."""

    steps: list[Step]
    back: int | None = None


def random_program(rng: random.Random) -> Program:
    """Return a few random steps; now and then of a snapshot."""
    steps = [
        Step(rng.choice(KINDS), rng.choice(KEYS), rng.randint(0, 2))
        for _ in range(rng.randint(1, 5))
    ]
    return Program(steps, rng.randint(0, 5) if rng.random() < 0.2 else None)


# --- Interleaved step by step, in an order that the test chooses ----------------------------------


class Runner:
    """Runs a program in a session, again after each abort, step by step."""

    def __init__(self, store: Store, name: str, program: Program, give_up: bool) -> None:
        self.session = Session(store, name)
        self.steps, self.back = program
        if self.back is not None:
            self.steps = [step._replace(kind=READS[step.kind]) for step in self.steps]
        self.give_up = give_up  # aborts the first attempt by itself, at its end
        self.attempt = 0
        self.finished = False
        self.record: Record | None = None

    def begin(self, store: Store, committed: int) -> None:
        """Begin a transaction, or a snapshot."""
        at = None
        if self.back is not None:
            at = max(store.storage.number("oldest"), store.oracle.last - self.back)
        self.session.tx = tx = store.begin(at=at, priority=self.attempt)
        self.record = Record(str(tx.id), tx.timestamp, tx.read_only, committed)

    def step(self, committed: int) -> None:
        """Begin, do the next step, or end."""
        session, record = self.session, self.record
        if record is None:
            self.begin(session.store, committed)
            return
        tx = session.tx
        assert tx is not None
        if len(record.done) < len(self.steps):
            step = self.steps[len(record.done)]
            session.start(lambda: perform(tx, step, record) or "done")
        elif self.give_up and self.attempt == 0:
            session.start(lambda: tx.abort() or "gave up")
        else:
            session.start(lambda: tx.commit() or "committed")

    def heed(self, records: list[Record], counted: Counter[str]) -> None:
        """Take notice of what the last step led to."""
        result = self.session.take_result()
        if result == "committed":
            assert self.record is not None
            assert self.session.tx is not None
            self.record.timestamp = self.session.tx.timestamp
            records.append(self.record)
            counted["retried, then committed"] += self.attempt > 0
            self.finished = True
        elif result == "gave up" or isinstance(result, (TxnDeadlockAborted, Restart)):
            counted[str(type(result).__name__)] += 1
            self.record = None
            self.attempt += 1
            self.finished = self.attempt > 5
        elif isinstance(result, Exception):
            raise result


def filled(store: Store) -> Record:
    """Give each key a value to begin with."""
    with store.begin() as tx:
        record = Record(str(tx.id), tx.timestamp)
        for key in KEYS:
            perform(tx, Step("put", key), record)
    return record


def play(
    store: Store,
    programs: list[Program],
    choose: Callable[[int], int],
    give_up: int = 0,
    vacuum: bool = False,
) -> tuple[list[Record], Counter[str]]:
    """Run programs side by side.

    Args:
        store: The store.
        programs: What each client does.
        choose: Called with a number n: which of n clients goes on next.
        give_up: How many of them abort their first attempt themselves.
        vacuum: Whether all old versions that nobody needs are removed after each step.
    """
    records = [filled(store)]
    counted: Counter[str] = Counter()
    runners = [
        Runner(store, f"client-{n}", program, n < give_up) for n, program in enumerate(programs)
    ]
    try:
        while live := [runner for runner in runners if not runner.finished]:
            ready = [runner for runner in live if not runner.session.busy]
            assert ready, "all wait: a deadlock that was not found"
            counted["waits"] += len(ready) < len(live)
            ready[choose(len(ready))].step(len(records))
            settle(runner.session for runner in runners)
            for runner in live:
                runner.heed(records, counted)
            if vacuum:
                counted["removed"] += store.vacuum(store.oracle.last)
    finally:
        for runner in runners:
            if runner.session.tx is not None:
                runner.session.tx.abort()
        for runner in runners:
            runner.session.stop()
    return records, counted


def left_nothing_behind(store: Store) -> None:
    """See that no transaction, intent, lock or latch is left."""
    assert not store.active
    assert not store.storage.writers("", "\U0010ffff")
    assert not store.latches._line
    assert not store.table.statistics().held


steps = st.builds(Step, st.sampled_from(KINDS), st.sampled_from(KEYS), st.integers(0, 2))
programs = st.builds(
    Program, st.lists(steps, min_size=1, max_size=5), st.none() | st.integers(0, 5)
)


@pytest.mark.slow
@given(
    st.lists(programs, min_size=2, max_size=4),
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(0, 1),
    st.booleans(),
)
def test_histories_are_serialisable(
    some: list[Program], order: list[int], give_up: int, vacuum: bool
) -> None:
    """Whatever they do, and in whatever order: all is as if they had run one after the other."""
    turns = iter(order)
    with Store() as store:
        records, _ = play(store, some, lambda n: next(turns, 0) % n, give_up, vacuum)
        judge(records, store)
        left_nothing_behind(store)


def games(number: int, seed: int) -> Iterator[tuple[int, random.Random]]:
    """Yield seeds, each with its generator."""
    for each in range(seed, seed + number):
        yield each, random.Random(each)


def random_game(store: Store, rng: random.Random) -> tuple[list[Record], Counter[str]]:
    """Run a random game of some clients."""
    some = [random_program(rng) for _ in range(rng.randint(2, 4))]
    return play(store, some, rng.randrange, rng.randint(0, 1), rng.random() < 0.3)


@pytest.mark.explore
def test_random_histories_have_deadlocks_and_retries_in_them() -> None:
    """The same with chance; all that makes it hard occurs many times, and is not a rare exception.

    The seed of a game that fails is in the message.
    """
    counted: Counter[str] = Counter()
    number = 3000 if EXPLORE else 100
    for seed, rng in games(number, 1000):
        with Store() as store:
            records, seen = random_game(store, rng)
            found = complaints(records, content(store))
            assert not found, f"seed {seed}: {found}"
            left_nothing_behind(store)
            counted += seen + store.counted
    print(counted)
    for what in ("TxnDeadlockAborted", "Restart", "str", "waits", "moved up", "removed"):
        assert counted[what] > number / 20, counted
    assert counted["retried, then committed"] > number / 10, counted


class Forgets(ReadCache):
    """A cache of reads that remembers only some."""

    def __init__(self, remembers: Callable[[int, int], bool]) -> None:
        super().__init__()
        self.remembers = remembers

    def record(self, spans: Sequence[Span], timestamp: int, txn: int) -> None:
        if self.remembers(timestamp, txn):
            super().record(spans, timestamp, txn)


def without_read_cache(store: Store) -> None:
    """Who writes does not look who has read."""
    store.read_cache = Forgets(lambda timestamp, txn: False)


def without_reads_of_snapshots(store: Store) -> None:
    """Who writes does not look which snapshots have read."""
    store.read_cache = Forgets(lambda timestamp, txn: timestamp >= txn)


def without_reads_moved_up(store: Store) -> None:
    """Who moves up does not say that it has read there."""
    store.read_cache = Forgets(lambda timestamp, txn: timestamp <= txn)


def with_careless_vacuum(store: Store) -> None:
    """Versions go that somebody needs who has begun before."""
    store.vacuum = store.storage.vacuum  # type: ignore[method-assign]


def without_validation(store: Store) -> None:
    """Who moves up does not look whether its reads are still the same."""
    store.changed = lambda *_: False  # type: ignore[method-assign]


def without_locks(store: Store) -> None:
    """Readers don't wait for intents below them."""
    scan = store.table.scan_and_enqueue

    def careless(request: Any, txn: Any, guard: Any = None) -> Any:
        must_wait, guard = scan(request, txn, guard)
        return must_wait and not request.is_read_only, guard

    store.table.scan_and_enqueue = careless  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "spoil",
    [
        without_read_cache,
        without_reads_of_snapshots,
        without_reads_moved_up,
        without_validation,
        without_locks,
        with_careless_vacuum,
    ],
)
def test_oracle_finds_what_is_wrong(spoil: Callable[[Store], None]) -> None:
    """Without one of the store's rules there are histories that are not serialisable."""
    for _, rng in games(300, 1000):
        with Store() as store:
            spoil(store)
            records, _ = random_game(store, rng)
            if complaints(records, content(store)):
                return
    pytest.fail("300 games, and nothing was found")


def test_oracle_finds_a_lost_update_and_a_lost_write() -> None:
    """The oracle itself: a history by hand, right, and then with one thing wrong at a time."""
    append, get = Step("append", "a"), Step("get", "a")

    def history(**changes: Any) -> list[str]:
        one = Record("1", 1, begun=0, done=[(append, "None,1.0")])
        two = Record("2", 2, begun=0, done=[(append, changes.get("told", "None,1.0,2.0"))])
        snapshot = Record("3", changes.get("at", 2), True, 0, [(get, "None,1.0,2.0")])
        two.begun = changes.get("begun", 0)
        two.timestamp = changes.get("timestamp", 2)
        return complaints([one, two, snapshot], changes.get("final", {"a": "None,1.0,2.0"}))

    assert history() == []
    assert history(told="None,2.0"), "it has not seen the first one's write"
    assert history(final={}), "nothing is left"
    assert history(at=1), "a snapshot that sees too much"
    assert history(timestamp=1), "two at one timestamp"
    assert history(timestamp=0, begun=1), "begun later, but placed before"


# --- Real threads, and greenlets ------------------------------------------------------------------


def client(store: Store, seed: int, number: int, records: list[Record], pause: Any) -> None:
    """Run random programs one after the other, snapshots among them."""
    rng = random.Random(seed)
    for _ in range(number):
        program = random_program(rng)
        begun = len(records)

        def body(tx: Transaction) -> tuple[Transaction, Record]:
            record = Record(str(tx.id), begun=begun)  # noqa: B023
            for step in program.steps:  # noqa: B023
                perform(tx, step, record)
                pause(0)
            return tx, record

        if rng.random() < 0.2:
            at = rng.randint(max(0, store.oracle.last - 10), store.oracle.last)
            with store.begin(at=at) as tx:
                record = Record(str(tx.id), read_only=True)
                for key in KEYS:
                    perform(tx, Step("get", key), record)
        else:
            tx, record = store.run(body)
        record.timestamp = tx.timestamp
        records.append(record)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 if EXPLORE else 1))
def test_threads_are_serialisable(seed: int) -> None:
    """Eight threads on four keys, as fast as they can; the seed is the test's parameter."""
    run_threads(seed, 400 if EXPLORE else 150)


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(100, 105))
def test_thousands_of_commits_are_serialisable(seed: int) -> None:
    """The same for longer."""
    run_threads(seed, 400)


def run_threads(seed: int, number: int) -> None:
    """Let eight threads commit so many transactions each, and judge all of them."""
    with Store() as store:
        records: list[Record] = []
        threads = [
            threading.Thread(
                target=client, args=(store, 100 * seed + n, number, records, time.sleep)
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(records) == 8 * number
        judge(records, store)
        left_nothing_behind(store)
        assert store.counted["deadlocks"] + store.counted["restarts"] > 0
