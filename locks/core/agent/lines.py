"""The agents of a program that wait at the gates of majority locks (`locks.core.agent.gate`)."""

from __future__ import annotations

from collections.abc import Iterable

from locks.core.agent.machine import AgentMachine
from locks.core.agent.terms import Object
from locks.model import AgentId, LockId

__all__ = ["Lines"]


class Lines:
    """For each majority lock, the agent of this program that requested it last.

    If that agent waits at the gate, the next agent must wait behind it, and need not send requests
    to the other nodes yet. This is only a hint. If it is wrong, the requests reach the other nodes
    one round trip later, or too early.

    Attributes:
        by_agent: The majority locks that each agent has requested.
    """

    __slots__ = ("_last", "by_agent")

    def __init__(self) -> None:
        self._last: dict[LockId, AgentMachine] = {}
        self.by_agent: dict[AgentId, dict[LockId, None]] = {}

    def join_lines(self, agent: AgentMachine, objects: Iterable[Object]) -> tuple[LockId, ...]:
        """Note an agent's requests; return the locks for which this program already waits at the gate."""
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

    def leave_lines(self, agent: AgentId) -> None:
        """Forget an agent that has ended."""
        for lock_id in self.by_agent.pop(agent, ()):
            last = self._last.get(lock_id)
            if last is not None and last.id == agent:
                del self._last[lock_id]
