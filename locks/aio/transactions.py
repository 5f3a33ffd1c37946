"""Transactions for coroutines: `async with`, and a coroutine function that is run again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar, overload

from locks import transactions as blocking
from locks.aio.options import RunOptions, TransactionOptions
from locks.aio.tasks import at_once, call
from locks.errors import LockLost, LocksError, MisuseError
from locks.model import Deadlock, LockId, Mode, Require
from locks.node.client.agent import Agent
from locks.node.client.scope import Nodes
from locks.program import default_node, is_at_hand
from locks.retries import Learned, Retries
from locks.runtime import Event
from locks.runtime.callables import check_awaitable, check_callable, check_can_be_called
from locks.runtime.hints import Unpack

__all__ = ["Lost", "Transaction", "run_transaction", "transaction"]

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


class Transaction:
    """A transaction as an asynchronous context manager; `locks.aio.transaction` creates it.

    It belongs to the task that enters the block, or to the owner that this task acts for. Other tasks may use it
    within the block, as the tasks of a `TaskGroup` do. See `locks.Transaction`.
    """

    def __init__(
        self,
        created: int | None = None,
        learned: Learned | None = None,
        **options: Unpack[TransactionOptions],
    ) -> None:
        on_lost = options.get("on_lost")
        if on_lost is not None:
            options["on_lost"] = _in_loop(on_lost)
        self._prepared = blocking.Transaction(created=created, learned=learned, **options)
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

    async def __aenter__(self) -> Transaction:
        if self._begun is not None:
            raise MisuseError("can't enter a transaction twice; create a new one")
        self._begun = begun = self._prepared
        try:
            if is_at_hand():
                at_once(begun.__enter__)
            else:
                await call(begun.__enter__)
        except BaseException:
            self._begun = None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._blocking._leave(self.agent, error)  # it does not wait, so it can't be cancelled

    @overload
    async def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    async def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

    async def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id, and wait until it is granted; see `locks.Transaction.lock`."""
        return await call(self._blocking._lock, lock_id, mode, nodes, require, timeout)

    @overload
    async def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    async def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

    async def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id together with other readers; see `locks.Transaction.lock`."""
        return await call(self._blocking._lock, lock_id, "read", nodes, require, timeout)

    @overload
    async def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    async def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

    async def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id exclusively; see `locks.Transaction.lock`."""
        return await call(self._blocking._lock, lock_id, "write", nodes, require, timeout)

    async def lock_all(
        self,
        write: Iterable[Sequence[Any]] = (),
        read: Iterable[Sequence[Any]] = (),
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None:
        """Lock several ids, all or nothing, within one time limit; see `locks.Transaction.lock_all`."""
        tx = self._blocking
        await call(tx.lock_all, write, read, nodes=nodes, require=require, timeout=timeout)

    async def token(self, lock_id: Sequence[Any]) -> int:
        """The fencing token of a held lock; see `locks.fencing_token`."""
        return await call(self._blocking.token, lock_id)

    def unit(self, lock_id: Sequence[Any]) -> int:
        """Which unit of a counted lock that is held this is; see `locks.Transaction.unit`."""
        return self._blocking.unit(lock_id)

    def unlock(self, lock_id: Sequence[Any]) -> None:
        """Release a lock before the block ends; see `locks.Transaction.unlock`."""
        self._blocking.unlock(lock_id)

    def ensure_held(self, lock_id: Sequence[Any] | None = None) -> None:
        """Check that the transaction still holds its locks; see `locks.Transaction.ensure_held`."""
        self._blocking.ensure_held(lock_id)

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
    loop = asyncio.get_running_loop()

    def tell(lost: LockLost) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(on_lost, lost)

    return tell


def transaction(**options: Unpack[TransactionOptions]) -> Transaction:
    """Create a transaction, to be used in an `async with` statement.

    Args:
        **options: As for `locks.transaction`; `on_lost` is called in the event loop.

    Returns:
        The transaction.
    """
    return Transaction(**options)


async def run_transaction(
    function: Callable[[Transaction], Awaitable[T]],
    *,
    retries: int = 100,
    retry_on: type[LocksError] | tuple[type[LocksError], ...] = (),
    learn: bool = True,
    **options: Unpack[RunOptions],
) -> T:
    """Run a coroutine function in a transaction, and again each time the transaction is aborted.

    A transaction that is run again keeps its age, and first takes the locks that earlier runs requested; see `locks.run_transaction`.

    Args:
        function: Called with the transaction; it must be safe to run more than once.
        retries: As for `locks.run_transaction`.
        retry_on: As for `locks.run_transaction`.
        learn: As for `locks.run_transaction`.
        **options: As for `transaction`, except `on_deadlock`.

    Returns:
        What the function returned.

    Raises:
        DeadlockAborted: It was aborted once more than `retries` times; or another transaction of the same
            client must be run again (`Deadlock.run_again`), in which this one is nested.
        InvalidOption: An option is wrong; the function was not called.
        MisuseError: The result can't be awaited: the function is not a coroutine function.
    """
    check_can_be_called(function, "function")
    if "on_deadlock" in options:
        raise TypeError(
            "run_transaction() takes no on_deadlock: it is run again after an abort; use transaction() to surrender instead"
        )
    again = Retries(retries, retry_on, learn)
    created = (await call(default_node)).now()
    while True:
        tx = Transaction(created, again.learned, **options)
        try:
            async with tx:
                if again.learned:
                    await call(tx._blocking._take_learned)
                return await check_awaitable(function(tx), "the function")
        except LocksError as error:
            pause = again.pause_after(error, tx)
            if pause is None:
                raise
        await asyncio.sleep(pause)
