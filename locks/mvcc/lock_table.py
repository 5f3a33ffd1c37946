"""The lock table as an actor: it runs `LockStates` in turns, and blocks in `wait_for` only.

`LockTable` is an inline actor (`locks.runtime.inline`): the caller does the work, in one turn, from
any thread or greenlet. It is a Pykka actor reference as well, and accepts the same operations as
messages, `table.tell(("update_locks", key, update))`, or through a proxy.

A request in `wait_for` sleeps on its own `Waiter`. It is woken by the turn in which its guard is
released, or its transaction lost. A search for deadlocks that is too long for one turn continues in
turns of waiting callers: of the next one that begins to wait, or of one that is woken for it.

With `deadlocks="push"`, no search is made when a request begins to wait. A request that has waited
for `push_after` seconds pushes the transaction that blocks it: it calls a function that may find
out that transaction's outcome. It does so again after the same time. This is for a store whose lock
tables are on several machines, each of which knows only its own part of the wait-for graph.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from locks.errors import InvalidOption, LocksError, MisuseError
from locks.model import check_timeout, is_seconds
from locks.mvcc.actor import LockTableActor
from locks.mvcc.errors import TableStopped, TxnLockTimeout
from locks.mvcc.journal import Journal
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
from locks.mvcc.table import MAX_LOCKS, MAX_WAITERS, LockStates
from locks.runtime import interrupts
from locks.runtime.addressed import InlineActor
from locks.runtime.clock import monotonic
from locks.runtime.inline import Turn, raised_in
from locks.runtime.shown import Shown
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Deadlocks", "LockTable", "Push"]

T = TypeVar("T")

Deadlocks = Literal["graph", "push", "both"]
Push = Callable[[Txn, Txn, Key], Update | None]

MOMENT = 1e-6
"""Seconds between two turns of one search: other threads and greenlets come in between."""

_log = logging.getLogger("locks.mvcc")


class LockTable(InlineActor, metaclass=Shown):
    """A lock table for the transactions of a multi-version store.

    Args:
        deadlocks: How they are found. `"graph"`: at once, in the wait-for graph; `"push"`: by
            a request that has waited for a while; `"both"`.
        push_after: After how many seconds of waiting a transaction is pushed, each time.
        push: Called with the `Txn` that waits, the `Txn` that is in its way (it holds the lock or
            has the reservation) and the key, in the thread or greenlet that waits. It returns what
            has become of the latter, to be applied at this key: `Committed`, `Aborted` or `Moved`;
            or `None`: wait on. It is not applied if the latter is not in its way any more, or if
            the transaction that pushed was aborted meanwhile. What it raises, `wait_for` raises.
            Without one, a push looks for deadlocks in the table's own wait-for graph.
        max_locks: How many keys may be locked, or reserved, at a time.
        max_waiters: How many requests may wait at a time.

    Raises:
        InvalidOption: An option is none of these.
    """

    _for_users = frozenset(
        (
            "acquire_lock",
            "add_discovered_lock",
            "dequeue",
            "is_alive",
            "locks",
            "scan_and_enqueue",
            "state",
            "states",
            "statistics",
            "stop",
            "update_locks",
            "wait_for",
        )
    )

    _behind = LockTableActor

    def __init__(
        self,
        *,
        deadlocks: Deadlocks = "graph",
        push_after: float = 0.1,
        push: Push | None = None,
        max_locks: int = MAX_LOCKS,
        max_waiters: int = MAX_WAITERS,
    ) -> None:
        if deadlocks not in get_args(Deadlocks):
            raise InvalidOption(
                f"deadlocks={deadlocks!r} is unknown; use one of {', '.join(get_args(Deadlocks))}",
                value=repr(deadlocks),
            )
        if not (is_seconds(push_after) and push_after > 0):
            raise InvalidOption(
                f"push_after={push_after!r} is not a number of seconds > 0", value=repr(push_after)
            )
        if push is not None and (deadlocks == "graph" or not callable(push)):
            raise InvalidOption(
                f'push={push!r} is useless: it is called with deadlocks="push" or "both", and '
                "with two transactions and a key",
                value=repr(push),
            )
        for name, limit in (("max_locks", max_locks), ("max_waiters", max_waiters)):
            if type(limit) is not int or limit < 1:
                raise InvalidOption(f"{name}={limit!r} is not an integer >= 1", value=repr(limit))
        self._states = LockStates(
            detect=deadlocks != "push", max_locks=max_locks, max_waiters=max_waiters
        )
        self._journal = Journal(self._states, self._finish, self.stop_inline)
        super().__init__(Turn(self._journal, self._journal.leave_it))
        self._push_after = None if deadlocks == "graph" else float(push_after)
        self._push = push
        self._waiters: dict[Guard, Waiter] = {}
        self._searcher: Guard | None = None  # its caller was woken to continue searches
        self._unshield: weakref.finalize[[], LockTable] | None = None
        self._why = "was stopped"
        if interrupts.install():
            finalizer = weakref.finalize(self, interrupts.uninstall)
            finalizer.atexit = False
            self._unshield = finalizer
        _tables.add(self)

    def __str__(self) -> str:
        return f"lock-table-{id(self):x}"

    def __repr__(self) -> str:
        return f"<LockTable {id(self):x}>"

    # --- Operations -----------------------------------------------------------------------------

    def scan_and_enqueue(
        self, request: Request, txn: Txn, guard: Guard | None = None
    ) -> tuple[bool, Guard]:
        """Look for locks in the way of a request; stand in line at the first one.

        Call it with the latches of all keys of the request held, and drop them before `wait_for`.

        Args:
            request: What it reads and writes.
            txn: Whose request it is.
            guard: What the first scan has returned, when a request scans again: so it keeps its
                place in the order.

        Returns:
            Whether it has to wait, and its guard. If it need not wait, it may read and write now,
            but for the keys that it leaves out (`Guard.skipped`). In any case `dequeue` the guard
            at the end.

        Raises:
            LockNotAvailable: With `wait="error"` a lock is in its way. A new request leaves no
                trace.
            TableFull: It would have to wait, and as many as may wait already.
            UnknownGuard: The guard is not in this table.
            BadTimestamp: A negative timestamp, or an earlier one than at the last scan.
            InvalidKey: A key cannot be compared with those in the table.
            TxnDeadlockAborted: The transaction is the victim of a deadlock.
            TransactionFinished: It was committed or aborted.
            MisuseError: The guard is of another request, or something is not what it should be.
        """
        answers: list[tuple[bool, Guard] | LocksError] = []
        question = self._states.scan_and_enqueue
        try:
            self.turn.run(self._answer, answers, question, (request, txn, guard))
        except BaseException:
            # Ctrl-C: a new guard is returned to no caller
            if answers and guard is None and not isinstance(answers[0], LocksError):
                self.turn.run_surely(self._dequeue_again, answers[0][1])
            raise
        answer = answers[0]
        if isinstance(answer, LocksError):
            raise answer
        return answer

    def _dequeue_again(self, guard: Guard) -> None:
        if not self._stopped:
            self._states.dequeue(guard)

    def add_discovered_lock(self, guard: Guard, intent: Intent) -> bool:
        """Take in a lock that the table did not know: the request found its intent in the store.

        Returns:
            Whether the request has to wait. If not, scan again at once: the intent's transaction
            is known to be finished (so the intent can be resolved), or is not in the way.

        Raises:
            UnknownGuard: The guard is not in this table.
            LockedByOther: Another transaction holds the lock.
            MisuseError: The key is not one of the request.
            TableFull: There are as many locks as there may be.
            BadTimestamp, InvalidKey, TxnDeadlockAborted, TransactionFinished: See
                `scan_and_enqueue`.
        """
        return self._ask(self._states.add_discovered_lock, guard, intent)

    def acquire_lock(self, key: Key, txn: Txn, strength: Strength = "intent") -> None:
        """Say that a transaction has written an intent, with the key's latch held.

        A transaction that holds the lock already may say so again; the lock's timestamp and its
        strength only rise.

        Args:
            key: The key.
            txn: Whose lock it is.
            strength: `"update"` for a lock without a write: other writers wait, readers don't.

        Raises:
            TableFull: There are as many locks as there may be.
            LockedByOther: Another transaction holds the lock.
            BadTimestamp, InvalidKey, TxnDeadlockAborted, TransactionFinished: See
                `scan_and_enqueue`.
        """
        self._ask(self._states.acquire_lock, key, txn, strength)

    def dequeue(self, guard: Guard) -> None:
        """Take a request out; call it once for each guard, also when the request has failed.

        What the transaction has locked stays locked.

        Raises:
            UnknownGuard: The guard is not in this table.
        """
        self._ask(self._states.dequeue, guard)

    def update_locks(self, where: Key | Span, update: Update) -> int:
        """Say what has become of a transaction's intents at a key, or at all keys of a span.

        `Committed` and `Aborted` release its locks there: all readers that wait go, and the first
        writer is the next. From the first of them on the transaction is finished. `Moved` lets
        those readers go that are now before the lock.

        Returns:
            How many locks have changed. Keys without a lock of the transaction stay as they are.

        Raises:
            BadTimestamp: A negative timestamp, or one before the lock's timestamp.
            InvalidKey: The key or span cannot be compared with those in the table.
            TransactionFinished: It has ended otherwise.
        """
        return self._ask(self._states.update_locks, where, update)

    # --- Waiting --------------------------------------------------------------------------------

    def wait_for(self, guard: Guard, timeout: float | None = None) -> None:
        """Wait, without latches, until a guard is released. Then scan again, with the same guard.

        It returns at once if the guard does not wait. Only the calling thread or greenlet blocks.
        When the wait ends in any other way, the guard keeps its place until it is dequeued.

        Args:
            guard: What `scan_and_enqueue` has returned.
            timeout: Seconds, or `None` to wait without limit.

        Raises:
            TxnLockTimeout: The time ran out.
            TxnDeadlockAborted: The transaction is the victim of a deadlock: it has to abort.
            TransactionFinished: It was committed or aborted meanwhile.
            UnknownGuard: The guard is not in this table, or is no more.
            MisuseError: Another caller waits with this guard.
            TableStopped: The table was stopped.
        """
        check_timeout(timeout)
        now = monotonic()
        deadline = float("inf") if timeout is None else now + timeout
        push_at = float("inf") if self._push_after is None else now + self._push_after
        try:
            while True:
                wait = self._ask(self._states.waits_for, guard)
                if wait is None:
                    break
                holder, key = wait
                now = monotonic()
                if now >= deadline:
                    raise TxnLockTimeout(
                        f"transaction {guard.txn.id} has waited {timeout} s for {key!r}, which "
                        f"transaction {holder.id} has. Wait again, or dequeue the guard",
                        key=key,
                        holder=holder,
                        timeout=timeout,
                    )
                if self._states.searches:
                    # A turn each: others come in between.
                    self._ask(self._states.go_on_searching)
                    Waiter().wait(MOMENT)
                elif now >= push_at:
                    self._push_once(guard, holder, key)
                    push_at = monotonic() + (self._push_after or 0.0)
                else:
                    until = min(deadline, push_at)
                    self._sleep(guard, None if until == float("inf") else until - now)
        finally:
            if self._searcher is guard:
                self.turn.run_surely(self._search_no_more)

    def _sleep(self, guard: Guard, seconds: float | None) -> None:
        waiter = Waiter()
        try:
            if self._ask(self._park, guard, waiter):
                waiter.wait(seconds)
        finally:
            self.turn.run_surely(self._unpark, guard, waiter)

    def _park(self, guard: Guard, waiter: Waiter) -> bool:
        """Wake the waiter when the guard stops waiting; return `False` if it does not wait now."""
        if self._states.waits_for(guard) is None:
            return False
        if guard in self._waiters:
            raise MisuseError(f"another call waits with {guard!r} already", guard=guard)
        self._waiters[guard] = waiter
        if self._searcher is guard:
            self._searcher = None
        return True

    def _unpark(self, guard: Guard, waiter: Waiter) -> None:
        if self._waiters.get(guard) is waiter:
            del self._waiters[guard]

    def _search_no_more(self) -> None:
        """Note that the caller that was woken to continue searches no longer does."""
        self._searcher = None

    def _push_once(self, guard: Guard, holder: Txn, key: Key) -> None:
        self._ask(self._states.count_push)
        if self._push is None:
            self._ask(self._states.resolve_deadlocks, guard.txn.id)
            return
        update = self._push(guard.txn, holder, key)
        if update is None:
            return
        if not isinstance(update, Update) or update.txn.id != holder.id:
            raise MisuseError(
                f"push returned {update!r}, which is not an update of transaction {holder.id}",
                update=repr(update),
            )
        self._ask(self._apply, guard, holder, key, update)

    def _apply(self, guard: Guard, holder: Txn, key: Key, update: Update) -> None:
        """Take in the result of a push, if it still matters to the transaction that pushed."""
        wait = self._states.waits_for(guard)
        if wait is not None and (wait[0].id, wait[1]) == (holder.id, key):
            self._states.update_locks(key, update)

    # --- Questions ------------------------------------------------------------------------------

    def state(self, key: Key) -> LockState:
        """The state of a key; an empty one if the key is in no use."""
        return self._ask(self._states.state, key)

    def states(self, span: Span | None = None) -> tuple[LockState, ...]:
        """The states of a span, or of all keys in use, in the order of the keys."""
        return self._ask(self._states.states, span)

    def locks(self, txn: Txn) -> tuple[Key, ...]:
        """The keys that a transaction has locked, in the order in which it locked them."""
        return self._ask(self._states.locks, txn)

    def statistics(self) -> Statistics:
        """Figures; they are counted when they are asked for."""
        return self._ask(self._statistics)

    def _statistics(self) -> Statistics:
        return self._states.statistics(monotonic())

    # --- As an actor ----------------------------------------------------------------------------

    def failed(self, message: Any, error: Exception) -> None:
        """Log it; the table is as it was."""
        _log.error("%s could not carry out %r: %s", self, message, error)

    def stop_inline(self, reason: object) -> None:
        """Stop; all waiting callers get an error."""
        if self._stopped:
            return
        watch = self.ended()
        for waiter in self._waiters.values():
            waiter.wake()
        self._waiters.clear()
        if self._unshield is not None:
            self._unshield()
        if watch is not None:
            watch.fire(self, "normal" if reason is None else reason)

    def leave_to_parent(self) -> None:
        """In a forked child: abandon the table, which belongs to the parent, like its lock holders."""
        self.turn.reset()
        self._journal.torn = False  # another thread's turn is not continued
        if not self._stopped:
            self._why = "lives in the parent process; make another one in a forked child"
            if self._unshield is not None:
                self._unshield.detach()  # the shield is no longer ours
            self.ended()
            for waiter in self._waiters.values():
                waiter.wake()

    def _ask(self, question: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        answers: list[T | LocksError] = []
        self.turn.run(self._answer, answers, question, args)
        answer = answers[0]
        if isinstance(answer, LocksError):
            raise answer
        return answer

    def _answer(
        self, answers: list[Any], question: Callable[[Unpack[Ts]], Any], args: tuple[Unpack[Ts]]
    ) -> None:
        try:
            if self._stopped:
                raise TableStopped(f"{self} {self._why}")
            answers.append(question(*args))
        except LocksError as error:
            if not raised_in(error, "locks.mvcc."):
                raise
            answers.append(error)  # raised when the turn is over: a refusal is an answer

    def _finish(self) -> None:
        """After a turn in which waits began or ended: wake the callers whose guards stopped waiting."""
        states = self._states
        states.stamp(monotonic())
        woken = states.woken
        if woken:
            for guard in woken:
                waiter = self._waiters.pop(guard, None)
                if waiter is not None:
                    waiter.wake()
            woken.clear()
        if states.searches and self._searcher is None and self._waiters:
            # No caller may come to continue the search, so wake a sleeping one.
            self._searcher, waiter = self._waiters.popitem()
            waiter.wake()


_tables: weakref.WeakSet[LockTable] = weakref.WeakSet()


def _forked() -> None:
    for table in list(_tables):
        table.leave_to_parent()


os.register_at_fork(after_in_child=_forked)
