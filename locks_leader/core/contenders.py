"""The contenders of an election, as the lock servers that count see them.

Candidates of client programs are connected with servers only, and do not know each other. But each
of them requests the election's lock on the servers, so the view of that lock contains its node's
name.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Contenders"]


class Contenders:
    """The nodes with requests for the election's lock on any server.

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
        """Take in the nodes with requests on a server; return the nodes to connect with."""
        self._seen[server] = frozenset(nodes)
        return self._wanted()

    def lost(self, server: str) -> frozenset[str]:
        """A server is gone; likewise."""
        self._seen.pop(server, None)
        return self._wanted()

    def _wanted(self) -> frozenset[str]:
        others = frozenset((self._own,)) | self._electorate
        return frozenset().union(*self._seen.values()) - others
