"""The file of an audit log: JSON lines, written by a thread of its own, with a limit of its size.

The lock server never waits for it: what is to be written is put into a queue. If that is full, or the disk, lines are
left out and counted. The log of the server says so, once until lines can be written again; then the file does, too.

Other nodes may ask who held a lock. A process of its own searches the files then, with a low priority, so the lock server is not
held up. There is one at a time.

A file that has become too large gets the suffix `.1`, the one before it `.2`, and so on; the oldest is removed.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from itertools import pairwise
from math import inf
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from gevent import monkey

from locks.core.facts import LARGEST_HISTORY, Answer, AskHistory, HistoryPage, Untold
from locks.errors import InvalidOption, OperatingError
from locks.model import Deadlock, show
from locks.node.node import Node
from locks.node.observing.audit import Audit, Hold, as_fields
from locks.runtime.logs import listeners
from locks.runtime.native import start_thread

if TYPE_CHECKING:
    from queue import SimpleQueue
else:
    SimpleQueue = monkey.get_original("queue", "SimpleQueue")  # of native threads

__all__ = ["FILES", "SIZE", "AuditLog", "files_of"]

FILES: Final = 10
SIZE: Final = 500  # MiB of all of them
MOST_LINES: Final = 100_000  # that wait to be written
AT_ONCE: Final = 1000  # lines of one write
LOOK: Final = 10.0  # seconds between two looks at the locks that are held
PATIENCE: Final = 5.0  # seconds for writing the last lines when the process ends
SEARCH: Final = 60.0  # seconds for a search
NEWEST: Final = 100  # holds and events that a search for another node tells
# Events of the log that are written, too.
TOLD: Final = ("broken", "refused", "server_down", "server_back")
STARTED, STOPPED = {"event": "started"}, {"event": "stopped"}

logger = logging.getLogger("locks.audit")


def files_of(path: Path) -> list[Path]:
    """The files of an audit log that there may be, the oldest first."""
    return [*(path.with_name(f"{path.name}.{n}") for n in range(FILES - 1, 0, -1)), path]


class AuditLog:
    """The audit log of a lock server.

    Args:
        path: The file. Lines are added to one that exists.
        size: The size of it and of the rotated ones, in MiB.
        most: How many lines may wait to be written.

    Raises:
        InvalidOption: The size is no positive number.
        OperatingError: The file can't be opened.
    """

    def __init__(self, path: Path, size: float = SIZE, most: int = MOST_LINES) -> None:
        if not 0 < size < inf:
            raise InvalidOption(f"--audit-size {size:g} is not a size in MiB; use a number > 0")
        self._path, self._most = path, most
        self._largest = size * 2**20 / FILES
        self._records: SimpleQueue[tuple[float, Any] | None] = SimpleQueue()
        self._left_out = self._told = 0  # lines left out; of these, how many the file says
        self._works = True
        self._searches = False
        try:
            self._open()
        except OSError as error:
            raise OperatingError(f"can't write the audit log {path}: {error.strerror}") from error

    def begin(self, node: Node) -> None:
        """Write what happens at a node from now on."""
        self._name, server = node.name, node.server
        clock = server.times.clock

        def address(name: str) -> str | None:
            if name == node.name:
                return ""
            return None if node.cluster is None else node.cluster.distribution.address_of(name)

        def wall(at: float) -> str:
            return _text(time.time() - clock() + at)

        self._wall = wall
        self._audit = Audit(server.machine, server.times, server.turn, self.put, address)
        # In a turn, so there is no thin lock.
        server.turn.run(setattr, server, "audit", self._audit)
        self._node = node
        server.search = self.search
        self.put(STARTED)
        listeners.append(self._hear)
        self._join = start_thread(self._write_all, "locks audit")

    def put(self, record: Hold | Deadlock | dict[str, Any]) -> None:
        """Have a line written, or leave it out, if too many wait."""
        if self._records.qsize() < self._most:
            self._records.put((time.time(), record))
        else:
            self._left_out += 1

    def search(self, question: AskHistory, tell: Callable[[Answer], object]) -> None:
        """Have the files searched; the answer is told in a later turn. In the turn."""
        if self._searches:
            tell(Untold("it is searching its audit log for somebody else; try again"))
            return
        self._searches = True

        def work() -> None:
            try:
                answer = self._found(question)
            except Exception as error:
                logger.exception("%s failed to search its audit log", self._name)
                answer = Untold(f"it failed to search its audit log: {error}"[:1000])
            self._searches = False
            self._node.turn.run(tell, answer)

        start_thread(work, "locks audit search")

    def _found(self, question: AskHistory) -> HistoryPage | Untold:
        command = [sys.executable, "-m", "locks", "history", "--json", f"--limit={NEWEST}"]
        if question.at:
            command.append(f"--at={_text(question.at / 1e6)}")
        command += ["--audit", str(self._path.absolute()), "--", show(question.lock_id)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        with suppress(AttributeError, OSError):  # Windows has no such function
            os.setpriority(os.PRIO_PROCESS, process.pid, 10)
        try:
            out, error = process.communicate(timeout=SEARCH)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Untold(
                f"the search of its audit log timed out after {SEARCH:g} s; search the file there"
            )
        if process.returncode not in (0, 1):
            return Untold(f"can't search its audit log: {error.strip() or out.strip()}"[:1000])
        if len(out) > LARGEST_HISTORY:
            return Untold(
                "its audit log says too much of this lock; use --at, or search the file there"
            )
        return HistoryPage(out)

    def close(self) -> None:
        """Write what is left, if that takes no long time."""
        listeners.remove(self._hear)
        self._records.put(None)
        self._join(PATIENCE)

    def _hear(self, event: str, fields: dict[str, Any]) -> None:
        if event in TOLD:
            self.put({"event": event, **fields})

    # --- In the thread of the log ---------------------------------------------------------------

    def _write_all(self) -> None:
        look_at = time.monotonic() + LOOK
        ends = False
        while not ends:
            records: list[tuple[float, Any]] = []
            for record in self._next(look_at - time.monotonic()):
                if record is None:
                    ends = True
                    break
                records.append(record)
            try:
                if ends or time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK
                    records += [(time.time(), hold) for hold in self._audit.lasting()]
                if ends:
                    records.append((time.time(), STOPPED))
                for at in range(0, len(records), AT_ONCE):
                    self._write(records[at : at + AT_ONCE])
            except Exception:
                self._left_out += len(records)
                logger.exception("%s failed to write its audit log", self._name)

    def _next(self, patience: float) -> Iterator[tuple[float, Any] | None]:
        """What is to be written, as soon as there is something."""
        with suppress(Empty):
            yield self._records.get(timeout=max(0.0, patience))
            for _ in range(AT_ONCE):
                yield self._records.get_nowait()

    def _write(self, records: list[tuple[float, Any]]) -> None:
        missing = self._left_out - self._told
        if missing:
            records.append((time.time(), {"event": "left_out", "lines": missing}))
        text = "".join(map(self._line, records)).encode()
        try:
            if self._file < 0:
                self._open()
            if self._size and self._size + len(text) > self._largest:
                self._rotate()
            self._add(text)
        except OSError as error:
            self._left_out += len(records) - bool(missing)
            if self._works:
                self._works = False
                logger.warning(
                    "%s can't write the audit log %s: %s. Lines are left out until it can",
                    *(self._name, self._path, error.strerror),
                )
            return
        if missing:
            self._told += missing
            logger.warning("%s left out %d lines of the audit log", self._name, missing)
        self._works = True

    def _line(self, record: tuple[float, Any]) -> str:
        at, what = record
        fields = what if isinstance(what, dict) else as_fields(what, self._wall)
        line = {"time": _text(at), "node": self._name, **fields}
        return json.dumps(line) + "\n"

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size

    def _add(self, text: bytes) -> None:
        """Write all of it, or nothing."""
        written = 0
        try:
            while True:
                written += os.write(self._file, text[written:])
                if written == len(text):
                    break
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += written

    def _rotate(self) -> None:
        self._file, full = -1, self._file  # if it can't be opened anew, that is tried again
        os.close(full)
        for older, newer in pairwise(files_of(self._path)):
            with suppress(FileNotFoundError):
                os.replace(newer, older)
        self._open()


def _text(at: float) -> str:
    """A point in time, in UTC."""
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="microseconds")
