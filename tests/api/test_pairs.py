"""Each block of one mechanism within a block of each other one: both hold, and nothing is left; also when the node stops, or the process forks, within.

`tests/pairs.md` says which other tests there are of each pair.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import pytest

import locks
import locks_leader
from locks.ownership import Ownership
from tests.helpers import eventually

LIMIT = 60.0  # seconds
_numbers = itertools.count()
Within = Callable[[], None]


def lock(within: Within) -> None:
    """A lock and its token."""
    with locks.RLock(("lock",), timeout=LIMIT) as held:
        within()
        assert held.owned()
        assert held.token()


def condition(within: Within) -> None:
    """A wait within two blocks of one lock."""
    held = locks.RLock(("condition",), timeout=LIMIT)
    waits = threading.Condition(held)  # type: ignore[arg-type]
    with held, waits:
        waits.wait(0.001)
        within()
        waits.wait(0.001)
        assert held.owned()


def semaphore(within: Within) -> None:
    """One of two units."""
    with locks.Semaphore(("semaphore",), 2, timeout=LIMIT) as held:
        within()
        assert held.unit() == 0


def once(within: Within) -> None:
    """Work that is done once, and is not done again."""
    number = next(_numbers)
    with locks.once(("once", number), timeout=LIMIT) as run:
        within()
        run.ensure_held()
    with pytest.raises(locks.AlreadyDone), locks.once(("once", number), timeout=LIMIT):
        pass


def election(within: Within) -> None:
    """A leader's function."""

    def lead(leadership: locks_leader.Leadership) -> None:
        within()
        leadership.ensure_leading()

    locks_leader.Election(f"election {next(_numbers)}").run(lead, timeout=LIMIT)


def ownership(within: Within) -> None:
    """A task on a resource."""
    with Ownership(f"ownership {next(_numbers)}", groups=1, group_for=lambda _: 0) as mine:
        eventually(lambda: mine.owns("resource"), LIMIT)
        with mine.hold("resource") as token:
            within()
            assert mine.owned() == {0: token}


def owner(within: Within) -> None:
    """Acting for an owner, who has a lock that another thread releases."""
    with locks.Owner("the owner") as acting:
        held = locks.Lock(("owner",), timeout=LIMIT, owner=acting)
        held.acquire()
        within()
        assert held.owned()
        thread = threading.Thread(target=held.release)
        thread.start()
        thread.join()
        assert not held.owned()


def generator(within: Within) -> None:
    """A block of a generator that is left in another thread."""

    def block() -> Generator[None]:
        with locks.Lock(("generator",), timeout=LIMIT) as held:
            yield
            assert held.owned()

    begun = block()
    next(begun)
    within()
    thread = threading.Thread(target=begun.close)
    thread.start()
    thread.join()


def watch(within: Within) -> None:
    """The views of an id."""
    views: list[locks.values.View] = []
    locks.watch(("watch",), watcher=views.append)
    with locks.Lock(("watch",), timeout=LIMIT):
        within()
    eventually(lambda: len(views) >= 3 and not views[-1].requests, LIMIT)
    locks.unwatch(("watch",), watcher=views.append)


BLOCKS = (lock, condition, semaphore, once, election, ownership, owner, generator, watch)


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Locks of this program alone."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
    locks.stop()
    locks.start(servers=locks.HERE)
    yield
    locks.stop()


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """Whatever was requested in the block is released afterwards."""
    yield
    eventually(lambda: not locks.statistics().agents and not locks.statistics().table.entries)


def nothing() -> None:
    """Nothing more."""


@pytest.mark.parametrize("inner", BLOCKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("outer", BLOCKS, ids=lambda each: each.__name__)
def test_one_within_another(outer: Callable[[Within], None], inner: Callable[[Within], None]) -> None:  # fmt: skip
    """Other mechanisms of one thread; and the same one, on other ids, from another thread."""

    def within() -> None:
        if inner is not outer:
            inner(nothing)
            return
        wrong: list[BaseException] = []

        def other() -> None:
            try:
                with locks.Lock(("other",), timeout=LIMIT):
                    pass
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not wrong

    with nothing_is_left():
        outer(within)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda each: each.__name__)
def test_the_node_stops_within(block: Callable[[Within], None]) -> None:
    """The end of the block says so by an error of locks, or there was nothing to lose; a new node has nothing of it."""
    stopped: list[bool] = []

    def stop() -> None:
        locks.stop()
        stopped.append(True)

    # `RuntimeError`: Condition's own, of a lock that is not held.
    with suppress(locks.LocksError, RuntimeError, AssertionError):
        block(stop)
    assert stopped
    with nothing_is_left(), locks.Lock((block.__name__,), timeout=LIMIT):
        pass


@pytest.mark.skipif("LOCKS_PATCHED" in os.environ, reason="gevent watches the children itself")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
@pytest.mark.parametrize("block", BLOCKS, ids=lambda each: each.__name__)
def test_the_process_forks_within(block: Callable[[Within], None]) -> None:
    """The child holds nothing and can lock what it likes; the parent still holds it all."""

    def fork() -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                said = "ok" if not locks.statistics().table.entries else "it holds something"
                with locks.Lock((block.__name__,), timeout=LIMIT):
                    os.write(writer, said.encode())
            except BaseException as error:
                os.write(writer, repr(error).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read() == "ok"
        os.waitpid(pid, 0)

    with nothing_is_left():
        block(fork)
