"""Inside the library: what is called later, and with what, is checked where it is passed on."""

from __future__ import annotations

from typing_extensions import assert_type

from locks.core.agent.machine import AgentMachine
from locks.errors import NotHeld
from locks.model import AgentId
from locks.node.client.agent import Agent
from locks.runtime.executor import Executor
from locks.runtime.inline import Turn
from locks.runtime.native import insist


def events(agent: Agent, machine: AgentMachine, error: NotHeld) -> None:
    agent.event(machine.unlock, ("a",))
    agent.event(machine.unlock)  # E
    agent.event(machine.unlock, 7)  # E
    agent.event(machine.end_transaction, error)
    agent.event(machine.end_transaction)
    agent.event(machine.end_transaction, "why")  # E
    agent.event(machine.held_up, ("a",), beside=True)  # E
    agent.event(machine.status)  # E


def steps(turn: Turn, agent: Agent, machine: AgentMachine, other: AgentId) -> None:
    assert_type(turn.ask(machine.holds, ("a",)), bool)
    turn.ask(machine.holds, 7)  # E
    turn.run(agent.request_all, [], None)
    turn.run(agent.request_all, [])  # E
    turn.run_surely(agent.event, machine.surrender, ("a",), other, ("n",))
    turn.run_surely(agent.event, machine.surrender, ("a",), ("n",), other)  # E
    insist(turn.run_surely, machine.unlock, ("a",))
    insist(turn.run_surely, machine.unlock)  # E
    turn.post(agent.has_ended)  # E


def in_the_background(executor: Executor, turn: Turn, machine: AgentMachine) -> None:
    assert_type(executor.call(machine.asks_for, ("a",)), bool)
    executor.run_later(0.1, turn.run, machine.unlock, ("a",))
    executor.run_later(0.1, turn.run, machine.unlock)  # E
