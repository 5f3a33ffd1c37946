"""Every exception that `locks` raises on purpose.

There is one root with three kinds, so that a program can tell them apart:

* `MisuseError`: the call was wrong. It changed nothing, and repeating it will not help.
* `OperatingError`: the call was right, but a condition at run time prevented it: a wait timed out,
  a node is down, or the transaction has ended.
* `DeadlockAborted`: the transaction was aborted to resolve a deadlock. Running it again helps.

Each error has typed attributes with the details, and survives `pickle`. Errors that another node
sends to a client have the attributes, too (`locks.net.raised`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from locks.words import AgentId, Contender, Deadlock, LockId

if sys.version_info >= (3, 11):
    from typing import assert_never
else:
    from typing import NoReturn

    def assert_never(value: NoReturn) -> NoReturn:
        """Tell the type checker that no case is left, and fail if one is."""
        raise AssertionError(f"unexpected: {value!r}")


__all__ = [
    "AlreadyDone",
    "BlocksEventLoop",
    "CannotServe",
    "ConflictingRequest",
    "DeadlockAborted",
    "InvalidLockId",
    "InvalidOption",
    "LimitExceeded",
    "LockLost",
    "LockTimeout",
    "LocksError",
    "MisuseError",
    "NodeNotRunning",
    "NotClient",
    "NotHeld",
    "NotMarked",
    "OperatingError",
    "ReentrantCall",
    "TransactionBroken",
    "TransactionEnded",
    "WaitsForItself",
    "anew",
    "are_needed",
    "assert_never",
    "causes",
    "listed",
    "nearest",
]


class LocksError(Exception):
    """Root of all errors of `locks`.

    Args:
        message: What failed, why, and what to do.
        **about: Details of the error. Each becomes an attribute.

    Attributes:
        about: The same details, by name.
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
    """Return a copy of an error, with the same type and attributes, to raise it elsewhere."""
    return _rebuild(type(error), str(error) if message is None else message, error.about)


class MisuseError(LocksError):
    """The call itself was wrong; nothing was changed."""


class InvalidLockId(MisuseError, ValueError):
    """A lock id is not a non-empty tuple or list of hashable key elements.

    Attributes:
        lock_id: The value that was passed, as text.
    """

    lock_id: str

    def __init__(self, message: str, *, lock_id: str = "") -> None:
        super().__init__(message, lock_id=lock_id)


class InvalidOption(MisuseError, ValueError):
    """An unknown mode, requirement, flag, option or object pattern; its name and value are in `about`."""


class ConflictingRequest(MisuseError):
    """The transaction has already requested this lock id with other nodes or another requirement.

    Attributes:
        lock_id: The lock.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class NotClient(MisuseError):
    """The caller used a transaction that belongs to another client.

    Attributes:
        agent: The transaction's `locks.values.AgentId`.
    """

    agent: AgentId

    def __init__(self, message: str, *, agent: AgentId) -> None:
        super().__init__(message, agent=agent)


class WaitsForItself(MisuseError):
    """The caller requests a lock that another transaction of its own holds.

    The wait would never end: only the caller can end that transaction.

    Attributes:
        lock_id: The lock that it requested.
        holder: The `locks.values.AgentId` of the other transaction.
    """

    lock_id: LockId
    holder: AgentId

    def __init__(self, message: str, *, lock_id: LockId, holder: AgentId) -> None:
        super().__init__(message, lock_id=lock_id, holder=holder)


class ReentrantCall(MisuseError):
    """The call came from code that interrupted a step of `locks` in the same thread.

    Python can run finalisers, signal handlers and tracing functions between any two bytecodes, so also in
    the middle of such a step. Calls that release or end something work there: they take effect at the end
    of the step. Calls that request something would wait for themselves, and raise this error.
    """


class BlocksEventLoop(MisuseError, RuntimeError):
    """A call that may wait was made in a coroutine or a callback of an event loop; it changed nothing.

    Use `locks.aio` there. In a callback of gevent's hub, only a call that must wait raises this error, and its
    request is withdrawn; spawn a greenlet for the call.
    """


class NotHeld(MisuseError, RuntimeError):
    """The caller does not hold the lock, or is not in its queue.

    Attributes:
        lock_id: The lock.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class OperatingError(LocksError):
    """The call was right, but a condition at run time prevented it."""


class NodeNotRunning(OperatingError):
    """A required node is not running, or can't be reached.

    Attributes:
        nodes: The nodes.
    """

    nodes: tuple[str, ...]

    def __init__(self, message: str, *, nodes: Sequence[str] = ()) -> None:
        super().__init__(message, nodes=tuple(nodes))


class CannotServe(NodeNotRunning):
    """Too few of the requested nodes are up to meet the requirement.

    Attributes:
        lock_id: The requested lock; `None` if the program was still waiting for its servers.
        nodes: The nodes that are down.
    """

    lock_id: LockId | None

    def __init__(
        self, message: str, *, lock_id: LockId | None = None, nodes: Sequence[str] = ()
    ) -> None:
        LocksError.__init__(self, message, lock_id=lock_id, nodes=tuple(nodes))


