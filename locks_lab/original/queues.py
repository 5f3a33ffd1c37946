"""The queue of one lock in the original: groups of entries, the first of which holds the lock.

Adjacent readers are one group. Each writer is its own group, unless queues were merged. An entry is
*direct* if its agent has requested this lock id. Otherwise it is *indirect*: a copy of what the
agent holds or wants above or below.

Our rule looks at all requests; this one does not. Each lock id has its own queue, and each change
of a queue is repeated in the queues above and below, group by group. If the repetition has another
result, tables and rows disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from locks.model import AgentId, Mode

__all__ = [
    "Entry",
    "Group",
    "Queue",
    "agents_in",
    "enter",
    "find",
    "inherited",
    "leave",
    "merge",
    "waits_in",
]


class Entry(NamedTuple):
    """An agent in a queue.

    Attributes:
        agent: The agent.
        version: The version of the table when the entry came, or was last refreshed.
        direct: Whether the agent has requested this lock id itself.
    """

    agent: AgentId
    version: int
    direct: bool = True


class Group(NamedTuple):
    """Entries that have the lock together, or wait for it together."""

    mode: Mode
    entries: tuple[Entry, ...]

    def of(self, agent: AgentId) -> Entry | None:
        """The entry of an agent."""
        return next((entry for entry in self.entries if entry.agent == agent), None)

    def serves(self, agent: AgentId, mode: Mode) -> bool:
        """Whether an agent has here what it requests; a write lock also serves for reading."""
        return (mode == "read" or self.mode == "write") and self.of(agent) is not None


Queue = tuple[Group, ...]


def agents_in(queue: Queue) -> list[AgentId]:
    """All agents in a queue, each once, in their own order."""
    return sorted({entry.agent for group in queue for entry in group.entries})


def find(queue: Queue, agent: AgentId) -> tuple[Mode, Entry] | None:
    """The first entry of an agent, with its mode."""
    for group in queue:
        entry = group.of(agent)
        if entry is not None:
            return group.mode, entry
    return None


def is_in(queue: Iterable[Group], agent: AgentId, mode: Mode) -> bool:
    """Whether an agent holds, or waits for, what it requests."""
    return any(group.serves(agent, mode) for group in queue)


def inherited(queue: Queue) -> Queue:
    """A queue as it is copied to another lock id."""
    return tuple(
        Group(mode, tuple(entry._replace(direct=False) for entry in entries))
        for mode, entries in queue
    )


# --- Entering -----------------------------------------------------------------------------------


def enter(queue: Queue, mode: Mode, new: Entry) -> Queue:
    """Put an entry into a queue: last, or into the group of its own agent or of other readers.

    This walks along the queue, and decides at each place by the rest of the queue.
    """
    passed: list[Group] = []
    rest = queue
    while True:
        placed = _at_the_end(rest, mode, new)
        if placed is None:
            head, *tail = rest
            placed = _at(head, tuple(tail), mode, new)
        if placed is not None:
            return (*passed, *placed)
        if not _is_replaced(rest, mode, new):
            passed.append(rest[0])
        rest = rest[1:]


def _at_the_end(rest: Queue, mode: Mode, new: Entry) -> Queue | None:
    """The new end of a queue, if the entry stops at this end."""
    alone = Group(mode, (new,))
    if not rest:
        return (alone,)
    head = rest[0]
    if len(rest) > 1:
        return None
    mine = head.of(new.agent) is not None
    if head.mode == "read":
        if mode == "read":
            return rest if mine else (Group("read", (new, *head.entries)),)
        if len(head.entries) == 1:  # the only reader gets to write
            return (alone,) if mine else (head, alone)
    elif mode == "write" and mine and len(head.entries) == 1 and new.direct:
        return (alone,)
    return None


def _at(head: Group, tail: Queue, mode: Mode, new: Entry) -> Queue | None:
    """The new queue, if the entry stops at its first group."""
    if not new.direct:
        return (head, *tail) if head.serves(new.agent, mode) else None
    if head.mode == "write" and len(head.entries) > 1:
        return None  # several writers below: none of them holds it alone
    if not head.serves(new.agent, mode):
        return None
    # The entry is already here: make it direct and newer. A writer remains a writer.
    entries = tuple(new if entry.agent == new.agent else entry for entry in head.entries)
    return (Group(head.mode, entries), *tail)


def _is_replaced(rest: Queue, mode: Mode, new: Entry) -> bool:
    """Whether all readers of the first group wait to write: then they no longer read."""
    return (
        new.direct
        and mode == "write"
        and rest[0].mode == "read"
        and all(
            entry.agent == new.agent or is_in(rest[1:], entry.agent, "write")
            for entry in rest[0].entries
        )
    )


# --- Leaving ------------------------------------------------------------------------------------


def leave(queue: Queue, agent: AgentId) -> Queue:
    """Take an agent out of a queue."""
    left = [
        Group(mode, tuple(entry for entry in entries if entry.agent != agent))
        for mode, entries in queue
    ]
    return _upgraded(tuple(group for group in left if group.entries))


def _upgraded(queue: Queue) -> Queue:
    """The queue without a group of readers at its head that all wait to write."""
    while len(queue) > 1 and queue[0].mode == "read":
        if not all(is_in(queue[1:], entry.agent, "write") for entry in queue[0].entries):
            break
        queue = queue[1:]
    return queue


# --- Merging ------------------------------------------------------------------------------------


def merge(queue: Queue, into: Queue) -> Queue:
    """Copy the queue of a lock id below into that of one above."""
    for group in inherited(queue):
        into = _merged(group, into)
    return into


def _merged(group: Group, queue: Queue) -> Queue:
    """Merge a group into a queue: groups of the same mode become one, whoever holds the lock."""
    passed: list[Group] = []
    for place, head in enumerate(queue):
        rest = queue[place + 1 :]
        if head.mode == group.mode:
            return (*passed, Group(head.mode, _newest(group.entries, head.entries)), *rest)
        if group.mode == "read":
            reads, writes = _without_writers(group.entries, head.entries)
            passed.append(Group("write", writes))
            if not reads:
                return (*passed, *rest)
            group = Group("read", reads)
        else:
            reads, writes = _without_writers(head.entries, group.entries)
            group = Group("write", writes)
            if not reads:
                return (*passed, group, *rest)
            passed.append(Group("read", reads))
    return (*passed, group)


def _newest(new: Iterable[Entry], entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Entries of one mode, of each agent the newer one."""
    for entry in new:
        known = next((each for each in entries if each.agent == entry.agent), None)
        if known is None:
            entries = (entry, *entries)
        elif known.version < entry.version:
            entries = tuple(entry if each is known else each for each in entries)
    return entries


def _without_writers(
    reads: Iterable[Entry], writes: tuple[Entry, ...]
) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    """Reads of agents that do not write, and the writes, of each agent with the newer version."""
    others: tuple[Entry, ...] = ()
    for read in reads:
        if all(write.agent != read.agent for write in writes):
            others = (read, *others)
        else:
            writes = tuple(
                read if w.agent == read.agent and w.version < read.version else w for w in writes
            )
    return others, writes


def waits_in(queue: Queue) -> Iterator[tuple[Mode, Entry, AgentId]]:
    """Who waits for whom in a queue: an entry, for each agent in the groups ahead of it."""
    ahead: list[AgentId] = []
    for mode, entries in queue:
        for entry in entries:
            for other in dict.fromkeys(ahead):
                if other != entry.agent:
                    yield mode, entry, other
        ahead += [entry.agent for entry in entries]
