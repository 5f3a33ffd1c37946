"""A number in a file that clients increase under a lock, and a record of all that was written.

The file stands for whatever is guarded by a lock. Whoever comes with a fencing token smaller than one
that was seen is refused, at reading and at writing: that is what tokens are for. If they are what they
should be, then no accepted write is based on a number that somebody else has changed meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gevent

import locks


class Stale(Exception):
    """The token is smaller than one that was seen."""


class Broken(Exception):
    """What fencing tokens promise does not hold."""


class State(NamedTuple):
    """What is in the file: the number, the largest token seen, and who came with it."""

    number: int = 0
    token: int = 0
    owner: str = ""


class Ledger:
    """The file.

    Args:
        path: Where it is; made if it is not there. Beside it is `path.log`: each accepted write.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._log = Path(f"{path}.log")

    @contextmanager
    def _open(self, token: int, owner: str) -> Iterator[tuple[State, Any]]:
        """Open it for one who comes with a token."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT)
        with os.fdopen(descriptor, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read()
            state = State(*json.loads(text)) if text else State()
            if token < state.token:
                raise Stale
            if token == state.token and owner != state.owner:
                raise Broken(f"{owner} and {state.owner} have the same token {token}")

            def write(new: State) -> None:
                file.seek(0)
                file.truncate()
                file.write(json.dumps(new))
                file.flush()

            yield state, write

    def read(self, token: int, owner: str) -> int:
        """Return the number."""
        with self._open(token, owner) as (state, write):
            write(State(state.number, token, owner))
            return state.number

    def write(self, token: int, owner: str, before: int, number: int) -> None:
        """Write a number in place of the one that was read."""
        with self._open(token, owner) as (state, write):
            if state.number != before:
                raise Broken(
                    f"{owner} read {before} with token {token}, but {state.number} is there now, "
                    f"seen with token {state.token} by {state.owner}"
                )
            write(State(number, token, owner))
            with self._log.open("a") as log:
                log.write(json.dumps([number, token, owner]) + "\n")

    def history(self) -> list[tuple[int, int, str]]:
        """All accepted writes: number, token and owner."""
        if not self._log.exists():
            return []
        return [tuple(json.loads(line)) for line in self._log.read_text().splitlines()]

    def check(self) -> int:
        """Raise `Broken` unless each accepted write counts; return how many there were."""
        history = self.history()
        if [number for number, _, _ in history] != list(range(1, len(history) + 1)):
            raise Broken(f"increments are lost: {history}")
        tokens = [token for _, token, _ in history]
        if tokens != sorted(tokens):
            raise Broken(f"tokens went back: {history}")
        return len(history)

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
                    self.write(token, owner, number, number + 1)
                    counts["written"] += 1
                    tx.ensure_held()
            except locks.LocksError as error:
                counts[type(error).__name__] += 1
            except Stale:
                counts["refused"] += 1
        return dict(counts)
