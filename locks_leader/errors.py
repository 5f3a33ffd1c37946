"""What can go wrong with an election; all of it is a `locks.LocksError`."""

from __future__ import annotations

from collections.abc import Hashable

from locks.errors import MisuseError, OperatingError

__all__ = ["LeaderDied", "LeaderTimeout", "LeadershipLost", "NotLeader"]


class NotLeader(MisuseError):
    """Only the leader may do this.

    Attributes:
        leader: The reference of the instance that leads; `None` if none does now.
    """

    leader: Hashable

    def __init__(self, message: str, *, leader: Hashable = None) -> None:
        super().__init__(message, leader=leader)


class LeaderDied(OperatingError):
    """The leader died, or was cut off, before it answered: it may have carried the call out or not."""


class LeaderTimeout(OperatingError, TimeoutError):
    """No leader answered in time.

    Attributes:
        timeout: Seconds waited; `None` if it was the leader that noticed that the caller has given up.
    """

    timeout: float | None

    def __init__(self, message: str, *, timeout: float | None = None) -> None:
        super().__init__(message, timeout=timeout)


class LeadershipLost(OperatingError):
    """What relied on leading must stop: another candidate may lead now."""
