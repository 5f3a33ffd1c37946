"""A process of this node that other nodes can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from locks.otp.bytes.terms import Pid
from locks.runtime.monitor import Client

__all__ = ["Local"]


class Local(NamedTuple):
    """A process of this node that other nodes can reach.

    Attributes:
        deliver: Takes a message, and the sender's pid if known; in the turn.
        subject: The client that can be monitored and made to exit; `None` if it lives as long as
            the node.
        can_exit: Whether other nodes may link with it, or make it exit.
    """

    deliver: Callable[[Any, Pid | None], object]
    subject: Client | None = None
    can_exit: bool = True
