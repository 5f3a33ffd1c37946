"""What users pass to the public functions, checked before anything is changed."""

from __future__ import annotations

from typing import Any

import pykka

from locks.core.agent.machine import Object
from locks.errors import InvalidOption, MisuseError, NodeNotRunning
from locks.model import Require, check_lock_id, check_mode
from locks.node.agent import Agent
from locks.node.clients import checked_label as checked_label
from locks.node.ports import NodePort
from locks.node.refusals import reasons
from locks.node.remote_clients import RemoteAgent
from locks.node.scope import Nodes, one_of, where
from locks.node.server import Watcher
from locks.otp.remote import RemoteRef
from locks.program import default_node
from locks.runtime import current_client
from locks.wire.sendable import check_sendable

__all__ = [
    "Pattern",
    "checked_agent",
    "checked_node",
    "checked_nodes",
    "checked_object",
    "checked_pattern",
    "checked_watcher",
]

Pattern = tuple[Any, ...]
"""What is to be locked, as users write it; see `locks.lock_objects`."""


def checked_agent(agent: Any) -> Agent | RemoteAgent:
    """An agent, here or on another node.

    Raises:
        MisuseError: It is none.
    """
    if isinstance(agent, Agent):
        return agent
    if isinstance(agent, RemoteRef):
        cluster = default_node().cluster
        if cluster is not None and not isinstance(agent.target, str):
            return RemoteAgent(default_node(), cluster.remotes, agent)
    raise MisuseError(
        f"{agent!r} is not an agent; begin_transaction() returns a pair (agent, result)",
        agent=repr(agent),
    )


def checked_nodes(node: NodePort, nodes: Nodes | None, must_run: bool = True) -> tuple[str, ...]:
    """Names of nodes; by default those on which the program takes its locks.

    Raises:
        InvalidOption: They are no names.
        NodeNotRunning: One of them can't be reached, and `must_run`.
    """
    names = where(node, nodes, None).nodes
    down = [name for name in names if name not in node.alive]
    if down and must_run:
        why = reasons(down, node.refusals)
        text = f"{', '.join(down)} can't be reached from {node.name}{why}"
        raise NodeNotRunning(text, nodes=down)
    return names


def checked_node(node: NodePort, name: str | None) -> str:
    """The name of a node that is asked; by default one on which the program takes its locks."""
    return one_of(node, where(node, None, None).nodes) if name is None else name


def checked_object(
    node: NodePort,
    lock_id: Any,
    mode: Any,
    nodes: Nodes | None,
    require: Require | None,
) -> Object:
    """What is to be locked, checked, with defaults for what was left out.

    Raises:
        MisuseError: Something of it is wrong.
    """
    return (
        check_sendable(check_lock_id(lock_id)) if node.is_clustered else check_lock_id(lock_id),
        "write" if mode == "write" else check_mode(mode),
        *where(node, nodes, require),
    )


def checked_pattern(node: NodePort, pattern: Pattern) -> Object:
    """The same, of a pattern.

    Raises:
        MisuseError: Something of it is wrong.
    """
    if not isinstance(pattern, (tuple, list)) or not 2 <= len(pattern) <= 4:
        raise InvalidOption(
            f"object {pattern!r} is not (lock_id, mode), (lock_id, mode, nodes) or "
            "(lock_id, mode, nodes, require)",
            pattern=repr(pattern),
        )
    defaults: Pattern = (None, None, None, None)
    lock_id, mode, nodes, require = (*pattern, *defaults[len(pattern) :])
    return checked_object(node, lock_id, mode, nodes, require)


def checked_watcher(watcher: Watcher | None) -> Watcher:
    """A watcher; the calling actor by default.

    Raises:
        InvalidOption: It can't be told anything.
    """
    who = current_client() if watcher is None else watcher
    if isinstance(who, pykka.ActorRef) or callable(who):
        return who
    raise InvalidOption(
        f"watcher {who!r} is neither an actor's reference nor a callable; pass watcher=function or "
        "watcher=actor_ref",
        watcher=repr(who),
    )
