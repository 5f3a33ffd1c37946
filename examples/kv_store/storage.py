"""The data in one SQLite file.

Five tables:

* `versions`: the committed values of a key, each with its timestamp. No value: the key was deleted.
* `intents`: the uncommitted values, at most one for each key, each with its transaction.
* `large`: values of more than `SMALL` characters; the other two tables name them by number. They would
  be in the way of all keys near them: SQLite reads whole rows of such a table to compare their keys.
* `commits`: the transaction records. A transaction is committed when its record is on the disk. A
  record stays until the intents of its transaction have become versions.
* `numbers`: the timestamp up to which the oracle may go, and the oldest one that can be read.

Each row has a checksum, over its key, its value and its number (`checksum`). It is looked at whenever a
value is read. When a file is opened all rows are, and SQLite checks how they hang together
(`integrity_check`): that finds keys that are missing. So a byte that is not what was written is an error.

One connection, and in it always one open SQLite transaction. A commit (`commit`) writes everything that
has gathered in it to the disk, the intents of other transactions, too. So an intent costs no wait for
the disk, a transaction costs one, and its intents are on the disk no later than its record.

A file whose process was killed has records with intents (committed: the versions are made when it
is opened) and intents without a record (not committed: removed). This is done for all of them
before the first request. They could also be found one by one, by the requests that meet them
(`LockTable.add_discovered_lock`): that is for stores that can't wait for it. Here it takes two
statements, and from then on each intent belongs to a living transaction and is in the lock table.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

from locks.errors import InvalidOption, OperatingError

__all__ = ["Storage", "StoreFailed"]

SMALL = 500  # characters in a value that is kept beside its key
APPLICATION = 0x6C6B7631  # marks our files: other SQLite files are refused
FORMAT = 1
TABLES = (
    ("versions", "versions (key TEXT, timestamp INTEGER, value TEXT, large INTEGER, checksum INTEGER,"
     " PRIMARY KEY (key, timestamp)) WITHOUT ROWID"),
    ("intents", "intents (key TEXT PRIMARY KEY, txn INTEGER, value TEXT, large INTEGER,"
     " checksum INTEGER) WITHOUT ROWID"),
    ("large", "large (id INTEGER PRIMARY KEY, value TEXT)"),
    ("commits", "commits (txn INTEGER PRIMARY KEY, timestamp INTEGER, checksum INTEGER)"),
    ("numbers", "numbers (name TEXT PRIMARY KEY, value INTEGER, checksum INTEGER) WITHOUT ROWID"),
)  # fmt: skip
SCHEMA = [("table", name, name, f"CREATE TABLE {columns}") for name, columns in TABLES]
SCHEMA.append(("index", "intents_of", "intents", "CREATE INDEX intents_of ON intents (txn)"))


class StoreFailed(OperatingError):
    """The file can't be used, or not any more: the error of SQLite is the cause."""


def checksum(key: str, value: str | None, number: int) -> int:
    """The checksum of a row; it grows with the number, so that an intent can become a version."""
    start = zlib.crc32(key.encode() + b"\0", value is None)
    return zlib.crc32(b"" if value is None else value.encode(), start) + number


