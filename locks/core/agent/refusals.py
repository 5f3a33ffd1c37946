"""Errors for what a lock server refuses to a program."""

from __future__ import annotations

from typing import Final

from locks.core.agent.counted import another_number
from locks.core.messages import Refused
from locks.errors import LimitExceeded, LocksError
from locks.model import show

__all__ = ["over_limit", "refusal"]

_WAYS_OUT: Final = {
    "requests": ("locks and requests", "Release some"),
    "waits": ("waiting requests", "Wait for some"),
    "watches": ("watches", "End some"),
    "transactions": ("transactions with locks or requests", "End some"),
}


def refusal(message: Refused) -> LocksError:
    """The error for a request that a lock server refuses."""
    if message.what == "units":
        return another_number(message.lock_id, message.units, message.node)
    wanted = f"could not get the {message.mode} lock on {show(message.lock_id)}"
    return over_limit(wanted, message.node, message.what, message.limit, message.present)


def over_limit(wanted: str, node: str, what: str, limit: int, present: int) -> LimitExceeded:
    """The error for a program that may have no more of something at a lock server; `wanted` begins it."""
    name, way_out = _WAYS_OUT[what]
    return LimitExceeded(
        f"{wanted}: this program has {present:,} {name} at {node}, which allows {limit:,} for each program. "
        f"{way_out} first, or start {node} with a higher limit (LOCKS_LIMITS={what}=...)",
        node=node,
        what=what,
        limit=limit,
        present=present,
    )
