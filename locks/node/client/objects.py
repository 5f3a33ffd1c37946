"""Checks of programs' arguments, before anything is changed: objects, nodes, and receivers of surrenders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from locks.core.agent.machine import Object
from locks.errors import InvalidOption, NodeNotRunning, NotHeld
from locks.model import AgentId, LockId, Require, check_lock_id, check_mode, show
from locks.node.client.agent import Agent
from locks.node.client.refusals import reasons
from locks.node.client.scope import Nodes, all_servers, some_of, where
from locks.node.ports import NodePort

__all__ = [
    "Pattern",
    "checked_node",
    "checked_nodes",
    "checked_object",
    "checked_pattern",
    "surrender_to",
]

Pattern = tuple[Any, ...]
"""An object to lock, as users write it; see `locks.original.lock_objects`."""


def checked_nodes(
    node: NodePort, nodes: Nodes | None, lock_id: LockId, must_run: bool = True
) -> tuple[str, ...]:
    """Check names of nodes; by default those on which the program takes locks that are related to an id.

    Raises:
        InvalidOption: They are no names.
        NodeNotRunning: One of them can't be reached, and `must_run`.
    """
    names = (
        all_servers(node).around(lock_id)
        if nodes is None
        else where(node, nodes, None, lock_id).nodes
    )
    down = [name for name in names if name not in node.alive]
    if down and must_run:
        why = reasons(down, node.refusals)
        text = f"{node.name} can't reach {', '.join(down)}{why}"
        raise NodeNotRunning(text, nodes=down)
    return names


def checked_node(node: NodePort, name: str | None, lock_id: LockId) -> str | tuple[str, ...]:
    """The node to ask about an id; by default one of those on which the program locks it."""
    return some_of(node, where(node, None, None, lock_id).nodes) if name is None else name


def checked_object(
    node: NodePort,
    lock_id: Any,
    mode: Any,
    nodes: Nodes | None,
    require: Require | None,
) -> Object:
    """Check an object to lock, and fill in defaults.

    Raises:
        MisuseError: A part of it is wrong.
    """
    checked = check_lock_id(lock_id)
    scope = node.scope
    if scope is None or nodes is not None or require is not None:
        scope = where(node, nodes, require, checked)
    return (checked, "write" if mode == "write" else check_mode(mode), *scope)


def checked_pattern(node: NodePort, pattern: Pattern) -> Object:
    """The same, of a pattern.

    Raises:
        MisuseError: Something of it is wrong.
    """
    if not isinstance(pattern, (tuple, list)) or not 2 <= len(pattern) <= 4:
        raise InvalidOption(
            f"object {pattern!r} has the wrong form; use (lock_id, mode), (lock_id, mode, nodes) or "
            "(lock_id, mode, nodes, require)",
            pattern=repr(pattern),
        )
    defaults: Pattern = (None, None, None, None)
    lock_id, mode, nodes, require = (*pattern, *defaults[len(pattern) :])
    return checked_object(node, lock_id, mode, nodes, require)


def surrender_to(agent: Agent, lock_id: Sequence[Any], other: AgentId, nodes: Nodes | None) -> None:
    """Make an agent surrender a lock to another one that waits for it.

    Raises:
        NotHeld: The lock isn't held, or the other agent doesn't wait for it.
    """
    checked = check_lock_id(lock_id)
    names = checked_nodes(agent.node, nodes, checked)
    agent.begin_call()
    here = agent.node.name in names  # other nodes' queues are not known here
    if here and all(waiting.agent != other for waiting in agent.node.view(checked).waiting):
        raise NotHeld(
            f"can't surrender {show(checked)} to {other}: it is not waiting for the lock",
            lock_id=checked,
        )
    agent.surrender(checked, other, names)
