"""Waiter, Event, Channel and Mailbox: blocking and waking in every context."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gevent
import pytest

from locks.runtime.waiter import Channel, Event, Waiter, get_hub_if_exists
from tests.helpers import eventually


def in_thread(function: Callable[[], object]) -> object:
    """Run the function in a native thread without a hub and return its result."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    eventually(lambda: not thread.is_alive())
    return results[0]


def test_a_plain_thread_waits_without_a_hub() -> None:
    """A wait in a thread that has no hub blocks the thread and makes no hub."""
    waiter = Waiter()
    outcome: list[tuple[bool, object]] = []
    thread = threading.Thread(target=lambda: outcome.append((waiter.wait(), get_hub_if_exists())))
    thread.start()
    eventually(lambda: "parked" in repr(waiter))
    waiter.wake()
    eventually(lambda: not thread.is_alive())
    assert outcome == [(True, None)]


@pytest.mark.parametrize("timeout", [-1, 0, 0.001])
def test_a_wait_ends_when_the_time_runs_out(timeout: float) -> None:
    """Without a wake the wait returns False, also for times that have passed already."""

    def use() -> tuple[bool, bool]:
        waiter = Waiter()
        first = waiter.wait(timeout)
        waiter.wake()
        return first, waiter.wait(timeout)

    assert use() == (False, True)
    assert in_thread(use) == (False, True)


def test_a_greenlet_waits_while_others_run() -> None:
    """A wait blocks only its own greenlet, and a wake on the same hub ends it."""
    waiter = Waiter()
    greenlet = gevent.spawn(waiter.wait)
    eventually(lambda: "parked" in repr(waiter))
    assert not greenlet.ready()
    waiter.wake()
    assert not greenlet.ready()  # a wake never switches
    assert greenlet.get(timeout=5) is True


def test_a_wait_in_the_hub_is_refused() -> None:
    """A callback of the hub that waits gets an error that says what is wrong."""
    errors: list[str] = []

    def callback() -> None:
        try:
            Waiter().wait(1)
        except RuntimeError as error:
            errors.append(str(error))

    gevent.get_hub().loop.run_callback(callback)
    eventually(lambda: errors)
    assert "hub's own greenlet" in errors[0]


@pytest.mark.parametrize("error", [gevent.GreenletExit, KeyboardInterrupt, ValueError("x")])
def test_what_is_thrown_into_a_wait_propagates(error: BaseException) -> None:
    """An exception thrown into the waiting greenlet ends the wait; a later wake does no harm."""
    waiter = Waiter()
    caught: list[BaseException] = []
    after = Waiter()

    def use() -> bool:
        try:
            waiter.wait()
        except BaseException as caught_error:
            caught.append(caught_error)
        return after.wait()

    greenlet = gevent.spawn(use)
    eventually(lambda: "parked" in repr(waiter))
    greenlet.kill(error, block=False)
    waiter.wake()  # stale by the time that its callback runs, or just before the throw
    waiter.wake()
    eventually(lambda: "parked" in repr(after))
    waiter.wake()
    gevent.sleep(0)
    assert not greenlet.ready()
    after.wake()
    assert greenlet.get(timeout=5) is True


def test_wakes_from_other_threads_are_never_lost() -> None:
    """Four native threads and two greenlets pass 5,000 wakes each to one another, in all pairings."""
    rounds = 5000
    boxes: list[Channel[Waiter]] = [Channel() for _ in range(4)]

    def waker(box: Channel[Waiter]) -> None:
        for _ in range(rounds):
            box.receive().wake()

    def waiting(box: Channel[Waiter]) -> int:
        count = 0
        for _ in range(rounds):
            waiter = Waiter()
            box.send(waiter)
            count += waiter.wait(10)
        return count

    counts: list[int] = []
    threads = [
        threading.Thread(target=waker, args=(boxes[0],)),
        threading.Thread(target=waker, args=(boxes[1],)),
        threading.Thread(target=lambda: counts.append(waiting(boxes[1]))),
        threading.Thread(target=lambda: counts.append(waiting(boxes[2]))),
    ]
    for thread in threads:
        thread.start()
    greenlets = [
        gevent.spawn(lambda: counts.append(waiting(boxes[0]))),
        gevent.spawn(waker, boxes[2]),
        gevent.spawn(waker, boxes[3]),
        gevent.spawn(lambda: counts.append(waiting(boxes[3]))),
    ]
    eventually(lambda: len(counts) == 4)
    gevent.joinall(greenlets, timeout=5)
    assert counts == [rounds] * 4
    eventually(lambda: not any(thread.is_alive() for thread in threads))


def test_a_wait_keeps_its_loop_alive(run_script: Callable[[str], str]) -> None:
    """A hub with nothing else to do waits for a wake by another thread, with no `LoopExit`."""
    script = """
        import gevent, threading
        from locks.runtime.waiter import Waiter
        gevent.sleep(0)
        waiter = Waiter()
        threading.Timer(0.1, waiter.wake).start()
        print(waiter.wait())
    """
    assert run_script(script) == "True\n"


def test_ctrl_c_ends_a_wait(run_script: Callable[[str], str]) -> None:
    """SIGINT ends a wait in a main thread without a hub and in one with a hub."""
    script = """
        import os, signal, sys, threading
        from locks.runtime.waiter import Waiter
        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        for with_hub in (False, True):
            if with_hub:
                import gevent
                gevent.get_hub().exception_stream = None  # gevent prints it as well
            threading.Timer(0.1, interrupt).start()
            try:
                Waiter().wait()
            except KeyboardInterrupt:
                print("interrupted")
    """
    assert run_script(script) == "interrupted\ninterrupted\n"


def test_waits_in_a_patched_program(run_script: Callable[[str], str]) -> None:
    """In a monkey-patched program green threads wait cooperatively and native ones natively."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import threading, gevent
        from locks.runtime.waiter import Waiter
        waiters = [Waiter() for _ in range(3)]
        out = []
        threads = [
            threading.Thread(target=lambda w=w: out.append(w.wait(10))) for w in waiters[:2]
        ]
        for thread in threads:
            thread.start()
        native = gevent.get_hub().threadpool.spawn(waiters[2].wait, 10)
        gevent.sleep(0.01)
        for waiter in waiters:
            waiter.wake()
        for thread in threads:
            thread.join()
        print(out, native.get())
    """
    assert run_script(script) == "[True, True] True\n"


def test_a_channel_keeps_the_order_of_each_sender() -> None:
    """Items of several threads arrive complete, each sender's in its order."""
    channel: Channel[tuple[int, int]] = Channel()

    def send(sender: int) -> None:
        for number in range(2000):
            channel.send((sender, number))

    for sender in range(4):
        threading.Thread(target=send, args=(sender,)).start()
    received: Any = in_thread(lambda: [channel.receive() for _ in range(8000)])
    for sender in range(4):
        assert [n for s, n in received if s == sender] == list(range(2000))


def test_a_closed_channel_refuses_each_item_once() -> None:
    """What is queued at `close` and what is sent later is refused, nothing twice, nothing lost."""
    channel: Channel[int] = Channel()
    refused: list[int] = []
    started = Event()

    def send(sender: int) -> None:
        for number in range(2000):
            channel.send(sender * 2000 + number)
            if number == 500:
                started.open()

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    started.wait(10)
    channel.close(refused.append)
    eventually(lambda: not any(thread.is_alive() for thread in threads))
    assert channel.closed
    assert sorted(refused) == list(range(8000))
    assert len(channel) == 0
