"""Interrupted acquires, by the hundred thousand: is the lock held afterwards, when nobody believes that he has it?

`hold` and `worker` are tasks of ownership, and workers that join and leave by a `with` block.

`python -m tests.torture.windows --number 100000` measures each kind of interruption with each form of acquiring
and letting go, as people write them, and `threading.Lock` beside them in the same program. A lock is *left* when
the interrupted code is over, and the lock is still held.

The forms `with ...` must leave none. `try/finally`, with `acquire()` on the line before `try`, has a window
between the two that no library can close: it is measured for both kinds of locks.

The kinds: `sigint` and `sigalrm` are real signals to the main thread, from a process beside (so nothing of this
program decides where they hit); `async` is `PyThreadState_SetAsyncExc` at a thread; `timeout` and `kill` are
`gevent.Timeout` and `GreenletExit` in greenlets, where another greenlet holds the lock for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gevent
import pykka

import locks
from locks.ownership import NotOwner, Ownership
from locks.runtime.monitor import current_client
from tests.helpers import ROOT, eventually

__all__ = ["CELLS", "CLOSED", "Cell", "measure"]

KEY, OTHER = ("k",), ("l",)
LIMIT = 60.0

SENDER = """
import os, random, sys, time
pid, number, rng = int(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
while os.read(0, 1):
    end = time.perf_counter() + rng.random() * 0.00015
    while time.perf_counter() < end:
        pass
    os.kill(pid, number)
"""


class Thrown(BaseException):
    """What interrupts, where no exception of Python's own does."""


# --- Forms ------------------------------------------------------------------------------------------


class Form:
    """One way to acquire and let go.

    Args:
        once: Acquires, and lets go.
        left: Whether the lock is held.
        free: Lets it go, if so.
    """

    def __init__(
        self, once: Callable[[], object], left: Callable[[], bool], free: Callable[[], object]
    ) -> None:
        self.once = once
        self.left = left
        self.free = free


def _native_with() -> Form:
    lock = threading.Lock()

    def once() -> None:
        with lock:
            pass

    return Form(once, lock.locked, lock.release)


def _native_try() -> Form:
    lock = threading.Lock()

    def once() -> None:
        lock.acquire()
        try:
            pass
        finally:
            lock.release()

    return Form(once, lock.locked, lock.release)


def _lock_with() -> Form:
    lock = locks.Lock(KEY)

    def once() -> None:
        with lock:
            pass

    return Form(once, _anybody, _free_all)


def _lock_try() -> Form:
    lock = locks.Lock(KEY)

    def once() -> None:
        lock.acquire()
        try:
            pass
        finally:
            lock.release()

    return Form(once, _anybody, _free_all)


def _transaction() -> Form:
    def once() -> None:
        with locks.transaction() as tx:
            tx.lock(KEY)

    return Form(once, _anybody, _free_all)


def _lock_all() -> Form:
    def once() -> None:
        with locks.transaction() as tx:
            tx.lock_all(write=[KEY, OTHER])

    return Form(once, _anybody, _free_all)


def _rwlock() -> Form:
    lock = locks.RWLock(KEY)

    def once() -> None:
        with lock.read_lock():
            pass
        with lock.write_lock():
            pass

    return Form(once, _anybody, _free_all)


def _rlock() -> Form:
    lock, same = locks.RLock(KEY), locks.RLock(KEY)

    def once() -> None:
        with lock, same:
            pass

    return Form(once, _anybody, _free_all)


def _hold() -> Form:
    mine = Ownership("windows", 1)

    def join() -> None:
        mine.join()
        eventually(mine.owned)

    def join_again() -> None:
        mine.stop(now=True)
        eventually(lambda: not mine.joined)
        join()

    def once() -> None:
        with mine.hold("a"):
            pass

    join()
    return Form(once, lambda: mine.statistics().at_hand > 0, join_again)


def _worker() -> Form:
    workers: list[Ownership] = []
    others = _participants()  # of `hold`, in the same process

    def new() -> list[pykka.ActorRef[Any]]:
        return [each for each in _participants() if each not in others]

    def once() -> None:
        mine = Ownership("one more", 1)
        workers[:] = [mine]
        with mine, contextlib.suppress(NotOwner), mine.hold("a"):
            pass

    def left() -> bool:
        """It takes some time until a worker has left."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: not any(mine.joined for mine in workers), 0.5)
            eventually(lambda: not new(), 0.5)
            return False
        return True

    return Form(once, left, lambda: [each.stop(block=False) for each in new()])


def _participants() -> list[pykka.ActorRef[Any]]:
    found = pykka.ActorRegistry.get_by_class_name("_Participant")
    return [each for each in found if each.is_alive()]


def _anybody() -> bool:
    """Whether the caller has any transaction left: each holds something, or would."""
    return bool(locks.start().clients.get(current_client()))


def _free_all() -> None:
    node = locks.start()
    for agent in list(node.clients.get(current_client(), ())):
        with contextlib.suppress(locks.TransactionEnded):
            agent.end_transaction()
    if _anybody():
        locks.stop()  # nothing else frees it


FORMS: dict[str, Callable[[], Form]] = {
    "threading.Lock, with": _native_with,
    "threading.Lock, try/finally": _native_try,
    "Lock, with": _lock_with,
    "Lock, try/finally": _lock_try,
    "RWLock, with": _rwlock,
    "RLock, with": _rlock,
    "transaction": _transaction,
    "lock_all": _lock_all,
    "hold": _hold,
    "worker": _worker,
}
CLOSED = ("Lock, with", "RWLock, with", "RLock, with", "transaction", "lock_all", "hold", "worker")
"""The forms that must leave nothing."""


# --- Kinds ------------------------------------------------------------------------------------------


class Count:
    """What came of many interruptions.

    Attributes:
        left: How often the lock was held afterwards.
        lost: Where an exception was swallowed in code that acquires or lets go: Python says so of those
            that come up in finalisers.
        errors: What else was raised, that nobody has thrown.
    """

    def __init__(self) -> None:
        self.left = 0
        self.lost: list[str] = []
        self.errors: list[str] = []
        self._swallowed = False
        sys.unraisablehook = self._lose

    def _lose(self, what: sys.UnraisableHookArgs) -> None:
        # Finalisers of Python's own, and what a thread's end calls, are no part of acquiring.
        if getattr(what.object, "__module__", "").startswith(
            ("locks.runtime.leaving", "locks.node")
        ):
            self.lost.append(getattr(what.object, "__qualname__", repr(what.object)))
        self._swallowed = True

    def goes_on(self) -> bool:
        """Whether the interruption is still to come: it was not swallowed."""
        on = not self._swallowed
        self._swallowed = False
        return on

    def look(self, form: Form) -> None:
        """After an interruption."""
        if form.left():
            self.left += 1
            form.free()

    def failed(self, error: Exception) -> None:
        """Something else was raised."""
        self.errors.append(f"{type(error).__name__}: {error}"[:200])


def _signals(form: Form, number: int, seed: int, which: int, kind: type[BaseException]) -> Count:
    """Signals to this, the main, thread."""
    count = Count()
    command = [sys.executable, "-S", "-c", SENDER, str(os.getpid()), str(int(which)), str(seed)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as sender:
        assert sender.stdin is not None
        arm = sender.stdin.fileno()
        for _ in range(number):
            try:
                os.write(arm, b"x")
                while True:  # as in `tests/repo/test_loops.py`
                    if not count.goes_on():
                        break
                    try:
                        form.once()
                    except Exception as error:
                        count.failed(error)
            except kind:
                pass
            count.look(form)
        sender.stdin.close()
    return count


def sigint(form: Form, number: int, seed: int) -> Count:
    """Ctrl-C."""
    return _signals(form, number, seed, signal.SIGINT, KeyboardInterrupt)


def sigalrm(form: Form, number: int, seed: int) -> Count:
    """A handler that raises."""

    def handle(signum: int, frame: object) -> None:
        raise Thrown

    signal.signal(signal.SIGALRM, handle)
    return _signals(form, number, seed, signal.SIGALRM, Thrown)


def async_exceptions(form: Form, number: int, seed: int) -> Count:
    """`PyThreadState_SetAsyncExc` at a thread, by this one."""
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    rng = random.Random(seed)
    count = Count()
    armed, over = threading.Event(), threading.Event()

    def target() -> None:
        for _ in range(number):
            try:
                armed.set()
                while True:
                    if not count.goes_on():
                        break
                    try:
                        form.once()
                    except Exception as error:
                        count.failed(error)
            except Thrown:
                pass
            count.look(form)
        over.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    while not over.is_set():
        time.sleep(rng.random() * 0.0001)
        if armed.is_set():
            armed.clear()
            throw(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Thrown))
    thread.join()
    return count


def _in_hub(form: Form, rounds: Callable[[random.Random, Count], object], seed: int) -> Count:
    """Greenlets; another one holds the lock in between, so there are waits to be interrupted."""
    rng = random.Random(seed)
    count = Count()
    over = False

    def busy() -> None:
        while not over:
            with locks.transaction() as tx:
                tx.lock(KEY)
                gevent.sleep(rng.random() * 0.0002)
            gevent.sleep(0)

    def run() -> None:
        nonlocal over
        try:
            rounds(rng, count)
        finally:
            over = True

    gevent.joinall([gevent.spawn(run), gevent.spawn(busy)])
    return count


def _loop(form: Form, count: Count) -> None:
    while count.goes_on():
        try:
            form.once()
        except Exception as error:
            count.failed(error)
        gevent.sleep(0)


def timeout(form: Form, number: int, seed: int) -> Count:
    """`gevent.Timeout` around it."""

    def rounds(rng: random.Random, count: Count) -> None:
        for _ in range(number):
            with gevent.Timeout(rng.random() * 0.0003, False):
                _loop(form, count)
            count.look(form)

    return _in_hub(form, rounds, seed)


def kill(form: Form, number: int, seed: int) -> Count:
    """The greenlet is killed; it lives on for a moment, and the lock must be free by then."""

    def rounds(rng: random.Random, count: Count) -> None:
        def victim() -> None:
            try:
                _loop(form, count)
            except gevent.GreenletExit:
                count.look(form)

        for _ in range(number):
            greenlet = gevent.spawn(victim)
            gevent.sleep(rng.random() * 0.0003)
            greenlet.kill()

    return _in_hub(form, rounds, seed)


KINDS: dict[str, Callable[[Form, int, int], Count]] = {
    "sigint": sigint,
    "sigalrm": sigalrm,
    "async": async_exceptions,
    "timeout": timeout,
    "kill": kill,
}
GREEN = ("timeout", "kill")
CELLS = [
    (kind, form)
    for kind in KINDS
    for form in FORMS
    if not (kind in GREEN and form.startswith("threading"))  # that would block the whole hub
]


class Cell(NamedTuple):
    """What was measured of one kind of interruption with one form."""

    kind: str
    form: str
    number: int
    left: int
    lost: list[str]
    errors: list[str]
    seconds: float


def measure(
    cells: list[tuple[str, str]], number: int, seed: int, hang: float = LIMIT
) -> Iterator[Cell]:
    """Measure some cells, all in one process; after one that hangs the rest in another one."""
    left = list(cells)
    while left:
        command = [sys.executable, "-m", "tests.torture.windows"]
        command += ["--number", str(number), "--seed", str(seed), "--hang", str(hang), "--only"]
        command += [f"{kind}:{form}" for kind, form in left]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        for line in done.stdout.splitlines():
            yield Cell(*json.loads(line))
            del left[0]
        if left:
            text = done.stderr[-3000:]
            yield Cell(*left[0], number, 0, [], [f"hangs, or breaks down: {text}"], hang)
            del left[0]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.windows")
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hang", type=float, default=LIMIT, help="seconds after which one hangs")
    parser.add_argument("--only", nargs="+", help="KIND:FORM, to measure in this process")
    options = parser.parse_args()
    if not options.only:
        for cell in measure(CELLS, options.number, options.seed, options.hang):
            errors = f"{len(cell.errors)} errors: {cell.errors[0][:200]}" if cell.errors else ""
            lost = f"{len(cell.lost)} lost in {set(cell.lost)}" if cell.lost else ""
            print(
                f"{cell.kind:8} {cell.form:28} {cell.left:6} left of {cell.number} {lost} {errors}"
            )
        return
    sys.setswitchinterval(0.00005)
    locks.start()
    for only in options.only:
        kind, _, form = only.partition(":")
        faulthandler.dump_traceback_later(options.hang, exit=True)
        begun = time.monotonic()
        count = KINDS[kind](FORMS[form](), options.number, options.seed)
        seconds = round(time.monotonic() - begun, 2)
        cell = Cell(kind, form, options.number, count.left, count.lost, count.errors[:5], seconds)
        print(json.dumps(cell), flush=True)


if __name__ == "__main__":
    main()
