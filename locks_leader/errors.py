"""What can go wrong with an election; all of it is a `locks.LocksError`."""

from __future__ import annotations

from locks.errors import MisuseError, OperatingError

__all__ = ["LeaderDied", "LeaderTimeout", "LeadershipLost", "NotLeader"]


class NotLeader(MisuseError):
    """Only the leader may do this."""


class LeaderDied(OperatingError):
    """The leader died, or was cut off, before it answered: it may have carried the call out or not."""


class LeaderTimeout(OperatingError, TimeoutError):
    """No leader answered in time.

    Attributes:
        timeout: Seconds waited.
    """

    timeout: float | None = None


class LeadershipLost(OperatingError):
    """What relied on leading must stop: another candidate may lead now."""
