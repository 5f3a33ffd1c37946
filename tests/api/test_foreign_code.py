"""Methods of the program's own objects: none is called within a turn, and none takes locks from others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest

import locks
from locks.mvcc import LockTable
from locks.node.options import Options
from tests.helpers import eventually, in_thread

A = ("a",)


def in_a_turn() -> bool:
    """Whether the caller is called by something that runs in a turn."""
    frame = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("runtime/inline.py") and code.co_name in (
            "run",
            "_run_posted",
        ):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class Spy:
    """It is hashed, compared and written outside of turns only; if not, it says so."""

    seen: list[str] = []  # noqa: RUF012

    def __init__(self, name: str) -> None:
        self.name = name

    def _look(self, what: str) -> None:
        if in_a_turn():
            Spy.seen.append(what)

    def __hash__(self) -> int:
        self._look("hash")
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        self._look("eq")
        return self.name == other.name if isinstance(other, Spy) else NotImplemented

    def __repr__(self) -> str:
        self._look("repr")
        return f"Spy({self.name})"


class SpyText(str):
    """Text that does the same."""

    def __hash__(self) -> int:
        if in_a_turn():
            Spy.seen.append("hash of text")
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        if in_a_turn():
            Spy.seen.append("eq of text")
        return super().__eq__(other)


@pytest.fixture
def spies() -> Iterator[None]:
    """No spy has been asked within a turn; and that would have been noticed."""
    Spy.seen.clear()
    yield
    assert Spy.seen == []
    node = locks.start()
    node.turn.run(hash, Spy("within"))
    assert Spy.seen == ["hash"]


# --- Lock ids -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("spies")
def test_no_method_of_an_id_runs_within_a_turn() -> None:
    """Whatever is done with the id: locks that are granted, wait, time out, are upgraded, watched."""

    def spied() -> Any:
        return (SpyText("a"), SpyText("row"), ("in", SpyText("depth")))

    views: list[locks.values.View] = []
    locks.watch(spied(), watcher=views.append)
    with locks.transaction() as tx:
        tx.read_lock(spied()[:2])
        tx.write_lock(spied(), timeout=5)

        def other() -> None:
            with pytest.raises(locks.LockTimeout, match="row"), locks.transaction() as mine:
                mine.write_lock(spied()[:2], timeout=0.01)
            with pytest.raises(locks.errors.NotHeld), locks.transaction() as mine:
                mine.unlock(spied())
            assert not locks.Lock(spied()).acquire(blocking=False)

        in_thread(other)
        assert locks.holders(spied())
        tx.ensure_held(spied())
        assert tx.token(spied()) > 0
        tx.unlock(spied())
    with locks.Lock(spied()):
        pass
    eventually(lambda: views and not views[-1].requests)
    assert views[0].lock_id == spied()
    locks.unwatch(spied(), watcher=views.append)


@pytest.mark.usefixtures("spies")
def test_modes_and_nodes_and_flags_may_be_text_of_a_class_of_its_own() -> None:
    """A `StrEnum`, for one. They become plain text before the turn."""
    node = locks.start()
    agent, _ = locks.original.begin_transaction()
    locks.original.lock(agent, A, SpyText("read"), [SpyText(node.name)], SpyText("all"))  # type: ignore[arg-type]
    locks.original.change_flag(agent, SpyText("await_nodes"), True)  # type: ignore[arg-type]
    (info,) = locks.original.lock_info(agent)
    assert [type(each) for each in (info.mode, info.nodes[0], info.require)] == [str, str, str]
    locks.original.end_transaction(agent)


def test_a_reference_of_an_agent_is_checked() -> None:
    """Where a program may make one up."""
    agent, _ = locks.original.begin_transaction([(A, "write")])
    with pytest.raises(locks.MisuseError, match="not an agent"):
        locks.original.surrender_nowait(agent, A, locks.values.AgentId(1, Spy("x"), 1))  # type: ignore[arg-type]
    locks.original.end_transaction(agent)


# --- Watchers -----------------------------------------------------------------------------------


class Watcher:
    """A callable that can't be hashed or compared."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def __call__(self, view: Any) -> None:
        self.views.append(view)

    def take(self, view: Any) -> None:
        self.views.append(view)

    def __hash__(self) -> int:
        raise OSError("no hash")

    def __eq__(self, other: object) -> bool:
        raise OSError("no comparison")


