"""Transactions for Python programs: a `with` block, and a function that is run again.

By default a deadlock aborts the transaction, unlike in `locks.original.begin_transaction`: the code in a `with`
block has already relied on its locks, and must not lose them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast, overload

from locks import api
from locks.core.agent.machine import Object
from locks.errors import (
    DeadlockAborted,
    InvalidOption,
    LockLost,
    LocksError,
    MisuseError,
    TransactionEnded,
)
from locks.model import Deadlock, LockId, Mode, Require, check_lock_id
from locks.node.client.agent import ANSWERED_WITHIN, Agent
from locks.node.client.blocks import note_block
from locks.node.client.objects import checked_object
from locks.node.client.options import TransactionOptions, check_names, check_options
from locks.node.client.scope import Nodes
from locks.node.ports import NodePort, PendingCall
from locks.program.default import default_node
from locks.program.origin import Movable
from locks.retries import Learned, Retries
from locks.runtime.callables import check_callable, check_ran
from locks.runtime.hints import Unpack
from locks.runtime.leaving import ClientBlock, Hold
from locks.runtime.waiter import Event, Waiter

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

__all__ = ["Transaction", "run_transaction", "transaction"]

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

OnDeadlock = Literal["abort", "surrender"]

RUN_IN_A_COROUTINE: Final = "in a coroutine use `await locks.aio.run_transaction(function)`; pass a function that does its work in the call"


def _typed_as(_: F) -> Callable[[Callable[..., Any]], F]:
    """Say to type checkers that a function takes and returns what another one does: so overloads are written once."""
    return lambda function: cast("F", function)


class Transaction(Movable, ClientBlock):
    """A transaction as a context manager; `locks.transaction` creates it.

    It begins at the start of the block. It ends at the end of the block, and releases all its locks.
    Exceptions of the block propagate. If the transaction was ended from outside, the end of the
    block raises `TransactionEnded`, because the locks were released before the block was done.
    """

    def __init__(
        self,
        options: TransactionOptions,
        on_deadlock: OnDeadlock = "abort",
        created: int | None = None,
        learned: Learned | None = None,
    ) -> None:
        if on_deadlock not in ("abort", "surrender"):
            raise InvalidOption(
                f'on_deadlock={on_deadlock!r} is wrong; use "abort" or "surrender"',
                value=repr(on_deadlock),
            )
        if options:
            check_options(options)
        self._timeout = options.get("timeout")
        self._await_nodes = options.get("await_nodes", False)
        self._on_lost = options.get("on_lost")
        self._nodes = options.get("nodes")
        self._require = options.get("require")
        self._label = options.get("label")
        self._owner = options.get("owner")
        self._abort = on_deadlock == "abort"
        self._created = created
        self._begun: Agent | None = None
        self._learns = learned
        self._taken: tuple[LockId, ...] = ()

    @property
    def agent(self) -> Agent:
        """The agent, for the functions of `locks` that take one."""
        begun = self._begun
        if begun is None:
            raise MisuseError("the transaction has not begun; use it in a with statement")
        return begun

    def __getstate__(self) -> dict[str, Any]:
        if self._begun is not None:
            raise MisuseError(
                "a transaction that has begun can't be copied or pickled: it belongs to this program; hand on the lock ids, and "
                "begin a transaction where they are needed",
            )
        return super().__getstate__()

    def _of_generator(self, hold: Hold, frame: FrameType | None = None) -> Self:
        """See `ClientBlock`."""
        note_block(hold, self.agent.note_block, self._owner, frame=frame)
        return self

    def _enter(self, hold: Hold) -> None:
        """Begin it for a block."""
        if self._begun is not None:
            raise MisuseError("can't enter a transaction twice; create a new one")
        node = self._home()
        try:
            agent = node.spawn_agent(
                self._owner,
                created=self._created,
                keep=hold.take,
                abort_on_deadlock=self._abort,
                await_nodes=self._await_nodes,
                label=self._label,
            )
            agent.on_lost = self._on_lost
            self._begun = agent
        except BaseException:
            if hold.held is not None:
                hold.held.let_go()
            raise

    def _leave(self, held: Agent | None, error: BaseException | None) -> None:
        """End the block; see `Block`."""
        try:
            (self._begun or self.agent).leave_block()
        except (TransactionEnded, DeadlockAborted, LockLost):
            if error is None:
                raise

    def _let_go(self, held: Agent) -> None:
        """Clean up after a block whose end was interrupted; see `Block`."""
        held.let_go()

    def _checked(
        self,
        node: NodePort,
        lock_id: Sequence[Any],
        mode: Mode,
        nodes: Nodes | None,
        require: Require | None,
    ) -> Object:
        """The lock to take, with the transaction's defaults for missing arguments."""
        if nodes is None:
            nodes = self._nodes
            require = self._require if require is None else require
        return checked_object(node, lock_id, mode, nodes, require)

    @overload
    def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id, and wait until it is granted.

        Args:
            lock_id: A non-empty tuple or list of key elements. It covers everything below it.
            mode: `"write"` is exclusive, `"read"` is shared. Lock again with `"write"` to upgrade a
                read lock.
            nodes: Names of the nodes on which to lock it, or `locks.HERE`; by default the `servers` of
                `locks.start`, or this program's own node.
            require: How many of them must grant it: `"all"`, `"any"`, `"majority"`, `"all_alive"`,
                `"majority_alive"`. By default a majority of several servers, or all of `nodes`.
            timeout: Seconds to wait at most; by default the transaction's limit.

        Returns:
            The lock's fencing token; `None` for a lock with `nodes`: call `token` for it. With several servers,
            the token takes a second round trip; `lock_all` avoids that.

        Raises:
            LockTimeout: The wait timed out. The request was withdrawn; the transaction continues.
            CannotServe: Too few of the nodes are running.
            DeadlockAborted: The transaction was aborted to resolve a deadlock.
            MisuseError: The call is wrong; nothing was changed.
        """
        return self._lock(lock_id, mode, nodes, require, timeout)

    def _lock(
        self,
        lock_id: Sequence[Any],
        mode: Mode,
        nodes: Nodes | None,
        require: Require | None,
        timeout: float | None,
    ) -> int | None:
        timeout = self._timeout if timeout is None else timeout
        agent = self._begun or self.agent
        node = agent.node
        if nodes is None and self._nodes is None and require is None:  # as nearly always
            wanted = checked_object(node, lock_id, mode, None, self._require)
        else:
            wanted = self._checked(node, lock_id, mode, nodes, require)
        call = PendingCall()
        began = node.clock() if timeout else 0.0
        try:
            lock = agent.lock_by if self._learns is None else self._lock_and_learn
            lock(call, (wanted,), timeout)
            if nodes is not None:
                return None
            if call.token is not None:
                return call.token
            left = timeout
            if timeout:
                left = max(0.0, timeout - (node.clock() - began))
            elif timeout == 0:  # waits for lock servers only, not for holders
                left = ANSWERED_WITHIN
            return agent.token(wanted[0], left)
        except BaseException:
            agent.give_up(call)
            raise

    def _lock_and_learn(
        self, call: PendingCall, objects: Sequence[Object], timeout: float | None
    ) -> None:
        """Lock, and record the locks for a later run, also when the call is aborted."""
        assert self._learns is not None
        self._learns.asking(self.agent, objects)
        try:
            self.agent.lock_by(call, objects, timeout)
        except DeadlockAborted:
            self._learns.add(objects, timeout)
            raise
        self._learns.add(objects, timeout)

    def _take_learned(self) -> None:
        """Take the locks that earlier runs requested."""
        if self._learns:
            self._taken = self._learns.take_locks(self.agent)

    @overload
    def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def write_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id exclusively; see `lock`."""
        return self._lock(lock_id, "write", nodes, require, timeout)

    @_typed_as(write_lock)
    def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int | None:
        """Lock an id together with other readers; see `lock`."""
        return self._lock(lock_id, "read", nodes, require, timeout)

    def lock_all(
        self,
        write: Iterable[Sequence[Any]] = (),
        read: Iterable[Sequence[Any]] = (),
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None:
        """Lock several ids, all or nothing, within one time limit.

        Args:
            write: The ids to lock exclusively.
            read: The ids to lock together with other readers.
            nodes: Names of the nodes on which to lock them; see `lock`.
            require: How many of them must grant each lock; see `lock`.
            timeout: Seconds to wait at most for all of them together.

        Raises:
            LockTimeout: The wait timed out; only locks that were held before the call are still held.
            DeadlockAborted: The transaction was aborted to resolve a deadlock.
            MisuseError: The call is wrong; nothing was changed.
        """
        agent = self.agent
        node = agent.node
        wanted = [self._checked(node, i, "write", nodes, require) for i in write]
        wanted += [self._checked(node, i, "read", nodes, require) for i in read]
        call = PendingCall()
        try:
            lock = agent.lock_by if self._learns is None else self._lock_and_learn
            lock(call, wanted, self._timeout if timeout is None else timeout)
        except BaseException:
            agent.give_up(call)
            raise

    def unlock(self, lock_id: Sequence[Any]) -> None:
        """Release a lock before the block ends.

        Raises:
            NotHeld: The transaction did not lock exactly this id.
        """
        api.unlock(self.agent, lock_id)

    def token(self, lock_id: Sequence[Any]) -> int:
        """The fencing token of a held lock; see `locks.original.fencing_token`."""
        return api.fencing_token(self.agent, lock_id, timeout=self._timeout)

    def unit(self, lock_id: Sequence[Any]) -> int:
        """The unit of a counted lock that the transaction holds, counted from 0; see `locks.values.units`."""
        return self.agent.unit(check_lock_id(lock_id))

    @property
    def lost(self) -> Event:
        """An event that opens when a lock is lost with a node, or the transaction is ended from outside.

        `lost.wait(timeout)` waits for it; `lost.is_open` tells whether it has happened.
        """
        return self.agent.lost

    def ensure_held(self, lock_id: Sequence[Any] | None = None) -> None:
        """Check that the transaction still holds its locks; see `locks.original.ensure_held`.

        Call it before a step that can't be undone.

        Raises:
            LockLost: A lock is no longer held, or was temporarily lost.
        """
        api.ensure_held(self.agent, lock_id)

    @property
    def learned(self) -> tuple[LockId, ...]:
        """The locks that this run took first, because earlier runs had requested them; see `run_transaction`."""
        return self._taken

    @property
    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The resolved deadlocks of this transaction; the newest 100."""
        return self.agent.deadlocks()


def transaction(
    *, on_deadlock: OnDeadlock = "abort", **options: Unpack[TransactionOptions]
) -> Transaction:
    """Create a transaction, to be used in a `with` statement.

    Args:
        on_deadlock: What happens if the transaction must give up a lock that you know it
            holds: `"abort"` raises `DeadlockAborted`; `"surrender"` gives the lock up, waits for
            it again, and reports it in `deadlocks`.
        **options: `timeout`, `owner`, `label`, `nodes`, `require`, `await_nodes` and `on_lost`; see
            `locks.values.TransactionOptions`.

    Returns:
        The transaction.
    """
    if options:
        check_names("transaction", options, TransactionOptions, "on_deadlock")
    return Transaction(options, on_deadlock)


def run_transaction(
    function: Callable[[Transaction], T],
    *,
    retries: int = 100,
    retry_on: type[LocksError] | tuple[type[LocksError], ...] = (),
    learn: bool = True,
    **options: Unpack[TransactionOptions],
) -> T:
    """Run a function in a transaction, and again each time the transaction is aborted.

    A transaction that is run again keeps its age. The youngest transaction of a deadlock gives way, so only older
    transactions can abort it, and these end one after the other. A new run also knows more: before the function is called
    again, it takes the locks that the earlier runs requested, in an order that is the same for all transactions. So
    transactions that are run again do not deadlock with each other.

    Args:
        function: Called with the transaction; it must be safe to run more than once.
        retries: How many times it may be run again without progress of others. A run that gave way to a transaction
            for the first time, or for another lock than before, does not count. With 0 it is never run again.
        retry_on: Other errors after which it is run again, such as `(locks.CannotServe, locks.LockLost)` for lost
            servers. It waits before such a run: 0.05 seconds at first, then twice as long each time, up to 5 seconds,
            minus a random part of at most half.
        learn: Whether a run first takes the locks that earlier runs requested through the transaction. `Transaction.learned`
            has these. The function itself gets `LockTimeout` when it requests one that could not be locked in time.
        **options: As for `transaction`; see `locks.values.TransactionOptions`.

    Returns:
        What the function returned.

    Raises:
        DeadlockAborted: It was aborted once more than `retries` times; or another transaction of the
            caller must be run again (`Deadlock.run_again`), in which this one is nested.
        InvalidOption: An option is wrong, or the function is a coroutine function or a generator; it was not called.
        MisuseError: The function returned a coroutine, whose body was not run.
    """
    check_callable(function, "function", RUN_IN_A_COROUTINE)
    check_names("run_transaction", options, TransactionOptions, "retries", "retry_on", "learn")
    again = Retries(retries, retry_on, learn)
    created = default_node().now()
    while True:
        tx = Transaction(options, "abort", created, again.learned)
        try:
            with tx:
                tx._take_learned()
                return check_ran(function(tx), "the function", RUN_IN_A_COROUTINE)
        except LocksError as error:
            pause = again.pause_after(error, tx)
            if pause is None:
                raise
        if pause:
            Waiter().wait(pause)
