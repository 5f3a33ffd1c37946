"""Executor: where background work runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import gevent
import pytest

from locks.runtime import Event, Executor
from tests.helpers import eventually


@pytest.fixture(params=["in place", "own thread"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """Both kinds of executor; this test's own thread has a hub."""
    gevent.get_hub()
    if request.param == "in place":
        return Executor.choose()
    made: list[Executor] = []
    thread = threading.Thread(target=lambda: made.append(Executor.choose()))
    thread.start()
    eventually(lambda: made)
    return made[0]


def test_the_place_is_chosen(executor: Executor, request: pytest.FixtureRequest) -> None:
    """A caller with a hub gets its own hub; one without gets a thread with a hub."""
    in_place = request.node.callspec.params["executor"] == "in place"
    assert executor.is_own_thread is not in_place
    assert (executor.hub is gevent.get_hub()) is in_place
    assert executor.stop(5)


def test_work_runs_in_order_in_one_greenlet(executor: Executor) -> None:
    """Work that blocks holds up what comes after it, and all runs in one greenlet of the hub."""
    ran: list[int] = []
    where = set()

    def work(number: int) -> None:
        where.add((gevent.getcurrent(), gevent.get_hub()))
        if number % 10 == 0:
            gevent.sleep(0.001)
        ran.append(number)

    for number in range(50):
        executor.run_soon(work, number)
    assert executor.stop(5)
    assert ran == list(range(50))
    assert len(where) == 1
    assert next(iter(where))[1] is executor.hub


def test_work_may_come_from_any_thread(executor: Executor) -> None:
    """Four threads give work at once; nothing is lost, each thread's order is kept."""
    ran: list[tuple[int, int]] = []

    def give(sender: int) -> None:
        for number in range(1000):
            executor.run_soon(ran.append, (sender, number))

    threads = [threading.Thread(target=give, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(ran) == 4000)
    for sender in range(4):
        assert [n for s, n in ran if s == sender] == list(range(1000))
    assert executor.stop(5)


@pytest.mark.parametrize("error", [ValueError, SystemExit, gevent.Timeout])
def test_failed_work_is_logged(
    executor: Executor, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """An exception is logged with its traceback and the work goes on."""
    ran: list[int] = []

    def fail() -> None:
        raise error

    executor.run_soon(fail)
    executor.run_soon(ran.append, 1)
    eventually(lambda: ran)
    record = next(r for r in caplog.records if r.name == "locks")
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is error
    assert executor.stop(5)


def test_stop_does_what_is_queued_and_ends(executor: Executor) -> None:
    """`stop` returns after the queue is done and the thread is gone; then work is refused."""
    before = set(threading.enumerate())
    ran: list[int] = []
    for number in range(5):
        executor.run_soon(gevent.sleep, 0.001)
        executor.run_soon(ran.append, number)
    assert executor.stop(5)
    assert ran == list(range(5))
    assert executor.stop(5)
    with pytest.raises(RuntimeError, match="stopped"):
        executor.run_soon(ran.append, 5)
    if executor.is_own_thread:
        assert len(before) - len(set(threading.enumerate()) & before) == 1


def test_stop_gives_up_when_the_time_runs_out(executor: Executor) -> None:
    """With work that doesn't end `stop` returns False in time; it may be called again."""
    gate = Event()
    executor.run_soon(gate.wait)
    assert not executor.stop(0.01)
    gate.open()
    assert executor.stop(5)


def test_the_work_may_stop_its_home(executor: Executor) -> None:
    """`stop` called by the work itself doesn't wait for itself."""
    results: list[bool] = []
    executor.run_soon(lambda: results.append(executor.stop(5)))
    eventually(lambda: results)
    assert results == [False]
    assert executor.stop(5)


def test_a_killed_worker_refuses_work(executor: Executor) -> None:
    """When somebody kills the worker, `run_soon` says so instead of collecting work for ever."""
    workers: list[gevent.Greenlet] = []
    executor.run_soon(lambda: workers.append(gevent.getcurrent()))
    eventually(lambda: workers)
    executor.run_soon(lambda: workers[0].kill(block=False))
    eventually(workers[0].ready)
    assert executor.stop(5)
    with pytest.raises(RuntimeError, match="stopped"):
        executor.run_soon(print)


def test_a_home_in_its_own_thread_survives_system_exit(caplog: pytest.LogCaptureFixture) -> None:
    """`SystemExit` in any greenlet of the own thread doesn't end the work there."""
    executor = Executor(own_thread=True)
    ran: list[int] = []

    def exit_greenlet() -> None:
        raise SystemExit

    executor.run_soon(gevent.spawn, exit_greenlet)
    eventually(lambda: "tried to end it" in caplog.text)
    executor.run_soon(ran.append, 1)
    eventually(lambda: ran)
    assert executor.stop(5)


def test_a_plain_program_gets_a_thread_and_may_exit(run_script: Callable[[str], str]) -> None:
    """A program without gevent gets no hub of its own, and exits though its executor still runs."""
    script = """
        import threading
        from locks.runtime import Executor, Waiter
        from locks.runtime.waiter import get_hub_if_exists
        executor, done = Executor.choose(), Waiter()
        executor.run_soon(done.wake)
        print(executor.is_own_thread, done.wait(10), get_hub_if_exists(), threading.active_count())
    """
    assert run_script(script) == "True True None 2\n"


def test_a_patched_program_gets_no_thread(run_script: Callable[[str], str]) -> None:
    """A monkey-patched program gets its work done in its own hub, and keeps gevent's `LoopExit`."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent, gevent.event
        from locks.runtime import Executor, Waiter
        executor, done = Executor.choose(), Waiter()
        executor.run_soon(done.wake)
        print(executor.is_own_thread, done.wait(10), executor.hub is gevent.get_hub())
        try:
            gevent.event.Event().wait()
        except gevent.exceptions.LoopExit:
            print("LoopExit")
    """
    assert run_script(script) == "False True True\nLoopExit\n"


def test_ctrl_c_in_the_work_goes_to_the_main_greenlet(run_script: Callable[[str], str]) -> None:
    """`KeyboardInterrupt` that hits the worker of a shared hub ends the program, not the worker."""
    script = """
        import gevent, signal
        from locks.runtime import Executor
        gevent.get_hub()
        executor = Executor.choose()
        executor.run_soon(signal.raise_signal, signal.SIGINT)
        executor.run_soon(print, "work goes on")
        try:
            gevent.sleep(10)
        except KeyboardInterrupt:
            print("main")
        executor.stop(5)
    """
    assert run_script(script) == "main\nwork goes on\n"


def test_a_call_in_the_hub_returns_what_the_function_returns(executor: Executor) -> None:
    """From another thread or from the hub itself; an exception comes back, too."""
    assert executor.call(lambda: executor.call(gevent.get_hub)) is executor.hub
    from_thread: list[object] = []
    thread = threading.Thread(target=lambda: from_thread.append(executor.call(gevent.get_hub)))
    thread.start()
    eventually(lambda: from_thread == [executor.hub])
    thread.join()
    with pytest.raises(ZeroDivisionError):
        executor.call(lambda: 1 // 0)
