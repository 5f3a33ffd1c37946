"""Executor: where background work runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

import gevent
import pytest

from locks.errors import NodeNotRunning
from locks.runtime import hub_life
from locks.runtime.executor import Executor
from tests.helpers import eventually


@pytest.fixture(params=["in place", "own thread"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """Both kinds of executor; this test's own thread has a hub."""
    gevent.get_hub()
    return Executor(own_thread=request.param == "own thread")


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
    record = next(r for r in caplog.records if r.name == "locks.runtime")
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
    assert not executor.run_soon(ran.append, 5)
    if executor.is_own_thread:  # in the hub itself nobody waits
        with pytest.raises(NodeNotRunning, match="stopped"):
            executor.call(ran.append, 5)
    assert ran == list(range(5))
    if executor.is_own_thread:
        assert len(before) - len(set(threading.enumerate()) & before) == 1


def test_the_work_outlives_a_worker_that_is_killed(executor: Executor) -> None:
    """Another one goes on, in the same hub and the same order: nothing that was queued is dropped."""
    ran: list[int] = []
    hubs: list[object] = []

    def die() -> None:
        raise gevent.GreenletExit

    def kill_me(number: int) -> None:
        hubs.append(gevent.get_hub())
        ran.append(number)
        gevent.getcurrent().kill(block=False)

    for number in range(3):
        executor.run_soon(kill_me, number)
        executor.run_soon(die)
    executor.run_soon(ran.append, 3)
    eventually(lambda: ran == [0, 1, 2, 3])
    assert set(hubs) == {executor.hub}
    assert executor.stop(5)


def test_a_call_whose_worker_is_killed_says_so(executor: Executor) -> None:
    """The caller in another thread does not wait for ever, and is not killed in its place."""
    caught: list[object] = []

    def die() -> None:
        raise gevent.GreenletExit

    def ask() -> None:
        try:
            executor.call(die)
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: caught)
    thread.join()
    assert "was killed" in str(caught[0])
    assert executor.stop(5)


def test_the_work_outlives_the_hub(run_script: Callable[[str], str]) -> None:
    """A hub that is destroyed takes the worker with it: the work goes on in a thread of its own."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent, gc
        from locks.runtime.executor import Executor
        from locks.runtime.waiter import Waiter
        executor, first, done = Executor.choose(), Waiter(), Waiter()
        executor.run_soon(first.wake)
        print(executor.is_own_thread, first.wait(10))
        gevent.get_hub().destroy()
        for number in range(3):
            executor.run_soon(print, "work", number)
        gc.collect()
        executor.run_soon(done.wake)
        print(done.wait(10), executor.is_own_thread, executor.stop(5))
    """
    assert run_script(script) == "False True\nwork 0\nwork 1\nwork 2\nTrue True True\n"


def test_a_plain_program_gets_a_thread_and_may_exit(run_script: Callable[[str], str]) -> None:
    """A program without gevent gets no hub of its own, and exits though its executor still runs."""
    script = """
        import threading
        from locks.runtime.executor import Executor
        from locks.runtime.waiter import Waiter
        from locks.runtime.waiter import get_hub_if_exists
        executor, done = Executor.choose(), Waiter()
        executor.run_soon(done.wake)
        print(executor.is_own_thread, done.wait(10), get_hub_if_exists(), threading.active_count())
    """
    assert run_script(script) == "True True None 2\n"


def test_the_thread_rests_at_the_interpreters_end(run_script: Callable[[str], str]) -> None:
    """When the last handlers run, nothing runs in the busy thread: a daemon thread that wants the interpreter
    after that is ended within a greenlet, and now and then the process with it, by SIGSEGV."""
    output = run_script(
        """
        import atexit, sys, threading
        rested = []

        @atexit.register
        def last():
            (home,) = [t for t in threading.enumerate() if t.name == "locks-home"]
            code = sys._current_frames()[home.ident].f_code
            print(code.co_filename.endswith("waiter.py"), code.co_name)

        import gevent
        from locks.runtime.executor import Executor
        from tests.helpers import eventually
        executor = Executor(own_thread=True)
        turns = []

        def busy():
            while True:
                turns.append(len([n for n in range(2000) if n % 3]))
                gevent.sleep(0.0001)

        executor.run_soon(lambda: [gevent.spawn(busy) for _ in range(8)])
        eventually(lambda: len(turns) > 100)
        """
    )
    assert output.split() == ["True", "sleep"]


