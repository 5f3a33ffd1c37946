"""`RLock`: a lock that its holder may acquire again.

The client's transaction counts how often the lock was acquired, with one *acquisition* for each time. An acquisition is
an object, not a number, so that an interrupted caller can take it back without knowing how far it got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from locks.core.agent.machine import Object
from locks.errors import LockLost, LockTimeout, MisuseError, NotHeld, TransactionEnded
from locks.model import Mode, show
from locks.node.client.acquisitions import Acquisition
from locks.node.client.agent import Agent
from locks.node.client.options import LockOptions, check_names
from locks.node.client.refusals import not_held
from locks.node.node import Node
from locks.node.ports import AskedAlready, PendingCall
from locks.primitives import Lock, checked_wait
from locks.runtime.hints import Unpack
from locks.runtime.leaving import ClientBlock, Hold
from locks.runtime.monitor import Client

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Self

__all__ = ["RLock"]

Held = tuple[Agent, Acquisition]  # the transaction, and the acquisition


class RLock(ClientBlock):
    """A lock on one id, used like a `threading.RLock`: its client may acquire it again, and must release it as often.

    The client is a thread, greenlet, actor or owner. All `RLock`s of the same id are the same lock. A client that holds it by a
    `Lock` can't also acquire it by an `RLock`, because a `Lock` is not re-entrant.

    Args:
        lock_id: A non-empty tuple or list of key elements.
        mode: `"write"` is exclusive, `"read"` is shared. If a reader acquires it for writing, it holds the lock
            for writing until the last release.
        **options: As for `Lock`; see `locks.values.LockOptions`.
    """

    def __init__(
        self,
        lock_id: Sequence[Any],
        mode: Mode = "write",
        **options: Unpack[LockOptions],
    ) -> None:
        check_names("RLock", options, LockOptions)
        self._lock = Lock(lock_id, mode, **options)
        self.lock_id = self._lock.lock_id
        self.mode = mode

    def __repr__(self) -> str:
        return f"<RLock {self.mode} {show(self.lock_id)}>"

    def acquire(self, blocking: bool = True, timeout: float | None = -1) -> bool:
        """Acquire the lock, once more if the caller already holds it; see `Lock.acquire`.

        Raises:
            MisuseError: The caller holds it by a `Lock`, and would wait for ever.
        """
        limit = checked_wait(blocking, timeout, self._lock.timeout)
        hold = Hold(self)
        try:
            return self._acquire(limit, hold, quiet=True)
        except LockTimeout:
            return False
        except BaseException:
            if hold.held is not None:
                self._let_go(hold.held)
            raise

    def _acquire(
        self,
        timeout: float | None,
        hold: Hold,
        quiet: bool = False,
        acquisition: Acquisition | None = None,
    ) -> bool:
        node = self._lock._home()
        client = self._lock.client()
        scope = self._lock.where(node)
        wanted: Object = (self.lock_id, self.mode, *scope)
        may_be_thin = acquisition is None and self._lock.may_be_thin(node, scope, timeout)
        acquisition = acquisition or Acquisition()
        if may_be_thin and self._acquire_thin(node, client, wanted, hold, acquisition):
            return True
        while True:
            call: PendingCall | None = None
            acquisition.renew()
            try:
                agent = node.holders.living_or_new(client, self._lock.label)
                hold.take((agent, acquisition))
                agent.enter(self.lock_id, acquisition)
                call = PendingCall()
                call.first = True  # except for acquisitions
                call.acquisition = acquisition
                agent.lock_by(call, (wanted,), timeout)
                return True
            except AskedAlready:
                agent.withdraw_acquisition(None, self.lock_id, acquisition)
                hold.drop()
                if not quiet or timeout is None:
                    raise MisuseError(
                        f"can't acquire {show(self.lock_id)}: the caller already holds it by a Lock, which is not re-entrant; use an RLock "
                        "for both",
                        lock_id=self.lock_id,
                    ) from None
                if timeout == 0:
                    return False
                timeout = agent.sit_out(self.lock_id, timeout)
            except BaseException as error:
                held, agent_ended = hold.held, isinstance(error, TransactionEnded)
                if held is not None:
                    held[0].withdraw_acquisition(call, self.lock_id, held[1])
                else:
                    found = node.holders.get(client)  # it may just have begun
                    if found is not None:
                        found.withdraw(None, self.lock_id)
                hold.drop()
                # A finaliser may have released all locks of the caller: begin again.
                if not (agent_ended and held is not None and held[0].is_over):
                    raise

    def _acquire_thin(
        self, node: Node, client: Client, wanted: Object, hold: Hold, acquisition: Acquisition
    ) -> bool:
        """Acquire it without an agent, if nobody else is interested in it; returns whether it has."""

        def keep(agent: Agent) -> None:
            hold.take((agent, acquisition))

        call = PendingCall()
        try:
            return node.thin.take(client, wanted, self._lock.label, keep, call, acquisition)
        except BaseException:
            if hold.held is not None:
                hold.held[0].withdraw_acquisition(call, self.lock_id, acquisition)
                hold.drop()
            raise

    def release(self) -> None:
        """Undo one `acquire`.

        Raises:
            NotHeld: The caller doesn't hold it.
        """
        agent = self._lock._agent()
        if agent is None or not agent.has_acquired(self.lock_id):
            is_locks = agent is not None and agent.holds(self.lock_id)
            raise not_held(self.lock_id, by="a Lock" if is_locks else None)
        agent.give_back(self.lock_id, Acquisition(is_release=True))

    def _is_owned(self) -> bool:
        """For `threading.Condition`, as the two below; see `Lock._is_owned`. It does not try to acquire what the caller may acquire again."""
        return self._lock._is_owned()

    def _release_save(self) -> tuple[Agent, list[Acquisition]]:
        """Give back all acquisitions of the caller. Other threads of its owner keep theirs."""
        agent = self._lock._agent()
        saved = [] if agent is None else agent.acquired_here(self.lock_id)
        if agent is None or not saved:
            raise not_held(self.lock_id)
        agent.pause(self.lock_id, saved[0], saved)
        return agent, saved

    def _acquire_restore(self, saved: tuple[Agent, list[Acquisition]]) -> None:
        """Make the same acquisitions again, as the blocks that they belong to will give them back; waits as long as it takes."""
        agent, acquisitions = saved
        with self._lock._resumed(agent, acquisitions[0], self.release):
            for acquisition in acquisitions:
                self._acquire(None, Hold(self), acquisition=acquisition)

    def locked(self) -> bool:
        """Whether any client holds it; see `Lock.locked`."""
        return self._lock.locked()

    def owned(self) -> bool:
        """Whether the caller holds it."""
        return self._lock.owned()

    def token(self, *, timeout: float | None = None) -> int:
        """The fencing token, while the caller holds it; see `locks.original.fencing_token`."""
        return self._lock.token(timeout=timeout)

    def _of_generator(self, hold: Hold, frame: FrameType | None = None) -> Self:
        """See `Lock._of_generator`."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _lock=self._lock._of_generator(hold, frame))
        return made

    def _enter(self, hold: Hold) -> None:
        """Acquire it for a block."""
        self._acquire(self._lock.timeout, hold)

    def _leave(self, held: Held | None, error: BaseException | None) -> None:
        """End the block; see `Block`."""
        try:
            if held is None:
                self.release()
            else:
                agent, acquisition = held
                agent.give_back(self.lock_id, acquisition)
        except NotHeld as lost:
            # An abort has released all locks. Its exception passes through here and must not be hidden.
            if error is None:
                raise LockLost(
                    f"lost the lock {show(self.lock_id)} before the end of its block",
                    lock_ids=(self.lock_id,),
                ) from lost

    def _let_go(self, held: Held) -> None:
        """Clean up after a block whose end was interrupted; see `Block`."""
        agent, acquisition = held
        agent.withdraw_acquisition(None, self.lock_id, acquisition)
