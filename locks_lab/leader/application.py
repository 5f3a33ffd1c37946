"""The application of the simulated elections: a set that only grows, like the original's example.

A leader unites the sets of the candidates, and hands the result over. Each call or cast adds a key
and informs the others. So a key that a candidate has once had must never be missing again: it is an
error if a candidate receives a set without such a key.

The first letter of a key tells how it is requested:

    w   by a call           r   by a call that cannot be sent to another node
    c   by a cast           m   by a cast that cannot be sent to another node
                            a   by a call whose answer cannot be sent to another node
"""

from __future__ import annotations

from typing import Any, Literal

from locks.errors import MisuseError, assert_never
from locks_lab.leader.parties import MemberId, ToInstance
from locks_lab.worlds.host import Violation
from locks_leader.core.events import HandOver
from locks_leader.core.messages import Forward, ForwardAnswer, Kind, LeaderCast

__all__ = ["Collection", "Unsendable", "answer_to", "can_be_sent"]

Told = Literal["all", "add", "hint"]  # the leader's messages: all keys, one key, a hint
ODD = "no term for this"  # an answer that can't be sent


class Unsendable(MisuseError):
    """There is something in a message that can't be sent. Two of them are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Unsendable

    def __hash__(self) -> int:
        return hash(Unsendable)


def answer_to(key: str) -> str:
    """The leader's answer to the call for a key."""
    return ODD if key[0] == "a" else "done"


def can_be_sent(message: ToInstance) -> bool:
    """Whether a message can be sent to another node."""
    if isinstance(message, (Forward, LeaderCast)):
        return message.request[0] not in "rm"
    return not isinstance(message, ForwardAnswer) or message.value != ODD


class Collection:
    """One instance's set of keys.

    Args:
        me: The instance.
        kind: Whether it is a candidate or a worker; the keys of workers are not checked.
        may_lose: Whether it may have got keys from a leader that had not yet noticed that it had
            lost the leadership. On nodes that do not count, a leader notices this only by its
            connections.

    Attributes:
        keys: Its keys.
        written: The keys that it has added as the leader.
        hints: The leader's messages that are for candidates only.
    """

    def __init__(self, me: MemberId, kind: Kind, may_lose: bool = False) -> None:
        self.me = me
        self._may_lose = may_lose
        self.kind = kind
        self.keys: frozenset[str] = frozenset()
        self.written: frozenset[str] = frozenset()
        self.hints: frozenset[str] = frozenset()

    def elected(self, states: list[frozenset[str]]) -> HandOver:
        """Unite the sets of the candidates."""
        self.keys = self.keys.union(*states)
        return HandOver(new=self.keys, old=("all", self.keys))

    def surrendered(self, keys: frozenset[str]) -> None:
        """Take over the set of a new leader."""
        self._replace(keys)

    def from_leader(self, message: tuple[Told, Any]) -> None:
        """Handle a message of the leader."""
        what, value = message
        match what:
            case "all":
                self._replace(value)
            case "add":
                self.keys |= {value}
            case "hint":
                if self.kind == "worker":
                    raise Violation(f"{self.me} is a worker, and is told what is for candidates")
                self.hints |= {value}
            case _:
                assert_never(what)

    def write(self, key: str) -> None:
        """Carry out a call or a cast as the leader."""
        if key in self.written:
            raise Violation(f"{self.me} carries out the call for {key} twice")
        self.written |= {key}
        self.keys |= {key}

    def _replace(self, keys: frozenset[str]) -> None:
        lost = self.keys - keys
        if lost and self.kind == "candidate" and not self._may_lose:
            raise Violation(f"{self.me} loses {sorted(lost)}: what its leader hands over lacks it")
        self.keys = keys
