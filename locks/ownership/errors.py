"""What can go wrong with ownership."""

from __future__ import annotations

from collections.abc import Hashable

from locks.errors import OperatingError

__all__ = ["NotOwner", "OwnershipEnded", "StaleToken"]


class NotOwner(OperatingError):
    """The resource's group is not owned by this worker (any more, or yet).

    Attributes:
        resource: The resource.
        group: Its group.
    """

    resource: Hashable
    group: int

    def __init__(self, message: str, *, resource: Hashable, group: int) -> None:
        super().__init__(message, resource=resource, group=group)


class OwnershipEnded(OperatingError):
    """This worker has left, or was ended."""


class StaleToken(OperatingError):
    """An owner with a larger token has the group by now: the one with this token was left behind.

    Attributes:
        token: The token that was refused.
        newest: The largest one that was seen.
    """

    token: int
    newest: int

    def __init__(self, message: str, *, token: int, newest: int) -> None:
        super().__init__(message, token=token, newest=newest)
