"""Checks of the arguments of the public functions, made before anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pykka

from locks.errors import InvalidOption, MisuseError
from locks.node.client.agent import Agent
from locks.node.client.clients import checked_label as checked_label
from locks.node.client.objects import Pattern as Pattern
from locks.node.client.objects import checked_node as checked_node
from locks.node.client.objects import checked_nodes as checked_nodes
from locks.node.client.objects import checked_object as checked_object
from locks.node.client.objects import checked_pattern as checked_pattern
from locks.node.server import Watcher
from locks.program import default_node
from locks.runtime import current_client
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.callables import check_callable

if TYPE_CHECKING:
    from locks.node.peers.remote_clients import RemoteAgent

__all__ = [
    "Pattern",
    "checked_agent",
    "checked_node",
    "checked_nodes",
    "checked_object",
    "checked_pattern",
    "checked_watcher",
]


def checked_agent(agent: Any) -> Agent | RemoteAgent:
    """Check an agent, on this or another node.

    Raises:
        MisuseError: It is not an agent.
    """
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, OfAnotherNode):
        cluster = default_node().cluster
        found = None if cluster is None else cluster.agent_behind(agent)
        if found is not None:
            return found
    raise MisuseError(
        f"{agent!r} is not an agent; note that begin_transaction() returns a pair (agent, result)",
        agent=repr(agent),
    )


def checked_watcher(watcher: Watcher | None) -> Watcher:
    """Check a watcher; the default is the calling actor.

    Raises:
        InvalidOption: It is neither an actor's reference nor a callable.
    """
    who = current_client() if watcher is None else watcher
    if isinstance(who, pykka.ActorRef):
        return who
    if callable(who):
        check_callable(who, "watcher")
        return who
    raise InvalidOption(
        f"watcher {who!r} is neither an actor's reference nor a callable; pass watcher=function or "
        "watcher=actor_ref",
        watcher=repr(who),
    )
