"""Monitors, links and the question who is calling, for every kind of client."""

from __future__ import annotations

import _thread
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import greenlet
import pykka
import pytest

from locks.runtime.actor import GeventActor, kill
from locks.runtime.exits import exit_client, kill_greenlet
from locks.runtime.monitor import Down, Killed, current_client, monitor
from locks.runtime.waiter import Event
from tests.helpers import eventually


class Green(GeventActor):
    """Calls what it is sent."""

    def on_receive(self, message: Any) -> Any:
        return message()


class Threaded(pykka.ThreadingActor):
    """Calls what it is sent."""

    def on_receive(self, message: Any) -> Any:
        return message()


def fail() -> None:
    """Fail."""
    raise ValueError("broken")


@pytest.fixture(autouse=True)
def stop_actors() -> Iterator[None]:
    """Leave no actor behind, and nothing on the hub's stderr from greenlets that fail on purpose."""
    hub = gevent.get_hub()
    hub.exception_stream = None
    yield
    del hub.exception_stream
    pykka.ActorRegistry.stop_all(timeout=5)


def watched(subject: Any) -> list[Down]:
    """Return a list that will hold the subject's `Down`."""
    downs: list[Down] = []
    monitor(subject, downs.append)
    return downs


def helpers() -> int:
    """Return the number of threads that join other threads for monitors."""
    return sum(thread.name == "locks-monitor" for thread in threading.enumerate())


# Who is calling


def test_the_client_in_each_context() -> None:
    """Actors are their refs, greenlets themselves, main greenlets their threads; always the same."""
    found: dict[str, list[Any]] = {}

    def ask(name: str) -> None:
        found[name] = [current_client(), current_client()]

    ask("main")
    greenlet_client = gevent.spawn(ask, "greenlet")
    raw = greenlet.greenlet(ask)
    raw.switch("raw")
    thread = threading.Thread(target=ask, args=("thread",))
    thread.start()
    _thread.start_new_thread(ask, ("dummy",))
    green, threaded = Green.start(), Threaded.start()
    green.ask(lambda: ask("green"), timeout=5)
    threaded.ask(lambda: ask("threaded"), timeout=5)
    eventually(lambda: len(found) == 7)
    expected = {
        "main": threading.main_thread(),
        "greenlet": greenlet_client,
        "raw": raw,
        "thread": thread,
        "green": green,
        "threaded": threaded,
    }
    for name, client in expected.items():
        assert found[name] == [client, client], name
    assert isinstance(found["dummy"][0], threading._DummyThread)
    assert found["dummy"][0] is found["dummy"][1]


def test_the_client_in_a_patched_program(run_script: Callable[[str], str]) -> None:
    """Green threads are greenlets whose end is noticed; patched ThreadingActors are their refs."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import threading, gevent, pykka
        from locks.runtime.monitor import current_client, monitor
        print(current_client() is threading.main_thread())
        active = len(threading._active)
        gevent.spawn(lambda: print(current_client() is gevent.getcurrent())).join()
        print(len(threading._active) == active)
        downs = []
        def use():
            print(current_client() is gevent.getcurrent())
            monitor(current_client(), lambda down: downs.append(("client", down.reason)))
            monitor(threading.current_thread(), lambda down: downs.append(("own", down.reason)))
        thread = threading.Thread(target=use)
        thread.start()
        other = threading.Thread(target=gevent.sleep, args=(0.01,))
        other.start()
        monitor(other, lambda down: downs.append(("other", down.reason)))
        thread.join(); other.join()
        gevent.sleep(0.01)
        print(sorted(downs))
        class Threaded(pykka.ThreadingActor):
            def on_receive(self, message):
                return current_client()
        ref = Threaded.start()
        print(ref.ask(1) is ref)
        monitor(ref, lambda down: downs.append(down.reason))
        ref.stop()
        gevent.sleep(0.01)
        print(downs[-1])
        # A native thread of a patched program.
        def native():
            client = current_client()
            monitor(client, lambda down: downs.append("native end"))
            return client is current_client()
        done = []
        def native_thread():
            done.append(native())
        monkey.get_original("_thread", "start_new_thread")(native_thread, ())
        while downs[-1] != "native end":
            gevent.sleep(0.001)
        print(done)
    """
    lines = run_script(script).splitlines()
    reasons = "[('client', 'normal'), ('other', 'normal'), ('own', 'normal')]"
    assert lines == ["True", "True", "True", "True", reasons, "True", "normal", "[True]"]


# Monitors


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda _: None, "normal"),
        (lambda _: fail(), ValueError),
        (lambda own: own.kill(), "killed"),
        (lambda own: kill_greenlet(own, Killed("why")) or gevent.sleep(100), "why"),
    ],
)
def test_the_end_of_a_greenlet_is_told_once(
    end: Callable[[gevent.Greenlet], object], reason: Any
) -> None:
    """Return, crash and kill of a greenlet, each with its reason, to each of its monitors."""
    subject = gevent.Greenlet(lambda: end(gevent.getcurrent()))
    first, second = watched(subject), watched(subject)
    subject.start()
    eventually(lambda: first and second)
    gevent.sleep(0)
    for downs in (first, second):
        assert len(downs) == 1
        assert downs[0].subject is subject
        assert downs[0].reason == reason or type(downs[0].reason) is reason
    assert watched(subject) == [Down(subject, "noproc")]


