"""The SIGINT shield, with real signals in fresh interpreters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SETUP = """
import os, signal, threading
from locks.runtime import interrupts
def press():
    signal.raise_signal(signal.SIGINT)
"""


@pytest.fixture
def run(run_script: Callable[[str], str]) -> Callable[[str], str]:
    """Run a script behind the set-up above."""
    return lambda script: run_script(SETUP + script)


def test_a_section_is_never_torn(run: Callable[[str], str]) -> None:
    """Ctrl-C in nested sections is raised when the outermost one ends, once."""
    script = """
print(interrupts.install())
try:
    outer = interrupts.enter()
    try:
        inner = interrupts.enter()
        press()
        press()
        interrupts.leave(inner)
        print("inner done")
    finally:
        interrupts.leave(outer)
    print("not reached")
except KeyboardInterrupt:
    print("interrupted")
token = interrupts.enter()
interrupts.leave(token)
print("no second interrupt")
"""
    assert run(script) == "True\ninner done\ninterrupted\nno second interrupt\n"


@pytest.mark.slow
def test_a_signal_storm_tears_nothing(run: Callable[[str], str]) -> None:
    """Signals at arbitrary moments hit only between the sections: two counters stay equal.

    The next signal comes when the last one was caught: none comes to where nobody catches it.
    """
    script = """
import time
interrupts.install()
first = second = interruptions = sent = torn = 0
inside = done = False
def storm():
    global sent
    while not done:
        if inside and sent == interruptions:
            sent += 1
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.0001)
thread = threading.Thread(target=storm)
thread.start()
while interruptions < 300:
    try:
        while True:
            inside = True
            token = interrupts.enter()
            try:
                first += 1
                for _ in range(20): pass
                second += 1
            finally:
                interrupts.leave(token)
    except KeyboardInterrupt:
        inside = False
        interruptions += 1
        torn += first != second
done = True
thread.join()
print(torn, first == second, interrupts._shield.depth)
"""
    assert run(script) == "0 True 0\n"


def test_a_handler_of_the_program_is_left_alone(run: Callable[[str], str]) -> None:
    """With a SIGINT handler of its own the program keeps it, before and after `uninstall`."""
    script = """
def own(*_): print("own")
signal.signal(signal.SIGINT, own)
print(interrupts.install(), bool(interrupts.enter()))
press()
interrupts.uninstall()
print(signal.getsignal(signal.SIGINT) is own)
"""
    assert run(script) == "False False\nown\nTrue\n"


def test_other_threads_are_not_shielded(run: Callable[[str], str]) -> None:
    """`install` does nothing in another thread, and a section there delays no signal."""
    script = """
results = []
thread = threading.Thread(target=lambda: results.append(interrupts.install()))
thread.start(); thread.join()
interrupts.install()
thread = threading.Thread(target=lambda: results.append(bool(interrupts.enter())))
thread.start(); thread.join()
print(results)
try:
    press()
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(script) == "[False, False]\ninterrupted\n"


def test_a_patched_program_is_shielded_too(run: Callable[[str], str]) -> None:
    """In a monkey-patched program a section in any greenlet of the main thread is shielded."""
    script = """
from gevent import monkey
monkey.patch_all()
import gevent
print(interrupts.install())
def section():
    token = interrupts.enter()
    press()
    print("whole")
    try:
        interrupts.leave(token)
    except KeyboardInterrupt:
        print("then interrupted")
gevent.spawn(section).join()
"""
    assert run(script) == "True\nwhole\nthen interrupted\n"
