"""What is logged: long waits with their holders, deadlocks; each event with its fields."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import locks
from locks.model import AgentId, Deadlock
from locks.node.observing.news import MANY_DEADLOCKS, News
from locks.node.observing.statistics import Counters
from locks.runtime.logs import EVENTS, LOGGERS
from tests.helpers import eventually

ROOT = Path(__file__).parents[2]

X, Y = ("x", 1), ("y",)


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    """The records of an event; each has the fields, the logger and the level that are documented."""
    found = [each for each in caplog.records if getattr(each, "event", None) == event]
    for record in found:
        what = EVENTS[event]
        assert (record.name, record.levelno) == (what.logger, what.level)
        assert what.fields.keys() <= vars(record).keys()
    return found


@contextmanager
def held(*ids: locks.values.LockId) -> Iterator[None]:
    """Another client, "holder", has these ids."""
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.transaction(label="holder") as tx:
            for lock_id in ids:
                tx.write_lock(lock_id)
            ready.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def want(lock_id: locks.values.LockId, label: str = "waiter") -> threading.Thread:
    """Another client waits for an id, gets it, and ends."""

    def run() -> None:
        with locks.transaction(label=label) as tx:
            tx.write_lock(lock_id)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_long_wait(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once with who is in the way, and once more when the lock is there."""
    locks.start(log_waits_longer_than=0.05)
    with held(X):
        thread = want(X)
        eventually(lambda: events(caplog, "wait"))
        later = want(Y)  # another one that begins meanwhile, and need not wait
        later.join()
    thread.join()
    eventually(lambda: events(caplog, "wait_over"))
    (wait,), (over,) = events(caplog, "wait"), events(caplog, "wait_over")
    for record in (wait, over):
        said = vars(record)
        assert (said["client"], said["lock"], said["mode"]) == ("waiter", "x/1", "write")
        assert said["seconds"] >= 0.05
    (holder,) = vars(wait)["holders"]
    assert holder.startswith("holder (")
    assert "holds write x/1 for" in holder
    assert holder in wait.getMessage()
    assert vars(over)["granted"]
    assert "got write x/1" in over.getMessage()


def test_a_wait_that_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Its end says so. A wait for a table names those who have its rows."""
    locks.start(log_waits_longer_than=0.01)
    with (
        held(X, ("x", 2)),
        pytest.raises(locks.LockTimeout),
        locks.transaction(label="table") as tx,
    ):
        tx.lock(("x",), timeout=0.3)
    eventually(lambda: events(caplog, "wait_over"))
    (wait,) = events(caplog, "wait")
    assert len(vars(wait)["holders"]) == 2
    (over,) = events(caplog, "wait_over")
    assert vars(over)["granted"] is False
    assert "stopped waiting for write x" in over.getMessage()
    given_up = locks.statistics().times.given_up
    assert given_up.total == 1
    assert given_up.seconds >= 0.3
    assert locks.statistics().timeouts == 1


def test_short_waits_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said of them; when nobody waits any more, no look is planned."""
    node = locks.start(log_waits_longer_than=0.2)
    with held(X):
        thread = want(X)
        eventually(lambda: locks.statistics().table.waiting)
    thread.join()
    eventually(lambda: node.server.times.look_by == -math.inf)
    assert not caplog.records
    assert locks.statistics().times.waits.total == 1


def test_candidates_of_elections_are_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """They wait for as long as another one leads; who waits for something else is."""
    locks.start(log_waits_longer_than=0.05)
    election = ("$election", "chief")
    with held(election, X):
        threads = [want(election), want(X)]
        eventually(lambda: events(caplog, "wait"))
    for thread in threads:
        thread.join()
    eventually(lambda: events(caplog, "wait_over"))
    told = [*events(caplog, "wait"), *events(caplog, "wait_over")]
    assert {vars(each)["lock"] for each in told} == {"x/1"}


