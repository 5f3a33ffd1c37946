"""A number in a file that clients increase under a lock, and that fences.

The file stands for whatever is guarded by a lock. Whoever comes with a fencing token smaller than one
that was seen is refused, at reading and at writing: that is what tokens are for. If they are what they
should be, then no accepted write is based on a number that somebody else has changed meanwhile.

Each access that is let in is one line at the end of the file, written at once: the file is its own
history, and one who is killed in the middle leaves it whole.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LINE = 128  # bytes; all lines are of the same length


class Stale(Exception):
    """The token is smaller than one that was seen."""


class Broken(Exception):
    """What fencing tokens promise does not hold."""


class Ledger:
    """The file. Each line: "read" or "written", the number, the token, and who came with it.

    Args:
        path: Where it is; made if it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @contextmanager
    def _open(self, token: int, owner: str) -> Iterator[tuple[int, int]]:
        """Open it for one who comes with a token; gives the file and the number."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            line = os.pread(file, LINE, size - LINE).decode() if size else f"read 0 0 {owner}"
            _, number, newest, by = line.split()
            if token < int(newest):
                raise Stale
            if token == int(newest) and owner != by:
                raise Broken(f"{owner} and {by} have the same token {token}")
            yield file, int(number)
        finally:
            os.close(file)

    def read(self, token: int, owner: str) -> int:
        """Return the number."""
        with self._open(token, owner) as (file, number):
            os.write(file, _line("read", number, token, owner))
            return number

    def write(self, token: int, owner: str, before: int) -> None:
        """Write the next number in place of the one that was read."""
        with self._open(token, owner) as (file, number):
            if number != before:
                raise Broken(f"{owner} read {before} with token {token}, but {number} is there")
            os.write(file, _line("written", number + 1, token, owner))

    def check(self) -> int:
        """Raise `Broken` unless each write that was let in counts; return how many there were."""
        if not self._path.exists():
            return 0
        lines = [line.split() for line in self._path.read_text().splitlines()]
        written = [int(number) for what, number, _, _ in lines if what == "written"]
        if written != list(range(1, len(written) + 1)):
            gaps = [pair for pair in itertools.pairwise(written) if pair[0] + 1 != pair[1]]
            raise Broken(f"increments are lost: {gaps}")
        tokens = [int(token) for _, _, token, _ in lines]
        if tokens != sorted(tokens):
            raise Broken(f"tokens of {self._path.name} went back")
        owners: dict[str, str] = {}
        for _, _, token, owner in lines:
            if owners.setdefault(token, owner) != owner:
                raise Broken(f"{owners[token]} and {owner} have used the same token {token}")
        return len(written)


def _line(what: str, number: int, token: int, owner: str) -> bytes:
    line = f"{what} {number} {token} {owner}".ljust(LINE - 1).encode() + b"\n"
    assert len(line) == LINE, f"{owner} is too long a name"
    return line
