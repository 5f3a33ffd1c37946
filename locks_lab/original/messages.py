"""The messages between lock servers and agents of the original."""

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
    """An agent gives up a lock, if its queue still has this version.

    Attributes:
        agent: The agent.
        lock_id: The lock.
        version: The version of the queue that the agent knows.
        behind: The agent behind which it wants to stand; None if it wants to be last. Only some
            rules set it.
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
    """A whole queue, sent by a lock server, or by an agent that has received it.

    Attributes:
        node: The node of the lock server.
        row: The row.
        note: The agent whose surrender has changed it, if one has.
    """

    node: str
    row: Row
    note: Note | None = None

    @property
    def key(self) -> Key:
        """The lock and the node of the queue."""
        return self.row.lock_id, self.node


class Surrendered(NamedTuple):
    """An agent informs others, which are not in the queue of a lock, that it surrenders this lock."""

    agent: AgentId
    key: Key
    version: int


Message = Ask | Surrender | End | Info | Surrendered
