"""Agents and lock servers as pure machines, in a world where messages arrive at once."""

from __future__ import annotations

from typing import Any

from locks.core.agent.machine import AgentMachine
from locks.core.messages import AnswerWait, Ended, Lost, Notify, ToAgent, ToServer
from locks.core.server.machine import ServerMachine
from locks.model import AgentId, Notification

__all__ = ["ALL", "N1", "N2", "N3", "A", "B", "Net"]

A, B = ("a",), ("b",)
N1, N2, N3 = "n1@h", "n2@h", "n3@h"
ALL = (N1, N2, N3)


class Net:
    """Some lock servers and agents; what one of them wants sent is delivered at once."""

    def __init__(self, *nodes: str) -> None:
        self.servers = {node: ServerMachine(node) for node in nodes}
        self.agents: dict[AgentId, AgentMachine] = {}
        self.answers: dict[Any, Any] = {}
        self.told: list[Notification] = []
        self.lost: list[Lost] = []
        self.sent: list[Any] = []  # to lock servers
        self.told_agents: list[ToAgent] = []

    def agent(self, **options: Any) -> AgentMachine:
        serial = len(self.agents) + 1
        agent = AgentMachine(AgentId(serial, N1, serial), f"c{serial}", self.servers, **options)
        self.agents[agent.id] = agent
        return agent

    def do(self, agent: AgentMachine, effects: list[Any]) -> None:
        """Carry out what an agent wants, and all that follows."""
        todo = [(agent, effect) for effect in effects]
        while todo:
            sender, effect = todo.pop(0)
            if isinstance(effect, ToServer):
                self.sent.append(effect.message)
                if effect.node in self.servers:
                    server = self.servers[effect.node]
                    todo += [(sender, each) for each in server.handle(effect.message)]
            elif isinstance(effect, ToAgent):
                self.told_agents.append(effect)
                receiver = self.agents[effect.agent]
                todo += [(receiver, each) for each in receiver.receive(effect.message)]
            elif isinstance(effect, AnswerWait):
                self.answers[effect.wait] = effect.result
            elif isinstance(effect, Notify):
                self.told.append(effect.notification)
            elif isinstance(effect, Lost):
                self.lost.append(effect)
            else:
                assert isinstance(effect, Ended)
            if not todo:
                for each in self.agents.values():
                    todo += [(each, effect) for effect in each.settle()]

    def down(self, node: str) -> None:
        del self.servers[node]
        for agent in self.agents.values():
            self.do(agent, agent.node_down(node))

    def up(self, node: str) -> None:
        self.servers[node] = ServerMachine(node, 1_000_000)
        for agent in self.agents.values():
            self.do(agent, agent.node_up(node))
