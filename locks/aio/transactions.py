"""Transactions for coroutines: `async with`, and a coroutine function that is run again."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from locks import transactions as blocking
from locks.aio.leaving import AsyncBlock
from locks.aio.tasks import at_once, call, running
from locks.errors import LockLost, LocksError, MisuseError
from locks.model import Deadlock, LockId
from locks.node.client.agent import Agent
from locks.node.client.options import TransactionOptions, check_names
from locks.program.default import default_node, is_at_hand
from locks.retries import Learned, Retries
from locks.runtime.callables import (
    check_awaitable,
    check_awaited,
    check_begun,
    check_callable,
    check_can_be_called,
)
from locks.runtime.hints import Unpack
from locks.runtime.leaving import Hold
from locks.runtime.waiter import Event
from locks.transactions import OnDeadlock

__all__ = ["Lost", "Transaction", "run_transaction", "transaction"]

P = ParamSpec("P")
T = TypeVar("T")


class Lost:
    """An event that opens when a lock is lost with a node, or a transaction is ended from outside: `await tx.lost`."""

    def __init__(self, event: Event) -> None:
        self._event = event

    @property
    def is_open(self) -> bool:
        """Whether it has happened."""
        return self._event.is_open

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for it, at most `timeout` seconds; returns whether it has happened."""
        return await call(self._event.wait, timeout)

    def __await__(self) -> Generator[Any, None, bool]:
        return self.wait().__await__()


def _awaited(
    method: Callable[Concatenate[blocking.Transaction, P], T],
) -> Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]:
    """Make a method of the blocking transaction, which may wait, one for coroutines."""

    @wraps(method)
    async def called(self: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await call(method, self._blocking, *args, **kwargs)

    return called


def _at_once(
    method: Callable[Concatenate[blocking.Transaction, P], T],
) -> Callable[Concatenate[Transaction, P], T]:
    """Make a method of the blocking transaction, which does not wait, one of this transaction."""

    @wraps(method)
    def called(self: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._blocking, *args, **kwargs)

    return called


class Transaction(AsyncBlock):
    """A transaction as an asynchronous context manager; `locks.aio.transaction` creates it.

    It belongs to the task that enters the block, or to the owner that this task acts for. Other tasks may use it
    within the block, as the tasks of a `TaskGroup` do. See `locks.Transaction`.
    """

    def __init__(
        self,
        options: TransactionOptions,
        on_deadlock: OnDeadlock = "abort",
        created: int | None = None,
        learned: Learned | None = None,
    ) -> None:
        on_lost = options.get("on_lost")
        if on_lost is not None:
            options = {**options, "on_lost": _in_loop(on_lost)}
        self._prepared = blocking.Transaction(options, on_deadlock, created, learned)
        self._begun: blocking.Transaction | None = None

    @property
    def _blocking(self) -> blocking.Transaction:
        if self._begun is None:
            raise MisuseError("the transaction has not begun; use it in an async with statement")
        return self._begun

    @property
    def agent(self) -> Agent:
        """The agent, for the functions of `locks` that take one."""
        return self._blocking.agent

    @property
    def _block(self) -> blocking.Transaction:
        return self._prepared

    async def _enter(self, hold: Hold) -> Transaction:
        if self._begun is not None:
            raise MisuseError("can't enter a transaction twice; create a new one")
        self._begun = begun = self._prepared
        try:
            if is_at_hand():
                at_once(begun._enter, hold)
            else:
                await call(begun._enter, hold)
        except BaseException:
            self._begun = None
            raise
        return self

    def _of_generator(self, hold: Hold) -> Transaction:
        self._prepared._of_generator(hold)
        return self

    lock = _awaited(blocking.Transaction.lock)
    """Lock an id, and wait until it is granted; see `locks.Transaction.lock`."""
    read_lock = _awaited(blocking.Transaction.read_lock)
    """Lock an id together with other readers; see `locks.Transaction.lock`."""
    write_lock = _awaited(blocking.Transaction.write_lock)
    """Lock an id exclusively; see `locks.Transaction.lock`."""
    lock_all = _awaited(blocking.Transaction.lock_all)
    """Lock several ids, all or nothing, within one time limit; see `locks.Transaction.lock_all`."""
    token = _awaited(blocking.Transaction.token)
    """The fencing token of a held lock; see `locks.original.fencing_token`."""
    unit = _at_once(blocking.Transaction.unit)
    """The unit of a counted lock that the transaction holds; see `locks.Transaction.unit`."""
    unlock = _at_once(blocking.Transaction.unlock)
    """Release a lock before the block ends; see `locks.Transaction.unlock`."""
    ensure_held = _at_once(blocking.Transaction.ensure_held)
    """Check that the transaction still holds its locks; see `locks.Transaction.ensure_held`."""

    @property
    def lost(self) -> Lost:
        """An event that opens when a lock is lost with a node, or the transaction is ended from outside."""
        return Lost(self._blocking.lost)

    @property
    def learned(self) -> tuple[LockId, ...]:
        """The locks that this run took first, because earlier runs had requested them; see `run_transaction`."""
        return self._blocking.learned

    @property
    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The resolved deadlocks of this transaction; the newest 100."""
        return self._blocking.deadlocks


def _in_loop(on_lost: Callable[[LockLost], object]) -> Callable[[LockLost], None]:
    """Make a callback run in this event loop, as long as the loop runs."""
    check_callable(on_lost, "on_lost")
    post = running().poster()

    def begin(lost: LockLost) -> None:
        check_begun(on_lost(lost), "on_lost")

    def tell(lost: LockLost) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            post(begin, lost)

    return tell


def transaction(
    *, on_deadlock: OnDeadlock = "abort", **options: Unpack[TransactionOptions]
) -> Transaction:
    """Create a transaction, to be used in an `async with` statement.

    The options are those of `locks.transaction`; `on_lost` is called in the event loop.
    """
    check_names("transaction", options, TransactionOptions, "on_deadlock")
    return Transaction(options, on_deadlock)


async def run_transaction(
    function: Callable[[Transaction], Awaitable[T]],
    *,
    retries: int = 100,
    retry_on: type[LocksError] | tuple[type[LocksError], ...] = (),
    learn: bool = True,
    **options: Unpack[TransactionOptions],
) -> T:
    """Run a coroutine function in a transaction, and again each time the transaction is aborted.

    A transaction that is run again keeps its age, and first takes the locks that earlier runs requested. The options are those of
    `locks.run_transaction`; `on_lost` is called in the event loop.

    Returns:
        What the function returned.

    Raises:
        DeadlockAborted: It was aborted once more than `retries` times; or another transaction of the same
            client must be run again (`Deadlock.run_again`), in which this one is nested.
        InvalidOption: An option is wrong; the function was not called.
        MisuseError: The result can't be awaited: the function is not a coroutine function.
    """
    check_can_be_called(function, "function")
    check_names("run_transaction", options, TransactionOptions, "retries", "retry_on", "learn")
    again = Retries(retries, retry_on, learn)
    created = (await call(default_node)).now()
    while True:
        tx = Transaction(options, "abort", created, again.learned)
        try:
            async with tx:
                if again.learned:
                    await call(tx._blocking._take_learned)
                return check_awaited(await check_awaitable(function(tx), "the function"))
        except LocksError as error:
            pause = again.pause_after(error, tx)
            if pause is None:
                raise
        await running().sleep(pause)
