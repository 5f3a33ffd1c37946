"""Transactions for Python programs: a `with` block, and a function that is run again.

The default here is to abort on a deadlock, unlike in `locks.begin_transaction`: code in a `with`
block has already acted on the locks that it got, and must not lose them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeVar, overload

from locks.arguments import checked_object
from locks.core.agent.machine import Object
from locks.errors import (
    AgentEnded,
    DeadlockAborted,
    InvalidOption,
    LockLost,
    LocksError,
    MisuseError,
)
from locks.model import Deadlock, LockId, Mode, Require, check_lock_id, check_timeout
from locks.node.client.agent import Agent
from locks.node.client.clients import checked_label
from locks.node.client.owner import Owner, checked_owner
from locks.node.client.scope import Nodes, checked_where
from locks.node.client.waiting import ANSWERED_WITHIN
from locks.node.ports import PendingCall
from locks.program import Movable, default_node
from locks.retries import Learned, Retries
from locks.runtime import Event
from locks.runtime.callables import check_callable, check_callbacks, check_ran
from locks.runtime.leaving import Block, entering

__all__ = ["Transaction", "run_transaction", "transaction"]

T = TypeVar("T")

OnDeadlock = Literal["abort", "surrender"]
OnLost = Callable[[LockLost], object]

RUN_IN_A_COROUTINE: Final = "in a coroutine use `await locks.aio.run_transaction(function)`; pass a function that does its work in the call"


class Transaction(Movable, Block):
    """A transaction as a context manager; `locks.transaction` makes it.

    It begins when the block is entered and ends, releasing everything, when the block is left.
    An exception of the block is raised on. If the transaction was ended from outside, the end of the
    block raises `AgentEnded`: the locks were gone before the block was done.
    """

    def __init__(
        self,
        timeout: float | None = None,
        on_deadlock: OnDeadlock = "abort",
        created: int | None = None,
        await_nodes: bool = False,
        on_lost: OnLost | None = None,
        nodes: Nodes | None = None,
        require: Require | None = None,
        label: str | None = None,
        owner: Owner | None = None,
        learned: Learned | None = None,
    ) -> None:
        if on_deadlock not in ("abort", "surrender"):
            raise InvalidOption(
                f'on_deadlock={on_deadlock!r} is unknown; use "abort" or "surrender"',
                value=repr(on_deadlock),
            )
        check_timeout(timeout)
        self._timeout = timeout
        self._abort = on_deadlock == "abort"
        self._created = created
        self._await_nodes = await_nodes
        self._on_lost = on_lost
        check_callbacks(on_lost=on_lost)
        checked_where(nodes, require)
        self._nodes = nodes
        self._require = require
        self._label = None if label is None else checked_label(label)
        self._owner = checked_owner(owner)
        self._agent: Agent | None = None
        self._learns = learned
        self._taken: tuple[LockId, ...] = ()

    @property
    def agent(self) -> Agent:
        """The agent, for the functions of `locks` that take one."""
        if self._agent is None:
            raise MisuseError("the transaction has not begun; use it in a with statement")
        return self._agent

    def __getstate__(self) -> dict[str, Any]:
        if self._agent is not None:
            raise MisuseError(
                "a transaction that has begun can't be copied or pickled: it belongs to this program; hand on the lock ids, and "
                "begin a transaction where they are needed",
            )
        return super().__getstate__()

    def __enter__(self) -> Transaction:
        if self._agent is not None:
            raise MisuseError("a transaction can't be entered twice; make a new one")
        hold = entering(self)
        try:
            agent = self._home().spawn_agent(
                self._owner,
                created=self._created,
                keep=self._keep,
                abort_on_deadlock=self._abort,
                await_nodes=self._await_nodes,
                label=self._label,
            )
            agent.on_lost = self._on_lost
            hold.take(agent)
            return self
        except BaseException:
            if self._agent is not None:
                self._agent.let_go()
            raise

    def _keep(self, agent: Agent) -> None:
        self._agent = agent

    def _leave(self, held: Agent | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        try:
            self.agent.leave()
        except (AgentEnded, DeadlockAborted, LockLost):
            if error is None:
                raise

    def _let_go(self, held: Agent) -> None:
        """The block was left, and this was not noted; see `Block`."""
        held.let_go()

    def _checked(
        self, lock_id: Sequence[Any], mode: Mode, nodes: Nodes | None, require: Require | None
    ) -> Object:
        """What is to be locked, with the transaction's defaults for what is left out."""
        if nodes is None:
            nodes = self._nodes
            require = self._require if require is None else require
        return checked_object(self.agent.node, lock_id, mode, nodes, require)

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
            mode: `"write"` is exclusive, `"read"` is shared. A read lock is upgraded by asking
                again.
            nodes: Names of the nodes on which to lock it, or `locks.HERE`; by default those that `locks.start`
                was given as `servers`, or the own one.
            require: How many of them are needed: `"all"`, `"any"`, `"majority"`, `"all_alive"`,
                `"majority_alive"`. By default a majority of several servers, and all of `nodes`.
            timeout: Seconds to wait at most; by default that of the transaction.

        Returns:
            The lock's fencing token; `None` for a lock with `nodes`: ask `token` for it. Of several servers
            the token takes a second round trip; `lock_all` does without.

        Raises:
            LockTimeout: Time ran out; the request was withdrawn, the transaction goes on.
            CannotServe: Too few of the nodes run.
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
        agent = self.agent
        wanted = self._checked(lock_id, mode, nodes, require)
        call = agent.node.new_call()
        timeout = self._timeout if timeout is None else timeout
        clock = agent.node.clock
        began = clock()
        try:
            self._take(call, (wanted,), timeout)
            if nodes is not None:
                return None
            left = timeout
            if timeout:
                left = max(0.0, timeout - (clock() - began))
            elif timeout == 0:  # nobody is waited for but lock servers
                left = ANSWERED_WITHIN
            return agent.token(wanted[0], left)
        except BaseException:
            agent.give_up(call)
            raise

    def _take(self, call: PendingCall, objects: Sequence[Object], timeout: float | None) -> None:
        """Lock, and learn what was locked, or was about to be."""
        learns = self._learns
        if learns is None:
            self.agent.lock_by(call, objects, timeout)
            return
        learns.asking(self.agent, objects)
        try:
            self.agent.lock_by(call, objects, timeout)
        except DeadlockAborted:
            learns.add(objects, timeout)
            raise
        learns.add(objects, timeout)

    def _take_learned(self) -> None:
        """Take first what earlier runs have asked for."""
        if self._learns:
            self._taken = self._learns.take(self.agent)

    @overload
    def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: None = None,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> int: ...

    @overload
    def read_lock(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes,
        require: Require | None = None,
        timeout: float | None = None,
    ) -> None: ...

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
            require: How many of them are needed; see `lock`.
            timeout: Seconds to wait at most for all of them together.

        Raises:
            LockTimeout: Time ran out; only what was locked before is still locked.
            DeadlockAborted: The transaction was aborted to resolve a deadlock.
            MisuseError: The call is wrong; nothing was changed.
        """
        agent = self.agent
        wanted = [self._checked(i, "write", nodes, require) for i in write]
        wanted += [self._checked(i, "read", nodes, require) for i in read]
        call = agent.node.new_call()
        try:
            self._take(call, wanted, self._timeout if timeout is None else timeout)
        except BaseException:
            agent.give_up(call)
            raise

    def unlock(self, lock_id: Sequence[Any]) -> None:
        """Release a lock before the block ends.

        Raises:
            NotHeld: Exactly this id was not locked here.
        """
        self.agent.unlock(check_lock_id(lock_id))

    def token(self, lock_id: Sequence[Any]) -> int:
        """The fencing token of a lock that is held; see `locks.fencing_token`."""
        return self.agent.token(check_lock_id(lock_id), self._timeout)

    def unit(self, lock_id: Sequence[Any]) -> int:
        """Which unit of a counted lock that is held this is, counted from 0; see `locks.units`."""
        return self.agent.unit(check_lock_id(lock_id))

    @property
    def lost(self) -> Event:
        """Opens when a lock is lost with a node, or the transaction is ended from outside.

        `lost.wait(timeout)` waits for it; `lost.is_open` says whether it has happened.
        """
        return self.agent.lost

    def ensure_held(self, lock_id: Sequence[Any] | None = None) -> None:
        """Make sure that what was locked here is still held; see `locks.ensure_held`.

        Call it before a step that can't be taken back.

        Raises:
            LockLost: A lock is not held any more, or was not held for a while.
        """
        self.agent.ensure_held(None if lock_id is None else check_lock_id(lock_id))

    @property
    def learned(self) -> tuple[LockId, ...]:
        """The locks that this run took first, because earlier runs asked for them; see `run_transaction`."""
        return self._taken

    @property
    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The deadlocks of this transaction that were resolved so far; the newest 100."""
        return self.agent.deadlocks()


