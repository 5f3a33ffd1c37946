"""The default nodes on which a program takes its locks.

A node that is alone takes them in its own lock table, and a node that was started with `servers` on
these. A node that is connected with others, but was started without `servers`, also takes them in
its own lock table, where no other program sees them. Few programs want that, so the first such lock
is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from locks.model import LockId, Require, check_nodes, check_require
from locks.node.ports import NodePort, Scope, Servers

if TYPE_CHECKING:
    from locks.node.options import Options

__all__ = [
    "HERE",
    "Here",
    "Nodes",
    "all_servers",
    "checked_where",
    "first_servers",
    "some_of",
    "take_servers",
    "where",
]

logger = logging.getLogger("locks.program")

LOCAL = (
    "%s takes locks in its own lock table, which other programs do not see, although it is connected with other nodes. For shared "
    "locks, use locks.start(servers=[...]) or nodes=[...]; for locks of this program only, "
    "use locks.start(servers=locks.HERE) or nodes=locks.HERE"
)


class Here(Enum):
    """There is one of it: `HERE`."""

    HERE = "HERE"

    def __repr__(self) -> str:
        return "locks.HERE"


HERE: Final = Here.HERE
"""In the place of a list of nodes: the own lock table of the program's node."""
Nodes = Sequence[str] | Literal[Here.HERE]


def first_servers(name: str, options: Options | None) -> Servers | None:
    """The servers of a starting node; `None` if it meets others and none were set."""
    if options is None:
        return Servers.alone(name)
    if not options.servers:
        return None
    return Servers(options.servers, options.require, options.copies)


def take_servers(node: NodePort, servers: Servers | None) -> None:
    """Set the servers of a node."""
    node.servers = servers
    node.scope = None if servers is None else servers.everywhere


def all_servers(node: NodePort) -> Servers:
    """The servers of a node: by default, it is one itself, for itself alone."""
    if node.servers is None:  # none were set for the node
        take_servers(node, Servers.alone(node.name))
        node.executor.run_soon(logger.warning, LOCAL, node.name)
    assert node.servers is not None
    return node.servers


def where(node: NodePort, nodes: Nodes | None, require: Require | None, lock_id: LockId) -> Scope:
    """The nodes and requirement of a call, with defaults filled in.

    Args:
        node: The program's node.
        nodes: Names of nodes, `HERE`, or `None` for those of the program.
        require: How many are needed; `None` for the default of the program's nodes, and for all of
            other nodes.
        lock_id: The lock id.

    Raises:
        InvalidOption: They are no names, or it is no requirement; or the id covers ids on different servers.
    """
    if nodes is None:
        scope = node.scope or all_servers(node).at(lock_id)
        return scope if require is None else Scope(scope.nodes, check_require(require))
    if isinstance(nodes, Here):
        names: tuple[str, ...] = (node.name,)
    else:
        names = check_nodes(nodes)
    return Scope(names, "all" if require is None else check_require(require))


def some_of(node: NodePort, names: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes to query about locks: this node if it is among them, otherwise those that are up."""
    if node.name in names:
        return (node.name,)
    up = [each for each in names if each in node.alive]
    return tuple(sorted(up, key=node.silent.__contains__)) or names[:1]


def checked_where(nodes: Nodes | None, require: Require | None) -> None:
    """Raise `InvalidOption` where `where` would, before there is a node."""
    if nodes is not None and not isinstance(nodes, Here):
        check_nodes(nodes)
    if require is not None:
        check_require(require)
