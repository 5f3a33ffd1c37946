"""The actor class behind a lock table's reference, whose methods a proxy shows."""

from __future__ import annotations

from typing import Any

from locks.mvcc.model import (
    Intent,
    Key,
    LockState,
    Request,
    Span,
    Statistics,
    Strength,
    Txn,
    Update,
)
from locks.mvcc.records import Guard
from locks.runtime.addressed import TurnActor

__all__ = ["LockTableActor"]


class LockTableActor(TurnActor):
    """The actor of a lock table; `LockTable` is the reference to it, and documents each operation.

    `wait_for` is not an operation, because its answer would come only at the end of the wait. Call
    it on the table.
    """

    _begun_by = "make a table with locks.mvcc.LockTable()"
    _actor_ref: Any  # `locks.mvcc.LockTable`, which knows this class

    def scan_and_enqueue(
        self, request: Request, txn: Txn, guard: Guard | None = None
    ) -> tuple[bool, Guard]:
        """Look for locks that block a request; queue at the first one."""
        return self._actor_ref.scan_and_enqueue(request, txn, guard)  # type: ignore[no-any-return]

    def add_discovered_lock(self, guard: Guard, intent: Intent) -> bool:
        """Take in a lock that the table did not know."""
        return self._actor_ref.add_discovered_lock(guard, intent)  # type: ignore[no-any-return]

    def acquire_lock(self, key: Key, txn: Txn, strength: Strength = "intent") -> None:
        """Report that a transaction has written an intent, or takes the key for itself."""
        self._actor_ref.acquire_lock(key, txn, strength)

    def dequeue(self, guard: Guard) -> None:
        """Take a request out."""
        self._actor_ref.dequeue(guard)

    def update_locks(self, where: Key | Span, update: Update) -> int:
        """Report the outcome of a transaction's intents."""
        return self._actor_ref.update_locks(where, update)  # type: ignore[no-any-return]

    def state(self, key: Key) -> LockState:
        """The state of a key."""
        return self._actor_ref.state(key)  # type: ignore[no-any-return]

    def states(self, span: Span | None = None) -> tuple[LockState, ...]:
        """The states of a span, or of all keys in use."""
        return self._actor_ref.states(span)  # type: ignore[no-any-return]

    def locks(self, txn: Txn) -> tuple[Key, ...]:
        """The keys that a transaction has locked."""
        return self._actor_ref.locks(txn)  # type: ignore[no-any-return]

    def statistics(self) -> Statistics:
        """Figures."""
        return self._actor_ref.statistics()  # type: ignore[no-any-return]
