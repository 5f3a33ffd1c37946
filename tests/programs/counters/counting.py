"""What the programs do under their lock: they count, in three steps. Each waits for the file `go`, so that a test can look, and kill one."""

import asyncio
import os
import time
from pathlib import Path

WORKERS = range(3)
ROUNDS = range(5)
JOBS = [worker for worker in WORKERS for _ in ROUNDS]


def count_one() -> None:
    found = begin()
    while not may_end():
        time.sleep(0.01)
    end(found)


async def count_one_in_task() -> None:
    found = begin()
    while not may_end():
        await asyncio.sleep(0.01)
    end(found)


def begin() -> int:
    note("begin")
    return int(Path("count").read_text())


def may_end() -> bool:
    return Path("go").exists()


def end(found: int) -> None:
    Path("count").write_text(f"{found + 1}")
    note("end")


def note(what: str) -> None:
    with Path("notes").open("a") as notes:
        notes.write(f"{what} {os.getpid()}\n")
