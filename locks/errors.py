"""Every exception that `locks` raises on purpose.

One root, three kinds, so that a program can tell them apart:

* `MisuseError`: the call was wrong. It changed nothing, and repeating it will not help.
* `OperatingError`: the call was right, but the world did not allow it (time ran out, a node is
  not there, the transaction has ended).
* `DeadlockAborted`: the transaction was given up to resolve a deadlock. Running it again helps.

Exceptions carry what they are about as attributes and survive `pickle`.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AgentEnded",
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
]


class LocksError(Exception):
    """Root of all errors of `locks`.

    Args:
        message: What was wrong, with which value, and what to do.
        **about: What the error is about. Each becomes an attribute.
    """

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


class MisuseError(LocksError):
    """The call itself was wrong; nothing was changed."""


class InvalidLockId(MisuseError, ValueError):
    """A lock id is not a non-empty tuple or list of hashable key elements."""


class InvalidOption(MisuseError, ValueError):
    """An unknown mode, requirement, flag, option or object pattern."""


class ConflictingRequest(MisuseError):
    """The same lock id was asked for before with other terms."""


class NotClient(MisuseError):
    """Somebody other than the transaction's client tried to use it."""


class NotHeld(MisuseError):
    """The lock (or the place in its queue) that the call is about is not there."""


class OperatingError(LocksError):
    """The call was right, but it could not be carried out."""


class NodeNotRunning(OperatingError):
    """A node that is needed does not run."""


class CannotServe(NodeNotRunning):
    """Too few of the nodes asked are up to meet the request's requirement."""


class LockTimeout(OperatingError, TimeoutError):
    """A wait ran out. Requests that only this wait was for have been withdrawn."""


class AgentEnded(OperatingError):
    """The transaction has ended: it was ended, its client died, or its node stopped."""


class LockLost(OperatingError):
    """A lock that the client was told it holds is gone."""


class DeadlockAborted(LocksError):
    """The transaction was aborted to resolve a deadlock; run it again.

    Attributes:
        deadlock: The `locks.Deadlock` report: the cycle, who yielded, and by which rule.
    """

    deadlock: Any = None