def transaction(
    *,
    timeout: float | None = None,
    on_deadlock: OnDeadlock = "abort",
    await_nodes: bool = False,
    on_lost: OnLost | None = None,
    nodes: Nodes | None = None,
    require: Require | None = None,
    label: str | None = None,
    owner: Owner | None = None,
) -> Transaction:
    """Make a transaction, to be used in a `with` statement.

    Args:
        timeout: Seconds that each wait for locks may take; `None` waits for ever.
        on_deadlock: What happens when the transaction has to yield a lock that you know it
            holds: `"abort"` raises `DeadlockAborted`; `"surrender"` gives the lock up, waits for
            it again, and reports it in `deadlocks`.
        await_nodes: What happens when too few nodes are up for a lock that is wanted or held:
            `False` ends the transaction (`CannotServe`, `LockLost`), `True` waits for them and
            locks again when they are back.
        on_lost: Called with a `LockLost` when locks that you know the transaction holds are
            lost with a node. It runs in the node's background greenlet.
        nodes: Names of the nodes on which it locks what is not locked elsewhere by its own arguments; as for
            `Transaction.lock`.
        require: How many of them are needed.
        label: What its client is called where others see it, such as "nightly import"; by default the name of its
            thread, greenlet or actor.
        owner: Whose it is; by default the owner that the caller acts for, or else the caller.

    Returns:
        The transaction.
    """
    return Transaction(
        timeout, on_deadlock, None, await_nodes, on_lost, nodes, require, label, owner
    )


