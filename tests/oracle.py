"""The rule of the lock table as a naive model: one ordered line, everything recomputed each time.

    Two requests conflict when they are by different agents, their ids are related, and not both
    are reads. A request is granted when no conflicting request is granted or is ahead of it in the queue.
    A new request stands last, except: (cover) one that is already covered by an own request, that
    is on the same id or an ancestor and in the same or a stronger mode, stands together with it;
    (conversion) one of an agent for which others already wait stands ahead of the first
    conflicting request that waits for it.

A request that a granted one covers is itself granted: it "stands together with it".

Written from this text alone, so that it checks the table independently: it shares no code with it,
not even the words "related" and "conflict". Which modes conflict, it reads in `docs/algorithm.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locks.model import AgentId, LockId, Mode

Key = tuple[AgentId, LockId, Mode]
PAGE = Path(__file__).parents[1] / "docs" / "algorithm.md"
ROW = re.compile(r"^\| \*\*(\w+)\*\* \|(.*)\|$", re.MULTILINE)


def modes_of_the_page() -> dict[Any, dict[Any, str]]:
    """The table of modes that the page shows: what two agents do of which one has the first mode, one the second."""
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    modes = [mode for mode, _ in rows]
    return {
        mode: dict(zip(modes, [cell.strip() for cell in cells.split("|")], strict=True))
        for mode, cells in rows
    }


BESIDE = {  # the modes in which others may lock while somebody locks in this one
    mode: {other for other, both in row.items() if both == "together"}
    for mode, row in modes_of_the_page().items()
}


@dataclass(eq=False)
class Wish:
    """One request. Its `turn` rises whenever its state or its place changes."""

    agent: AgentId
    lock_id: LockId
    mode: Mode
    granted: bool = False
    turn: int = 0

    @property
    def key(self) -> Key:
        return (self.agent, self.lock_id, self.mode)


End = tuple[Wish, int]  # one end of an edge as it was seen: the request, and its turn at that time


def related(a: LockId, b: LockId) -> bool:
    """Whether one is a prefix of the other."""
    return all(x == y for x, y in zip(a, b, strict=False))


def conflict(a: Wish, b: Wish) -> bool:
    """Whether both can't be granted."""
    return a.agent != b.agent and related(a.lock_id, b.lock_id) and b.mode not in BESIDE[a.mode]


class Oracle:
    """The line: groups of requests that stand together, from the first to the last."""

    def __init__(self) -> None:
        self.line: list[list[Wish]] = []

    def wishes(self) -> list[Wish]:
        return [wish for group in self.line for wish in group]

    def place(self, wish: Wish) -> int:
        return next(i for i, group in enumerate(self.line) if wish in group)

    def waits_for(self, waiter: Wish, other: Wish) -> bool:
        return (
            not waiter.granted
            and conflict(waiter, other)
            and (other.granted or self.place(other) < self.place(waiter))
        )

    def request(self, agent: AgentId, lock_id: LockId, mode: Mode) -> Wish:
        new = Wish(agent, lock_id, mode)
        own = [wish for wish in self.wishes() if wish.agent == agent]
        covering = [
            wish
            for wish in own
            if lock_id[: len(wish.lock_id)] == wish.lock_id and BESIDE[wish.mode] <= BESIDE[mode]
        ]
        for wish in covering:
            if wish.lock_id == lock_id:
                return wish
        waiting_for_it = [
            wish
            for wish in self.wishes()
            if conflict(wish, new) and any(self.waits_for(wish, mine) for mine in own)
        ]
        if covering:
            self.line[self.place(covering[0])].append(new)
            new.granted = any(wish.granted for wish in covering)
        elif waiting_for_it:
            self.line.insert(self.place(waiting_for_it[0]), [new])
        else:
            self.line.append([new])
        self.settle()
        return new

    def release(self, agent: AgentId, lock_id: LockId, mode: Mode | None = None) -> None:
        modes = [mode] if mode else BESIDE
        self.take_out([w for w in self.wishes() if w.key in [(agent, lock_id, m) for m in modes]])
        self.settle()

    def remove(self, agent: AgentId) -> None:
        self.take_out([wish for wish in self.wishes() if wish.agent == agent])
        self.settle()

    def surrender(
        self, agent: AgentId, lock_id: LockId, waiter: End | None = None, holder: End | None = None
    ) -> bool:
        """Whether it was carried out."""
        if waiter and holder and not self.edge_stands(agent, waiter, holder):
            return False
        mine = [w for w in self.wishes() if w.agent == agent and related(w.lock_id, lock_id)]
        self.take_out(mine)
        for wish in mine:
            wish.granted = False
            wish.turn += 1
            self.line.append([wish])
        self.settle()
        return bool(mine)

    def edge_stands(self, agent: AgentId, waiter: End, holder: End) -> bool:
        present = self.wishes()
        return (
            all(wish in present and wish.turn == turn for wish, turn in (waiter, holder))
            and holder[0].agent == agent
            and self.waits_for(waiter[0], holder[0])
        )

    def take_out(self, wishes: list[Wish]) -> None:
        self.line = [[w for w in group if w not in wishes] for group in self.line]
        self.line = [group for group in self.line if group]

    def settle(self) -> None:
        """Grant whatever nothing stands against, from the first to the last."""
        for wish in self.wishes():
            if not wish.granted and not any(self.waits_for(wish, w) for w in self.wishes()):
                wish.granted = True
                wish.turn += 1
