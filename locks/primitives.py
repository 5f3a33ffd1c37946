"""`Lock`, `RWLock` and `Semaphore`: for programs that need only a lock.

They behave like `threading.Lock`, but lock an id, for threads, greenlets, actors and owners. All
`Lock`s of a client belong to one transaction, which begins with the first `acquire` and ends with
the last `release`. So the locks of a client that dies are released, and deadlocks are found. They
are resolved as in `locks.transaction`: the `acquire` of the youngest client raises
`DeadlockAborted`, and all `Lock`s that this client held are released.

Unlike a `threading.Lock`, a lock can only be released by the client that acquired it. Acquiring it
twice raises an error instead of waiting for ever, and an `acquire` with a time limit returns
`False` when it times out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from locks.core.agent.machine import Object
from locks.errors import (
    InvalidOption,
    LockLost,
    LockTimeout,
    MisuseError,
    NotHeld,
    TransactionEnded,
)
from locks.model import (
    Contender,
    Mode,
    check_lock_id,
    check_mode,
    check_timeout,
    show,
)
from locks.node.client.agent import Agent
from locks.node.client.blocks import note_block
from locks.node.client.options import LockOptions, check_names, check_options
from locks.node.client.refusals import not_held
from locks.node.client.scope import some_of, where
from locks.node.node import Node
from locks.node.ports import AskedAlready, PendingCall, Scope, Servers
from locks.program.origin import Movable
from locks.runtime.bridge import is_in_event_loop
from locks.runtime.hints import Unpack
from locks.runtime.leaving import ClientBlock, Hold
from locks.runtime.monitor import Client, current_client
from locks.runtime.shown import Shown

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

__all__ = ["ASK", "Lock", "RWLock", "await_servers", "checked_wait"]

ASK = 5  # time limit, in seconds, of a question to another node


class Lock(Movable, ClientBlock, metaclass=Shown):
    """A lock on one id, used like a `threading.Lock`.

    Args:
        lock_id: A non-empty tuple or list of key elements. All `Lock`s of the same id are the same
            lock; it covers everything below it.
        mode: `"write"` is exclusive, `"read"` is shared.
        **options: `nodes`, `require`, `timeout`, `owner` and `label`; see `locks.values.LockOptions`.

    Attributes:
        timeout: The default time limit.
        label: The label.
    """

    _block: Hold | None = None  # of a generator, which holds it
    _for_users = frozenset(("acquire", "locked", "owned", "release", "token"))

    def __init__(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        **options: Unpack[LockOptions],
    ) -> None:
        self.lock_id = check_lock_id(lock_id)
        self.mode = check_mode(mode)
        if options:
            check_names("Lock", options, LockOptions)
            check_options(options)
        self._nodes = options.get("nodes")
        self._require = options.get("require")
        self.timeout = options.get("timeout")
        self._owner = options.get("owner")
        self.label = options.get("label")

    def client(self) -> Client:
        """The client that would acquire it now."""
        return current_client() if self._owner is None else self._owner

    def where(self, node: Node) -> Scope:
        """The nodes and the requirement of the lock."""
        return where(node, self._nodes, self._require, self.lock_id)

    def may_be_thin(
        self, node: Node, scope: Scope, timeout: float | None, at_once: bool = False
    ) -> bool:
        """Whether to try to take it before an agent is made. In an event loop, only if it is not to wait otherwise."""
        if timeout is not None:
            check_timeout(timeout)
        if type(self.lock_id[-1]) is tuple:
            return False
        if (is_in_event_loop() and not at_once) or not node.thin.is_due():
            return False
        return not (at_once and node.cluster) and node.thin.fits(scope.nodes)

    def __repr__(self) -> str:
        return f"<Lock {self.mode} {show(self.lock_id)}>"

    def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        """Acquire the lock.

        Args:
            blocking: Whether to wait for it.
            timeout: Seconds to wait at most; `None` waits for ever. The default, `-1`, takes the
                limit that the lock was created with.

        Returns:
            Whether it was acquired. `False` if the caller already holds it and the wait is limited,
            unless another thread of its owner releases it in time.

        Raises:
            MisuseError: The caller already holds it, and would wait for ever.
            DeadlockAborted: The caller was in a deadlock and had to give way; all its `Lock`s were
                released. (If another transaction of the caller was aborted, it still holds its
                other `Lock`s.)
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

    _held_already = "the caller already holds it, and a Lock is not re-entrant; use an RLock"

    def _acquire(
        self, timeout: float | None, blocking: bool, hold: Hold, quiet: bool = False
    ) -> bool:
        node = self._home()
        client = current_client() if self._owner is None else self._owner
        scope = node.scope
        if scope is None or self._nodes is not None or self._require is not None:
            scope = self.where(node)
        wanted: Object = (self.lock_id, self.mode, *scope)
        may_be_thin = self.may_be_thin(node, scope, timeout)
        if may_be_thin and self._take_thin(node, client, wanted, hold, timeout, quiet):
            return True
        while True:
            call = None
            try:
                agent = node.holders.living_or_new(client, self.label)
                if agent.asks_for(self.lock_id):
                    if not blocking:
                        return False
                    if quiet and timeout is not None:
                        timeout = agent.sit_out(self.lock_id, timeout)
                        blocking = timeout > 0
                        continue
                    raise MisuseError(
                        f"can't acquire {show(self.lock_id)}: {self._held_already}. If another request or task acquired it in this thread, give each of them an owner: "
                        f'locks.{type(self).__name__}(..., owner=locks.Owner("request 17"))',
                        lock_id=self.lock_id,
                    )
                call = PendingCall()
                call.checked = True  # the transaction was looked up by its client
                call.first = True  # another thread of the owner may interfere
                call.quiet = quiet  # the caller needs to know only that it was not acquired
                hold.take(agent)
                agent.lock_by(call, (wanted,), timeout)
                return True
            except AskedAlready:
                hold.drop()
            except BaseException as error:
                if hold.held is not None:
                    hold.held.withdraw(call, self.lock_id)
                else:
                    found = node.holders.get(client)  # it may just have begun
                    if found is not None:
                        found.withdraw(None, self.lock_id)
                hold.drop()
                # A finaliser may have released all locks of the caller: begin again.
                if call is None or not (isinstance(error, TransactionEnded) and agent.is_over):
                    raise

    def release(self) -> None:
        """Release the lock.

        Raises:
            NotHeld: The caller doesn't hold it.
        """
        client = current_client() if self._owner is None else self._owner
        node = self._home()
        agent = node.holders.get(client)
        if agent is None or agent.blocks or self._block is not None:
            agent = self._agent()
            if agent is None:
                raise not_held(self.lock_id)
        agent.release(self.lock_id)

    def _agent(self) -> Agent | None:
        """The transaction of the block that it was made for, or else that of the caller's locks, if there is one."""
        held = None if self._block is None else self._block.held
        if held is not None:
            return held if isinstance(held, Agent) else held[0]
        agent = self._home().holders.get(self.client())
        return None if agent is None or (agent.blocks and agent.has_parted()) else agent

    def locked(self) -> bool:
        """Whether any client holds a lock on exactly this id, or on one that covers it.

        For a lock on several nodes, one of them is asked.

        Raises:
            NodeNotRunning: It can't be reached.
            LockTimeout: It did not answer within five seconds.
        """
        depth = len(self.lock_id)
        return any(len(holder.lock_id) <= depth for holder in self._holders())

    def _holders(self) -> tuple[Contender, ...]:
        node = self._home()
        asked = some_of(node, self.where(node).nodes)
        return node.view(self.lock_id, asked, ASK).holders

    def owned(self) -> bool:
        """Whether the caller holds it."""
        agent = self._agent()
        return agent is not None and agent.holds(self.lock_id)

    def token(self, *, timeout: float | None = None) -> int:
        """The fencing token, while the caller holds it; see `locks.original.fencing_token`."""
        agent = self._agent()
        if agent is None:
            raise NotHeld(
                f"{show(self.lock_id)} has no fencing token: the caller does not hold it",
                lock_id=self.lock_id,
            )
        return agent.token(self.lock_id, timeout)

    def _is_owned(self) -> bool:
        """For `threading.Condition`, as the two below. They keep the transaction that the blocks around the wait belong to.

        Raises:
            NotHeld: The caller does not hold it. `Condition` would raise a `RuntimeError` that does not name the lock.
        """
        if not self.owned():
            raise not_held(self.lock_id)
        return True

    def _release_save(self) -> tuple[Agent, object]:
        """Release it for the wait."""
        agent = self._agent()
        if agent is None:
            raise not_held(self.lock_id)
        pause = object()
        agent.pause(self.lock_id, pause, None)
        return agent, pause

    def _acquire_restore(self, saved: tuple[Agent, object]) -> None:
        """Acquire it again; waits as long as it takes, also for other threads of its owner."""
        with self._resumed(*saved, self.release):
            self._acquire_again()

    def _acquire_again(self) -> None:
        """Acquire it, however long another thread of its owner has it."""
        while not self.acquire(timeout=TIMEOUT_MAX):
            pass

    @contextmanager
    def _resumed(
        self, agent: Agent, pause: object, release: Callable[[], object]
    ) -> Iterator[None]:
        """Acquire in the block what was released for a wait, in the same transaction.

        Raises:
            LockLost: The transaction has ended during the wait.
        """
        try:
            yield
            if not agent.is_alive():
                release()
                raise LockLost(
                    f"lost the lock {show(self.lock_id)}: its transaction ended while it waited for a Condition",
                    lock_ids=(self.lock_id,),
                )
        finally:
            agent.resume(pause)

    def _of_generator(self, hold: Hold, frame: FrameType | None = None) -> Self:
        """See `ClientBlock`: a lock that knows its block."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _block=hold)
        agent = made._agent()
        assert agent is not None
        note_block(hold, agent.note_block, self._owner, self.lock_id, frame)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_block", None)
        return state

    def _enter(self, hold: Hold) -> None:
        """Acquire it for a block."""
        self._acquire(self.timeout, True, hold)

    def enter_at_once(self, hold: Hold) -> bool:
        """Acquire it for a block of a task, if it is free and needs no agent; returns whether it has."""
        node, client = self._home(), self.client()
        scope = self.where(node)
        if not self.may_be_thin(node, scope, self.timeout, at_once=True):
            return False
        wanted: Object = (self.lock_id, self.mode, *scope)
        return self._take_thin(node, client, wanted, hold, 0)

    def _take_thin(
        self,
        node: Node,
        client: Client,
        wanted: Object,
        hold: Hold,
        timeout: float | None,
        quiet: bool = False,
    ) -> bool:
        """Acquire it without an agent's machine, if nobody else is interested in it; returns whether it has."""
        call = PendingCall()
        call.quiet = quiet
        try:
            taken = node.thin.take(client, wanted, self.label, hold.take, call)
            if call.sent:
                hold.held.await_answer(call, timeout)
            return taken
        except BaseException as error:
            agent = hold.held
            if agent is not None:
                agent.withdraw(call, self.lock_id)
                hold.drop()
                if isinstance(error, TransactionEnded) and agent.is_over:
                    return False  # as in `_acquire`
            raise

    def _leave(self, held: Agent | None, error: BaseException | None) -> None:
        """End the block; see `Block`."""
        try:
            if held is None:
                self.release()
            else:
                held.release(self.lock_id)
        except NotHeld as lost:
            # An abort has released all locks. Its exception passes through here and must not be
            # hidden.
            if error is None:
                raise LockLost(
                    f"lost the lock {show(self.lock_id)} before the end of its block",
                    lock_ids=(self.lock_id,),
                ) from lost

    def _let_go(self, held: Agent) -> None:
        """Clean up after a block whose end was interrupted; see `Block`."""
        held.let_go_of(self.lock_id)


