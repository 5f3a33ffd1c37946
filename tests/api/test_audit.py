"""The logger `locks.audit`: who held what from when to when. It is off, and then it costs nothing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import locks
import locks_leader
from benchmarks.calls import count
from locks.node.observing import audit
from locks.program.default import default_node
from locks.program.server_log import JsonFormatter
from locks.runtime.logs import AUDITED, EVENTS, log_event
from tests.api.test_logs import deadlock
from tests.helpers import eventually

Line = dict[str, Any]
LOGGER = logging.getLogger("locks.audit")


class Lines(logging.Handler):
    """Keeps the lines as JSON objects."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.lines.append(json.loads(self.format(record)))

    def of(self, *events: str) -> list[Line]:
        """The lines of some events, when all that was done before is written."""
        written = threading.Event()
        default_node().executor.run_soon(written.set)
        assert written.wait(60)
        return [each for each in self.lines if each["event"] in events]


@contextmanager
def audited(level: int = logging.INFO, handler: Lines | None = None) -> Iterator[Lines]:
    """While the logger is on."""
    lines = handler or Lines()
    LOGGER.addHandler(lines)
    LOGGER.setLevel(level)
    try:
        yield lines
    finally:
        LOGGER.setLevel(logging.NOTSET)
        LOGGER.removeHandler(lines)


def test_who_held_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lock has a line when it is released, with the client and both times; one that lasts has one before."""
    monkeypatch.setattr(audit, "LOOK", 0.1)
    with audited() as lines:
        with locks.transaction(label="first") as tx:
            tx.write_lock(("a",))
            tx.read_lock(("b", 17))
            tx.unlock(("b", 17))
        agent, _ = locks.original.begin_transaction([(("c",), "write")], label="second")
        eventually(lambda: lines.of("holds"))
        held, (holds,) = lines.of("held"), lines.of("holds")
        assert [(each["lock"], each["mode"], each["ended"]) for each in held] == [
            *(("b/17", "read", "released"), ("a", "write", "released")),
        ]
        assert (holds["lock"], holds["agent"]) == ("c", str(agent.id))
        for line in (*held, holds):
            assert line.keys() >= EVENTS[line["event"]].fields.keys()
            assert (line["logger"], line["level"]) == ("locks.audit", "INFO")
            assert (line["node"], line["address"]) == (default_node().name, "")
        assert [each["client"].split(" (")[0] for each in (*held, holds)] == [
            *("first", "first", "second"),
        ]
        assert all(each["since"] <= each["until"] <= holds["time"] for each in held)
        assert all(each["seconds"] >= 0 for each in held)
        locks.original.end_transaction(agent)
        assert lines.of("held")[-1]["number"] == holds["number"]
        assert lines.of("held")[-1]["since"][:22] == holds["since"][:22]


def test_what_happens_to_transactions() -> None:
    """Deadlocks, with the lock that was surrendered or released; and who broke a transaction, whatever levels the other loggers have."""
    logging.getLogger("locks.losses").setLevel(logging.CRITICAL)
    try:
        with audited() as lines:
            deadlock()
            agent, _ = locks.original.begin_transaction([(("a",), "write")])
            locks.facts.break_transaction(agent, reason="it sleeps", by="an operator")
            (broken,) = lines.of("broken")
            (resolved,) = lines.of("deadlock")
    finally:
        logging.getLogger("locks.losses").setLevel(logging.NOTSET)
    assert resolved["action"] == "aborted"
    assert "waits for write" in resolved["report"]
    assert (broken["agent"], broken["by"], broken["reason"]) == (
        *(str(agent.id), "an operator", "it sleeps"),
    )
    assert [each["ended"] for each in lines.of("held") if each["lock"] == "a"] == ["released"]


@pytest.mark.usefixtures("here")
def test_a_leader() -> None:
    """It has a line as soon as it leads."""
    with audited() as lines:
        election = locks_leader.Election("chief")
        election.start()
        eventually(lambda: election.leadership)
        (holds,) = lines.of("holds")
        assert "chief" in holds["lock"]
        election.stop()


def test_events_of_others() -> None:
    """What happens to servers has a line here, too, and one in the other logger as before."""
    with audited() as lines:
        for event in AUDITED:
            log_event(event, "%s: it happens", "a@b", **dict.fromkeys(EVENTS[event].fields, "x"))
    assert [each["event"] for each in lines.lines] == list(AUDITED)
    assert {each["logger"] for each in lines.lines} == {"locks.audit"}


@pytest.mark.parametrize("level", [logging.NOTSET, logging.WARNING])
def test_it_is_off(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Without a level of its own it is off, also in a program that logs all; then a lock stays thin."""
    caplog.set_level(logging.DEBUG)
    default_node().thin.pause = 0
    with audited(level) as lines:
        with locks.transaction() as tx:
            tx.write_lock(("a",))
            assert tx.agent in default_node().thin.agents
        locks.run_transaction(lambda tx: [tx.write_lock((each,)) for each in "ab"])
        assert not lines.of("held", "holds")
    assert not [each for each in caplog.records if each.name == "locks.audit"]


def test_what_it_costs() -> None:
    """A lock takes some calls more while the logger is on; while it is off, none."""
    lock = locks.Lock(("a",))

    def pair() -> None:
        lock.acquire()
        lock.release()

    locks.start().thin.usable = False  # a server has no thin locks
    pair()
    without, _ = count(pair)
    with audited():
        python, _ = count(pair)
    assert python - without <= 25
    assert count(pair)[0] == without


class Blocked(Lines):
    """Blocks at its first line."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Wait, and keep one."""
        self.go_on.wait()
        super().emit(record)


def test_a_handler_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock waits for it. Too many lines are left out, and counted."""
    monkeypatch.setattr(audit, "MOST_LINES", 2)
    blocked = Blocked()
    with audited(handler=blocked) as lines:
        for _ in range(10):
            locks.run_transaction(lambda tx: tx.write_lock(("a",)))
        blocked.go_on.set()
        eventually(lambda: lines.of("audit_left_out"))
        locks.run_transaction(lambda tx: tx.write_lock(("b",)))
        left = sum(each["count"] for each in lines.of("audit_left_out"))
        assert len(lines.of("held")) == 11 - left
        assert left >= 7
        assert lines.of("held")[-1]["lock"] == "b"
