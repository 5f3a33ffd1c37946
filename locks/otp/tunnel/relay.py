"""A relay: passes byte streams on between two nodes that it is connected with.

Pure: messages in, messages out. A relay keeps no bytes. What it passes on goes into the queue of the connection to
the other end, and each end may have a window's worth on its way, no more: the relay counts it. So an end
that is slow or stopped has at most a window of each of its tunnels there. How many tunnels a node may have,
as an opener or as a target, is bounded; so is the number of all.

Who opens a tunnel is the node that says so, which is connected with the relay, and so has proven who it is.
What goes through the tunnel does not concern the relay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks.errors import assert_never
from locks.otp.bytes.control import BadMessage
from locks.otp.tunnel.messages import ABSENT, WINDOW, Close, Credit, Data, Message, Open, Opened

__all__ = ["MOST_EACH", "MOST_IN_ALL", "Outgoing", "Relay"]

MOST_EACH = 128  # tunnels of one node: all their windows are half of what may wait for it
MOST_IN_ALL = 4096  # tunnels


class Outgoing(NamedTuple):
    """A message for a node."""

    node: str
    message: Message


class _Tunnel:
    """One tunnel: its ends, and how many bytes each has sent that were not taken in yet."""

    __slots__ = ("on_way", "opener", "target")

    def __init__(self, opener: str, target: str) -> None:
        self.opener = opener
        self.target = target
        self.on_way = {opener: 0, target: 0}

    def other(self, end: str) -> str:
        """The other end."""
        return self.target if end == self.opener else self.opener


class Relay:
    """What one node relays.

    Args:
        name: The node.
        is_connected: Whether it is connected with a node.
    """

    def __init__(self, name: str, is_connected: Callable[[str], bool]) -> None:
        self._name = name
        self._is_connected = is_connected
        self._tunnels: dict[tuple[str, int], _Tunnel] = {}
        self._of: dict[str, dict[tuple[str, int], None]] = {}  # the tunnels of each node

    def __len__(self) -> int:
        return len(self._tunnels)

    def take(self, speaker: str, message: Message) -> list[Outgoing]:
        """Take in what a node says; returns what is to be sent.

        Raises:
            BadMessage: It must not say so; nothing has changed.
        """
        key = (message.opener, message.number)
        if isinstance(message, Open):
            return self._open(speaker, key, message)
        tunnel = self._tunnels.get(key)
        if tunnel is None:
            return []  # it was closed meanwhile
        if speaker not in tunnel.on_way:
            raise BadMessage(f"the tunnel {key} is not one of its own")
        other = tunnel.other(speaker)
        match message:
            case Data():
                on_way = tunnel.on_way[speaker] + len(message.data)
                if on_way > WINDOW:
                    raise BadMessage(
                        f"it sent {on_way} bytes over a tunnel with a window of {WINDOW}"
                    )
                tunnel.on_way[speaker] = on_way
            case Credit():
                on_way = tunnel.on_way[other] - message.size
                if on_way < 0:
                    raise BadMessage(f"it acknowledged {-on_way} bytes that were not sent")
                tunnel.on_way[other] = on_way
            case Close():
                self._forget(key, tunnel)
            case Opened():
                raise BadMessage("only a relay may report that a tunnel was opened")
            case _:
                assert_never(message)
        return [Outgoing(other, message)]

    def lost(self, node: str) -> list[Outgoing]:
        """The connection to a node is lost, and its tunnels with it."""
        said = []
        for key in list(self._of.get(node, ())):
            tunnel = self._tunnels[key]
            self._forget(key, tunnel)
            reason = f"{self._name} lost its connection to {node}"
            said.append(Outgoing(tunnel.other(node), Close(*key, reason)))
        return said

    def _open(self, speaker: str, key: tuple[str, int], message: Open) -> list[Outgoing]:
        if message.opener != speaker:
            raise BadMessage(f"it opened a tunnel in the name of {message.opener}")
        if key in self._tunnels:
            raise BadMessage(f"it has already opened the tunnel {key}")
        reason = self._objection(speaker, message.target)
        if reason is not None:
            return [Outgoing(speaker, Close(*key, reason))]
        self._tunnels[key] = _Tunnel(speaker, message.target)
        for end in (speaker, message.target):
            self._of.setdefault(end, {})[key] = None
        return [Outgoing(message.target, message), Outgoing(speaker, Opened(*key))]

    def _objection(self, opener: str, target: str) -> str | None:
        """Why it does not relay between two nodes, if it does not."""
        if target in (opener, self._name) or not self._is_connected(target):
            return ABSENT
        for node in (opener, target):
            if len(self._of.get(node, ())) >= MOST_EACH:
                return (
                    f"{node} already has {MOST_EACH} tunnels over {self._name}, which is the limit"
                )
        if len(self._tunnels) >= MOST_IN_ALL:
            return f"{self._name} already relays {MOST_IN_ALL} tunnels, which is the limit"
        return None

    def _forget(self, key: tuple[str, int], tunnel: _Tunnel) -> None:
        del self._tunnels[key]
        for end in (tunnel.opener, tunnel.target):
            own = self._of[end]
            del own[key]
            if not own:
                del self._of[end]
