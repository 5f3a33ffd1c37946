"""Thousands of rows: views, queues, lock infos and grants between real processes.

A lock server that is a process of its own lives through all of it, and so does every connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import locks
from tests.cluster.harness import Server, World
from tests.cluster.nodes import A, News, Nodes, until_members
from tests.cluster.test_clients import program_of
from tests.helpers import LIMIT, eventually

HOLDER, ME = "holder@127.0.0.1", "me@127.0.0.1"
TABLE = ("t",)
ROWS = 12_000


class Place:
    """A lock server that is a process, and two programs that use it."""

    def __init__(self, world: World, nodes: Nodes) -> None:
        self.server: Server = world.server(A, net_ticktime=60)
        self.holder, self.me = [
            nodes.start(name, peers=[self.server.peer], mesh=False, net_ticktime=60)
            for name in (HOLDER, ME)
        ]
        for node in (self.holder, self.me):
            until_members(node, A)
        self.news = News(self.holder, self.me)
        self.agent = self.holder.spawn_agent(threading.current_thread())

    def lock(self, rows: int, key: Callable[[int], Any] = int) -> None:
        """The holder locks rows of the table."""
        for start in range(0, rows, 1000):
            ids = [(*TABLE, key(row)) for row in range(start, min(start + 1000, rows))]
            self.agent.lock_all([(lock_id, "write", (A,), "all") for lock_id in ids], LIMIT)

    def check(self) -> None:
        """The server lives, no connection was lost, and the holder has what it has."""
        assert self.server.process.poll() is None
        assert self.news.told == []
        self.agent.ensure_held()


KEYS: dict[str, Callable[[int], Any]] = {
    "int": int,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "first", "rows"),
    [
        ("int", True, ROWS // 2),
        *(
            pytest.param(kind, first, ROWS, marks=pytest.mark.explore)
            for kind in KEYS
            for first in (True, False)
        ),
    ],
)
def test_a_watch_of_a_table_with_thousands_of_rows(
    world: World, nodes: Nodes, kind: str, first: bool, rows: int
) -> None:
    """The watcher is told whole views, in order, and in the end all rows (issue 15, point 1)."""
    place = Place(world, nodes)
    told: list[tuple[int, int]] = []  # of each view how many rows it has, and its version
    last: list[locks.values.View] = []

    def watcher(view: locks.values.View) -> None:
        told.append((len(view.requests), view.version))
        last[:] = [view]

    def watch() -> None:
        with program_of(place.me):
            locks.watch(TABLE, [A], watcher=watcher)

    if first:
        watch()
    place.lock(rows, KEYS[kind])
    if not first:
        watch()
    eventually(lambda: told and told[-1][0] == rows)
    ids = [contender.lock_id for contender in last[0].requests]
    assert ids == [(*TABLE, KEYS[kind](row)) for row in range(rows)]
    assert told == sorted(told)  # each is a view that the table had later than the one before
    place.check()
    place.agent.end_transaction()
    eventually(lambda: told[-1][0] == 0)
    assert place.news.told == []


@pytest.mark.explore
def test_12000_rows_that_are_granted_at_once(world: World, nodes: Nodes) -> None:
    """They waited for the table lock of another program; they are told in parts."""
    place = Place(world, nodes)
    place.agent.lock_all([(TABLE, "write", (A,), "all")], LIMIT)
    agent = place.me.spawn_agent(threading.current_thread())
    wanted: list[Any] = [((*TABLE, row), "write", (A,), "all") for row in range(ROWS)]
    agent.ask_for(wanted)
    place.agent.end_transaction()
    assert agent.await_all(LIMIT).status == "have_all_locks"
    assert all(info.held for info in agent.lock_info())
    assert place.news.told == []


@pytest.mark.explore
def test_a_deadlock_between_a_table_and_its_12000_rows(world: World, nodes: Nodes) -> None:
    """Each agent waits for the other one, over thousands of edges; one of them yields."""
    place = Place(world, nodes)
    place.lock(ROWS)
    other = ("other",)
    agent = place.me.spawn_agent(threading.current_thread())
    agent.lock_all([(other, "write", (A,), "all")], LIMIT)
    agent.ask_for([(TABLE, "write", (A,), "all")])
    place.agent.ask_for([(other, "write", (A,), "all")])
    done = place.agent.await_all(LIMIT)
    assert done.status == "have_all_locks"
    assert [report.agent for report in done.deadlocks] == [agent.id]
    place.check()
    place.agent.end_transaction()
    assert agent.await_all(LIMIT).status == "have_all_locks"
    assert place.news.told == []
