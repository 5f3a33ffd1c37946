"""What the jobs do: they write invoices. Each waits for the file `go`, so that a test has time to look, and to kill it."""

import os
import time
from pathlib import Path

NUMBERS = range(1, 4)


def path_of(number: int) -> Path:
    return Path(f"invoice {number}")


def is_written(number: int) -> bool:
    return path_of(number).exists()


def write_invoice(number: int) -> None:
    note(f"begin {number}")
    while not Path("go").exists():
        time.sleep(0.01)
    draft = Path(f"draft {number}")
    draft.write_text("to be paid")
    draft.rename(path_of(number))
    note(f"end {number}")


def note(what: str) -> None:
    with Path("notes").open("a") as notes:
        notes.write(f"{what} {os.getpid()}\n")
