"""Every exception that `locks` raises on purpose.

One root, three kinds, so that a program can tell them apart:

* `MisuseError`: the call was wrong. It changed nothing, and repeating it will not help.
* `OperatingError`: the call was right, but conditions at run time prevented it (time ran out, a
  node is not there, the transaction has ended).
* `DeadlockAborted`: the transaction was given up to resolve a deadlock. Running it again helps.

Exceptions carry what they are about as attributes, each with its type, and survive `pickle`. What a client on another
node is told has them, too (`locks.wire.refusals`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from locks.words import AgentId, Contender, Deadlock, LockId

if sys.version_info >= (3, 11):
    from typing import assert_never
else:
    from typing import NoReturn

    def assert_never(value: NoReturn) -> NoReturn:
        """Say to the type checker that nothing is left, and fail if something is."""
        raise AssertionError(f"unexpected: {value!r}")


__all__ = [
    "AgentEnded",
    "BlocksEventLoop",
    "BrokenBarrier",
    "CannotServe",
    "ConflictingRequest",
    "DeadlockAborted",
    "InvalidLockId",
    "InvalidOption",
    "LockLost",
    "LockTimeout",
    "LocksError",
    "MisuseError",
    "NodeNotRunning",
    "NotClient",
    "NotHeld",
    "OperatingError",
    "ReentrantCall",
    "TransactionBroken",
    "WaitsForItself",
    "anew",
    "assert_never",
    "nearest",
]


class LocksError(Exception):
    """Root of all errors of `locks`.

    Args:
        message: What was wrong, with which value, and what to do.
        **about: What the error is about. Each becomes an attribute.

    Attributes:
        about: The same, by name.
    """

    about: dict[str, Any]

    def __init__(self, message: str, **about: Any) -> None:
        super().__init__(message)
        self.about = about
        for name, value in about.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the attributes when the error travels between processes."""
        return _rebuild, (type(self), str(self), self.about)


def _rebuild(cls: type[LocksError], message: str, about: dict[str, Any]) -> LocksError:
    return cls(message, **about)


def anew(error: LocksError, message: str | None = None) -> LocksError:
    """An error of the same kind and with the same attributes, to be raised elsewhere."""
    return _rebuild(type(error), str(error) if message is None else message, error.about)


class MisuseError(LocksError):
    """The call itself was wrong; nothing was changed."""


class InvalidLockId(MisuseError, ValueError):
    """A lock id is not a non-empty tuple or list of hashable key elements.

    Attributes:
        lock_id: What was given instead, as text.
    """

    lock_id: str

    def __init__(self, message: str, *, lock_id: str = "") -> None:
        super().__init__(message, lock_id=lock_id)


class InvalidOption(MisuseError, ValueError):
    """An unknown mode, requirement, flag, option or object pattern; `about` has its name and value."""


class ConflictingRequest(MisuseError):
    """The same lock id was asked for before with other terms.

    Attributes:
        lock_id: Which lock.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class NotClient(MisuseError):
    """Somebody other than the transaction's client tried to use it.

    Attributes:
        agent: The transaction's `locks.AgentId`.
    """

    agent: AgentId

    def __init__(self, message: str, *, agent: AgentId) -> None:
        super().__init__(message, agent=agent)


class WaitsForItself(MisuseError):
    """The caller asks for a lock that another transaction of its own holds.

    It would wait for ever: nobody but the caller can end that transaction.

    Attributes:
        lock_id: What it asked for.
        holder: The `locks.AgentId` of the other transaction.
    """

    lock_id: LockId
    holder: AgentId

    def __init__(self, message: str, *, lock_id: LockId, holder: AgentId) -> None:
        super().__init__(message, lock_id=lock_id, holder=holder)


class ReentrantCall(MisuseError):
    """The call came from within a step of `locks` in the same thread.

    Python runs finalisers, signal handlers, tracers and the like between any two bytecodes of a
    thread, so also in the middle of such a step. What releases or ends something works there all the
    same, at the end of the step. What asks for something would have to wait for itself, and is refused.
    """


class BlocksEventLoop(MisuseError, RuntimeError):
    """A call that may wait was made in a coroutine, or a callback, of an event loop; nothing was asked for.

    Use `locks.aio` there. In a callback of gevent's hub only a call that has to wait raises it, and is withdrawn: spawn a greenlet.
    """


class NotHeld(MisuseError, RuntimeError):
    """The lock (or the place in its queue) that the call is about is not there.

    Attributes:
        lock_id: Which lock.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class OperatingError(LocksError):
    """The call was right, but it could not be carried out."""


