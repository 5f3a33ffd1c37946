"""A relay, which passes byte streams on between two nodes that it, or a second relay, is connected with.

Pure: messages in, messages out. A relay keeps no bytes. Data that it passes on goes into the queue
of the connection to the other end. Each end may have at most a window of bytes in flight, which the
relay counts. So a slow or stopped end has at most a window of each of its tunnels in that queue.
The sum of all windows of a node, as opener or target, is bounded, and so is the number of all
tunnels.

The opener of a tunnel is the node that sends the request. It is connected with the relay, so it has
proven its name. The relay does not look at the bytes.

If the target is connected with none of the opener's relays, one of these tries the other relays
that it is connected with, one after the other. Such a second relay may be connected with the
target, but does not try further ones. So a tunnel has two relays at most. To each of them, the
other one is an end. A server's statement about the opener is true, because servers relay only
requests that they have checked themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from locks.errors import assert_never
from locks.otp.bytes.control import BadMessage
from locks.otp.tunnel.messages import (
    ABSENT,
    NARROW,
    RELAY,
    TUNNELS,
    WINDOW,
    Close,
    Credit,
    Data,
    Message,
    Open,
    Opened,
)

__all__ = ["MOST_BYTES", "MOST_EACH", "MOST_IN_ALL", "Outgoing", "Relay"]

MOST_EACH = 128  # tunnels of one node for connections, and four times as many narrow ones
MOST_BYTES = MOST_EACH * WINDOW  # in all windows of one node: half of its largest queue
MOST_IN_ALL = 16_384  # tunnels

Key = tuple[str, int]


class Outgoing(NamedTuple):
    """A message for a process of a node: `RELAY` or `TUNNELS`."""

    node: str
    process: str
    message: Message


class _Tunnel:
    """One tunnel: its two ends, and how many bytes of each were not taken in yet.

    Attributes:
        near: The end that opened it: the opener, or the opener's relay.
        far: The target, or a relay that is connected with it.
        target: The target.
        process: The process to which messages are sent, at each end.
        on_way: The bytes in flight from each end.
        window: How many these may be.
        untried: While it is being opened through a second relay, the relays that were not tried
            yet.
    """

    __slots__ = ("far", "near", "on_way", "process", "target", "untried", "window")

    def __init__(self, near: str, relayed: bool, target: str, window: int) -> None:
        self.near = near
        self.target = target
        self.window = window
        self.process = {near: RELAY if relayed else TUNNELS}
        self.on_way = {near: 0}
        self.untried: list[str] | None = None
        self.lead(target, TUNNELS)

    def lead(self, far: str, process: str) -> None:
        """Set its far end."""
        self.far = far
        self.process = {self.near: self.process[self.near], far: process}
        self.on_way = {self.near: 0, far: 0}

    def other(self, end: str) -> str:
        """The other end."""
        return self.far if end == self.near else self.near

    def to(self, end: str, message: Message) -> Outgoing:
        """A message for one of its ends."""
        return Outgoing(end, self.process[end], message)


class Relay:
    """The tunnels that one node relays.

    Args:
        name: The node.
        is_connected: Whether it is connected with a node.
        servers: Returns the connected nodes that relay.
    """

    def __init__(
        self, name: str, is_connected: Callable[[str], bool], servers: Callable[[], list[str]]
    ) -> None:
        self._name = name
        self._is_connected = is_connected
        self._servers = servers
        self._tunnels: dict[Key, _Tunnel] = {}
        self._of: dict[str, dict[Key, None]] = {}  # the tunnels of each node
        self._bytes: dict[str, int] = {}  # their windows

    def __len__(self) -> int:
        return len(self._tunnels)

    def take_message(self, speaker: str, message: Message) -> list[Outgoing]:
        """Take in a message of a node; return the messages to send.

        Raises:
            BadMessage: It must not send this; nothing has changed.
        """
        key = (message.opener, message.number)
        if isinstance(message, Open):
            return self._open(speaker, key, message)
        tunnel = self._tunnels.get(key)
        if tunnel is None:
            return []  # it was closed meanwhile
        if speaker not in tunnel.on_way:
            if speaker in self._servers():
                return []  # it was closed meanwhile, and opened again another way
            raise BadMessage(f"the tunnel {key} is not one of its own")
        other = tunnel.other(speaker)
        match message:
            case Data():
                on_way = tunnel.on_way[speaker] + len(message.data)
                if on_way > tunnel.window:
                    raise BadMessage(
                        f"it sent {on_way} bytes over a tunnel with a window of {tunnel.window}"
                    )
                tunnel.on_way[speaker] = on_way
            case Credit():
                on_way = tunnel.on_way[other] - message.size
                if on_way < 0:
                    raise BadMessage(f"it acknowledged {-on_way} bytes that were not sent")
                tunnel.on_way[other] = on_way
            case Close():
                if speaker == tunnel.far and tunnel.untried is not None:
                    return self._try_next(key, tunnel, message.reason)
                self._forget(key, tunnel)
            case Opened():
                if speaker != tunnel.far or tunnel.process[speaker] != RELAY:
                    raise BadMessage("only a relay may report that a tunnel was opened")
                tunnel.untried = None
            case _:
                assert_never(message)
        return [tunnel.to(other, message)]

    def lost(self, node: str) -> list[Outgoing]:
        """Close the tunnels of a node whose connection is lost."""
        said: list[Outgoing] = []
        for key in list(self._of.get(node, ())):
            tunnel = self._tunnels[key]
            if node == tunnel.far and tunnel.untried is not None:
                said += self._try_next(key, tunnel, ABSENT)
                continue
            self._forget(key, tunnel)
            reason = f"{self._name} lost its connection to {node}"
            said.append(tunnel.to(tunnel.other(node), Close(*key, reason)))
        return said

    def _open(self, speaker: str, key: Key, message: Open) -> list[Outgoing]:
        relayed = message.opener != speaker
        if relayed and speaker not in self._servers():
            raise BadMessage(f"it opened a tunnel in the name of {message.opener}")
        if key in self._tunnels and not relayed:
            raise BadMessage(f"it has already opened the tunnel {key}")
        target = message.target
        window = NARROW if message.narrow else WINDOW
        known = self._is_connected(target) and target != self._name
        others = self._servers() if message.far and not known and not relayed else []
        reason: str | None = None
        if (
            key in self._tunnels
            or target in (message.opener, self._name)
            or (not known and not others)
        ):
            reason = ABSENT
        else:
            reason = self._objection((speaker, target) if known else (speaker,), window)
        if reason is not None:
            return [Outgoing(speaker, RELAY if relayed else TUNNELS, Close(*key, reason))]
        tunnel = _Tunnel(speaker, relayed, target, window)
        if known:
            self._keep(key, tunnel)
            return [tunnel.to(target, message), tunnel.to(speaker, Opened(*key))]
        tunnel.untried = others
        return self._try_next(key, tunnel, ABSENT)

    def _try_next(self, key: Key, tunnel: _Tunnel, reason: str) -> list[Outgoing]:
        """Open a tunnel through the next relay; if none is left, notify the near end."""
        if key in self._tunnels:
            self._forget(key, tunnel)
        while tunnel.untried:
            server = tunnel.untried.pop(0)
            if (
                server == tunnel.near
                or not self._is_connected(server)
                or self._objection((server,), tunnel.window)
            ):
                continue
            tunnel.lead(server, RELAY)
            self._keep(key, tunnel)
            return [tunnel.to(server, Open(*key, tunnel.target, tunnel.window == NARROW))]
        return [tunnel.to(tunnel.near, Close(*key, reason))]

    def _objection(self, ends: tuple[str, ...], window: int) -> str | None:
        """Why it can't relay another tunnel for these nodes, if it can't."""
        for node in ends:
            if self._bytes.get(node, 0) + window > MOST_BYTES:
                count = len(self._of[node])
                return f"{node} already has {count} tunnels over {self._name}, which is the limit"
        if len(self._tunnels) >= MOST_IN_ALL:
            return f"{self._name} already relays {MOST_IN_ALL} tunnels, which is the limit"
        return None

    def _keep(self, key: Key, tunnel: _Tunnel) -> None:
        self._tunnels[key] = tunnel
        for end in tunnel.on_way:
            self._of.setdefault(end, {})[key] = None
            self._bytes[end] = self._bytes.get(end, 0) + tunnel.window

    def _forget(self, key: Key, tunnel: _Tunnel) -> None:
        del self._tunnels[key]
        for end in tunnel.on_way:
            own = self._of[end]
            del own[key]
            self._bytes[end] -= tunnel.window
            if not own:
                del self._of[end]
                del self._bytes[end]
