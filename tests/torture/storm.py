"""Storms: random transactions of clients of every kind, while all that Python can do to a program is done to it.

`python -m tests.torture.storm SCENARIO --seed 17 --seconds 5` plays one storm in this process, prints what came of
it as JSON, and ends by itself with a traceback if it hangs. Undisturbed clients of each kind work in the
background of each storm: they must see nothing of what is thrown at the others.

=========  ===========================================================================================
sigint     Ctrl-C, as a real signal, at the main thread
sigalrm    SIGALRM, with a handler that raises
async      `PyThreadState_SetAsyncExc` at threads
timeout    `gevent.Timeout` around transactions of greenlets
kill       greenlets and actors are killed, in and out of waits
collector  the garbage collector runs finalisers that lock and release, and closes generators that are within
           `with transaction()`
handler    a signal handler that locks, and one that releases
hooks      logging handlers, a profile function, and the node's trace function call `locks`
memory     allocations fail, in windows
stack      recursive functions lock until the stack ends
=========  ===========================================================================================

Each exception that was thrown is seen once, by its target, and by nobody else. The book (`work`) shows
no two holders. In the end all invariants hold (`invariants`), nothing is left, and the node serves on.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent

import locks
from locks.program.default import default_node
from tests.torture.memory import remove_mem_hooks, set_nomemory
from tests.torture.weather import Storm
from tests.torture.work import step

__all__ = ["SCENARIOS", "WITHOUT_GREENLETS"]

HANG = 60.0
WITHOUT_GREENLETS = ("memory",)
"""gevent itself does not survive without memory."""
LACKING = (MemoryError, RuntimeError, SystemError)
"""What the interpreter says without memory: `RuntimeError` where it can't make a lock, `SystemError` where it forgets to
say anything."""
REFUSED = (locks.LocksError, RuntimeError)
"""What an acquire within a turn may say."""


class Thrown(BaseException):
    """What is thrown."""


# --- Scenarios --------------------------------------------------------------------------------------


def _ticks(storm: Storm, tick: Callable[[], object], longest: float = 0.001) -> None:
    """Call `tick` again and again, in a thread of its own."""
    rng = storm.fork()

    def run() -> None:
        while not storm.over:
            time.sleep(rng.random() * longest)
            tick()

    storm.thread(run)


def sigint(storm: Storm) -> None:
    """Ctrl-C."""
    _signals(storm, KeyboardInterrupt, signal.SIGINT)


def sigalrm(storm: Storm) -> None:
    """A handler that raises."""

    def handle(signum: int, frame: object) -> None:
        raise Thrown

    signal.signal(signal.SIGALRM, handle)
    _signals(storm, Thrown, signal.SIGALRM)


def _signals(storm: Storm, kind: type[BaseException], number: int) -> None:
    storm.catching(lambda: os.kill(os.getpid(), number), kind)


def async_exceptions(storm: Storm) -> None:
    """Threads are thrown at by another one, as task queues do to end a job."""
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def target() -> None:
        ident = ctypes.c_ulong(threading.get_ident())
        storm.catching(lambda: throw(ident, ctypes.py_object(Thrown)), Thrown)

    storm.thread(target)


def timeouts(storm: Storm) -> None:
    """`gevent.Timeout` around all kinds of transactions."""

    def body() -> None:
        rng = storm.fork()
        while not storm.over:
            timeout = gevent.Timeout(rng.choice([0.0001, 0.0005, 0.002]))
            try:
                with timeout:
                    while not storm.over:
                        step(rng, storm.book)
                        gevent.sleep(0)
            except gevent.Timeout as error:
                if error is not timeout:
                    raise

    storm.greenlets(body, body, body)


def kills(storm: Storm) -> None:
    """Greenlets and actors are killed and replaced."""

    class Victim(locks.actors.GeventActor):
        def on_receive(self, message: Any) -> Any:
            message()

    def body() -> None:
        rng = storm.fork()
        while not storm.over:
            greenlets = [gevent.spawn(storm.green_work) for _ in range(2)]
            actor = Victim.start()
            actor.tell(storm.green_work)
            gevent.sleep(rng.random() * 0.004)
            for greenlet in greenlets:
                greenlet.kill(block=rng.random() < 0.5)
            locks.actors.kill(actor, "no longer needed")
            gevent.joinall(greenlets)

    storm.greenlets(body)


def collector(storm: Storm) -> None:
    """Cycles whose end locks and releases, collected at any moment."""

    class Keeper:
        def __init__(self, rows: Iterator[None]) -> None:
            self.me = self
            self.rows = rows

    class Finaliser:
        def __init__(self, agent: locks.actors.Agent) -> None:
            self.me = self
            self.agent = agent

        def __del__(self) -> None:
            try:
                locks.original.end_transaction(self.agent)
                with locks.transaction(timeout=0) as tx:
                    tx.lock(("t", "finaliser"))
            except REFUSED:
                pass

    def rows(rng: random.Random) -> Iterator[None]:
        with locks.transaction(timeout=0.001) as tx:
            tx.read_lock(("rows", rng.random()))
            yield

    def body() -> None:
        rng = storm.fork()
        while not storm.over:
            keeper = Keeper(rows(rng))
            with contextlib.suppress(locks.LockTimeout, locks.DeadlockAborted):
                next(keeper.rows)
            Finaliser(locks.original.spawn_agent())
            del keeper
            step(rng, storm.book)

    def profile(frame: Any, event: str, arg: Any) -> None:
        if chance.random() < 0.003:
            gc.collect(1)

    # Not at any allocation: another thread may come first, and is not their client.
    gc.disable()
    chance = storm.fork()
    sys.setprofile(profile)
    try:
        body()
    finally:
        sys.setprofile(None)
        gc.collect()


def handlers(storm: Storm) -> None:
    """Signal handlers that lock and release."""
    kept: list[locks.actors.Agent] = []
    rng = storm.fork()

    def handle(signum: int, frame: object) -> None:
        try:
            if kept:
                locks.original.end_transaction(kept.pop())
            elif rng.random() < 0.5:
                kept.append(locks.original.spawn_agent())
            with locks.transaction(timeout=0) as tx:
                tx.lock(("t", "handler"))
            locks.holders(("t",))
        except REFUSED:
            pass

    signal.signal(signal.SIGUSR1, handle)
    _ticks(storm, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    storm.work()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    while kept:
        locks.original.end_transaction(kept.pop())


def hooks(storm: Storm) -> None:
    """Logging handlers, trace and profile functions that call `locks`."""
    rng = storm.fork()

    def call() -> None:
        try:
            with locks.transaction(timeout=0) as tx:
                tx.lock(("t", "hook"))
        except REFUSED:
            pass

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            call()

    logger = logging.getLogger("torture")
    logger.propagate = False
    logger.addHandler(Handler())

    def profile(frame: Any, event: str, arg: Any) -> None:
        if rng.random() < 0.002:
            call()  # not by way of logging: its lock would be waited for within the turn

    def traced(sender: Any, receiver: Any, message: Any) -> None:
        if rng.random() < 0.05:
            logger.error("traced")

    default_node().trace = traced

    def body() -> None:
        sys.setprofile(profile)
        try:
            storm.work()
        finally:
            sys.setprofile(None)

    storm.thread(body)


def memory(storm: Storm) -> None:
    """Some allocations in a row fail, here or in another thread."""
    if set_nomemory is None:
        return
    rng = storm.fork()
    while not storm.over:
        first = rng.randint(0, 300)
        last = first + rng.randint(1, 3)
        try:
            set_nomemory(first, last)
            try:
                step(rng, storm.book, closed=True)
            finally:
                remove_mem_hooks()
        except LACKING:
            pass


def stack(storm: Storm) -> None:
    """A function that locks and calls itself, until the stack ends, in several threads.

    It ends early: a client with hundreds of transactions in a deadlock keeps its lock server busy for seconds.
    """
    sys.setrecursionlimit(500)

    def walk(number: int) -> None:
        with locks.transaction() as tx:
            tx.read_lock(("t", "walk", number))
            walk(number + 1)

    def body() -> None:
        while not storm.over:
            with contextlib.suppress(RecursionError, locks.DeadlockAborted):
                walk(0)

    storm.thread(body)
    storm.thread(body)


SCENARIOS: dict[str, Callable[[Storm], None]] = {
    "sigint": sigint,
    "sigalrm": sigalrm,
    "async": async_exceptions,
    "timeout": timeouts,
    "kill": kills,
    "collector": collector,
    "handler": handlers,
    "hooks": hooks,
    "memory": memory,
    "stack": stack,
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.storm")
    parser.add_argument("scenario", choices=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.seconds + HANG, exit=True)
    sys.setswitchinterval(0.0001)
    # Without memory is the whole program, whoever it is that is meant.
    tolerated = LACKING if options.scenario == "memory" else ()
    storm = Storm(options.seed, options.seconds, tolerated)
    log: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and isinstance(record.exc_info[1], tolerated):
                return  # a line that could not be written, and that is said
            log.append(f"logged: {record.getMessage()}"[:200])

    logging.getLogger("locks").addHandler(Log(logging.ERROR))
    logging.getLogger("locks").propagate = False
    storm.play(SCENARIOS[options.scenario], options.scenario not in WITHOUT_GREENLETS)
    problems = storm.problems + log
    print(
        json.dumps(
            {
                "steps": storm.book.steps,
                "thrown": storm.thrown,
                "seen": storm.seen,
                "problems": problems[:20],
            }
        ),
        flush=True,
    )
    os._exit(1 if problems else 0)  # threads that hang must not keep us


if __name__ == "__main__":
    main()
