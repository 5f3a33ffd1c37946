"""Who stands for an election, as the lock servers that count see it.

Candidates of client programs are connected with servers, and don't know of each other. But each asks for the
election's lock on the servers, so it stands in the view of that lock with its node's name.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Contenders"]


class Contenders:
    """The nodes of those who have the election's lock on some server, or wait for it.

    Args:
        own: The own node.
        electorate: The servers.
    """

    __slots__ = ("_electorate", "_own", "_seen")

    def __init__(self, own: str, electorate: frozenset[str]) -> None:
        self._own = own
        self._electorate = electorate
        self._seen: dict[str, frozenset[str]] = {}

    def viewed(self, server: str, nodes: Iterable[str]) -> frozenset[str]:
        """A server says from which nodes it is asked for the lock; returns whom to be connected with."""
        self._seen[server] = frozenset(nodes)
        return self._wanted()

    def lost(self, server: str) -> frozenset[str]:
        """A server is gone; likewise."""
        self._seen.pop(server, None)
        return self._wanted()

    def _wanted(self) -> frozenset[str]:
        others = frozenset((self._own,)) | self._electorate
        return frozenset().union(*self._seen.values()) - others
