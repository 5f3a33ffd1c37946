"""The application of the simulated elections: a set that only grows, as the original's example.

A leader brings together what the candidates have, and hands it over; each call adds a key and tells
the others. So what any candidate has ever had must be there for ever, and it is an error to take
in a set that lacks something of it.
"""

from __future__ import annotations

from typing import Any

from locks.sim.host import Violation
from locks_leader.core.machine import Outcome
from locks_leader.core.membership import Kind
from locks_leader.sim.parties import MemberId

__all__ = ["Collection"]


class Collection:
    """One instance's set of keys.

    Args:
        me: The instance.
        kind: As what it takes part; what a worker has is nobody's concern.

    Attributes:
        keys: What it has.
        written: The keys that it has added as the leader.
    """

    def __init__(self, me: MemberId, kind: Kind) -> None:
        self.me = me
        self.kind = kind
        self.keys: frozenset[str] = frozenset()
        self.written: frozenset[str] = frozenset()

    def elected(self, states: list[frozenset[str]]) -> Outcome:
        """Bring together what the candidates have."""
        self.keys = self.keys.union(*states)
        return Outcome(new=self.keys, old=("all", self.keys))

    def surrendered(self, keys: frozenset[str]) -> None:
        """Take in what a new leader has."""
        self._replace(keys)

    def from_leader(self, message: tuple[str, Any]) -> None:
        """Take in what the leader tells."""
        what, value = message
        if what == "add":
            self.keys |= {value}
        else:
            self._replace(value)

    def write(self, key: str) -> None:
        """Carry out a call as the leader."""
        if key in self.written:
            raise Violation(f"{self.me} carries out the call for {key} twice")
        self.written |= {key}
        self.keys |= {key}

    def _replace(self, keys: frozenset[str]) -> None:
        lost = self.keys - keys
        if lost and self.kind == "candidate":
            raise Violation(f"{self.me} loses {sorted(lost)}: what its leader hands over lacks it")
        self.keys = keys
