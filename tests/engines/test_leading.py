"""The marks of a leader: what its successor knows, also of the last moment before its death."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import locks
from locks.engines.leading import Leading
from locks.node.marks import memory_of
from locks.shapes.once import MarkAsker
from tests.helpers import eventually

ID = ("test of leading",)


@pytest.fixture(autouse=True)
def no_node() -> Iterator[None]:
    """The node of this process, if a test starts it, is stopped: other tests have one of their own."""
    yield
    locks.stop()


class Deaf(Leading):
    """A participant that is told of no marks: its messages are on their way when the leader dies."""

    def _told(self, view: Any) -> None:
        pass


def test_a_successor_that_was_told_of_no_mark_knows_the_last_work() -> None:
    """What was set with `ran` outlives the leader; also what the next leader has only read outlives that one."""
    one, two, three = Leading(ID, "one"), Deaf(ID, "two"), Deaf(ID, "three")
    two.follow()
    assert one.lead(None)
    assert one.latest("x") is None
    one.ran("x", 10)
    one.ran("x", 20)
    one.mark({"y": 5})
    one.give_up()
    assert two.lead(None)
    assert not two.marks
    assert (two.latest("x"), two.latest("y")) == (20, None)
    two.give_up()
    assert three.lead(None)
    assert three.latest("x") == 20
    three.ran("x", 30)
    assert three.latest("x") == 30
    three.give_up()
    assert two.lead(None)
    assert two.latest("x") == 30
    two.give_up()


def test_servers_keep_one_mark_for_each_work() -> None:
    """A job that runs every second does not fill the memory of the servers."""
    one = Leading(ID, "one")
    assert one.lead(None)
    for until in range(1, 50):
        one.ran("x", until)
    node: Any = one._agent.node  # type: ignore[union-attr]
    assert len(memory_of(node)._marks) == 1
    one.give_up()


def test_servers_that_can_not_keep_it_do_not_stop_the_leader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Old servers, or those that have lost their memory: a warning says what may be repeated, and the marks are as without it."""

    def read(self: MarkAsker, timeout: float) -> None:
        raise locks.CannotServe("a@127.0.0.1 runs an older version", lock_id=ID, nodes=[])

    monkeypatch.setattr(MarkAsker, "read", read)
    one = Leading(ID, "one")
    assert one.lead(None)
    with caplog.at_level(logging.WARNING, "locks.engines"):
        for until in (1, 2):
            one.ran("x", until)
    assert one.latest("x") == 2
    (said,) = caplog.messages
    assert "may be repeated: a@127.0.0.1 runs an older version" in said
    one.give_up()
    with pytest.raises(locks.errors.NotHeld):
        one.ran("x", 3)


def test_who_has_ended_watches_nothing() -> None:
    """One program may begin and end many; and one whose node was stopped watches on the next one."""
    locks.start(servers=locks.HERE)
    before = locks.statistics().watches
    for _ in range(3):
        one = Leading(ID, "one")
        assert one.lead(None)
        one.give_up()
        assert locks.statistics().watches == before + 1
        one.end()
        one.end()
        assert locks.statistics().watches == before
    one.follow()
    locks.stop()
    locks.start(servers=locks.HERE)
    two = Leading(ID, "two")
    assert one.lead(None)
    one.ran("x", 10)
    one.give_up()
    assert two.lead(None)
    two.mark({"y": 20})
    eventually(lambda: one.marks == {"x": 10, "y": 20})
    for each in (one, two):
        each.end()
    assert locks.statistics().watches == before
