"""The data in one SQLite file.

Four tables:

* `versions`: the committed values of a key, each with its timestamp. No value: the key was deleted.
* `intents`: the uncommitted values, at most one for each key, each with its transaction.
* `commits`: the transaction records. A transaction is committed when its record is on the disk. A
  record stays until the intents of its transaction have become versions.
* `numbers`: the timestamp up to which the oracle may go, and the oldest one that can be read.

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

import sqlite3
import threading
from typing import Any

from locks.errors import InvalidOption, OperatingError

__all__ = ["Storage", "StoreFailed"]

APPLICATION = 0x6C6B7631  # marks our files: other SQLite files are refused
TABLES = f"""
PRAGMA application_id = {APPLICATION};
CREATE TABLE IF NOT EXISTS versions
    (key TEXT, timestamp INTEGER, value TEXT, PRIMARY KEY (key, timestamp)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intents (key TEXT PRIMARY KEY, txn INTEGER, value TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS intents_of ON intents (txn);
CREATE TABLE IF NOT EXISTS commits (txn INTEGER PRIMARY KEY, timestamp INTEGER);
CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT OR IGNORE INTO numbers VALUES ('ceiling', 0), ('oldest', 0);
"""


class StoreFailed(OperatingError):
    """The file can't be used, or not any more: the error of SQLite is the cause."""


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
        try:
            # Transactions are begun here, not by the module (`isolation_level`).
            self._db = sqlite3.connect(
                path, timeout=1, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StoreFailed(f"can't open {path!r}: {error}") from error
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"{path!r} is no name of a file: {error}") from error
        try:
            self._open(path, sync)
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: str, sync: bool) -> None:
        self._run("PRAGMA locking_mode = EXCLUSIVE")  # one process at a time
        ((ours,),) = self._run("PRAGMA application_id")
        ((tables,),) = self._run("SELECT count(*) FROM sqlite_master")
        if tables and ours != APPLICATION:
            raise InvalidOption(f"{path!r} is an SQLite file of another program; name another file")
        self._run("PRAGMA journal_mode = WAL")
        self._run(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        self._run("BEGIN IMMEDIATE")
        for statement in TABLES.split(";"):
            self._run(statement)
        # What a process that was killed has left behind; see above.
        for txn, timestamp in self._run("SELECT txn, timestamp FROM commits"):
            self.resolve(txn, timestamp)
        self._run("DELETE FROM intents")
        self._commit()

    # --- Reading

    def get(self, key: str, timestamp: int, txn: int) -> str | None:
        """Return the value at a timestamp, or the one that the transaction itself has written."""
        found = self._run("SELECT value FROM intents WHERE key = ? AND txn = ?", key, txn)
        found = found or self._run(
            "SELECT value FROM versions WHERE key = ? AND timestamp <= ?"
            " ORDER BY timestamp DESC LIMIT 1",
            key,
            timestamp,
        )
        return found[0][0] if found else None

    def scan(self, start: str, end: str, timestamp: int, txn: int) -> list[tuple[str, str]]:
        """Return keys and values of a range, like `get` for each key, in the keys' order."""
        with self._mutex:
            found = self._run(
                # Beside max(), SQLite takes the other columns from the row of the maximum.
                "SELECT key, value, max(timestamp) FROM versions"
                " WHERE key >= ? AND key < ? AND timestamp <= ? GROUP BY key",
                start,
                end,
                timestamp,
            )
            own = self._run(
                "SELECT key, value FROM intents WHERE key >= ? AND key < ? AND txn = ?",
                start,
                end,
                txn,
            )
        values = {key: value for key, value, _ in found} | dict(own)
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
        self._run("INSERT OR REPLACE INTO intents VALUES (?, ?, ?)", key, txn, value)

    def commit(self, txn: int, timestamp: int) -> None:
        """Commit a transaction: when this returns, its record is on the disk."""
        with self._mutex:
            self._run("INSERT INTO commits VALUES (?, ?)", txn, timestamp)
            self._commit()

    def resolve(self, txn: int, timestamp: int | None) -> None:
        """Make versions of a transaction's intents, or remove them if it was not committed.

        It is on the disk with the next commit of any transaction; if there is none before the process
        ends, it is done again when the file is opened. Only if there is a record of an abort (the
        commit was interrupted) it is on the disk at once: it must not be found again.
        """
        with self._mutex:
            if timestamp is not None:
                self._run(
                    "INSERT OR REPLACE INTO versions"
                    " SELECT key, ?, value FROM intents WHERE txn = ?",
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
        ((value,),) = self._run("SELECT value FROM numbers WHERE name = ?", name)
        return int(value)

    def set_number(self, name: str, value: int) -> None:
        """Change one of the numbers, on the disk too."""
        with self._mutex:
            self._run("UPDATE numbers SET value = ? WHERE name = ?", value, name)
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
            self._run("DELETE FROM versions WHERE timestamp <= ? AND value IS NULL", before)
            ((deleted,),) = self._run("SELECT changes()")
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

    def _commit(self) -> None:
        with self._mutex:
            # An interrupt (Ctrl-C) may have come between the two the last time.
            if self._db.in_transaction:
                self._run("COMMIT")
            self._run("BEGIN IMMEDIATE")

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._mutex:
            if self._failed is not None:
                raise StoreFailed(f"the store can't be used any more: {self._failed}; open it anew")
            try:
                return self._db.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                # SQLite may have undone all that was gathered, the intents of others too. Only
                # what is on the disk is certain now: go on from there.
                self._failed = str(error)
                raise StoreFailed(
                    f"SQLite says: {error}. Open the store anew (once no other process has it "
                    "open); what was committed is in the file"
                ) from error
