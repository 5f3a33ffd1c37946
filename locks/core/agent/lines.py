"""The agents of a program that use the same majority locks (`locks.core.agent.gate`)."""

from __future__ import annotations

from collections.abc import Sequence

from locks.core.agent.machine import AgentMachine
from locks.core.agent.terms import Object
from locks.model import AgentId, LockId

__all__ = ["Lines"]


class Lines:
    """For each majority lock, the agents of this program that requested it, the newest last.

    If the newest one blocks the next agent, that one must wait behind it at the gate, and need not
    send requests to the other nodes yet. This is only a hint. If it is wrong, the requests reach the
    other nodes one round trip later, or too early.

    Attributes:
        by_agent: The majority locks that each agent has requested.
    """

    __slots__ = ("_by_lock", "by_agent")

    def __init__(self) -> None:
        self._by_lock: dict[LockId, dict[AgentId, AgentMachine]] = {}
        self.by_agent: dict[AgentId, dict[LockId, None]] = {}

    def join_lines(self, agent: AgentMachine, objects: Sequence[Object]) -> tuple[LockId, ...]:
        """Note an agent's requests; return the locks for which it must wait behind others of this program."""
        queued: list[LockId] = []
        mine = self.by_agent.get(agent.id)
        if mine is not None:
            self._leave_some(agent, mine, 2 * len(objects))
        for lock_id, mode, nodes, require in objects:
            if require != "majority" or len(nodes) == 1:
                continue
            line = self._by_lock.setdefault(lock_id, {})
            line.pop(agent.id, None)
            while line:
                newest, other = next(reversed(line.items()))
                if other.ended is None and other.asks_for(lock_id):
                    if other.blocks(lock_id, mode):
                        queued.append(lock_id)
                    break
                del line[newest]  # it has released the lock
            line[agent.id] = agent
            self.by_agent.setdefault(agent.id, {})[lock_id] = None
        return tuple(queued)

    def leave_lines(self, agent: AgentId) -> None:
        """Forget an agent that has ended."""
        for lock_id in self.by_agent.pop(agent, ()):
            self._leave(agent, lock_id)

    def _leave_some(self, agent: AgentMachine, mine: dict[LockId, None], number: int) -> None:
        """Look at so many locks of an agent, and forget those that it has released: it may use ever new ones, and not end."""
        for _ in range(min(number, len(mine))):
            lock_id = next(iter(mine))
            del mine[lock_id]
            if agent.asks_for(lock_id):
                mine[lock_id] = None
            else:
                self._leave(agent.id, lock_id)

    def _leave(self, agent: AgentId, lock_id: LockId) -> None:
        line = self._by_lock.get(lock_id)
        if line is not None:
            line.pop(agent, None)
            if not line:
                del self._by_lock[lock_id]
