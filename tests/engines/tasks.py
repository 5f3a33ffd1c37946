"""What tasks of engines do in the tests. They meet in a folder, by files: what is there has happened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import locks
from locks import aio
from tests.helpers import eventually

LOCK = ("engine", "lock")


def count(folder: str) -> int:
    """Add one to the number in a file, in two steps, under a lock; note the fencing token; return the process."""
    with locks.transaction(timeout=60) as tx:
        _add(folder, tx.write_lock(LOCK))
    return os.getpid()


async def count_in_a_coroutine(folder: str) -> int:
    """The same in a coroutine."""
    async with aio.transaction(timeout=60) as tx:
        _add(folder, await tx.write_lock(LOCK))
    return os.getpid()


def _add(folder: str, token: Any) -> None:
    number = Path(folder, "number")
    before = int(number.read_text()) if number.exists() else 0
    with Path(folder, "tokens").open("a") as tokens:
        tokens.write(f"{token}\n")
    number.write_text(str(before + 1))


def hold(folder: str, lock_id: tuple[str, ...] = LOCK, name: str = "holder") -> str:
    """Hold a lock until `let-go` is there; note each time that it is had, by which process, and what became of it."""
    told = ""
    try:
        with locks.transaction(timeout=60) as tx:
            tx.write_lock(lock_id)
            note(folder, name, os.getpid())
            eventually(lambda: Path(folder, "let-go").exists() or tx.lost.is_open)
            tx.ensure_held()
            told = "held"
    except locks.LocksError as error:
        told = type(error).__name__
        raise
    finally:
        note(folder, f"{name}-told", told)
    return told


def hold_and_ask(folder: str) -> str:
    """Hold the lock until `ask` is there, whatever becomes of it; then ask whether it is held."""
    with locks.transaction(timeout=60) as tx:
        tx.write_lock(LOCK)
        note(folder, "holder", os.getpid())
        eventually(Path(folder, "ask").exists)
        tx.ensure_held()
    return "held"


def forget(lock_id: tuple[str, ...] = LOCK, also: Callable[[], object] = int) -> int:
    """Lock something, and never release it."""
    locks.transaction(timeout=60).__enter__().write_lock(lock_id)
    also()
    return os.getpid()


def take(lock_id: tuple[str, ...] = LOCK) -> int:
    """Lock something; return the process."""
    with locks.transaction(timeout=60) as tx:
        tx.write_lock(lock_id)
    return os.getpid()


def cross(folder: str, name: str, first: str, second: str) -> int:
    """Lock two ids, once the other task has its first; again if it is aborted. Returns how often it was tried."""
    tries = 0

    def run(tx: locks.Transaction) -> None:
        nonlocal tries
        tries += 1
        tx.write_lock((first,))
        note(folder, name, "")
        eventually(lambda: len(list(Path(folder).glob("crossing-*"))) == 2)
        tx.write_lock((second,))

    locks.run_transaction(run, timeout=60)
    return tries


def who() -> list[str]:
    """Who has the lock, in the order in which it is had and waited for, as others see them."""
    return [each.client for each in locks.queue(LOCK).requests]


def note(folder: str, name: str, what: object) -> None:
    """Something has happened; in one file for each, a line for each time."""
    with Path(folder, name).open("a") as file:
        file.write(f"{what}\n")


def noted(folder: Path, name: str, times: int = 1) -> list[str]:
    """Wait until something has happened so many times; return what was noted."""

    def lines() -> list[str]:
        path = folder / name
        found = path.read_text().splitlines() if path.exists() else []
        return found if len(found) >= times else []

    return eventually(lines)
