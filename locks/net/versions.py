"""How far versions may run ahead of this node's clock.

A lock table starts its versions at the clock, in microseconds since 1970, and counts its changes, of
which there are fewer than a million a second (decision 0009). So no honest version is ahead of the
clocks. What another node says of versions is held against the clock here:

* A lock server takes over at most what is a day ahead (`taken_over`).
* What is told of versions may be two days ahead, and what is asked to be raised to three days
  (`check_version`). A node that says more is wrong.

So whatever a node says, versions are never pushed further than a day ahead of the fastest clock, the
clock catches up with them, and nodes whose clocks differ by less than a day never refuse each other, not
even when somebody has pushed the versions of one of them as far as that goes (decision 0029).
"""

from __future__ import annotations

from locks.net.messages import BadMessage
from locks.runtime.clock import wall_ns

__all__ = ["ASKED", "TOLD", "ClocksDiffer", "check_version", "seconds_ahead", "taken_over"]

DAY = 86_400 * 1_000_000  # in versions
TAKEN = 1 * DAY
TOLD = 2 * DAY
ASKED = 3 * DAY


class ClocksDiffer(BadMessage):
    """A version is so far ahead that the clocks of the two nodes differ.

    Args:
        version: The version.
        clock: This node's clock, as a version.

    Attributes:
        days: By how many days they differ at least.
    """

    def __init__(self, version: int, clock: int) -> None:
        self.days = (version - clock) / DAY
        super().__init__(
            f"version {version:.4g} is too far ahead of this node's clock, {clock}; correct the clocks of both nodes"
        )


_known_good = 0  # every version up to this one was at most `TOLD` ahead at some time


def now() -> int:
    """The clock, as a version."""
    return wall_ns() // 1000


def check_version(version: int, ahead: int = TOLD) -> int:
    """Return a version that another node has told, if it is not too large.

    Args:
        version: The version.
        ahead: How far it may be ahead of the clock.

    Raises:
        ClocksDiffer: It is too far ahead.
    """
    global _known_good
    if version <= _known_good:
        return version
    clock = now()
    if version > clock + ahead:
        raise ClocksDiffer(version, clock)
    _known_good = clock + TOLD
    return version


def taken_over(version: int) -> int:
    """What a lock server may take over of a version that another node has told."""
    return min(version, now() + TAKEN)


def seconds_ahead(version: int) -> float:
    """How long it takes until a lock server may take a version over as it is; 0 if it may at once."""
    return max(0, version - now() - TAKEN) / 1e6
