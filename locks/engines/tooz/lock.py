"""A lock of tooz, and the translation of errors of `locks` to those of tooz."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tooz
from tooz import coordination, locking, utils

import locks
from locks.errors import are_needed
from locks.facts.gather import Gathered, own_servers, requests
from locks.model import LockId

__all__ = ["Lock", "ask_servers", "in_words_of_tooz"]


@contextmanager
def in_words_of_tooz() -> Iterator[None]:
    """Raise errors of `locks` in this block as errors of tooz."""
    try:
        yield
    except locks.LockTimeout as error:
        raise coordination.OperationTimedOut(str(error)) from error
    except locks.errors.NodeNotRunning as error:
        raise coordination.ToozConnectionError(str(error)) from error
    except locks.LocksError as error:
        raise tooz.ToozError(str(error)) from error


def ask_servers(ask: Callable[[], Gathered]) -> Gathered:
    """Ask the lock servers.

    Raises:
        ToozConnectionError: Too few answered: locks on a majority of them may be missing.
    """
    told = ask()
    servers = own_servers()
    known, needed = len(servers.nodes), servers.enough
    if known - len(told.silent) < needed:
        silent = ", ".join(f"{name}: {why}" for name, why in told.silent)
        raise coordination.ToozConnectionError(
            f"too few lock servers answered; of {known}, {are_needed(needed)}: {silent}"
        )
    return told


class Lock(locking.Lock):
    """A lock, exclusive or shared, that belongs to this object: a thread may release it that has not acquired it.

    It is lost when its lock servers are lost, or when it is broken: see `is_still_owner`. Deadlocks of such
    locks are not found, because it is unknown which threads belong together; use `locks.transaction` for that.

    Args:
        name: Its name.
        lock_id: The lock id for it.
        coordinator: The owner with whose end it is released.
        member: The member's name, as shown to others.
        timeout: Time limit of the lock servers' answers.
    """

    def __init__(
        self,
        name: bytes,
        lock_id: LockId,
        coordinator: Callable[[], locks.Owner],
        member: str,
        timeout: float,
    ) -> None:
        super().__init__(name)
        self._lock_id = lock_id
        self._coordinator = coordinator
        self._member = member
        self._timeout = timeout
        self._held: list[
            tuple[locks.actors.Agent, locks.Owner]
        ] = []  # more than one if it is shared

    @property
    def acquired(self) -> bool:
        """Whether it was acquired and not released."""
        return bool(self._held)

    def acquire(
        self, blocking: bool = True, shared: bool = False, timeout: float | None = None
    ) -> bool:
        """Acquire the lock; see tooz.

        Raises:
            ToozConnectionError: Too few lock servers can be reached.
        """
        blocking, timeout = utils.convert_blocking(blocking, timeout)
        wanted = (self._lock_id, "read" if shared else "write")
        with in_words_of_tooz():
            # A separate client: two acquires exclude each other, in any thread.
            owner = locks.Owner(self._member, tied_to=self._coordinator())
            try:
                agent, _ = locks.original.begin_transaction(
                    [wanted], client=owner, timeout=timeout if blocking else 0
                )
                self._held.append((agent, owner))
                return True
            except BaseException as error:
                owner.end()
                if isinstance(error, locks.LockTimeout):
                    return False
                raise

    def release(self) -> bool:
        """Release the lock; return whether it was held."""
        try:
            agent, owner = self._held.pop()
        except IndexError:
            return False
        held = _is_held(agent)
        owner.end()
        return held

    def is_still_owner(self) -> bool:
        """Whether it was acquired, and neither released, lost nor broken since."""
        return any(_is_held(agent) for agent, _ in list(self._held))

    def break_(self) -> bool:
        """Take the lock from its holder; return whether there was one."""
        broken = False
        reason = f"{self._member} breaks this lock of tooz"
        with in_words_of_tooz():
            for agent in self._holders():
                try:
                    locks.facts.break_transaction(agent, reason=reason, timeout=self._timeout)
                    broken = True
                except locks.errors.NodeNotRunning:
                    if agent in self._holders():  # otherwise it has already ended
                        raise
        return broken

    def _holders(self) -> set[locks.values.AgentId]:
        told = ask_servers(lambda: requests(self._lock_id, timeout=self._timeout))
        same = (each for each in told.facts if each.request.lock_id == self._lock_id)
        return {each.request.agent for each in same if each.granted}


def _is_held(agent: locks.actors.Agent) -> bool:
    try:
        agent.ensure_held()
    except locks.LocksError:
        return False
    return True
