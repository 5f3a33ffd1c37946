"""`locks why`: who waits for whom, up to the transaction that is not waiting."""

from __future__ import annotations

import argparse
from typing import Any

from locks.cli.ids import ID_HELP, near, parse_id
from locks.cli.observing import NOTHING, add_looking, answer, find_agent, known_at
from locks.facts.data import fact_as_data
from locks.facts.gather import waits
from locks.facts.graph import WaitReport
from locks.facts.stories import agents_at, why
from locks.model import AgentId

__all__ = ["add_command"]

EXAMPLES = """\
  locks why accounts/ann             # what blocks this lock
  locks why agent-3@client-1@host    # what this transaction waits for; the id is from `locks ps`
"""
SAYS = """Who waits for whom, for how long and over which locks: from a lock id or a transaction up to the transaction that
is not waiting; over all servers."""


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "why",
        _run,
        what=about,
        says=SAYS,
        nothing="no transaction holds or requests it",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "what", metavar="ID|AGENT", help=f"{ID_HELP}; or an agent, as shown by `locks ps`"
    )


def _run(options: argparse.Namespace) -> int:
    graph = waits(timeout=options.timeout)
    agents = find_agent(graph.agents, options.what)
    meant: list[str] = []
    if not agents:  # what looks like an agent may be an id, too
        lock_id = parse_id(options.what)
        agents = agents_at(graph, lock_id)
        if not agents:
            meant = near(lock_id, {each.request.lock_id for each in graph.requests})
    lines = why(graph, agents)
    data = _as_data(graph, agents, lines) | ({"near": meant} if meant else {})
    there = f" There is: {', '.join(meant)}." if meant else ""
    text = "\n".join(lines) or (
        f"No transaction holds or requests {options.what}{known_at(graph.silent)}.{there}"
    )
    return answer(options, data, text, graph.silent, 0 if lines else NOTHING)


def _as_data(graph: WaitReport, agents: list[AgentId], lines: list[str]) -> dict[str, Any]:
    concerned = dict.fromkeys(agents)
    todo = list(agents)
    edges = []
    for agent in todo:
        for edge in graph.blockers(agent):
            edges.append({"waiter": fact_as_data(edge.waiter), "holder": fact_as_data(edge.holder)})
            other = edge.holder.request.agent
            if other not in concerned:
                concerned[other] = None
                todo.append(other)
    return {
        "agents": [str(agent) for agent in concerned],
        "edges": edges,
        "roots": [str(agent) for agent in todo if not graph.blockers(agent)],
        "text": lines,
    }
