"""What programs call: an actor joins, leaves, and looks at groups of a scope of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pykka

from locks.errors import InvalidOption
from locks.groups.names import to_group
from locks.groups.scope import GroupMonitor, Ref, Scope, Watcher, scope_of
from locks.lock_ids import shown
from locks.model import plain_text
from locks.net.actors import RemoteRef
from locks.node.node import Node
from locks.program.default import default_node
from locks.ranges import LONGEST_NAME
from locks.runtime.callables import check_callable
from locks.runtime.port import world

__all__ = ["SCOPE", "join", "leave", "local_members", "members", "monitor", "which_groups"]

SCOPE = "locks_pg"
"""The default scope."""

T = TypeVar("T")


def join(
    group: Any, *members: pykka.ActorRef[Any], scope: str = SCOPE, node: Node | None = None
) -> None:
    """Add actors of this node to a group.

    An actor that joins several times is a member several times, and must leave as often. An actor that
    has already ended joins and leaves immediately.

    Args:
        group: The name of the group.
        members: References to actors of any kind, of this node.
        scope: The name space of the group.
        node: The node of the actors; this program's node by default.

    Raises:
        InvalidOption: The group's name is not a plain value, or a member is not an actor of this node.
        MisuseError: Something else has the name of the scope.
        NodeNotRunning: The node was stopped.

    Source:
        `pg:join/3`.
    """
    key = to_group(group)
    checked = _check_members(members)
    _ask(node, scope, lambda found: found.join(key, checked))


def leave(
    group: Any, *members: pykka.ActorRef[Any], scope: str = SCOPE, node: Node | None = None
) -> bool:
    """Remove actors of this node from a group.

    Args:
        group: The name of the group.
        members: References to actors. Actors that are not in the group are ignored.
        scope: The name space of the group.
        node: The node of the actors; this program's node by default.

    Returns:
        Whether at least one of them was in the group.

    Raises:
        InvalidOption: The group's name is not a plain value, or a member is not an actor of this node.
        MisuseError: Something else has the name of the scope.
        NodeNotRunning: The node was stopped.

    Source:
        `pg:leave/3`.
    """
    key = to_group(group)
    checked = _check_members(members)
    return _ask(node, scope, lambda found: found.leave(key, checked))


def members(
    group: Any, *, scope: str = SCOPE, node: Node | None = None
) -> list[pykka.ActorRef[Any]]:
    """The members of a group, on all nodes.

    Args:
        group: The name of the group.
        scope: The name space of the group.
        node: The node to ask; this program's node by default.

    Returns:
        References: those of this node's actors, and a `locks.node.RemoteRef` for each actor of another
        node. A member that has joined several times is listed as often. Empty when there is no such
        group.

    Raises:
        InvalidOption: The group's name is not a plain value.
        MisuseError: Something else has the name of the scope.
        NodeNotRunning: The node was stopped.

    Source:
        `pg:get_members/2`.
    """
    key = to_group(group)
    return _ask(node, scope, lambda found: found.members(key))


def local_members(
    group: Any, *, scope: str = SCOPE, node: Node | None = None
) -> list[pykka.ActorRef[Any]]:
    """The members of a group that live on this node; see `members`.

    Source:
        `pg:get_local_members/2`.
    """
    key = to_group(group)
    return _ask(node, scope, lambda found: found.local_members(key))


def which_groups(*, scope: str = SCOPE, node: Node | None = None) -> list[Any]:
    """The groups that have members, on any node.

    Raises:
        MisuseError: Something else has the name of the scope.
        NodeNotRunning: The node was stopped.

    Source:
        `pg:which_groups/1`.
    """
    return _ask(node, scope, lambda found: found.groups())


def monitor(
    group: Any, watcher: Watcher, *, scope: str = SCOPE, node: Node | None = None
) -> GroupMonitor:
    """Notify a watcher of actors that join or leave a group, from now on.

    Apply the changes to the current members, in order, to get the members at any later time:
    each change is reported exactly once. The watcher may get the first change before
    this function returns.

    Args:
        group: The name of the group; it need not have members.
        watcher: An actor's reference, which gets `Joined` and `Left` as messages, or a callable. A
            callable may block: only its own later news wait for it. The monitor of an actor ends with it.
        scope: The name space of the group.
        node: The node to ask; this program's node by default.

    Returns:
        The monitor, with the current `members` and `cancel()`.

    Raises:
        InvalidOption: The group's name is not a plain value, or the watcher is neither a callable nor the reference
            of an actor of this node.
        MisuseError: Something else has the name of the scope.
        NodeNotRunning: The node was stopped.

    Source:
        `pg:monitor/2`.
    """
    key = to_group(group)
    if isinstance(watcher, RemoteRef) or not (
        isinstance(watcher, pykka.ActorRef) or callable(watcher)
    ):
        raise InvalidOption(
            f"watcher={watcher!r} is wrong; pass the reference of an actor of this node, or a callable",
            watcher=repr(watcher),
        )
    if isinstance(watcher, pykka.ActorRef):
        world().check_actor(watcher)
    else:
        check_callable(watcher, "watcher")
    return _ask(node, scope, lambda found: found.monitor(key, watcher))


def _check_members(given: tuple[Any, ...]) -> tuple[Ref, ...]:
    if not given:
        raise InvalidOption(
            "no members were passed; pass references of actors: join(group, actor_ref)"
        )
    for member in given:
        if isinstance(member, RemoteRef):
            raise InvalidOption(
                f"{member!r} is on another node; only its own node can add or remove it",
                member=repr(member),
            )
        if not isinstance(member, pykka.ActorRef):
            raise InvalidOption(
                f"{member!r} is not an actor's reference, so it can't be a member; pass the result of "
                "start(), or actor_ref",
                member=repr(member),
            )
        world().check_actor(member)
    return given


def _ask(node: Node | None, scope: Any, question: Callable[[Scope], T]) -> T:
    """Ask a node's scope a question, in the node's turn."""
    name = plain_text(scope)
    if not name or len(name) > LONGEST_NAME:
        raise InvalidOption(
            f"a scope's name must be text of at most {LONGEST_NAME} characters, such as {SCOPE!r}, not {shown(scope)}"
        )
    asked = default_node() if node is None else node
    return asked.turn.run(lambda: question(scope_of(asked, name)))
