"""Where a lock object was pickled, and whether it means the same lock where it arrives.

A lock is where its program takes locks. An object that names one, pickled and handed to a process that takes its locks
elsewhere, would name another lock with the same id there, and exclude nobody. So it carries along where it was
pickled, and is refused where that is another place.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, TypeVar

from locks.errors import MisuseError
from locks.node.client.scope import Here, Nodes
from locks.node.node import Node
from locks.program.default import default_node, running_node

__all__ = ["Movable", "Origin"]

T = TypeVar("T", bound="Movable")

_program = os.urandom(8).hex()  # this process, as long as it runs


class Origin(NamedTuple):
    """Where a program takes locks.

    Attributes:
        servers: The servers; none if it is in this program alone.
        place: For servers that have the same name everywhere, or for a program: which one it is.
    """

    servers: tuple[str, ...]
    place: str

    def __str__(self) -> str:
        if not self.servers:
            return "one program alone, the one in which it was pickled"
        return f"the lock servers {', '.join(self.servers)}"


def origin_in(node: Node, nodes: Nodes | None) -> Origin:
    """Where a node takes a lock; `nodes` as it was given for it."""
    cluster = node.cluster
    options = None if cluster is None else cluster.options
    own = options is None or isinstance(nodes, Here)
    names: tuple[str, ...] = ()
    if not own:
        assert options is not None
        if isinstance(nodes, Here) or nodes is None:
            names = options.servers  # none if its locks are its own
        else:
            names = tuple(sorted(nodes))
    if not names:
        return Origin((), _program)
    assert options is not None
    place = ""
    if options.locator is not None:  # then all of it was loaded
        from hashlib import sha256

        from locks.program.local import LocalServer

        if isinstance(options.locator, LocalServer):
            place = sha256(options.cookies.each[0].encoded()).hexdigest()
    return Origin(tuple(sorted(names)), place)


class Movable:
    """What names locks, and may be pickled: it is refused where its program takes locks elsewhere."""

    __slots__ = ()

    _origin: Origin | None = None
    _nodes: Any  # as it was given

    def _home(self) -> Node:
        """This program's node, if it takes the lock where it was taken when this was pickled.

        Raises:
            MisuseError: It does not.
        """
        node = default_node()
        if self._origin is not None:
            self._check_origin(node)
        return node

    def _check_origin(self, node: Node) -> None:
        origin, here = self._origin, origin_in(node, self._nodes)
        if origin is not None and origin != here:
            raise MisuseError(
                f"{self!r} can't be used here: it was pickled in another process, and means a lock of {origin}; here it would "
                f"be another lock, of {'this program alone' if not here.servers else here}, and exclude nobody there. Start "
                'the nodes of both programs with the same servers, as by locks.start(servers="local"), or make it here',
                node=node.name,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_origin": self._origin or self._origin_now()}

    def _origin_now(self) -> Origin | None:
        """Where it is in this program; `None` if the program has no node yet, and so has no lock anywhere."""
        node = running_node()
        return None if node is None else origin_in(node, self._nodes)


def _forget_program() -> None:
    """A forked child is another program."""
    global _program
    _program = os.urandom(8).hex()


os.register_at_fork(after_in_child=_forget_program)