def checked_wait(blocking: bool, timeout: float | None, default: float | None) -> float | None:
    """The time limit of an `acquire`, from arguments like those of `threading.Lock.acquire`.

    Args:
        blocking: Whether to wait.
        timeout: Seconds; `None` for ever, -1 for the default.
        default: The default, in seconds.

    Raises:
        InvalidOption: The combination is wrong.
    """
    if timeout == -1:
        return default if blocking else 0
    if not blocking and timeout is not None:
        raise InvalidOption(
            f"timeout={timeout!r} can't be combined with blocking=False; leave one of them out",
            timeout=timeout,
        )
    check_timeout(timeout)
    return timeout if blocking else 0


def await_servers(node: Node, wanted: Iterable[str], timeout: float | None) -> None:
    """Wait briefly for missing servers: a program that has just started may not be connected to all of them yet.

    Args:
        node: The program's node.
        wanted: The servers, all of which are needed.
        timeout: The caller's time limit in seconds.
    """
    if node.cluster is not None and not node.alive.issuperset(wanted):
        wait = ASK if timeout is None else min(timeout, ASK)
        found = node.cluster.options.locator is not None
        servers = Servers(tuple(wanted), "all")
        node.cluster.arrivals.await_servers(servers, wait, found=found)


class RWLock:
    """A lock on one id for many readers or one writer.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        **options: As for `Lock`; see `locks.values.LockOptions`.
    """

    def __init__(self, lock_id: Sequence[Any], **options: Unpack[LockOptions]) -> None:
        check_names("RWLock", options, LockOptions)
        self._write = Lock(lock_id, "write", **options)
        self._read = Lock(lock_id, "read", **options)
        self.lock_id = self._write.lock_id

    def __repr__(self) -> str:
        return f"<RWLock {show(self.lock_id)}>"

    def read_lock(self) -> Lock:
        """The lock for a reader; acquire it, or use it in a `with` statement."""
        return self._read

    def write_lock(self) -> Lock:
        """The lock for a writer; acquire it, or use it in a `with` statement."""
        return self._write