def test_a_del_at_the_interpreters_end_is_told_as_ever(run_script: Callable[[str], str]) -> None:
    """What `__del__` raises when the modules are empty already, is printed by Python, and nothing beside it."""
    output = run_script(
        """
        import os, sys, gevent, locks
        os.dup2(1, 2)

        class Late:
            def __del__(self):
                raise ValueError("late")

        with locks.transaction() as tx:
            tx.write_lock(("a",))
        sys.late, gevent.late = Late(), Late()
        """
    )
    assert output.count("ValueError: late") == output.count("Traceback") >= 1, output


def test_a_node_that_a_del_at_the_interpreters_end_would_start(
    run_script: Callable[[str], str],
) -> None:
    """A first use of locks when no thread can begin any more is refused; the program hung there for ever."""
    output = run_script(
        """
        import locks

        class Late:
            def __init__(self, error, show):
                self.error, self.show = error, show

            def __del__(self):
                try:
                    with locks.Lock(("a",)):
                        pass
                except self.error as error:
                    self.show(type(error).__name__, "interpreter is shutting down" in str(error))

        late = Late(locks.MisuseError, print)
        """
    )
    assert output == "MisuseError True\n"


def test_a_patched_program_gets_no_thread(run_script: Callable[[str], str]) -> None:
    """A monkey-patched program gets its work done in its own hub, and keeps gevent's `LoopExit`."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent, gevent.event
        from locks.runtime.executor import Executor
        from locks.runtime.waiter import Waiter
        executor, done = Executor.choose(), Waiter()
        executor.run_soon(done.wake)
        print(executor.is_own_thread, done.wait(10), executor.hub is gevent.get_hub())
        try:
            gevent.event.Event().wait()
        except gevent.exceptions.LoopExit:
            print("LoopExit")
    """
    assert run_script(script) == "False True True\nLoopExit\n"


@pytest.mark.parametrize("where", ["a thread", "a thread of a pool", "the main thread"])
def test_the_first_user_of_a_program_with_a_hub(
    run_script: Callable[[str], str], where: str
) -> None:
    """Not patched, but with a hub: it may end, and the background work goes on."""
    script = f"""
        import threading, gevent
        from locks.runtime.executor import Executor
        from locks.runtime.waiter import Waiter
        made = []
        def first_use():
            gevent.sleep(0)
            made.append(Executor.choose())
        where = {where!r}
        if where == "a thread":
            thread = threading.Thread(target=first_use)
            thread.start()
            thread.join()
        elif where == "the main thread":
            first_use()
        else:
            gevent.get_hub().threadpool.spawn(first_use).get()
            gevent.get_hub().threadpool.kill()
        done = Waiter()
        made[0].run_soon(done.wake)
        print(made[0].is_own_thread, done.wait(10), made[0].stop(5))
    """
    assert run_script(script) == "True True True\n"


def test_ctrl_c_in_the_work_goes_to_the_main_greenlet(run_script: Callable[[str], str]) -> None:
    """`KeyboardInterrupt` that hits the worker of a shared hub ends the program, not the worker."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent, signal
        from locks.runtime.executor import Executor
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


def test_a_greenlet_that_refuses_to_end_does_not_keep_the_hub() -> None:
    """Its end is waited for a second; then the hub is destroyed, and what else ends with it has ended."""

    def refuse() -> None:
        while True:
            with suppress(gevent.GreenletExit):
                gevent.sleep(60)

    executor = Executor(own_thread=True)
    ended: list[object] = []
    executor.call(hub_life.at_end, executor.hub, lambda: ended.append(True))
    executor.call(executor.spawn, refuse)
    assert executor.stop(5)
    assert ended
    assert executor.hub.loop is None
