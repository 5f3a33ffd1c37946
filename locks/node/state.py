"""The marks of a lock server in a file, so that they survive the end of all servers. Not for the turn: it waits for the disk.

The file is an SQLite database. SQLite writes a transaction wholly or not at all, whenever the process or the machine ends, and keeps
others out for as long as the file is open. SQLite does not notice each change of a byte; so each row has a checksum, and a row for the
node has the number and the sum of these.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locks.core.facts import Mark
from locks.errors import InvalidOption
from locks.net.messages import BadMessage, decode_part, encode
from locks.runtime.native import native_lock

if TYPE_CHECKING:
    import sqlite3

__all__ = ["State"]

APPLICATION = 0x6C6F636B  # "lock"; SQLite keeps it in the file's header
VERSION = 1
TABLES = """
    pragma application_id = {};
    pragma user_version = {};
    create table marks (number integer primary key, until integer, mark blob, checksum integer);
    create index ends on marks (until);
    create table node (about text, checksum integer);
"""


class State:
    """The file of one lock server, open.

    Args:
        path: The file; made if it is not there.
        name: The server's name.

    Attributes:
        marks: The marks that were in it, those with the larger tokens last.
        servers: All servers, if this one knew all marks that it had to know; else empty.

    Raises:
        InvalidOption: It is not such a file, is damaged, in use, or another server's, or can't be opened.
    """

    def __init__(self, path: Path, name: str) -> None:
        try:
            import sqlite3
        except ImportError as error:
            raise InvalidOption(
                f"a state file needs sqlite3, which this Python lacks: {error}"
            ) from error
        self._path, self._name = path, name
        self._lock = native_lock()
        try:
            if not path.exists():
                self._create()
            if path.stat().st_size == 0:
                raise sqlite3.DatabaseError("it is empty")
            self._connection = self._connect(path)
            try:
                self._take()
                self._load()
            except BaseException:
                self._connection.close()
                raise
        except InvalidOption:
            raise
        except (OSError, sqlite3.OperationalError) as error:
            why = getattr(error, "strerror", None) or str(error)
            text = "it is in use by another server" if "locked" in why else why
            raise InvalidOption(
                f"can't use the state file {path}: {text}", path=str(path)
            ) from error
        except (sqlite3.Error, BadMessage, ValueError, TypeError, AttributeError) as error:
            raise InvalidOption(
                f"the state file {path} is damaged: {error}. Remove it (an older copy has forgotten too much): then {name} begins "
                "without a memory, and waits for the other servers to tell it what is done",
                path=str(path),
            ) from error

    def _connect(self, path: Path) -> sqlite3.Connection:
        import sqlite3

        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )

    def _create(self) -> None:
        """Make the file, whole or not at all."""
        draft = self._path.with_name(f"{self._path.name}-{secrets.token_hex(4)}")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            connection = self._connect(draft)
            try:
                connection.executescript(TABLES.format(APPLICATION, VERSION))
                connection.execute("insert into node values (?, ?)", _about(self._name, (), 0, 0))
            finally:
                connection.close()
            os.link(draft, self._path)
        finally:
            draft.unlink()
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _take(self) -> None:
        """Keep others out, from now on."""
        for line in ("locking_mode = exclusive", "synchronous = extra", "begin exclusive"):
            self._connection.execute(line if line.startswith("begin") else f"pragma {line}")
        self._connection.execute("commit")

    def _load(self) -> None:
        query = self._connection.execute
        header = tuple(
            query(f"pragma {each}").fetchone()[0] for each in ("application_id", "user_version")
        )
        if header != (APPLICATION, VERSION):
            raise ValueError("it is no state file of this version of locks")
        (checked,) = query("pragma integrity_check(1)").fetchone()
        if checked != "ok":
            raise ValueError(checked)
        ((about, checksum),) = query("select * from node")
        if zlib.crc32(about.encode()) != checksum:
            raise ValueError("a checksum is wrong")
        name, servers, self._count, self._sum = json.loads(about)
        if name != self._name:
            raise InvalidOption(
                f"the state file {self._path} belongs to {name}: {self._name} needs a file of its own",
                path=str(self._path),
            )
        rows = list(query("select mark, checksum, number, until from marks order by number"))
        if (len(rows), sum(row[1] for row in rows)) != (self._count, self._sum):
            raise ValueError("marks are missing")
        self.servers = tuple(servers)
        self.marks = [_unpacked(*row) for row in rows]
        self._next = rows[-1][2] + 1 if rows else 1

    def write(self, marks: Sequence[Mark], servers: Iterable[str], now: int) -> None:
        """Add marks, and forget those whose time is over; when this returns, all is durable. Waits.

        Args:
            marks: The marks.
            servers: All servers, if this one knows all marks that it has to know.
            now: The present time.

        Raises:
            sqlite3.Error: It failed, and nothing has changed.
        """
        with self._lock, self._connection as connection:
            query = connection.execute
            query("begin immediate")
            over = list(query("select checksum from marks where until <= ?", (now,)))
            query("delete from marks where until <= ?", (now,))
            rows = []
            for number, mark in enumerate(marks, self._next):
                packed = encode(mark)
                rows.append((number, mark.until, packed, _checksum(packed, number, mark.until)))
            query_many = connection.executemany
            query_many("insert into marks values (?, ?, ?, ?)", rows)
            count = self._count - len(over) + len(rows)
            total = self._sum - sum(each for (each,) in over) + sum(row[3] for row in rows)
            about = _about(self._name, servers, count, total)
            query("update node set about = ?, checksum = ?", about)
            query("commit")
            self._next, self._count, self._sum = self._next + len(rows), count, total

    def close(self) -> None:
        """Let others have the file."""
        with self._lock:
            self._connection.close()


def _checksum(packed: bytes, number: int, until: int) -> int:
    return zlib.crc32(packed + f"{number} {until}".encode())


def _about(name: str, servers: Iterable[str], count: int, total: int) -> tuple[str, int]:
    """The row of the node."""
    about = json.dumps([name, list(servers), count, total])
    return about, zlib.crc32(about.encode())


def _unpacked(packed: Any, checksum: Any, number: int, until: int) -> Mark:
    if _checksum(packed, number, until) != checksum:
        raise ValueError("a checksum is wrong")
    return decode_part(packed, Mark)