class LimitExceeded(OperatingError):
    """This program may have no more of something at another node, such as a lock server (`LOCKS_LIMITS`); only this call was refused.

    Attributes:
        node: The other node.
        what: What is limited: `requests`, `waits`, `watches` or `transactions`; or `asks`, of actors that have not answered yet.
        limit: How many each program may have there.
        present: How many this program had.
    """

    node: str
    what: str
    limit: int
    present: int

    def __init__(
        self, message: str, *, node: str = "", what: str = "", limit: int = 0, present: int = 0
    ) -> None:
        super().__init__(message, node=node, what=what, limit=limit, present=present)


class LockTimeout(OperatingError, TimeoutError):
    """A wait timed out. Requests that were made only for this wait have been withdrawn.

    Attributes:
        lock_ids: The locks that the caller waited for.
        holders: Their holders, as `locks.values.Contender`s, as far as they are known.
        timeout: The time limit, in seconds.
        lost: Locks that the client held and must no longer rely on: they were
            surrendered in a deadlock, or lost with a node. `locks.original.ensure_held` reports them, too.
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


class TransactionEnded(OperatingError):
    """The transaction has ended: it was ended, its client died, or its node stopped.

    Attributes:
        agent: The transaction's `locks.values.AgentId`.
    """

    agent: AgentId

    def __init__(self, message: str, *, agent: AgentId) -> None:
        super().__init__(message, agent=agent)


class TransactionBroken(TransactionEnded):
    """An operator has ended the transaction with `locks break`; its locks were released.

    Attributes:
        agent: The transaction's `locks.values.AgentId`.
        reason: The reason that the operator gave.
        by: The operator's name, as given.
    """

    reason: str
    by: str

    def __init__(self, message: str, *, agent: AgentId, reason: str, by: str) -> None:
        LocksError.__init__(self, message, agent=agent, reason=reason, by=by)


class LockLost(OperatingError):
    """A lock that the client held was lost; others may have changed what it protects.

    Attributes:
        lock_ids: The locks.
        nodes: The nodes whose loss took the locks; empty if the locks were surrendered.
    """

    lock_ids: tuple[LockId, ...]
    nodes: tuple[str, ...]

    def __init__(
        self, message: str, *, lock_ids: Sequence[LockId] = (), nodes: Sequence[str] = ()
    ) -> None:
        super().__init__(message, lock_ids=tuple(lock_ids), nodes=tuple(nodes))


class AlreadyDone(OperatingError):
    """The work was done before, so it was not begun (`locks.once`).

    Attributes:
        lock_id: The lock id of the work.
        by: The client that has done it.
        at: When it was done, in seconds since 1970.
        token: Its fencing token.
    """

    lock_id: LockId
    by: str
    at: float
    token: int

    def __init__(
        self, message: str, *, lock_id: LockId, by: str = "", at: float = 0.0, token: int = 0
    ) -> None:
        super().__init__(message, lock_id=lock_id, by=by, at=at, token=token)


class NotMarked(OperatingError):
    """The work was done, but it is unknown whether the lock servers remember that; it may run again (`locks.once`).

    The error's `__cause__` says why.

    Attributes:
        lock_id: The lock id of the work.
    """

    lock_id: LockId

    def __init__(self, message: str, *, lock_id: LockId) -> None:
        super().__init__(message, lock_id=lock_id)


class DeadlockAborted(LocksError):
    """The transaction was aborted to resolve a deadlock; run it again.

    It may be a transaction of the caller other than the one that waited: see `deadlock.agent`.

    Attributes:
        deadlock: The `locks.values.Deadlock` report: the cycle, which agent gave way, and by which rule.
    """

    deadlock: Deadlock

    def __init__(self, message: str, *, deadlock: Deadlock) -> None:
        super().__init__(message, deadlock=deadlock)


def nearest(word: str, words: Iterable[str]) -> str:
    """The end of an error's text that suggests the known word nearest to an unknown one; "" if none is near."""
    from difflib import get_close_matches  # not for every program

    found = get_close_matches(word, list(words), n=1)
    return f"; did you mean {found[0]}?" if found else ""


_PLURAL = {"has": "have", "was": "were", "runs": "run"}


def are_needed(servers: int) -> str:
    """How many servers are needed, in a sentence."""
    return f"{servers} {'is' if servers == 1 else 'are'} needed"


def causes(by_name: Mapping[str, str]) -> str:
    """Why servers don't serve, as sentences; a cause that several have is there once."""
    together: dict[str, list[str]] = {}
    for name, why in by_name.items():
        rest = why.removeprefix(f"{name} ")
        together.setdefault(why.replace(name, "{}") if rest == why else rest, []).append(name)
    return ". ".join(_cause(names, by_name[names[0]]) for names in together.values())


def _cause(names: Sequence[str], why: str) -> str:
    """A cause that these servers have; it may begin with the name of the first one."""
    verb, _, rest = why.removeprefix(f"{names[0]} ").partition(" ")
    if names[1:] and why.startswith(names[0]) and verb in _PLURAL:
        return f"{listed(names)} {_PLURAL[verb]} {rest}"
    return why if why.startswith(names[0]) and not names[1:] else f"{listed(names)}: {why}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
