"""Transactions for Python programs: a `with` block, and a function that is run again.

The default here is to abort on a deadlock, unlike in `locks.begin_transaction`: code in a `with`
block has acted on the locks that it was told it has, and must not lose them unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from locks.agent import Agent, check_timeout
from locks.agent_machine import Object
from locks.errors import AgentEnded, DeadlockAborted, InvalidOption, MisuseError
from locks.model import Deadlock, Mode, check_lock_id, check_mode
from locks.node import default_node

__all__ = ["Transaction", "run_transaction", "transaction"]

T = TypeVar("T")

OnDeadlock = Literal["abort", "surrender"]


class Transaction:
    """A transaction as a context manager; `locks.transaction` makes it.

    It begins when the block is entered and ends, releasing everything, when the block is left.
    An exception of the block goes on. A block that comes to its end although its transaction was
    ended from outside raises `AgentEnded`: its locks were gone before it was done.
    """

    def __init__(
        self,
        timeout: float | None = None,
        on_deadlock: OnDeadlock = "abort",
        created: int | None = None,
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
        self._agent: Agent | None = None

    @property
    def agent(self) -> Agent:
        """The agent, for the functions of `locks` that take one."""
        if self._agent is None:
            raise MisuseError("the transaction has not begun; use it in a with statement")
        return self._agent

    def __enter__(self) -> Transaction:
        if self._agent is not None:
            raise MisuseError("a transaction can't be entered twice; make a new one")
        self._agent = default_node().spawn_agent(
            created=self._created, abort_on_deadlock=self._abort
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        agent = self.agent
        try:
            agent.end()
        except (AgentEnded, DeadlockAborted):
            if error is None:
                raise

    def lock(
        self, lock_id: Sequence[Any], mode: Mode = "write", *, timeout: float | None = None
    ) -> int:
        """Lock an id, and wait until it is granted.

        Args:
            lock_id: A non-empty tuple or list of key elements. It covers everything below it.
            mode: `"read"` (shared) or `"write"` (exclusive). A read lock is upgraded by asking
                again.
            timeout: Seconds to wait at most; by default what the transaction was given.

        Returns:
            The lock's fencing token.

        Raises:
            LockTimeout: Time ran out; the request was withdrawn, the transaction goes on.
            DeadlockAborted: The transaction was aborted to resolve a deadlock.
            MisuseError: The call is wrong; nothing was changed.
        """
        agent = self.agent
        checked = check_lock_id(lock_id)
        wanted: Object = (checked, check_mode(mode), (agent.node.name,), "all")
        agent.lock_all((wanted,), self._timeout if timeout is None else timeout)
        return agent.token(checked)

    def read_lock(self, lock_id: Sequence[Any], *, timeout: float | None = None) -> int:
        """Lock an id together with other readers; see `lock`."""
        return self.lock(lock_id, "read", timeout=timeout)

    def write_lock(self, lock_id: Sequence[Any], *, timeout: float | None = None) -> int:
        """Lock an id exclusively; see `lock`."""
        return self.lock(lock_id, "write", timeout=timeout)

    def lock_all(
        self,
        write: Iterable[Sequence[Any]] = (),
        read: Iterable[Sequence[Any]] = (),
        *,
        timeout: float | None = None,
    ) -> None:
        """Lock several ids, all or nothing, within one time limit.

        Args:
            write: The ids to lock exclusively.
            read: The ids to lock together with other readers.
            timeout: Seconds to wait at most for all of them together.

        Raises:
            LockTimeout: Time ran out; none of them is locked that was not locked before.
            DeadlockAborted: The transaction was aborted to resolve a deadlock.
            MisuseError: The call is wrong; nothing was changed.
        """
        agent = self.agent
        here = (agent.node.name,)
        wanted: list[Object] = [(check_lock_id(i), "write", here, "all") for i in write]
        wanted += [(check_lock_id(i), "read", here, "all") for i in read]
        agent.lock_all(wanted, self._timeout if timeout is None else timeout)

    def unlock(self, lock_id: Sequence[Any]) -> None:
        """Release a lock before the block ends.

        Raises:
            NotHeld: Exactly this id was not locked here.
        """
        self.agent.unlock(check_lock_id(lock_id))

    def token(self, lock_id: Sequence[Any]) -> int:
        """The fencing token of a lock that is held; see `locks.fencing_token`."""
        return self.agent.token(check_lock_id(lock_id))

    @property
    def deadlocks(self) -> tuple[Deadlock, ...]:
        """The deadlocks of this transaction that were resolved so far."""
        return tuple(self.agent.machine.deadlocks)


def transaction(*, timeout: float | None = None, on_deadlock: OnDeadlock = "abort") -> Transaction:
    """Make a transaction, to be used in a `with` statement.

    Args:
        timeout: Seconds that each wait for locks may take; `None` waits for ever.
        on_deadlock: What happens when the transaction has to yield a lock that it has been told
            it has: `"abort"` raises `DeadlockAborted`; `"surrender"` gives the lock up, waits for
            it again, and reports it in `deadlocks`.

    Returns:
        The transaction.
    """
    return Transaction(timeout, on_deadlock)


def run_transaction(
    function: Callable[[Transaction], T], *, retries: int = 100, timeout: float | None = None
) -> T:
    """Run a function in a transaction, and again each time the transaction is aborted.

    A transaction that is run again keeps its age. The youngest of a deadlock yields, so it can be
    aborted only by those that are older, and they end one after the other.

    Args:
        function: Called with the transaction; it must be fit to be run more than once.
        retries: How many times it may be run again.
        timeout: As for `transaction`.

    Returns:
        What the function returned.

    Raises:
        DeadlockAborted: It was aborted once more than `retries` times.
    """
    if not isinstance(retries, int) or retries < 0:
        raise InvalidOption(f"retries={retries!r} is not a number >= 0", value=repr(retries))
    created = default_node().now()
    while True:
        try:
            with Transaction(timeout, "abort", created) as tx:
                return function(tx)
        except DeadlockAborted as error:
            if retries == 0 or error.deadlock.agent != tx.agent.id:
                raise
            retries -= 1