class NodeNotRunning(OperatingError):
    """A node that is needed does not run, or can't be reached.

    Attributes:
        nodes: The nodes.
    """

    nodes: tuple[str, ...]

    def __init__(self, message: str, *, nodes: Sequence[str] = ()) -> None:
        super().__init__(message, nodes=tuple(nodes))


class CannotServe(NodeNotRunning):
    """Too few of the nodes asked are up to meet the request's requirement.

    Attributes:
        lock_id: What was asked for; `None` if the program waits for its servers, and for no lock yet.
        nodes: The nodes that are down.
    """

    lock_id: LockId | None

    def __init__(
        self, message: str, *, lock_id: LockId | None = None, nodes: Sequence[str] = ()
    ) -> None:
        LocksError.__init__(self, message, lock_id=lock_id, nodes=tuple(nodes))


class LockTimeout(OperatingError, TimeoutError):
    """A wait ran out. Requests that only this wait was for have been withdrawn.

    Attributes:
        lock_ids: What was waited for.
        holders: Who held it, as `locks.Contender`s, as far as it is known.
        timeout: The time that was waited, in seconds.
        lost: Locks that the client knew it had, and must no longer rely on: they
            were surrendered in a deadlock, or lost with a node. `locks.ensure_held` says so, too.
    """

    lock_ids: tuple[LockId, ...]
    holders: tuple[Contender, ...]
    timeout: float | None
    lost: tuple[LockId, ...]

    def __init__(
        self,
        message: str,
        *,
        lock_ids: Sequence[LockId] = (),
        holders: Sequence[Contender] = (),
        timeout: float | None = None,
        lost: Sequence[LockId] = (),
    ) -> None:
        super().__init__(
            message,
            lock_ids=tuple(lock_ids),
            holders=tuple(holders),
            timeout=timeout,
            lost=tuple(lost),
        )


class AgentEnded(OperatingError):
    """The transaction has ended: it was ended, its client died, or its node stopped.

    Attributes:
        agent: The transaction's `locks.AgentId`.
    """

    agent: AgentId

    def __init__(self, message: str, *, agent: AgentId) -> None:
        super().__init__(message, agent=agent)


class TransactionBroken(AgentEnded):
    """Somebody has ended the transaction from outside, with `locks break`: its locks are gone.

    Attributes:
        agent: The transaction's `locks.AgentId`.
        reason: Why, in the words of who did it.
        by: Who did it.
    """

    reason: str
    by: str

    def __init__(self, message: str, *, agent: AgentId, reason: str, by: str) -> None:
        LocksError.__init__(self, message, agent=agent, reason=reason, by=by)


class LockLost(OperatingError):
    """A lock that the client knew it held is gone: what it guards may have been changed.

    Attributes:
        lock_ids: Which locks.
        nodes: The nodes whose loss took them; none if they were surrendered.
    """

    lock_ids: tuple[LockId, ...]
    nodes: tuple[str, ...]

    def __init__(
        self, message: str, *, lock_ids: Sequence[LockId] = (), nodes: Sequence[str] = ()
    ) -> None:
        super().__init__(message, lock_ids=tuple(lock_ids), nodes=tuple(nodes))


class BrokenBarrier(OperatingError):
    """A party has waited at a barrier, and it can't be known whether the others have passed with it.

    Attributes:
        lock_id: Which barrier.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class DeadlockAborted(LocksError):
    """The transaction was aborted to resolve a deadlock; run it again.

    It may be another transaction of the caller than the one in which it waited; `deadlock.agent` says so.

    Attributes:
        deadlock: The `locks.Deadlock` report: the cycle, who yielded, and by which rule.
    """

    deadlock: Deadlock

    def __init__(self, message: str, *, deadlock: Deadlock) -> None:
        super().__init__(message, deadlock=deadlock)


def nearest(word: str, words: Iterable[str]) -> str:
    """Which word is meant, probably, by one that is none of those that there are: the end of an error's text, or ""."""
    from difflib import get_close_matches  # not for every program

    found = get_close_matches(word, list(words), n=1)
    return f"; did you mean {found[0]}?" if found else ""