def run_transaction(
    function: Callable[[Transaction], T],
    *,
    retries: int = 100,
    timeout: float | None = None,
    await_nodes: bool = False,
    on_lost: OnLost | None = None,
    nodes: Nodes | None = None,
    require: Require | None = None,
    label: str | None = None,
    retry_on: type[LocksError] | tuple[type[LocksError], ...] = (),
    owner: Owner | None = None,
    learn: bool = True,
) -> T:
    """Run a function in a transaction, and again each time the transaction is aborted.

    A transaction that is run again keeps its age. The youngest of a deadlock yields, so only older
    transactions can make it abort, and these end one after the other. It also learns: before the function is called
    again, it takes the locks that the earlier runs asked for, in an order that is the same for all. So those that
    run again are in no deadlock with each other.

    Args:
        function: Called with the transaction; it must be safe to run more than once.
        retries: How many times it may be run again without anybody else getting on: a run that gave way to a transaction
            for the first time, or over another lock, does not count. With 0 it is never run again.
        timeout: As for `transaction`.
        await_nodes: As for `transaction`.
        on_lost: As for `transaction`.
        nodes: As for `transaction`.
        require: As for `transaction`.
        label: As for `transaction`.
        retry_on: After which other errors it is run again, such as `(locks.CannotServe, locks.LockLost)` when
            servers were lost: after a while, which is twice as long each time, from 0.05 to 5 seconds, less up to half
            of it at random.
        owner: As for `transaction`.
        learn: Whether a run takes first what the earlier ones asked for through the transaction. `Transaction.learned` says
            what that was. What can't be locked in time is left to the function: its own request raises `LockTimeout`.

    Returns:
        What the function returned.

    Raises:
        DeadlockAborted: It was aborted once more than `retries` times; or another transaction of the
            caller is to be run again (`Deadlock.run_again`), in which this one is nested.
        InvalidOption: An option is wrong, or it is a coroutine function or a generator; it was not run.
        MisuseError: It returned a coroutine, of which nothing was run.
    """
    check_callable(function, "function", RUN_IN_A_COROUTINE)
    again = Retries(retries, retry_on, learn)
    created = default_node().now()
    while True:
        tx = Transaction(
            *(timeout, "abort", created, await_nodes, on_lost, nodes, require, label, owner),
            again.learned,
        )
        try:
            with tx:
                tx._take_learned()
                return check_ran(function(tx), "the function", RUN_IN_A_COROUTINE)
        except LocksError as error:
            pause = again.pause_after(error, tx)
            if pause is None:
                raise
        if pause:
            default_node().new_call().waiter.wait(pause)