def test_watchers_are_known_by_who_they_are() -> None:
    """Nothing of a watcher is asked for: a method is that of its object, however often it is made."""
    first, second = Watcher(), Watcher()
    for made in (
        lambda: first,
        lambda: second,
        lambda: first.take,
        lambda: second.take,
        lambda: first.views.append,
    ):
        locks.watch(A, watcher=made())
        locks.watch(A, watcher=made())
        assert len(locks.original.watchers(A)) == 1
        locks.unwatch(A, watcher=made())
        assert locks.original.watchers(A) == []
    locks.watch(A, watcher=first)
    locks.watch(A, watcher=second)
    locks.watch(A, watcher=first.take)
    locks.watch(A, watcher=second.take)
    locks.unwatch(A, watcher=second)
    assert len(locks.original.watchers(A)) == 3
    for watcher in (first, first.take, second.take):
        locks.unwatch(A, watcher=watcher)
    eventually(lambda: first.views)


# --- Clients ------------------------------------------------------------------------------------


class FailingThread(threading.Thread):
    """A thread that says it is any other one; not to be asked within a turn."""

    def __hash__(self) -> int:
        if in_a_turn():
            Spy.seen.append("hash of a thread")
        return 1

    def __eq__(self, other: object) -> bool:
        if in_a_turn():
            Spy.seen.append("eq of a thread")
        return isinstance(other, FailingThread)


class FailingGreenlet(gevent.Greenlet):  # type: ignore[type-arg]
    __hash__ = FailingThread.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FailingGreenlet)


@pytest.mark.usefixtures("spies")
@pytest.mark.parametrize("kind", [FailingThread, FailingGreenlet])
def test_clients_are_known_by_who_they_are(kind: Any) -> None:
    """Two that say they are equal are two: neither uses the other one's transaction, or its locks."""
    seen: list[Any] = []

    def work() -> None:
        agent, _ = locks.original.begin_transaction([(A, "write")])
        lock = locks.Lock(("b",))
        with lock:
            seen.append((agent, lock))

            def steal() -> None:
                for bad in (
                    lambda: locks.original.end_transaction(agent),
                    lambda: locks.original.unlock(agent, A),
                ):
                    with pytest.raises(locks.errors.NotClient):
                        bad()
                with pytest.raises(locks.errors.NotHeld):
                    lock.release()
                assert not lock.owned()
                seen.append("not stolen")

            thief = kind(steal) if kind is FailingGreenlet else kind(target=steal)
            thief.start()
            thief.join()
        locks.original.end_transaction(agent)
        seen.append("done")

    client = kind(work) if kind is FailingGreenlet else kind(target=work)
    client.start()
    client.join(60)
    assert seen[1:] == ["not stolen", "done"]
    assert locks.start().clients == {}


# --- Seconds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [True, False, float("nan"), -1, "1", 1j], ids=repr)
def test_seconds_are_numbers(wrong: Any) -> None:
    """`True` is no second, and NaN no time; also where a call needs no time."""
    calls: list[Callable[[locks.actors.Agent], Any]] = [
        lambda agent: locks.original.lock(agent, A, timeout=wrong),
        lambda agent: locks.original.await_all_locks(agent, timeout=wrong),
        lambda agent: locks.original.begin_transaction(timeout=wrong),
        lambda agent: locks.transaction(timeout=wrong),
        lambda agent: locks.queue(A, timeout=wrong),
        lambda agent: locks.holders(A, timeout=wrong),
        lambda agent: LockTable(deadlocks="push", push_after=wrong),
        lambda agent: Options.check(
            "x@127.0.0.1",
            cookie="a-cookie-of-this-test",
            listen=None,
            peers=(),
            tls=None,
            net_ticktime=wrong,
            mesh=True,
            allow_plaintext=False,
        ),
    ]
    if wrong != -1:  # which means for ever there, as for `threading.Lock`
        calls.append(lambda agent: locks.Lock(("b",)).acquire(timeout=wrong))

    def work() -> None:
        agent, _ = locks.original.begin_transaction([(A, "write")])
        for call in calls:
            with pytest.raises(locks.MisuseError, match="seconds"):
                call(agent)
        locks.original.end_transaction(agent)

    in_thread(work)
