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
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pykka

import locks
from locks.program import default_node
from tests.helpers import eventually
from tests.torture.invariants import broken_when_empty
from tests.torture.work import Book, step

try:
    import _testcapi
except ImportError:
    _testcapi = None

__all__ = ["SCENARIOS", "Storm"]

HANG = 15.0
REFUSED = (locks.LocksError, RuntimeError)
"""What an acquire within a turn may say."""


class Thrown(BaseException):
    """What is thrown."""


class Storm:
    """One storm: its clients, its clock, and what it saw.

    Attributes:
        thrown: How many exceptions were thrown.
        seen: How many arrived.
        problems: What went wrong.
        tolerated: What clients in the background may see, too.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self.rng = random.Random(seed)
        self.book = Book()
        self.over = False
        self.thrown = 0
        self.seen = 0
        self.problems: list[str] = []
        self.tolerated: type[Exception] | tuple[()] = ()
        self._seconds = seconds
        self._stop: list[Callable[[], object]] = []
        self.node = locks.start()

    def fork(self) -> random.Random:
        """A generator of random numbers for one client."""
        return random.Random(self.rng.random())

    def play(self, scenario: Callable[[Storm], None]) -> None:
        """Let it storm; then look."""
        self._background(with_greenlets=scenario is not memory)
        clock = threading.Timer(self._seconds, self._end)
        clock.daemon = True
        clock.start()
        try:
            scenario(self)
        except BaseException as error:
            self.problems.append(f"the target saw {_told(error)}")
        eventually(lambda: self.over, self._seconds + 8)
        clock.join()
        for stop in self._stop:
            try:
                stop()
            except pykka.Timeout:
                self.problems.append("an actor does not end")
        self._look()

    def _end(self) -> None:
        self.over = True

    # --- Clients --------------------------------------------------------------------------------

    def thread(self, body: Callable[[], object]) -> None:
        """A thread that is waited for in the end."""
        thread = threading.Thread(target=self._guarded, args=(body,), daemon=True)
        thread.start()
        self._stop.append(lambda: self._join(thread))

    def _join(self, thread: threading.Thread) -> None:
        thread.join(8)
        if thread.is_alive():
            self.problems.append(f"{thread.name} does not end")

    def _guarded(self, body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            self.problems.append(f"a client saw {_told(error)}")

    def work(self) -> None:
        """Transactions until it is over."""
        rng = self.fork()
        while not self.over:
            with contextlib.suppress(self.tolerated):
                step(rng, self.book)

    def greenlets(self, *bodies: Callable[[], object]) -> None:
        """Greenlets in the hub of a thread of its own."""

        def run() -> None:
            gevent.joinall([gevent.spawn(self._guarded, body) for body in bodies])
            gevent.get_hub().destroy(destroy_loop=True)

        self.thread(run)

    def green_work(self) -> None:
        """Transactions of a greenlet, that lets others run."""
        rng = self.fork()
        while not self.over:
            with contextlib.suppress(self.tolerated):
                step(rng, self.book)
            gevent.sleep(0)

    def _background(self, with_greenlets: bool) -> None:
        storm = self

        class Plain(pykka.ThreadingActor):
            use_daemon_thread = True

            def on_receive(self, message: Any) -> Any:
                storm._guarded(storm.work)

        self.thread(self.work)
        actor = Plain.start()
        actor.tell("go")
        self._stop.append(lambda: actor.stop(timeout=8))
        if with_greenlets:  # gevent itself does not survive without memory
            self.greenlets(self.green_work, self.green_work, self._green_actor)

    def _green_actor(self) -> None:
        storm = self

        class Green(locks.GeventActor):
            def on_receive(self, message: Any) -> Any:
                storm._guarded(storm.green_work)

        Green.start().ask("go")

    # --- Throwing -------------------------------------------------------------------------------

    def catching(self, tick: Callable[[], object], kind: type[BaseException]) -> None:
        """Transactions of the caller. Whenever they go on, one exception is thrown by `tick`, somewhen."""
        rng, pauses = self.fork(), self.fork()
        armed, ended = threading.Event(), threading.Event()

        def throw() -> None:
            while not self.over:
                time.sleep(pauses.random() * 0.001)
                if armed.is_set():
                    armed.clear()
                    self.thrown += 1
                    tick()
            ended.set()

        thread = threading.Thread(target=throw, daemon=True)
        thread.start()
        seen = 0
        while not self.over or not ended.is_set() or seen < self.thrown:
            try:
                while not self.over:
                    armed.set()
                    for _ in range(10):
                        step(rng, self.book)
                eventually(ended.is_set, 5)
                eventually(lambda: False, 0.2)  # the last one may be on its way
            except kind:
                seen += 1
            except AssertionError:
                break
            except Exception as error:
                self.problems.append(f"the target saw {_told(error)}")
                self.over = True
        self.seen += seen

    # --- The end --------------------------------------------------------------------------------

    def _look(self) -> None:
        node = self.node
        if default_node() is not node:
            self.problems.append("the node was replaced by another one")
        with contextlib.suppress(AssertionError):  # told below
            eventually(lambda: not node.agents, 3.0)
        self.problems += broken_when_empty(node)
        self.problems += self.book.violations[:5]
        if self.seen != self.thrown:
            self.problems.append(f"{self.thrown} exceptions were thrown, {self.seen} were seen")
        try:
            with locks.transaction(timeout=5) as tx:
                tx.lock(("t",))
        except locks.LocksError as error:
            self.problems.append(f"afterwards: {type(error).__name__}: {error}"[:300])


def _told(error: BaseException) -> str:
    """An error, and where it came up."""
    frames = traceback.extract_tb(error.__traceback__)[-9:]
    where = " > ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames)
    return f"{type(error).__name__}: {error}"[:300] + f" ({where})"


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

    class Victim(locks.GeventActor):
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
            locks.kill(actor, "no longer needed")
            gevent.joinall(greenlets)

    storm.greenlets(body)


def collector(storm: Storm) -> None:
    """Cycles whose end locks and releases, collected at any moment."""

    class Keeper:
        def __init__(self, rows: Iterator[None]) -> None:
            self.me = self
            self.rows = rows

    class Finaliser:
        def __init__(self, agent: locks.Agent) -> None:
            self.me = self
            self.agent = agent

        def __del__(self) -> None:
            try:
                locks.end_transaction(self.agent)
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
            Finaliser(locks.spawn_agent())
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
    kept: list[locks.Agent] = []
    rng = storm.fork()

    def handle(signum: int, frame: object) -> None:
        try:
            if kept:
                locks.end_transaction(kept.pop())
            elif rng.random() < 0.5:
                kept.append(locks.spawn_agent())
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
        locks.end_transaction(kept.pop())


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
    if _testcapi is None or not hasattr(_testcapi, "set_nomemory"):
        return
    storm.tolerated = MemoryError  # the hook is the whole program's
    rng = storm.fork()
    while not storm.over:
        first = rng.randint(0, 300)
        last = first + rng.randint(1, 3)
        try:
            _testcapi.set_nomemory(first, last)
            try:
                step(rng, storm.book)
            finally:
                _testcapi.remove_mem_hooks()
        except MemoryError:
            pass


def stack(storm: Storm) -> None:
    """A function that locks and calls itself, until the stack ends, in several threads."""

    def walk(number: int) -> None:
        with locks.transaction() as tx:
            tx.read_lock(("t", "walk", number))
            walk(number + 1)

    def body() -> None:
        while not storm.over:
            with contextlib.suppress(RecursionError):
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
    storm = Storm(options.seed, options.seconds)
    log: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.append(f"logged: {record.getMessage()}"[:200])

    logging.getLogger("locks").addHandler(Log(logging.ERROR))
    logging.getLogger("locks").propagate = False
    storm.play(SCENARIOS[options.scenario])
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
