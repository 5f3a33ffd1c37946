"""What the programs do under their lock: they count, in three steps. Each waits for the file `go`, so that a test can look, and kill one."""

import os
from pathlib import Path

WORKERS = range(3)
ROUNDS = range(5)


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
