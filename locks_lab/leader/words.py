"""Messages and roles of an election in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from locks.core.messages import (
    Knowledge,
    RaiseVersion,
    Remove,
    Request,
    RequestStates,
    Resolved,
    Surrender,
    Surrendered,
    VersionRaised,
)
from locks.errors import assert_never
from locks_lab.leader.member import SimulatedInstance
from locks_lab.leader.parties import Ask, Here, Said, State
from locks_lab.worlds.network import Link, Party
from locks_leader.core.messages import Affirm, Announce, FromLeader, Resign

__all__ = ["CANDIDATE", "ElectionWords", "role_of"]

CANDIDATE = "nobody leads it: candidate"
MERGE = ("locks_leader", "sync")  # how the id of the merge lock begins


class ElectionWords:
    """Messages in words, each one only as far as it is news for its receiver."""

    def __init__(self) -> None:
        self._locks: dict[Party, str] = {}  # which lock an agent is about
        self._told: dict[tuple[Party, str, int], str] = {}  # what an agent knows of each request

    def copy(self) -> ElectionWords:
        """The same, to try what would be news next."""
        found = ElectionWords()
        found._locks |= self._locks
        found._told |= self._told
        return found

    def label(self, link: Link, message: Said) -> str:
        """The label of a message; empty if the stories have no need of it."""
        sender, receiver = link
        match message:
            case Request():
                lock = "merge lock" if message.lock_id[:2] == MERGE else "lock"
                self._locks[sender] = lock
                return f"wants the {lock}"
            case Remove():
                return f"gives back the {self._locks.get(sender, 'lock')}"
            case RaiseVersion():
                return f"confirm token {message.version}"
            case VersionRaised():
                is_done = "" if message.done else "not "
                return f"token {message.version} is {is_done}confirmed"
            case Surrender():
                return f"surrenders the {self._locks.get(sender, 'lock')}"
            case RequestStates() | Knowledge() | Resolved() | Surrendered():
                return ", ".join(self._news(receiver, message))
            case Here():
                members = ", ".join(f"candidate {member.node[1:]}" for member, _ in message.members)
                return f"{members} takes part"
            case Ask():
                return "what is your state?"
            case State():
                return "this is my state"
            case Announce():
                return f"I lead you, term {message.term}; this is the state"
            case Affirm():
                return f"I lead you still, with term {message.term}"
            case Resign():
                return "I do not lead any more"
            case FromLeader():
                return "the leader says"
            case _:
                return ""  # the stories have no need of it

    def _news(self, receiver: Party, message: Any) -> Iterator[str]:
        """The news for a candidate: who holds the lock, or waits for it."""
        if isinstance(message, (Resolved, Surrendered)):
            yield "the deadlock is resolved"
        for record in message.records:
            key = (receiver, record.node, record.number)
            if self._told.get(key) == record.state:
                continue
            self._told[key] = record.state
            lock = self._locks.get(receiver, "lock")
            who = "you" if record.agent == receiver else f"candidate {record.agent.node[1:]}"
            there = f" on {record.node}" if isinstance(message, Knowledge) else ""
            if record.state == "granted":
                yield f"{who} {'have' if who == 'you' else 'has'} the {lock}{there}"
            elif record.state == "waiting":
                yield f"{who} {'wait' if who == 'you' else 'waits'} for the {lock}{there}"


def role_of(instance: SimulatedInstance) -> str:
    """The role of a candidate."""
    machine = instance.machine
    match machine.role:
        case "candidate":
            return CANDIDATE
        case "syncing":
            return "has won: syncing"
        case "leader":
            return f"leads, term {machine.term}"
        case "following":
            leader: Any = machine.leader
            return f"follows candidate {leader.node[1:]}, term {machine.term}"
        case _:
            assert_never(machine.role)