def test_a_crowd_of_long_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Of very many, a hundred are logged in a minute, and how many are left out."""
    locks.start(log_waits_longer_than=0.01)
    with held(X):
        owners = [locks.Owner(f"client {n}") for n in range(130)]
        for owner in owners:
            agent = locks.original.spawn_agent(client=owner)
            agent.ask_for([(X, "write", (agent.node.name,), "all")])
        eventually(lambda: sum(vars(e)["count"] for e in events(caplog, "waits_left_out")) == 30)
        for owner in owners:
            owner.end()
    assert len(events(caplog, "wait")) == 100
    eventually(lambda: len(events(caplog, "wait_over")) >= 100)


def test_a_handler_that_uses_locks(caplog: pytest.LogCaptureFixture) -> None:
    """No lock is held, and no turn taken, while a handler runs: it can ask for what the line is about."""
    seen = []

    class Curious(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(locks.queue(X).holders[0].client)

    handler = Curious()
    logging.getLogger("locks.waits").addHandler(handler)
    try:
        locks.start(log_waits_longer_than=0.02)
        with held(X):
            thread = want(X)
            eventually(lambda: seen)
        thread.join()
    finally:
        logging.getLogger("locks.waits").removeHandler(handler)
    assert seen[0] == "holder"


def deadlock() -> None:
    """Two clients that want each other's lock; the younger one is aborted."""
    both = threading.Barrier(2)

    def client(first: locks.values.LockId, second: locks.values.LockId) -> None:
        agent, _ = locks.original.begin_transaction(abort_on_deadlock=True)
        locks.original.lock(agent, first)
        both.wait()
        with suppress(locks.DeadlockAborted):
            locks.original.lock(agent, second)
            locks.original.end_transaction(agent)

    threads = [
        threading.Thread(target=client, args=(X, Y)),
        threading.Thread(target=client, args=(Y, X)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 1), (logging.DEBUG, 3)])
def test_a_deadlock(caplog: pytest.LogCaptureFixture, level: int, lines: int) -> None:
    """It is logged once, in one line, at DEBUG with its steps; with its report, and counted by what was done."""
    caplog.set_level(level, "locks.deadlocks")
    deadlock()
    eventually(lambda: events(caplog, "deadlock"))
    (record,) = events(caplog, "deadlock")
    assert vars(record)["action"] == "aborted"
    assert "waits for write" in vars(record)["report"]
    assert len(record.getMessage().splitlines()) == lines
    broken = locks.statistics().broken
    assert (broken.surrendered, broken.aborted) == (0, 1)


def test_many_deadlocks_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """One deadlock is normal work: a program that configures no logging hears nothing of it. Of many in a minute, it hears once."""
    caplog.set_level(logging.INFO, "locks.deadlocks")
    deadlock()
    eventually(lambda: events(caplog, "deadlock"))
    report = Deadlock(AgentId(1, "n", 1), X, "n", "aborted", (), "the youngest")
    news = News("n", Soon(), Counters())
    for _ in range(3 * MANY_DEADLOCKS):
        news.broke(report)
    (many,) = events(caplog, "many_deadlocks")
    assert vars(many)["count"] == MANY_DEADLOCKS
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert warnings == [many]


class Soon:
    """What is to be done soon is done at once."""

    def run_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Do it."""
        function(*args)


def test_every_logger_is_documented() -> None:
    """Whatever has a name below `locks` is in the list; events are told by loggers of the list."""
    sources = [*(ROOT / "locks").rglob("*.py"), *(ROOT / "locks_leader").rglob("*.py")]
    sources += (ROOT / "locks_lab").rglob("*.py")
    text = "\n".join(path.read_text() for path in sources)
    assert set(re.findall(r'getLogger\("(locks[\w.]*)"\)', text)) <= LOGGERS.keys()
    assert {event.logger for event in EVENTS.values()} <= LOGGERS.keys()
