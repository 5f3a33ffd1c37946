"""Views of other nodes, page by page: what readers are told, how much waits for them, and what it costs."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import locks
from locks.net.messages import EndRead, Page, Read, Taken, encode
from locks.node.views import sender as view_sender
from locks.ranges import replace
from tests.cluster.nodes import A, B, C, News, Nodes, Peer, until_connected
from tests.cluster.test_clients import program_of
from tests.helpers import SEED, eventually

TABLE = ("t",)


def wanted(*rows: Any, mode: Any = "write") -> list[Any]:
    """Rows of the table of node b."""
    return [((*TABLE, row), mode, (B,), "all") for row in rows]


class Reader(Peer):
    """A peer that reads views, and says itself what it has taken in."""

    def __init__(self, node: locks.node.Node) -> None:
        super().__init__(node.address, node.name, "reader@127.0.0.1")
        self.said = self.messages()
        self.pages = 0

    def watch(self, *lock_id: Any, number: int = 5) -> None:
        """Watch a lock id."""
        self.say(Read(number, lock_id))

    def page(self) -> Page:
        """The next page that comes."""
        for message in self.said:
            if isinstance(message, Page) and message.reading == 5:
                self.pages += 1
                return message
        raise AssertionError("the node has closed the connection")

    def taken(self, page: Page) -> None:
        """Say that a page was taken in."""
        self.say(Taken(page.reading, page.number))


def readings(node: locks.node.Node) -> list[Any]:
    """What is read of a node."""
    assert node.cluster is not None
    return list(node.cluster.readers._readings.values())


def test_a_slow_reader_is_sent_one_page_at_a_time(nodes: Nodes) -> None:
    """What changes meanwhile is told with the pages that follow; the last one is what the table is."""
    b = nodes.start(B)
    agent = b.spawn_agent()
    agent.lock_all(wanted(*range(450)), 20)
    reader = Reader(b)
    reader.watch("t")
    eventually(lambda: b.statistics().watches == 1)
    known: dict[int, Any] = {}
    first = page = reader.page()
    assert page.anew
    assert page.number == 1
    agent.lock_all(wanted(*range(450, 500)), 20)
    for row in range(20):
        agent.release(("t", row))
    (reading,) = readings(b)
    assert reading.sent == 1  # nothing more, until it has taken the first one in
    while True:
        for number in page.gone:
            known.pop(number, None)
        known.update({each.number: each for each in page.requests})
        if page.complete:
            break
        reader.taken(page)
        page = reader.page()
        assert not page.anew
    assert sorted(each.lock_id[1] for each in known.values()) == list(range(20, 500))
    assert page.version == b.server.machine.version
    assert first.reading == page.reading
    reader.close()


def test_a_reader_that_takes_nothing_in_costs_little(nodes: Nodes) -> None:
    """Changes gather, each request once; those that have come and gone make it begin again."""
    b = nodes.start(B)
    agent = b.spawn_agent()
    agent.lock_all([(("other",), "write", (B,), "all")], 20)
    reader = Reader(b)
    reader.watch("t")
    reader.page()
    (reading,) = readings(b)
    for row in range(20 * view_sender.ROOM):  # on a busy machine a page has many changes
        agent.lock_all(wanted(row), 20)
        agent.unlock(("t", row))
        if row >= view_sender.AHEAD + view_sender.ROOM + 100 and reading.anew:
            break
    assert reading.sent <= view_sender.AHEAD + 1
    assert len(reading.due) <= view_sender.ROOM + 2
    assert reading.anew
    agent.lock_all(wanted("last"), 20)
    reader.say(Taken(5, reading.sent))
    while True:
        page = reader.page()
        if page.anew:
            break
    assert [each.lock_id for each in page.requests] == [("t", "last")]
    assert page.complete
    reader.close()


def test_requests_that_are_gone_are_not_kept_for_readers(nodes: Nodes) -> None:
    """What was made for pages goes with the requests, and with the last reader."""
    b = nodes.start(B)
    agent, reader = b.spawn_agent(), Reader(b)
    reader.watch("t")
    encoded = b.cluster.readers._encoded  # type: ignore[union-attr]
    for row in range(20):
        agent.lock_all(wanted(row), 20)
        while not [each for each in reader.page().requests if each.lock_id == ("t", row)]:
            pass
        if row < 19:
            agent.unlock(("t", row))
    assert len(encoded) == 1
    reader.say(EndRead(5))
    eventually(lambda: not encoded)
    reader.close()


def test_watchers_of_one_node_share_a_reading(nodes: Nodes) -> None:
    """There is one for each id that is watched there; each watcher is told, also the late ones."""
    a, b = nodes.meet(A, B)
    told: list[list[locks.values.View]] = [[] for _ in range(5)]
    agent = b.spawn_agent()
    agent.lock_all(wanted(1), 20)
    with program_of(a):
        for views in told:
            locks.watch(TABLE, [B], watcher=views.append)
            eventually(lambda views=views: views and len(views[-1].requests) == 1)  # type: ignore[misc]
        assert len(readings(b)) == 1
        agent.lock_all(wanted(2), 20)
        eventually(lambda: all(len(views[-1].requests) == 2 for views in told))
        assert [len(views) for views in told] == [2] * 5
        for views in told[1:]:
            locks.unwatch(TABLE, [B], watcher=views.append)
        agent.lock_all(wanted(3), 20)
        eventually(lambda: len(told[0]) == 3)
        locks.unwatch(TABLE, [B], watcher=told[0].append)
    eventually(lambda: readings(b) == [])
    assert [len(views) for views in told[1:]] == [2] * 4
    assert b.server.watchers(TABLE) == []


@pytest.mark.parametrize("items", [1, 3, 100])
def test_each_view_is_one_that_there_was(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, items: int
) -> None:
    """Whatever changes while it is read: locks, releases, surrenders, ends of agents."""
    rng = random.Random(SEED)
    monkeypatch.setattr(view_sender, "MOST_ITEMS", items)
    a, b, c = nodes.meet(A, B, C)
    own: list[locks.values.View] = []
    told: dict[str, list[locks.values.View]] = {A: [], C: []}
    with program_of(b):
        locks.watch(TABLE, watcher=own.append)
    for node in (a, c):
        with program_of(node):
            locks.watch(TABLE, [B], watcher=told[node.name].append)
    agents = [b.spawn_agent() for _ in range(4)]
    for _ in range(150):
        number = rng.randrange(len(agents))
        agent = agents[number]
        lock_id = (*TABLE, *rng.choices(range(12), k=rng.randrange(3)))
        what = rng.random()
        if what < 0.6:
            agent.ask_for([(lock_id, rng.choice(["read", "write"]), (B,), "all")])
        elif what < 0.9:
            if agent.asks_for(lock_id):
                agent.unlock(lock_id)
        else:
            agent.end_transaction()
            agents[number] = b.spawn_agent()
    last = b.view(TABLE).requests
    for views in (own, *told.values()):
        eventually(lambda views=views: views and views[-1].requests == last)  # type: ignore[misc]
    there = {view.requests for view in own}
    for name, views in told.items():
        assert {view.requests for view in views} <= there, f"{name}, seed {SEED}"
        versions = [view.version for view in views]
        assert versions == sorted(versions)
    with program_of(a):
        assert locks.queue(TABLE, node=B).requests == last


@pytest.mark.parametrize("wrong", ["number", "form", "too many"])
def test_pages_that_are_wrong_end_the_connection(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """A view could not be relied on any more; it is read anew over the next connection."""
    a, b = nodes.meet(A, B)
    news = News(a)
    views: list[locks.values.View] = []
    with program_of(a):
        locks.watch(TABLE, [B], watcher=views.append)
    eventually(lambda: views)

    def encode_wrong(page: Any) -> bytes:
        if not isinstance(page, Page):  # a request in it
            return encode(page)
        monkeypatch.undo()
        if wrong == "number":
            return encode(replace(page, number=page.number + 1))
        if wrong == "too many":
            return encode(replace(page, gone=(1,) * 101))
        return encode(replace(page, version="version"))

    monkeypatch.setattr(view_sender, "encode", encode_wrong)
    agent = b.spawn_agent()
    agent.lock_all(wanted(1), 20)
    eventually(lambda: news.reasons())
    assert ("view" if wrong == "number" else "invalid message") in news.reasons()[0]
    until_connected(a, B)
    eventually(lambda: len(views[-1].requests) == 1)


def test_a_queue_that_is_not_answered(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs out, or the node is lost: the call says so, and nothing is left behind."""
    a, b = nodes.meet(A, B)
    agent = b.spawn_agent()
    agent.lock_all(wanted(*range(150)), 20)
    with monkeypatch.context() as patched:
        patched.setattr(b.cluster.readers, "_serve", lambda: None)  # type: ignore[union-attr]
        with program_of(a), pytest.raises(locks.LockTimeout):
            locks.queue(TABLE, node=B, timeout=0.3)
        eventually(lambda: readings(b) == [])
        assert a.cluster is not None
        assert a.cluster.views._once == {}
        done: list[BaseException] = []

        def ask() -> None:
            with program_of(a):
                try:
                    locks.queue(TABLE, node=B, timeout=60)
                except locks.LocksError as error:
                    done.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: readings(b))
        b.disconnect(A)
        thread.join()
        assert isinstance(done[0], locks.errors.NodeNotRunning)
        assert a.cluster.views._once == {}
