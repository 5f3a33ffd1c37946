"""What lock servers and agents of the original say to each other."""

from __future__ import annotations

from typing import NamedTuple

from locks.model import AgentId, LockId, Mode
from locks_lab.original.table import Row

__all__ = ["Ask", "End", "Info", "Key", "Message", "Note", "Surrender", "Surrendered"]

Key = tuple[LockId, str]  # a lock id and a node: each is a lock by itself


class Ask(NamedTuple):
    """An agent asks a lock server for a lock."""

    agent: AgentId
    lock_id: LockId
    mode: Mode


class Surrender(NamedTuple):
    """An agent gives a lock up, if its queue still has this version.

    Attributes:
        agent: The agent.
        lock_id: The lock.
        version: That of the queue as the agent knows it.
        behind: Behind whom it wants to stand; last if that is nobody. Only some rules say so.
    """

    agent: AgentId
    lock_id: LockId
    version: int
    behind: AgentId | None = None


class End(NamedTuple):
    """An agent has ended; lock servers monitor it."""

    agent: AgentId


class Note(NamedTuple):
    """That a queue has changed by a surrender."""

    agent: AgentId
    version: int


class Info(NamedTuple):
    """A whole queue, as a lock server tells it, or an agent that was told it.

    Attributes:
        node: Whose lock server has it.
        row: The row.
        note: By whose surrender it has changed, if it has.
    """

    node: str
    row: Row
    note: Note | None = None

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.row.lock_id, self.node


class Surrendered(NamedTuple):
    """An agent says that it surrenders a lock, to others who are not in its queue."""

    agent: AgentId
    key: Key
    version: int


Message = Ask | Surrender | End | Info | Surrendered
