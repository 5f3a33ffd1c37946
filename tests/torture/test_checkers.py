"""The bench can fail: each of its checks finds what it is for."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import locks
from locks.node.node import Node
from locks.runtime.inline import Work
from locks_lab.worlds.study import study
from tests.torture import invariants
from tests.torture.invariants import broken, broken_when_empty
from tests.torture.stage import Stage
from tests.torture.systematic import Looking
from tests.torture.tracing import Tracer, trace
from tests.torture.work import Book

A, B = ("t", "a"), ("t", "b")


@pytest.fixture
def node() -> Iterator[Node]:
    """A node with one transaction that holds something."""
    threading.current_thread().__dict__.pop("_locks_watch", None)  # of tests before
    node = locks.start()
    locks.original.begin_transaction([(A, "write"), (B, "read")])
    yield node
    while node.turn.is_here():
        node.turn._lock.release()
    node.turn._posted.clear()
    node._dispatch.torn = False
    node._dispatch._queue.clear()
    node.running = False  # what is torn is left alone
    locks.stop()
    threading.current_thread().__dict__.pop("_locks_watch", None)


def _agent(node: Node) -> locks.actors.Agent:
    (agent,) = node.agents_by_id.values()
    return agent


def _forget_record(node: Node) -> None:
    ledger = study(_agent(node).machine).ledger
    ledger.requests[A].node_requests[node.name].records.clear()


def _deadlock(node: Node) -> None:
    """Two that wait for each other, and nobody looks."""
    machine = node.server.machine
    other = locks.original.spawn_agent()
    machine.table.request(other.id, "other", ("t", "c"), "write")
    machine.table.request(other.id, "other", A, "write")
    machine.table.request(_first(node).id, "me", ("t", "c"), "write")


def _watch_nobody(node: Node) -> None:
    """It is the node that watches over clients whose transactions began thin."""
    node.thin.close()
    _agent(node)._monitor = None


def _first(node: Node) -> locks.actors.Agent:
    return next(iter(node.agents_by_id.values()))


BREAKS: dict[str, tuple[Callable[[Node], object], str]] = {
    "nothing": (lambda node: None, ""),
    "an entry of nobody": (lambda node: node.agents_by_id.pop(_agent(node).id), "table"),
    "an entry too few": (
        lambda node: node.server.machine.table.release(_agent(node).id, A),
        "agents",
    ),
    "a lock since nobody knows when": (lambda node: node.server.times.got.clear(), "times"),
    "an agent that knows too little": (_forget_record, "agents"),
    "an agent that waits for an answer": (
        lambda node: study(_agent(node).machine).ledger._unanswered.update(
            {("n", A, "read"): None}
        ),
        "agents",
    ),
    "an effect that is not carried out": (
        lambda node: _agent(node).machine._out.append(None),  # type: ignore[arg-type]
        "agents",
    ),
    "a count that is wrong": (
        lambda node: node.server.machine.table.find(("t",)).below.__setitem__(0, 7),  # type: ignore[union-attr]
        "table",
    ),
    "an agent that has ended": (lambda node: _agent(node).ended(), "registers"),
    "a client without its agent": (lambda node: node.clients.clear(), "registers"),
    "a holder that is none": (
        lambda node: node.holders.__setitem__(_agent(node).client, locks.original.spawn_agent()),
        "registers",
    ),
    "nobody watches": (_watch_nobody, "registers"),
    "a message that lies about": (
        lambda node: node._dispatch._queue.append((node.server, None)),
        "quiet",
    ),
    "posted work": (lambda node: node.turn._posted.append(Work(print, ())), "quiet"),
    "a turn that was torn": (lambda node: setattr(node._dispatch, "torn", True), "quiet"),
    "a turn that nobody has": (lambda node: node.turn._lock.acquire(), "quiet"),
    "a deadlock": (_deadlock, "circles"),
    "a node that has stopped": (lambda node: setattr(node, "running", False), "running"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_invariants_notice(what: str, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of damage is found, by the check that is for it; and none where there is none."""
    damage, check = BREAKS[what]
    monkeypatch.setattr(invariants, "SOON", 0.1)
    damage(node)
    found = broken(node)
    assert bool(found) == bool(check), found
    assert any(each.startswith(check) for each in found or [""]), found


def test_what_is_left_is_noticed(node: Node) -> None:
    """A transaction that nobody has ended, and a watcher."""
    assert [each for each in broken_when_empty(node) if each.startswith("empty")]
    _agent(node).end_transaction()
    assert broken_when_empty(node) == []
    locks.watch(A, watcher=print)
    assert "watchers left" in broken_when_empty(node)[0]


def test_the_ledger_of_holders_is_compared() -> None:
    """A stage complains when the table has other holders than the program believes."""
    stage = Stage()
    try:
        stage.begin("a")
        stage.expect("call", {("me", "a"): "write"})
        assert stage.problems == []
        stage.expect("call", {("me", "b"): "write"}, {})
        assert "held is me write a, not me write b or nothing" in stage.problems[0]
        stage.problems.clear()
        locks.original.spawn_agent()
        stage.expect("call", {("me", "a"): "write"})
        assert "1 transactions that nobody knows of" in stage.problems[0]
    finally:
        locks.stop()


def test_a_tracer_strikes_at_each_instruction_once() -> None:
    """All positions of a call can be had, each once; returns of the outermost function count as outside."""

    class Struck(BaseException):
        pass

    def strike() -> None:
        raise Struck

    def call() -> object:
        return textwrap.wrap("one two three", 5)

    call()  # what is done only once is done now
    counter = Tracer()
    trace(counter, call)
    places = []
    for number in range(counter.count):
        tracer = Tracer(number, strike)
        with pytest.raises(Struck):
            trace(tracer, call)
        assert tracer.struck is not None
        places.append(tracer.struck)
    assert len({place.where for place in places}) > 50
    assert [place.where for place in places if place.outside] == [places[-1].where]
    beyond = Tracer(counter.count, strike)
    trace(beyond, call)
    assert beyond.struck is None


def test_a_thin_lock_that_is_not_announced_is_noticed() -> None:
    """One that the next turn would not inflate."""
    looking = Looking()
    thin, dispatch = SimpleNamespace(agents=[1]), SimpleNamespace(thin=False)
    looking.node = SimpleNamespace(thin=thin, _dispatch=dispatch)  # type: ignore[assignment]
    trace(looking, lambda: textwrap.wrap("one two", 5))
    assert looking.unannounced


def test_the_book_notices_two_holders() -> None:
    """Two transactions inside related ids, both of which hold theirs as they say."""
    locks.start()
    try:
        book = Book()
        one, _ = locks.original.begin_transaction([(A, "write")])
        two, _ = locks.original.begin_transaction([(B, "write")])
        book.enter(A, "write", one)
        book.enter(B, "write", two)
        assert book.violations == []
        book.leave([1])
        study(two.machine).ledger.requests[A] = study(two.machine).ledger.requests[B]
        book.enter(A, "write", two)
        assert len(book.violations) == 1
    finally:
        locks.stop()
