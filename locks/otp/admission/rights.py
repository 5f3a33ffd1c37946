"""What a node may do at the nodes that it connects to: look, use locks, or break other programs' transactions, too.

The cookie decides: `look: SECRET` in a file of cookies is a cookie whose nodes may only look (`locks.otp.admission.cookies`).
Which message needs which right is in `locks.node.peers.entrance`.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Right"]


class Right(IntEnum):
    """A right, which includes the smaller ones."""

    LOOK = 1
    USE = 2
    BREAK = 3

    @property
    def word(self) -> str:
        """Its name in files of cookies, and on the wire."""
        return self.name.lower()
