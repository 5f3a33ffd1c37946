"""`Lock`, `RWLock` and `Semaphore`: for programs that need only a lock.

They behave like `threading.Lock`, over lock ids, for threads, greenlets, actors and owners. What one client
holds by them belongs to one transaction, which begins with the first `acquire` and ends with the
last `release`. So a client that dies frees its locks, and deadlocks are found. They are resolved
as in `locks.transaction`: the youngest client gets `DeadlockAborted` from its `acquire`, and everything
that it held by `Lock`s is released.

Unlike a `threading.Lock`, a lock can only be released by the client that acquired it, and acquiring
it twice raises an error instead of waiting for ever; an `acquire` with a limit returns `False` when its time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locks.core.agent.machine import Object
from locks.errors import (
    AgentEnded,
    InvalidOption,
    LockLost,
    LockTimeout,
    MisuseError,
    NotHeld,
)
from locks.model import (
    Contender,
    Mode,
    Require,
    check_lock_id,
    check_mode,
    check_timeout,
    show,
)
from locks.node.client.agent import Agent
from locks.node.client.clients import checked_label
from locks.node.client.owner import Owner, checked_owner
from locks.node.client.refusals import not_held
from locks.node.client.scope import Nodes, checked_where, some_of, where
from locks.node.node import Node
from locks.node.ports import AskedAlready, Scope
from locks.program import Movable
from locks.runtime import Client, current_client
from locks.runtime.leaving import Block, Hold, entering
from locks.runtime.shown import Shown
from locks.wire.sendable import check_sendable

__all__ = ["ASK", "Lock", "RWLock", "await_servers", "checked_wait"]

ASK = 5  # seconds that another node is asked for


class Lock(Movable, Block, metaclass=Shown):
    """A lock on one id, used like a `threading.Lock`.

    Args:
        lock_id: A non-empty tuple or list of key elements. All `Lock`s of the same id are the same
            lock; it covers everything below it.
        mode: `"write"` is exclusive, `"read"` is shared.
        nodes: Names of the nodes on which to lock it, or `locks.HERE`; by default those that `locks.start` was
            given as `servers`, or the own one.
        require: How many of them are needed; as for `locks.lock`.
        timeout: Seconds that a wait for it may take if it is not said there; `None` waits for ever. In a `with`
            statement it raises `LockTimeout` then.
        owner: Whose it is; by default the owner that the caller acts for, or else the caller.
        label: What its client is called where others see it, such as "nightly import"; by default the name of its thread,
            greenlet or actor. Of all `Lock`s that a client holds, the label of the first one counts.

    Attributes:
        timeout: The same.
        label: The same.
    """

    _for_users = frozenset(("acquire", "locked", "owned", "release", "token"))

    def __init__(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
        owner: Owner | None = None,
        label: str | None = None,
    ) -> None:
        self.lock_id = check_lock_id(lock_id)
        self.mode = check_mode(mode)
        checked_where(nodes, require)
        check_timeout(timeout)
        self._nodes = nodes
        self._require = require
        self.timeout = timeout
        self._owner = checked_owner(owner)
        self.label = None if label is None else checked_label(label)

    def client(self) -> Client:
        """Who would acquire it now."""
        return current_client() if self._owner is None else self._owner

    def where(self, node: Node) -> Scope:
        """Where a node locks it."""
        return where(node, self._nodes, self._require)

    def __repr__(self) -> str:
        return f"<Lock {self.mode} {show(self.lock_id)}>"

    def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        """Acquire the lock.

        Args:
            blocking: Whether to wait for it.
            timeout: Seconds to wait at most; `None` waits for ever, and `-1`, the default, as long as the lock
                was made with.

        Returns:
            Whether it was acquired. If the caller has it already, it is not: not when there is a limit to the wait, and no other
            thread of its owner releases it in time.

        Raises:
            MisuseError: The caller has acquired it already, and would wait for ever.
            DeadlockAborted: The caller was in a deadlock and had to yield; it holds nothing now. (If it was
                a transaction of its own that was aborted, it still has its other `Lock`s.)
        """
        limit = self.timeout
        if timeout != -1 or not blocking:
            limit = checked_wait(blocking, timeout, self.timeout)
        hold = Hold(self)
        try:
            return self._acquire(limit, blocking, hold, quiet=True)
        except LockTimeout:
            return False
        except BaseException:
            if hold.held is not None:
                self._let_go(hold.held)
            raise

    def _acquire(
        self, timeout: float | None, blocking: bool, hold: Hold, quiet: bool = False
    ) -> bool:
        node = self._home()
        client = current_client() if self._owner is None else self._owner
        scope = node.scope
        if scope is None or self._nodes is not None or self._require is not None:
            scope = self.where(node)
        wanted: Object = (self.lock_id, self.mode, *scope)
        if node.is_clustered:
            check_sendable(self.lock_id)
        while True:
            call = None
            try:
                agent = node.holders.begin(client, self.label)
                if agent.asks_for(self.lock_id):
                    if not blocking:
                        return False
                    if quiet and timeout is not None:
                        timeout = agent.sit_out(self.lock_id, timeout)
                        blocking = timeout > 0
                        continue
                    raise MisuseError(
                        f"{show(self.lock_id)} is held by the caller already; a lock is not re-entrant: use an RLock. If "
                        "another request or task has acquired it in this thread, give each of them an owner: "
                        'locks.Lock(..., owner=locks.Owner("request 17"))',
                        lock_id=self.lock_id,
                    )
                call = node.new_call()
                call.checked = True  # its transaction was found by the client
                call.first = True  # another thread of an owner may come in between
                call.quiet = quiet  # told that it was not acquired, and no more
                hold.take(agent)
                agent.lock_by(call, (wanted,), timeout)
                return True
            except AskedAlready:
                hold.drop()
            except BaseException as error:
                if hold.held is not None:
                    hold.held.withdraw(call, self.lock_id)
                else:
                    found = node.holders.get(client)  # perhaps it has just begun
                    if found is not None:
                        found.withdraw(None, self.lock_id)
                hold.drop()
                # A finaliser may have released all that the caller had: then begin anew.
                if call is None or not (isinstance(error, AgentEnded) and agent.is_over):
                    raise

    def release(self) -> None:
        """Release the lock.

        Raises:
            NotHeld: The caller doesn't hold it.
        """
        client = current_client() if self._owner is None else self._owner
        agent = self._home().holders.get(client)
        if agent is None:
            raise not_held(self.lock_id)
        agent.release(self.lock_id)

    def locked(self) -> bool:
        """Whether any client holds a lock on exactly this id, or on one that covers it.

        Of locks on several nodes, one of them is asked.

        Raises:
            NodeNotRunning: It can't be reached.
            LockTimeout: It does not answer within five seconds.
        """
        depth = len(self.lock_id)
        return any(len(holder.lock_id) <= depth for holder in self._holders())

    def _holders(self) -> tuple[Contender, ...]:
        node = self._home()
        asked = some_of(node, self.where(node).nodes)
        return node.view(self.lock_id, asked, ASK).holders

    def owned(self) -> bool:
        """Whether the caller holds it."""
        agent = self._home().holders.get(self.client())
        return agent is not None and agent.holds(self.lock_id)

    def token(self, *, timeout: float | None = None) -> int:
        """The fencing token, while the caller holds it; see `locks.fencing_token`."""
        agent = self._home().holders.get(self.client())
        if agent is None:
            raise NotHeld(f"{show(self.lock_id)} is not held by the caller", lock_id=self.lock_id)
        return agent.token(self.lock_id, timeout)

    def __enter__(self) -> Lock:
        self._enter(entering(self))
        return self

    def _enter(self, hold: Hold) -> None:
        """Acquire it for a block."""
        self._acquire(self.timeout, True, hold)

    def _leave(self, held: Agent | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        try:
            if held is None:
                self.release()
            else:
                held.release(self.lock_id)
        except NotHeld as lost:
            # An abort has released everything. Its exception comes through here: don't hide it.
            if error is None:
                raise LockLost(
                    f"{show(self.lock_id)} was lost before its block was left",
                    lock_ids=(self.lock_id,),
                ) from lost

    def _let_go(self, held: Agent) -> None:
        """The block was left, and this was not noted; see `Block`."""
        held.let_go_of(self.lock_id)


def checked_wait(blocking: bool, timeout: float | None, default: float | None) -> float | None:
    """How long an `acquire` waits, from what it is given: as `threading.Lock.acquire` takes it.

    Args:
        blocking: Whether to wait.
        timeout: Seconds; `None` for ever, -1 for the default.
        default: Seconds if it is not said.

    Raises:
        InvalidOption: That makes no sense.
    """
    if timeout == -1:
        return default if blocking else 0
    if not blocking and timeout is not None:
        raise InvalidOption(
            f"timeout={timeout!r} makes no sense with blocking=False", timeout=timeout
        )
    check_timeout(timeout)
    return timeout if blocking else 0


def await_servers(node: Node, wanted: Scope, timeout: float | None) -> None:
    """Wait a moment for servers that may be about to come: a program that has just begun may lack some of them.

    Args:
        node: The program's node.
        wanted: The servers.
        timeout: Seconds that the caller has.
    """
    if node.cluster is not None and not node.alive.issuperset(wanted.nodes):
        wait = ASK if timeout is None else min(timeout, ASK)
        found = node.cluster.distribution.options.discovery is not None
        node.cluster.arrivals.await_servers(wanted, wait, found=found)


class RWLock:
    """A lock on one id for many readers or one writer.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        nodes: As for `Lock`.
        require: As for `Lock`.
        timeout: As for `Lock`.
        owner: As for `Lock`.
        label: As for `Lock`.
    """

    def __init__(
        self,
        lock_id: Sequence[Any],
        *,
        nodes: Nodes | None = None,
        require: Require | None = None,
        timeout: float | None = None,
        owner: Owner | None = None,
        label: str | None = None,
    ) -> None:
        self._write = Lock(
            lock_id,
            "write",
            nodes=nodes,
            require=require,
            timeout=timeout,
            owner=owner,
            label=label,
        )
        self._read = Lock(
            lock_id, "read", nodes=nodes, require=require, timeout=timeout, owner=owner, label=label
        )
        self.lock_id = self._write.lock_id

    def __repr__(self) -> str:
        return f"<RWLock {show(self.lock_id)}>"

    def read_lock(self) -> Lock:
        """The lock for a reader; acquire it, or use it in a `with` statement."""
        return self._read

    def write_lock(self) -> Lock:
        """The lock for a writer; acquire it, or use it in a `with` statement."""
        return self._write
