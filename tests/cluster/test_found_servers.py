"""Servers that are found: a source of one's own in the place of a list."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import gevent
import pytest

import locks
from locks.otp.names.ways import Finder, found_by
from locks.otp.notices import Notices
from locks.program import discovering
from tests.cluster.harness import COOKIE, World
from tests.helpers import eventually, free_port

NAME = "a@127.0.0.1"


@pytest.fixture(autouse=True)
def node_ends() -> Iterator[None]:
    """The program's node, if a test has started it, ends with that."""
    yield
    locks.stop()


class Source:
    """Says what it was given, and counts how often it was asked.

    Args:
        found: What it says; an exception is raised.
        size: How many servers there are to be.
    """

    def __init__(self, found: Any, size: int = 1) -> None:
        self.found = found
        self.size = size
        self.threads: list[int] = []

    def find(self) -> Mapping[str, tuple[str, int]]:
        """What it says."""
        self.threads.append(threading.get_ident())
        if isinstance(self.found, Exception):
            raise self.found
        found: Mapping[str, tuple[str, int]] = self.found
        return found

    def describe(self) -> str:
        """What it is."""
        return "the test's source"


def test_a_server_that_moves_is_found_again() -> None:
    """Locks are taken where the source says; when the server is lost, at its new address. Never asked in the hub."""
    port = free_port()
    with World() as world:
        first = world.server(NAME, port=port)
        assert first.address
        source = Source({NAME: ("127.0.0.1", port)})
        assert isinstance(source, locks.node.Discovery)
        locks.start(servers=source, cookie=COOKIE)
        with locks.transaction(timeout=30) as tx:
            before = tx.write_lock(("a",))
        assert len(source.threads) == 1
        first.kill()
        second = world.server(NAME, port=0)
        source.found = {NAME: second.address}
        with locks.transaction(timeout=30, await_nodes=True) as tx:
            assert tx.write_lock(("a",)) > before
        assert threading.get_ident() not in source.threads


def test_start_waits_until_all_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again; in the end it says who was asked, and what was said."""
    monkeypatch.setattr(discovering, "AGAIN", 0.01)
    source = Source(OSError("no route"), size=2)

    def later() -> None:
        eventually(lambda: len(source.threads) > 1)
        source.found = {NAME: ("127.0.0.1", 9100)}
        eventually(lambda: len(source.threads) > 3)
        source.found = {NAME: ("127.0.0.1", 9100), "b@127.0.0.1": ("127.0.0.1", 9101)}

    thread = threading.Thread(target=later)
    thread.start()
    assert set(discovering.find_servers(source, 60)) == {NAME, "b@127.0.0.1"}
    thread.join()
    source.found = {NAME: ("127.0.0.1", 9100)}
    with pytest.raises(
        locks.errors.OperatingError,
        match=r"^timed out after 0.05 s searching for the servers with the test's source: found 1 of 2: a@127.0.0.1$",
    ):
        discovering.find_servers(source, 0.05)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"a@h": ("h", 1), "b@h": ("h", 1)}, "returned 2 servers instead of 1: "),
        ({"a": ("h", 1)}, "is not of the form"),
        ({"a@h": "h:1"}, "returned the address 'h:1' for a@h, which is not a host with a port"),
        ({"a@h": ("h", 0)}, "which is not a host with a port"),
        ({"a@h": ("h", True)}, "which is not a host with a port"),
        ({1: ("h", 1)}, "is not of the form"),
        (None, "returned None instead of a dictionary"),
        (["a@h:1"], "returned \\['a@h:1'\\] instead of a dictionary"),
    ],
)
def test_what_a_source_says_is_checked(found: Any, said: str) -> None:
    """It is foreign code: names, addresses, and how many."""
    with pytest.raises(locks.errors.InvalidOption, match=said):
        found_by(Source(found))


@pytest.mark.parametrize("size", [0, -1, 100, "3", 1.0, True, None])
def test_how_many_a_source_wants_is_checked(size: Any) -> None:
    """With none, a program would go on with locks of its own."""
    with pytest.raises(locks.errors.InvalidOption, match=r"is .*; it must be 1 to 99"):
        locks.start(servers=Source({}, size), cookie="x" * 16)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), "5", None, True])
def test_how_often_a_source_is_to_be_asked_is_checked(interval: Any) -> None:
    """Without a pause it would be asked all the time, and with a wrong one never."""
    source = Source({NAME: ("127.0.0.1", 9100)})
    source.interval = interval  # type: ignore[attr-defined]
    with pytest.raises(locks.errors.InvalidOption, match="it must be a number of seconds > 0"):
        locks.start(servers=source, cookie="x" * 16)


def test_a_source_that_fails_is_logged_and_asked_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Meanwhile servers are where they were. It is asked once a second at most, whoever wants to know."""
    notices = Notices(lambda function, *args: function(*args))
    address = ("127.0.0.1", 9100)
    source = Source(ValueError("a fault"))
    finder = Finder("me@h", source, {NAME: address}, notices)
    assert finder.address_of(NAME) == address
    assert not source.threads  # what it was started with is good for once
    with caplog.at_level(logging.WARNING, "locks"):
        for _ in range(3):
            assert finder.address_of(NAME) == address
    assert len(source.threads) == 1
    (record,) = caplog.records
    assert record.getMessage() == "me@h can't find its servers with the test's source: a fault"
    assert record.exc_info


def test_other_greenlets_run_while_a_source_is_asked() -> None:
    """It may block: it has a thread of its own."""
    ticks: list[float] = []

    def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            gevent.sleep(0.001)

    class Slow(Source):
        def find(self) -> Mapping[str, tuple[str, int]]:
            eventually(lambda: len(ticks) > 5)
            return super().find()

    source = Slow({NAME: ("127.0.0.1", 9100)})
    greenlet = gevent.spawn(tick)
    assert discovering.find_servers(source, 60) == source.found
    greenlet.kill()
