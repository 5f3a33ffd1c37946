"""Random transactions over a small tree, and a book of who is inside what: the load of storms and endurance.

The book is the programs' own view: each client writes down what it holds, while it holds it. Two that are inside
conflicting ids at the same time, and both hold them as their transactions say, are a violation: two
holders of one lock. (A note alone proves nothing: an exception may hit a client between its lock and its note.)
"""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import NamedTuple

import locks
from locks.model import RIVALS, LockId, Mode, related, show
from locks.program.default import default_node
from locks.runtime.monitor import current_client

__all__ = ["Book", "step"]

LEAVES = "abc"
TRIES = (0, 0.0005, 0.003)


class Note(NamedTuple):
    """Somebody is inside an id."""

    lock_id: LockId
    mode: Mode
    agent: locks.actors.Agent

    @property
    def true(self) -> bool:
        """Whether its transaction holds it."""
        return self.agent.is_alive() and self.agent.machine.holds(self.lock_id)


class Book:
    """Who is inside what.

    Attributes:
        violations: Two that were inside conflicting ids.
        steps: How many transactions there were.
    """

    def __init__(self) -> None:
        self._notes: dict[int, Note] = {}
        self._number = itertools.count()
        self.violations: list[str] = []
        self.steps = 0

    def enter(self, lock_id: LockId, mode: Mode, agent: locks.actors.Agent) -> int:
        """The caller's transaction was told that it holds an id."""
        mine = Note(lock_id, mode, agent)
        for number, note in list(self._notes.items()):
            if note.agent is agent or mode not in RIVALS[note.mode]:
                continue
            if related(note.lock_id, lock_id):
                if note.true and mine.true:
                    self.violations.append(
                        f"{agent.id} is in {mode} {show(lock_id)}, {note.agent.id} in "
                        f"{note.mode} {show(note.lock_id)}"
                    )
                self._notes.pop(number, None)
        number = next(self._number)
        self._notes[number] = mine
        return number

    def leave(self, numbers: list[int]) -> None:
        """It is about to let go."""
        for number in numbers:
            self._notes.pop(number, None)


def random_id(rng: random.Random) -> LockId:
    """An id of one to three elements."""
    return ("t", *(rng.choice(LEAVES) for _ in range(rng.randint(0, 2))))


def random_mode(rng: random.Random) -> Mode:
    """A mode."""
    return "write" if rng.random() < 0.6 else "read"


def step(rng: random.Random, book: Book, closed: bool = False) -> None:
    """One random transaction of the caller, of some kind.

    With `closed`, only of those kinds that let go whatever interrupts them: blocks. A caller that gets something
    returned, and has a `try` on the next line, can be interrupted between the two.
    """
    book.steps += 1
    with contextlib.suppress(locks.DeadlockAborted, locks.LockTimeout):
        rng.choice(CLOSED if closed else FORMS)(rng, book)


def _block(rng: random.Random, book: Book) -> None:
    with locks.transaction(timeout=rng.choice(TRIES)) as tx:
        inside: list[int] = []
        try:
            for _ in range(rng.randint(1, 3)):
                lock_id, mode = random_id(rng), random_mode(rng)
                tx.lock(lock_id, mode)
                inside.append(book.enter(lock_id, mode, tx.agent))
                if rng.random() < 0.2:
                    tx.ensure_held(lock_id)
        finally:
            book.leave(inside)


def _all_at_once(rng: random.Random, book: Book) -> None:
    with locks.transaction(timeout=rng.choice(TRIES)) as tx:
        ids = {random_id(rng) for _ in range(3)}
        tx.lock_all(write=ids)
        inside: list[int] = []
        try:
            inside += [book.enter(lock_id, "write", tx.agent) for lock_id in ids]
        finally:
            book.leave(inside)


def _functions(rng: random.Random, book: Book) -> None:
    agent, _ = locks.original.begin_transaction(abort_on_deadlock=True)
    try:
        lock_id, mode = random_id(rng), random_mode(rng)
        locks.original.lock(agent, lock_id, mode, timeout=rng.choice(TRIES))
        inside = [book.enter(lock_id, mode, agent)]
        book.leave(inside)
        locks.original.unlock(agent, lock_id)
    finally:
        if agent.is_alive():
            locks.original.end_transaction(agent)


def _upgrade(rng: random.Random, book: Book) -> None:
    with locks.transaction(timeout=rng.choice(TRIES)) as tx:
        lock_id = random_id(rng)
        tx.read_lock(lock_id)
        tx.write_lock(lock_id)
        inside = [book.enter(lock_id, "write", tx.agent)]
        book.leave(inside)


def _lock(rng: random.Random, book: Book) -> None:
    lock_id, mode = random_id(rng), random_mode(rng)
    lock = locks.Lock(lock_id, mode)
    if lock.acquire(timeout=rng.choice(TRIES)):
        try:
            agent = default_node().holders.get(current_client())
            book.leave([book.enter(lock_id, mode, agent)])
        finally:
            lock.release()


def _with_lock(rng: random.Random, book: Book) -> None:
    lock_id = (*random_id(rng), "leaf")
    with locks.RWLock(lock_id).write_lock():
        agent = default_node().holders.get(current_client())
        book.leave([book.enter(lock_id, "write", agent)])


CLOSED = (_block, _block, _all_at_once, _upgrade, _with_lock)
FORMS = (*CLOSED, _functions, _lock)
