"""Faults and repairs of an application, as steps of its schedule.

They are written like the moves of a case (`locks_lab.cases.case`):

    d2                             client 2 dies
    cut:n1,n2  mend:n1,n2          a connection breaks; it can be made again
    crash:n1   restart:n1          a node crashes; it is started again
    connect:n1,n2  notice:n1,n2    two nodes are connected again; n1 notices that n2 is lost, or back

The last two follow from the others without a cause of their own, sooner or later. A step of a
client is its number.
"""

from __future__ import annotations

import re
from typing import get_args

from locks_lab.applications.strategies import CLIENTS
from locks_lab.worlds.network import Change, NodeChange, PairChange

__all__ = ["Pending", "death_of", "read_change", "write_change"]

_PAIR = re.compile(rf"({'|'.join(get_args(PairChange))}):([^\s,]+),([^\s,]+)")
_NODE = re.compile(rf"({'|'.join(get_args(NodeChange))}):([^\s,]+)")
_DEATH = re.compile(r"d([1-9]\d*)")


class Pending:
    """A change that is going to happen by itself, and that is scheduled like a client.

    Attributes:
        number: The change, as a step.
    """

    def __init__(self, number: str) -> None:
        self.number = number
        self.resumed = 0
        self.pace = 1.0
        self.rank = CLIENTS


def write_change(change: Change) -> str:
    """A change as a step."""
    kind, where = change
    return f"{kind}:{where if isinstance(where, str) else ','.join(where)}"


def read_change(step: str) -> Change:
    """Return the change that a step stands for.

    Raises:
        ValueError: The step stands for no change.
    """
    if found := _PAIR.fullmatch(step):
        return (found[1], (found[2], found[3]))  # type: ignore[return-value]
    if found := _NODE.fullmatch(step):
        return (found[1], found[2])  # type: ignore[return-value]
    raise ValueError(step)


def death_of(step: str) -> int | None:
    """The number of the client that dies in a step, if one does."""
    found = _DEATH.fullmatch(step)
    return None if found is None else int(found[1])
