"""Ctrl-C in a program with a gevent hub: the main greenlet gets each one, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

PLAIN = "import gevent"
PATCHED = "from gevent import monkey; monkey.patch_all()"
either = pytest.mark.parametrize("prelude", [PLAIN, PATCHED])

SETUP = """
{prelude}
import gevent, os, signal, threading, time, weakref
from locks.runtime import interrupts
gevent.get_hub()
interrupts.install()
def press():
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.slow
@either
def test_at_random_moments(run_script: Callable[..., str], prelude: str) -> None:
    """Greenlets lock, begin and end; the main greenlet waits, and gets every signal as one exception."""
    script = f"""
        {prelude}
        import gevent, os, random, signal, sys, time
        from gevent import monkey
        import locks

        start_thread = monkey.get_original("_thread", "start_new_thread")
        sleep = monkey.get_original("time", "sleep")
        gevent.get_hub().exception_stream = None
        locks.start(log_waits_longer_than=60)
        sys.setswitchinterval(0.0005)
        draw = random.Random(1)
        ready = got = 0

        def press():
            for number in range(300):
                while ready <= number:
                    sleep(0.0002)
                sleep(draw.random() * 0.002)
                os.kill(os.getpid(), signal.SIGINT)
                limit = time.monotonic() + 30
                while got <= number and time.monotonic() < limit:
                    sleep(0.0002)
                if got <= number:
                    print("lost, number", number, flush=True)
                    os._exit(1)

        def work(number):
            while True:
                with locks.transaction() as tx:
                    tx.lock(("a", number % 3))
                    gevent.sleep(0)
                short = gevent.spawn(lambda: locks.original.begin_transaction([(("s", number % 2), "write")]))
                short.join()
                gevent.sleep(0)

        start_thread(press, ())
        greenlets = []
        while got < 300:
            try:
                while True:
                    greenlets = [each for each in greenlets if not each.dead]
                    while len(greenlets) < 6:
                        greenlets.append(gevent.spawn(work, len(greenlets)))
                    ready = got + 1
                    if got % 3:
                        gevent.sleep(30)
                    else:
                        gevent.wait(greenlets, count=1, timeout=30)
            except KeyboardInterrupt:
                got += 1
        gevent.killall(greenlets)
        print(got)
        locks.stop()
    """
    assert run_script(script) == "300\n"


@either
def test_in_a_callback_of_the_hub(run_script: Callable[..., str], prelude: str) -> None:
    """The callback is not torn; the main greenlet gets the exception."""
    script = (
        SETUP.format(prelude=prelude)
        + """
def callback():
    press()
    print("whole")
gevent.get_hub().loop.run_callback(callback)
try:
    gevent.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
gevent.sleep(0)
"""
    )
    assert run_script(script) == "whole\ninterrupted\n"


@either
def test_before_a_greenlet_that_never_pauses(run_script: Callable[..., str], prelude: str) -> None:
    """The loop does not come to throw it at the main greenlet: then it is raised in that greenlet."""
    script = (
        SETUP.format(prelude=prelude)
        + """
gevent.get_hub().exception_stream = None
def compute():
    while True:
        pass
gevent.get_hub().loop.run_callback(press)
gevent.spawn(compute)  # begins before what the loop is given in the callback
try:
    gevent.sleep(30)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert run_script(script) == "interrupted\n"


@either
def test_where_python_swallows_exceptions(run_script: Callable[..., str], prelude: str) -> None:
    """In a finaliser, and in the callback of a weak reference: it is raised a moment later."""
    script = (
        SETUP.format(prelude=prelude)
        + """
class Thing:
    def __del__(self):
        if finaliser:
            press()
for finaliser in (True, False):
    thing = Thing()
    ref = weakref.ref(thing, lambda _: finaliser or press())
    try:
        del thing
        gevent.sleep(30)
    except KeyboardInterrupt:
        print("interrupted")
"""
    )
    assert run_script(script) == "interrupted\ninterrupted\n"


@either
def test_in_the_first_step_of_a_function_that_lets_go(
    run_script: Callable[..., str], prelude: str
) -> None:
    """It does its own steps, and may be interrupted in what it waits for."""
    script = (
        SETUP.format(prelude=prelude)
        + """
@interrupts.whole_itself
def let_go():
    press()
    print("interrupted in what it calls")
@interrupts.whole
def told():
    press()
    print("whole")
@interrupts.whole_itself
def own_steps():
    signal.raise_signal(signal.SIGINT)
    print("own steps")
try:
    let_go()
except KeyboardInterrupt:
    print("in a call")
for function in (told, own_steps):
    try:
        function()
        time.sleep(30)
    except KeyboardInterrupt:
        print("later")
"""
    )
    assert run_script(script) == "in a call\nwhole\nlater\nown steps\nlater\n"
