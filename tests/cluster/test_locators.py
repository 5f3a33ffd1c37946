"""Servers whose addresses may change: a locator knows them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import gevent
import pytest

import locks
from locks.net.addresses import Locator
from locks.net.book import Finder
from locks.net.notices import Notices
from locks.program import default, meeting
from tests.cluster.harness import COOKIE, World
from tests.cluster.servers import LIMIT
from tests.helpers import eventually, free_port

NAME, OTHER = "a@127.0.0.1", "b@127.0.0.1"


@pytest.fixture(autouse=True)
def node_ends() -> Iterator[None]:
    """The program's node, if a test has started it, ends with that."""
    yield
    locks.stop()


class Source:
    """Returns what it was given, and counts how often it was asked.

    Args:
        found: The addresses; an exception is raised.
        names: The servers.
    """

    def __init__(self, found: Any, *names: str) -> None:
        self.found = found
        self.names = names or (NAME,)
        self.threads: list[int] = []

    def find(self) -> Mapping[str, tuple[str, int]]:
        """The addresses."""
        self.threads.append(threading.get_ident())
        if isinstance(self.found, Exception):
            raise self.found
        found: Mapping[str, tuple[str, int]] = self.found
        return found

    def describe(self) -> str:
        """What it is."""
        return "the test's source"


def test_a_server_that_moves_is_found_again() -> None:
    """Locks are taken where the locator says; when the server is lost, at its new address. Never asked in the hub."""
    port = free_port()
    with World() as world:
        first = world.server(NAME, port=port)
        assert first.address
        source = Source({NAME: ("127.0.0.1", port)})
        assert isinstance(source, Locator)
        default.start(servers=source, cookie=COOKIE)
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
    """It asks again; in the end the error names the locator, and the servers without an address."""
    monkeypatch.setattr(meeting, "AGAIN", 0.01)
    monkeypatch.setattr(default, "CONNECTED_WITHIN", 0.05)
    source = Source(OSError("no route"), NAME, OTHER)
    told = "^timed out after 0.05 s searching for the servers with the test's source: "
    with pytest.raises(locks.errors.OperatingError, match=f"{told}no route$"):
        default.start(servers=source, cookie=COOKIE)
    assert len(source.threads) > 1
    source.found = {NAME: ("127.0.0.1", 1)}
    with pytest.raises(locks.errors.OperatingError, match=f"{told}no address of {OTHER}$"):
        default.start(servers=source, cookie=COOKIE)

    with World() as world:
        servers = [world.server(name) for name in (NAME, OTHER)]

        def later() -> None:
            asked = len(source.threads)
            eventually(lambda: len(source.threads) > asked + 3)
            source.found = {server.name: server.address for server in servers}

        monkeypatch.setattr(default, "CONNECTED_WITHIN", LIMIT)
        thread = threading.Thread(target=later)
        thread.start()
        node = default.start(servers=source, cookie=COOKIE)
        thread.join()
    assert node.servers is not None
    assert node.servers.nodes == (NAME, OTHER)


def test_a_locator_that_fails_is_logged_and_asked_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Meanwhile servers are where they were. It is asked once a second at most, whoever wants to know."""
    notices = Notices(lambda function, *args: (function(*args), True)[1])
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


def test_other_greenlets_run_while_a_locator_is_asked() -> None:
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

    greenlet = gevent.spawn(tick)
    with World() as world:
        default.start(servers=Slow({NAME: world.server(NAME).address}), cookie=COOKIE)
    greenlet.kill()
