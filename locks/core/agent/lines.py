"""Which agents of a program wait at the gates of majority locks (`locks.core.agent.gate`)."""

from __future__ import annotations

from collections.abc import Iterable

from locks.core.agent.machine import AgentMachine
from locks.core.agent.terms import Object
from locks.model import AgentId, LockId

__all__ = ["Lines"]


class Lines:
    """Who of a program requested a majority lock last.

    If that one waits at the gate, the next one has to wait behind it, and need not request anything of the other nodes
    yet. It is a hint, and does no harm if it is wrong: then the other nodes are asked one round trip later, or too early.

    Attributes:
        by_agent: Which majority locks each agent has requested.
    """

    __slots__ = ("_last", "by_agent")

    def __init__(self) -> None:
        self._last: dict[LockId, AgentMachine] = {}
        self.by_agent: dict[AgentId, dict[LockId, None]] = {}

    def join(self, agent: AgentMachine, objects: Iterable[Object]) -> tuple[LockId, ...]:
        """An agent is about to request locks; for which of them the last one of this program waits at the gate."""
        queued: list[LockId] = []
        for lock_id, _, nodes, require in objects:
            if require != "majority" or len(nodes) == 1:
                continue
            last = self._last.get(lock_id)
            if last is not None and last.id != agent.id and last.queues_for(lock_id):
                queued.append(lock_id)
            self._last[lock_id] = agent
            self.by_agent.setdefault(agent.id, {})[lock_id] = None
        return tuple(queued)

    def leave(self, agent: AgentId) -> None:
        """An agent has ended."""
        for lock_id in self.by_agent.pop(agent, ()):
            last = self._last.get(lock_id)
            if last is not None and last.id == agent:
                del self._last[lock_id]
