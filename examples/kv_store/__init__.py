"""A small transactional key-value store on the lock table of `locks.mvcc`.

    from examples.kv_store import Store

    with Store("shop.db") as store:
        def move(tx):
            tx.put("ann", str(int(tx.get("ann") or 0) - 1))
            tx.put("bob", str(int(tx.get("bob") or 0) + 1))
        store.run(move)

`python -m examples.kv_store` is the same by hand; `docs/mvcc.md` is a tour.

Theory of operation
-------------------
Each key has versions, each with the timestamp of the transaction that wrote it. A transaction has
one timestamp, where it reads and writes: as if all of it had happened at that one moment. In the
end the transactions are as if they had run one by one in the order of their timestamps. That takes
five rules:

* **Reads see everything below them.** A read at 7 takes the newest version that is not above 7.
  A write that is not committed yet is an *intent*. If another transaction has one below 7, the read
  waits until it is known whether it becomes a version (a lock in the lock table). Intents above 7 do
  not matter, so a snapshot of the past never waits for later transactions.
* **No write below a read.** The *read cache* remembers up to which timestamp each key was read. A
  transaction that wants to write there must move up: it takes a new timestamp from the *oracle*.
* **One intent for each key.** A transaction that wants to write where another one has an intent waits
  for that, too. And it moves up above a newer version, so that the last commit is seen last.
* **Moving up takes the reads along.** The transaction checks whether what it has read is still the
  same at the new timestamp. If not, it has to be run again (`Restart`). So after each request all its
  reads hold at its timestamp, and when it commits there is nothing left to check.
* **A cycle of waits** is found by the lock table: one transaction of it gets `TxnDeadlockAborted`.
  `Store.run` runs transactions again that got one of the two errors.

The path of a *read* (`Transaction._read`): take shared *latches* on its keys; ask the lock table
(`scan_and_enqueue`); if it must wait, drop the latches, `wait_for` it, and begin again. Then read
from the storage, note it in the read cache, drop the latches.

The path of a *write* (`Transaction._write`): the same with exclusive latches. Then look at the read
cache and at the newest version; if they are not below, take a new timestamp. Tell the lock table
(`acquire_lock`), write the intent, drop the latches. With a new timestamp, take the reads along
(`Transaction._move_up`). It is done in this order because the intent keeps others away: if two
transactions that have read the same key moved up first, each would drive the other one up for ever.

The path of a *commit*: write the record of the transaction to the disk. That is the one moment at
which it becomes committed. Then make versions of its intents, and tell the lock table
(`update_locks`), which lets waiting transactions go on. An *abort* removes the intents instead.

**Time limits.** A request that has waited too long gives its place up (`TxnLockTimeout`). A transaction that
has taken too long is aborted with its next request (`TransactionTimeout`). If its client makes none, it is
aborted by the first request that it is in the way of: whoever has waited for a while in the lock table
looks whether the other one's time is over (a *push*).

The files, from below: `keys`, `storage` (SQLite), `latches`, `timestamps` (oracle and read cache), `store`
(transactions); for the REPL `sessions` and `repl`; and `bench`.
"""

from locks.mvcc import TxnDeadlockAborted, TxnLockTimeout

from .keys import END
from .storage import Storage, StoreFailed
from .store import Restart, Store, Transaction, TransactionOver, TransactionTimeout
from .timestamps import Oracle, ReadCache

__all__ = [
    "END",
    "Oracle",
    "ReadCache",
    "Restart",
    "Storage",
    "Store",
    "StoreFailed",
    "Transaction",
    "TransactionOver",
    "TransactionTimeout",
    "TxnDeadlockAborted",
    "TxnLockTimeout",
]