def test_the_end_of_a_gevent_actor_is_told() -> None:
    """Stop, crash and kill of a GeventActor; nothing afterwards but "noproc"."""
    for end, reason in (
        (lambda ref: ref.stop(timeout=5), "normal"),
        (lambda ref: ref.tell(fail), ValueError),
        (kill, "killed"),
    ):
        ref = Green.start()
        downs = watched(ref)
        end(ref)
        eventually(lambda downs=downs: downs)
        assert downs[0].reason == reason or type(downs[0].reason) is reason
        assert len(downs) == 1
        assert watched(ref) == [Down(ref, "noproc")]


def test_the_end_of_a_threading_actor_is_told() -> None:
    """Stop and crash of Pykka's own kind of actor are told by its own stop event."""
    for end, reason in (
        (lambda ref: ref.stop(timeout=5), "normal"),
        (lambda ref: ref.tell(fail), ValueError),
    ):
        ref = Threaded.start()
        first, second = watched(ref), watched(ref)
        assert helpers() == 0
        end(ref)
        eventually(lambda first=first, second=second: first and second)
        assert first[0].reason == reason or type(first[0].reason) is reason
        assert len(first) == len(second) == 1
        assert watched(ref) == [Down(ref, "noproc")]


def test_a_thread_that_monitors_itself() -> None:
    """The end of a thread is noticed promptly, without a helper thread, in that very thread."""
    told: list[tuple[Down, int, int]] = []
    counts: list[int] = []

    def use() -> None:
        ident = _thread.get_ident()
        me = threading.current_thread()
        monitor(me, lambda down: told.append((down, ident, _thread.get_ident())))
        monitor(me, lambda down: told.append((down, ident, _thread.get_ident())))
        monitor(me, lambda down: told.append((down, 0, 1))).cancel()
        counts.append(helpers())

    thread = threading.Thread(target=use)
    thread.start()
    eventually(lambda: len(told) == 2)
    for down, expected, ident in told:
        assert down == Down(thread, "normal")
        assert ident == expected
    assert counts == [0]
    eventually(lambda: not thread.is_alive())
    assert watched(thread) == [Down(thread, "noproc")]


def test_a_thread_that_python_did_not_start() -> None:
    """A foreign thread can monitor itself; from elsewhere its end can't be seen, which is said."""
    clients: list[Any] = []
    gate = Event()
    downs: list[Down] = []

    def use() -> None:
        clients.append(current_client())
        gate.wait(10)

    _thread.start_new_thread(use, ())
    foreign = eventually(lambda: clients)[0]
    with pytest.raises(ValueError, match="only that thread itself"):
        monitor(foreign, downs.append)
    gate.open()

    def use_itself() -> None:
        monitor(current_client(), downs.append)

    _thread.start_new_thread(use_itself, ())
    eventually(lambda: [down.reason for down in downs] == ["normal"])


def test_a_thread_monitored_from_elsewhere() -> None:
    """Monitors from other threads share one helper; all are told when the thread ends."""
    gate = Event()
    thread = threading.Thread(target=gate.wait, daemon=True)
    with pytest.raises(ValueError, match="not started"):
        monitor(thread, print)
    thread.start()
    try:
        lists = [watched(thread) for _ in range(10)]
        assert helpers() == 1
    finally:
        gate.open()
    eventually(lambda: all(lists) and helpers() == 0)
    assert all(downs == [Down(thread, "normal")] for downs in lists)


@pytest.mark.slow
def test_cancelled_monitors_leave_nothing_behind() -> None:
    """After many monitors came and went, callbacks and subjects can be collected."""

    class Callback:
        def __call__(self, down: Down) -> None:
            raise AssertionError("cancelled")

    gate = Event()
    thread = threading.Thread(target=gate.wait, daemon=True)
    thread.start()
    subjects = [gevent.spawn(gate.wait), thread, Green.start(), Threaded.start()]
    callbacks = []
    for subject in subjects:
        for _ in range(100):
            callback = Callback()
            callbacks.append(weakref.ref(callback))
            monitor(subject, callback).cancel()
    del callback
    gc.collect()
    assert not any(reference() for reference in callbacks)
    gate.open()
    pykka.ActorRegistry.stop_all(timeout=5)
    references = [weakref.ref(subject) for subject in subjects]
    subjects.clear()
    del subject, thread
    eventually(lambda: gc.collect() is not None and not any(ref() for ref in references))


def test_monitors_race_with_the_end() -> None:
    """Four threads add monitors while the subject ends: each monitor is told exactly once."""
    for _ in range(30):
        subject = gevent.spawn(gevent.sleep, 0.002)
        told: list[int] = []

        def add(sender: int, subject: Any = subject, told: list[int] = told) -> None:
            for number in range(200):
                monitor(subject, lambda _, n=number: told.append(sender * 200 + n))

        threads = [threading.Thread(target=add, args=(sender,)) for sender in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda told=told: len(told) == 800)
        assert sorted(told) == list(range(800))


# Links


@pytest.mark.parametrize("from_thread", [False, True])
def test_a_link_ends_actors_and_greenlets(from_thread: bool) -> None:
    """`exit_client` kills a GeventActor or greenlet with the reason and stops another actor."""
    subjects = [
        Green.start(),
        gevent.spawn(gevent.sleep, 100),
        Threaded.start(),
        gevent.spawn_raw(gevent.sleep, 100),
    ]
    raw = subjects[3]
    lists = [watched(subject) for subject in subjects[:3]]
    gevent.sleep(0)

    def use() -> None:
        for subject in subjects:
            exit_client(subject, "linked")
            exit_client(subject, "linked")

    if from_thread:
        threading.Thread(target=use).start()
    else:
        use()
    eventually(lambda: all(lists) and raw.dead)
    assert [downs[0].reason for downs in lists] == ["linked", "linked", "normal"]