class Storage:
    """The tables. Each method is atomic; latches and locks decide which calls may be made when.

    Args:
        path: The file, made if it is not there; ":memory:" for none.
        sync: Whether a commit waits for the disk. Without, a commit survives the end of the
            process, but perhaps not the end of the machine.

    Raises:
        InvalidOption: The file is not one of ours.
        StoreFailed: Another process has the file open, or it can't be opened.
    """

    def __init__(self, path: str, *, sync: bool = True) -> None:
        self._mutex = threading.RLock()
        self._failed: str | None = None
        self._large: dict[
            int, dict[str, int]
        ] = {}  # the large values of each transaction's intents
        self._process = os.getpid()
        with _opening:
            refuse_second(path)
            try:
                # Transactions are begun here, not by the module (`isolation_level`).
                self._db = sqlite3.connect(
                    path, timeout=1, isolation_level=None, check_same_thread=False
                )
            except sqlite3.Error as error:
                raise StoreFailed(f"can't open {path!r}: {error}") from error
            except (TypeError, ValueError) as error:
                raise InvalidOption(f"{path!r} is not the name of a file: {error}") from error
            try:
                self._open(path, sync)
            except BaseException as error:
                self._db.close()
                if "locked" in str(error.__cause__):
                    refuse_second(path, failed=True)
                    raise StoreFailed(
                        f"can't open {path!r}: another process has it open; a store is one process's"
                    ) from error
                raise
            file = identity(path)
            if file is not None:
                _open_files[file] = self

    def _open(self, path: str, sync: bool) -> None:
        self._run("PRAGMA locking_mode = EXCLUSIVE")  # one process at a time
        ((ours,),) = self._run("PRAGMA application_id")
        ((tables,),) = self._run("SELECT count(*) FROM sqlite_master")
        new = not tables and not ours
        if not new:
            self._check(path, ours)
        self._run("PRAGMA journal_mode = WAL")
        self._run(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        self._run("BEGIN IMMEDIATE")
        if new:
            self._run(f"PRAGMA application_id = {APPLICATION}")
            self._run(f"PRAGMA user_version = {FORMAT}")
            for *_, statement in SCHEMA:
                self._run(statement)
            for name in ("ceiling", "oldest"):
                self._run("INSERT INTO numbers VALUES (?, 0, ?)", name, checksum(name, None, 0))
        # What a process that was killed has left behind; see above.
        for txn, timestamp, _ in self._run("SELECT * FROM commits"):
            self.resolve(txn, timestamp)
        self._run("DELETE FROM intents")
        self._drop_large()
        self._commit()

    def _check(self, path: str, ours: int) -> None:
        """Look through a file that is there: whether it is one of ours, and all of it is as written."""
        ((version,),) = self._run("PRAGMA user_version")
        if ours != APPLICATION:
            raise InvalidOption(f"{path!r} is an SQLite file of another program; name another file")
        if version != FORMAT:
            raise InvalidOption(
                f"{path!r} has format {version} and not {FORMAT}: open it with the store that has "
                "written it, and copy its content into a new file"
            )
        if self._run("SELECT type, name, tbl_name, sql FROM sqlite_master") != SCHEMA:
            raise self._damaged("its tables are not those of a store")
        for (complaint,) in self._run("PRAGMA integrity_check"):
            if complaint != "ok":
                raise self._damaged(f"SQLite says {complaint!r}")
        for table, number in (("versions", "timestamp"), ("intents", "txn")):
            for row in self._rows(
                f"SELECT key, {number}, coalesce(small.value, large.value), checksum"
                f" FROM {table} AS small LEFT JOIN large ON id = large"
            ):
                self._value(*row)
        for row in self._rows("SELECT txn, timestamp, NULL, checksum FROM commits"):
            self._value(str(row[0]), *row[1:])
        for row in self._rows("SELECT name, value, NULL, checksum FROM numbers"):
            self._value(*row)

    # --- Reading

    def get(self, key: str, timestamp: int, txn: int) -> str | None:
        """Return the value at a timestamp, or the one that the transaction itself has written."""
        found = self._run(
            "SELECT key, txn, coalesce(small.value, large.value), checksum"
            " FROM intents AS small LEFT JOIN large ON id = large WHERE key = ? AND txn = ?",
            key,
            txn,
        )
        found = found or self._run(
            "SELECT key, timestamp, coalesce(small.value, large.value), checksum"
            " FROM versions AS small LEFT JOIN large ON id = large"
            " WHERE key = ? AND timestamp <= ? ORDER BY timestamp DESC LIMIT 1",
            key,
            timestamp,
        )
        return self._value(*found[0]) if found else None

    def scan(self, start: str, end: str, timestamp: int, txn: int) -> list[tuple[str, str]]:
        """Return keys and values of a range, like `get` for each key, in the keys' order."""
        with self._mutex:
            found = self._run(
                "SELECT key, newest, coalesce(small.value, large.value), checksum FROM ("
                # Beside max(), SQLite takes the other columns from the row of the maximum.
                "SELECT key, max(timestamp) AS newest, value, large, checksum FROM versions"
                " WHERE key >= ? AND key < ? AND timestamp <= ? GROUP BY key"
                ") AS small LEFT JOIN large ON id = large",
                start,
                end,
                timestamp,
            )
            own = self._run(
                "SELECT key, txn, coalesce(small.value, large.value), checksum"
                " FROM intents AS small LEFT JOIN large ON id = large"
                " WHERE key >= ? AND key < ? AND txn = ?",
                start,
                end,
                txn,
            )
            values = {row[0]: self._value(*row) for row in (*found, *own)}
        return sorted((key, value) for key, value in values.items() if value is not None)

    def newest(self, key: str) -> int:
        """Return the timestamp of a key's newest version; 0 if it has none."""
        ((found,),) = self._run("SELECT max(timestamp) FROM versions WHERE key = ?", key)
        return found or 0

    def committed_between(self, start: str, end: str, after: int, upto: int) -> bool:
        """Whether a range has a version above `after` and not above `upto`."""
        return bool(
            self._run(
                "SELECT 1 FROM versions WHERE key >= ? AND key < ?"
                " AND timestamp > ? AND timestamp <= ? LIMIT 1",
                start,
                end,
                after,
                upto,
            )
        )

    def writers(self, start: str, end: str) -> set[int]:
        """Return the transactions that have intents in a range."""
        found = self._run("SELECT txn FROM intents WHERE key >= ? AND key < ?", start, end)
        return {txn for (txn,) in found}

    # --- Writing

    def put_intent(self, key: str, txn: int, value: str | None) -> None:
        """Write a transaction's value for a key. If the key has an intent, it is its own."""
        with self._mutex:
            large = None
            if txn in self._large:
                self._drop_large(self._large[txn].pop(key, None))
            sum_ = checksum(key, value, txn)
            if value is not None and len(value) > SMALL:
                self._run("INSERT INTO large (value) VALUES (?)", value)
                ((large,),) = self._run("SELECT last_insert_rowid()")
                self._large.setdefault(txn, {})[key] = large
                value = None
            self._run(
                "INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?)",
                key,
                txn,
                value,
                large,
                sum_,
            )

    def commit(self, txn: int, timestamp: int) -> None:
        """Commit a transaction: when this returns, its record is on the disk."""
        with self._mutex:
            self._run(
                "INSERT INTO commits VALUES (?, ?, ?)",
                txn,
                timestamp,
                checksum(str(txn), None, timestamp),
            )
            self._commit()

    def resolve(self, txn: int, timestamp: int | None) -> None:
        """Make versions of a transaction's intents, or remove them if it was not committed.

        It is on the disk with the next commit of any transaction; if there is none before the process
        ends, it is done again when the file is opened. Only if there is a record of an abort (the
        commit was interrupted) it is on the disk at once: it must not be found again.
        """
        with self._mutex:
            large = self._large.pop(txn, {})
            if timestamp is None:
                for number in large.values():
                    self._drop_large(number)
            else:
                self._run(
                    "INSERT OR REPLACE INTO versions"
                    " SELECT key, ?, value, large, checksum - txn + ? FROM intents WHERE txn = ?",
                    timestamp,
                    timestamp,
                    txn,
                )
            self._run("DELETE FROM intents WHERE txn = ?", txn)
            self._run("DELETE FROM commits WHERE txn = ?", txn)
            ((records,),) = self._run("SELECT changes()")
            if records and timestamp is None:
                self._commit()

    def number(self, name: str) -> int:
        """Return one of the numbers."""
        ((value, known),) = self._run("SELECT value, checksum FROM numbers WHERE name = ?", name)
        self._value(name, value, None, known)
        return int(value)

    def set_number(self, name: str, value: int) -> None:
        """Change one of the numbers, on the disk too."""
        with self._mutex:
            self._run(
                "UPDATE numbers SET value = ?, checksum = ? WHERE name = ?",
                value,
                checksum(name, None, value),
                name,
            )
            self._commit()

    def vacuum(self, before: int) -> int:
        """Remove the versions that no read at `before` or later sees; return how many."""
        with self._mutex:
            self.set_number("oldest", before)
            self._run(
                "DELETE FROM versions WHERE timestamp < (SELECT max(newer.timestamp)"
                " FROM versions AS newer WHERE newer.key = versions.key AND newer.timestamp <= ?)",
                before,
            )
            ((removed,),) = self._run("SELECT changes()")
            self._run(
                "DELETE FROM versions WHERE timestamp <= ? AND value IS NULL AND large IS NULL",
                before,
            )
            ((deleted,),) = self._run("SELECT changes()")
            self._drop_large()
            self._commit()
        return int(removed) + int(deleted)

    def close(self) -> None:
        """Write what has gathered, and close the file."""
        with self._mutex:
            if self._failed is None:
                if self._db.in_transaction:
                    self._run("COMMIT")
                self._failed = "it was closed"
            self._db.close()
            file = next((file for file, store in _open_files.items() if store is self), None)
            if file is not None:
                del _open_files[file]

    def _commit(self) -> None:
        with self._mutex:
            # An interrupt (Ctrl-C) may have come between the two the last time.
            if self._db.in_transaction:
                self._run("COMMIT")
            self._run("BEGIN IMMEDIATE")

    def _drop_large(self, number: int | None = -1) -> None:
        """Remove a large value; -1: all that no row names any more."""
        if number == -1:
            self._run(
                "DELETE FROM large WHERE id NOT IN (SELECT large FROM versions WHERE large IS NOT NULL"
                " UNION ALL SELECT large FROM intents WHERE large IS NOT NULL)"
            )
        elif number is not None:
            self._run("DELETE FROM large WHERE id = ?", number)

    def _value(self, key: str, number: int, value: str | None, known: int) -> str | None:
        """The value of a row, if its checksum is right."""
        try:
            right = checksum(key, value, number) == known
        except (AttributeError, TypeError, UnicodeEncodeError):  # not even of the right kind
            right = False
        if not right:
            raise self._damaged(f"the row of {key!r} at {number!r} is not as it was written")
        return value

    def _damaged(self, what: str) -> StoreFailed:
        self._failed = f"the file is damaged: {what}. Go on with a copy of it"
        return StoreFailed(self._failed)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._rows(statement, *values))

    def _rows(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with self._mutex:
            if self._failed is not None:
                raise StoreFailed(
                    f"the store can't be used any more: {self._failed}; open it again"
                )
            try:
                yield from self._db.execute(statement, values)
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: of a damaged file
                # SQLite may have undone all that was gathered, the intents of others too. Only
                # what is on the disk is certain now: go on from there.
                self._failed = str(error)
                raise StoreFailed(
                    f"SQLite says: {error}. Open the store again (once no other process has it "
                    "open); what was committed is in the file"
                ) from error


# --- Files that are open in this process ----------------------------------------------------------

_opening = threading.Lock()
_open_files: WeakValueDictionary[tuple[int, int], Storage] = WeakValueDictionary()


def identity(path: str) -> tuple[int, int] | None:
    """Which file a name stands for; `None` if there is none."""
    try:
        found = os.stat(path)
    except (OSError, TypeError, ValueError):
        return None
    return found.st_dev, found.st_ino


def refuse_second(path: str, *, failed: bool = False) -> None:
    """Raise if this process has the file open already; or in a store that has failed, too."""
    file = identity(path)
    other = None if file is None else _open_files.get(file)
    if other is not None and other._process == os.getpid() and (failed or other._failed is None):
        raise StoreFailed(
            f"{path!r} is open in another Store of this process already; use that one, also from other "
            "threads, or close it first"
        )
