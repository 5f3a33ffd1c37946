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
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gevent

import locks

LINE = 128  # bytes; all lines are of the same length
BANK_LINE = 512  # bytes, likewise
BALANCE = 1000  # of an account at first


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

    def work(
        self, until: float, *, lock_id: list[Any], name: str, patience: float = 0.5, **terms: Any
    ) -> dict[str, int]:
        """Increase the number under a lock until the shared clock says so.

        Args:
            until: When to end, by `time.monotonic()`.
            lock_id: What to lock.
            name: Who writes.
            patience: Seconds to wait for a lock or a token at most.
            **terms: Where to lock, and how many nodes are needed.

        Returns:
            How often what has happened.
        """
        chance = random.Random(name)
        counts: Counter[str] = Counter()
        while time.monotonic() < until:
            try:
                with locks.transaction(timeout=patience, await_nodes=chance.random() < 0.5) as tx:
                    tx.lock(lock_id, **terms)
                    token = tx.token(lock_id)
                    owner = f"{name}/{tx.agent.id.created}"
                    number = self.read(token, owner)
                    gevent.sleep(chance.random() * 0.01)
                    self.write(token, owner, number)
                    counts["written"] += 1
                    tx.ensure_held()
            except locks.LocksError as error:
                counts[type(error).__name__] += 1
            except Stale:
                counts["refused"] += 1
        return dict(counts)


class Bank:
    """Accounts in a file that fences, as `Ledger` does. Each line has all balances, and the newest token of each.

    Args:
        path: Where it is; made if it is not there.
        accounts: How many accounts it has; each begins with `BALANCE`.
    """

    def __init__(self, path: str | Path, accounts: int) -> None:
        self._path = Path(path)
        self._accounts = accounts

    @contextmanager
    def _open(self, tokens: dict[int, int]) -> Iterator[tuple[int, list[int], list[int]]]:
        """Open it for one who comes with tokens of accounts; gives the file, balances, and newest tokens."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            line = os.pread(file, BANK_LINE, size - BANK_LINE).decode() if size else ""
            numbers = list(map(int, line.split()))
            balances = numbers[: self._accounts] or [BALANCE] * self._accounts
            newest = numbers[self._accounts :] or [0] * self._accounts
            for account, token in tokens.items():
                if token < newest[account]:
                    raise Stale
                newest[account] = token
            yield file, balances, newest
        finally:
            os.close(file)

    def read(self, tokens: dict[int, int]) -> dict[int, int]:
        """Return the balances of the accounts for which there are tokens."""
        with self._open(tokens) as (file, balances, newest):
            os.write(file, _bank_line(balances, newest))
            return {account: balances[account] for account in tokens}

    def write(self, tokens: dict[int, int], before: dict[int, int], after: dict[int, int]) -> None:
        """Write new balances in place of those that were read."""
        with self._open(tokens) as (file, balances, newest):
            found = {account: balances[account] for account in before}
            if found != before:
                raise Broken(f"{before} was read with tokens {tokens}, but {found} is there")
            for account, balance in after.items():
                balances[account] = balance
            os.write(file, _bank_line(balances, newest))

    def check(self) -> int:
        """Raise `Broken` if money was lost or made, or a token went back; return how often it was moved."""
        moved = 0
        last: list[int] = [BALANCE] * self._accounts
        newest = [0] * self._accounts
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            numbers = list(map(int, line.split()))
            balances, tokens = numbers[: self._accounts], numbers[self._accounts :]
            if sum(balances) != BALANCE * self._accounts:
                raise Broken(f"there is {sum(balances)} in all: {balances}")
            if any(old > new for old, new in zip(newest, tokens, strict=True)):
                raise Broken(f"tokens went back from {newest} to {tokens}")
            moved += balances != last
            last, newest = balances, tokens
        return moved


def _bank_line(balances: list[int], tokens: list[int]) -> bytes:
    line = " ".join(map(str, [*balances, *tokens])).ljust(BANK_LINE - 1).encode() + b"\n"
    assert len(line) == BANK_LINE, "there are too many accounts for a line"
    return line


def _line(what: str, number: int, token: int, owner: str) -> bytes:
    line = f"{what} {number} {token} {owner}".ljust(LINE - 1).encode() + b"\n"
    assert len(line) == LINE, f"{owner} is too long a name"
    return line
