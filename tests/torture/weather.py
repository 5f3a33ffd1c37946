"""One storm: the clients that work while it storms, its clock, and what is looked at afterwards.

What is thrown at them is said in `storm`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, ClassVar

import gevent
import pykka

import locks
from locks.program.default import default_node
from tests.helpers import eventually
from tests.torture.invariants import broken_when_empty
from tests.torture.work import Book, step

__all__ = ["Storm"]


class _HubThread:
    """A thread with a gevent hub, for one storm after the other: gevent keeps something of each that ends."""

    idle: ClassVar[list[_HubThread]] = []

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.jobs.get()()
            self.done.put(None)

    @classmethod
    def take(cls) -> _HubThread:
        """One that is idle, or a new one."""
        return cls.idle.pop() if cls.idle else cls()


ENOUGH = 20  # steps


class Storm:
    """One storm: its clients, its clock, and what it saw.

    Attributes:
        thrown: How many exceptions were thrown.
        seen: How many arrived.
        problems: What went wrong.
        tolerated: What clients in the background may see, too.
    """

    def __init__(
        self, seed: int, seconds: float, tolerated: tuple[type[Exception], ...] = ()
    ) -> None:
        self.rng = random.Random(seed)
        self.book = Book()
        self.over = False
        self.thrown = 0
        self.seen = 0
        self.problems: list[str] = []
        self.tolerated = tolerated
        self._seconds = seconds
        self._stop: list[Callable[[], object]] = []
        self.node = locks.start()

    def fork(self) -> random.Random:
        """A generator of random numbers for one client."""
        return random.Random(self.rng.random())

    def play(self, scenario: Callable[[Storm], None], with_greenlets: bool = True) -> None:
        """Let it storm; then look."""
        self._background(with_greenlets)
        clock = threading.Timer(self._seconds, self._end)
        clock.daemon = True
        clock.start()
        try:
            scenario(self)
        except BaseException as error:
            self.problems.append(f"the target saw {_told(error)}")
        eventually(lambda: self.over, self._seconds + 38)
        clock.join()
        for stop in self._stop:
            try:
                stop()
            except pykka.Timeout:
                self.problems.append("an actor does not end")
        self._look()

    def _end(self) -> None:
        """The storm ends after its time, but not before something has happened: the machine may be busy."""
        try:
            eventually(lambda: self.book.steps > ENOUGH, 30)
        finally:
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
            if isinstance(error, self.tolerated):
                return
            self.problems.append(f"a client saw {_told(error)}")

    def work(self) -> None:
        """Transactions until it is over."""
        rng = self.fork()
        while not self.over:
            with contextlib.suppress(*self.tolerated):
                step(rng, self.book, closed=bool(self.tolerated))

    def greenlets(self, *bodies: Callable[[], object]) -> None:
        """Greenlets in the hub of a thread of their own."""

        def run() -> None:
            gevent.joinall([gevent.spawn(self._guarded, body) for body in bodies])

        home = _HubThread.take()
        home.jobs.put(run)
        self._stop.append(lambda: self._await(home))

    def _await(self, home: _HubThread) -> None:
        try:
            home.done.get(timeout=8)
        except queue.Empty:
            self.problems.append("greenlets do not end")
            return
        _HubThread.idle.append(home)

    def green_work(self) -> None:
        """Transactions of a greenlet, that lets others run."""
        rng = self.fork()
        while not self.over:
            with contextlib.suppress(*self.tolerated):
                step(rng, self.book, closed=bool(self.tolerated))
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
        if with_greenlets:
            self.greenlets(self.green_work, self.green_work, self._green_actor)

    def _green_actor(self) -> None:
        storm = self

        class Green(locks.actors.GeventActor):
            def on_receive(self, message: Any) -> Any:
                storm._guarded(storm.green_work)

        actor = Green.start()
        actor.ask("go")
        actor.stop()

    # --- Throwing -------------------------------------------------------------------------------

    def catching(self, tick: Callable[[], object], kind: type[BaseException]) -> None:
        """Transactions of the caller. Whenever they go on, one exception is thrown by `tick`, somewhen."""
        rng, pauses = self.fork(), self.fork()
        # Not an Event: an exception within its `set` can leave its lock taken for ever.
        armed: list[None] = []
        ended = threading.Event()

        def throw() -> None:
            while not self.over:
                time.sleep(pauses.random() * 0.001)
                if armed:
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
                    armed.append(None)
                    for _ in range(10):
                        step(rng, self.book, closed=True)
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
        if self.tolerated:
            # If the clean-up finds no memory either, a transaction without a lock is left. The client's next lock takes it along.
            with locks.Lock(("t", "next"), timeout=5):
                pass
        with contextlib.suppress(AssertionError):  # told below
            eventually(lambda: not node.agents_by_id, 3.0)
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
