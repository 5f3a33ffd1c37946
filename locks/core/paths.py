"""Which way a message takes from one agent to another.

Nodes of clients need not be connected with each other. What an agent knows of another one are request records, and
each names the lock server where the request stands: so that one is connected with the other agent's node.
Over it the message goes; such a lock server is a *relay* (`locks.core.server.relays`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["in_order", "way"]


def way(
    home: str,
    receiver: str,
    over: Iterable[str],
    own: Iterable[str],
    is_connected: Callable[[str], bool],
    relays: Callable[[str], bool],
) -> str | None:
    """The node to which a message from one agent to another is sent first.

    Args:
        home: The node of the sender.
        receiver: The node of the receiver.
        over: Where the receiver has requests.
        own: Where the sender has some. A lock server there sends it on to one of `over`.
        is_connected: Whether the sender's node is connected with another one.
        relays: Whether it is, with one whose lock server relays.

    Returns:
        The receiver's node if the two are connected, or else a relay; `None` if there is no way.
    """
    if home == receiver or is_connected(receiver):
        return receiver
    over = tuple(over)
    for node in (*over, *own) if over else ():
        if node == home or relays(node):
            return node
    return None


def in_order(nodes: Iterable[str], own: Iterable[str]) -> list[str]:
    """Lock servers in the order in which they are tried: first those where the sender has requests."""
    here = set(own)
    return sorted(set(nodes), key=lambda node: (node not in here, node))
