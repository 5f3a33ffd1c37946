"""Channels: narrow tunnels for messages between the agents of two nodes that are not connected.

Client nodes are connected with lock servers only. When an agent has a message for an agent of such
a node, its own node opens a channel to that node: a narrow tunnel (`locks.otp.tunnel.relay`)
through a lock server. Two nodes have at most one channel, however many agents they have.

For agents a channel is like a connection. Messages keep their order, and both nodes notice when the
channel is lost. A message that is sent while there is no channel is dropped. When a channel is
opened or lost, agents repeat their messages to agents of that node (`AgentMachine.peer_up`,
`peer_down`). A node keeps a channel, or tries to open it again, as long as one of its waiting
agents has sent records there (`AgentMachine.partners`). The node that opened a channel closes it
when it was not needed for `LINGER` seconds.

There is no handshake. The relay states which node opened the tunnel; that node has proven to the
relay that it knows the cookie. A wrong message closes the channel, and has no other effect.

Output is bounded by the window of the tunnel, and waiting output by `MOST_WAITING`. If more waits
because the other node does not read, the channel is closed and tried again later. If two nodes open
a channel to each other at the same time, the one of the node with the smaller name is kept.

Everything here runs in the turn.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from locks.errors import assert_never
from locks.otp.bytes.control import BadMessage, StrangeMessage
from locks.otp.tunnel.messages import (
    NARROW,
    RELAY,
    Close,
    Credit,
    Data,
    Message,
    Open,
    Opened,
)
from locks.runtime.clock import monotonic

if TYPE_CHECKING:
    from locks.otp.tunnel.tunnels import Key, Tunnels

__all__ = ["Channels"]

LINGER = 10.0  # seconds until a channel that is not needed is closed
PERIOD = 1.0  # seconds between two looks at the channels, while there are any
ANSWER = 5.0  # seconds within which a relay must answer; then the next one is tried
LONGEST = 5.0  # seconds until the next attempt, at most
WARNED = 5  # failed attempts in a row, until this is logged
CHUNK = (
    NARROW // 2 - 1
)  # bytes of a message that are sent at once, after a byte that says whether more follow
SOON = NARROW // 4  # bytes taken in, until the other end gets credit for them
MOST_WAITING = 1 << 20  # bytes that wait for one node, at most
LARGEST = 1 << 20  # bytes of one message, at most
MOST = 4096  # channels that others have opened
MORE, LAST = b"\1", b"\0"


class _Channel:
    """One channel; it is `opened` when the relay has notified the target."""

    __slots__ = ("arrived", "credit", "key", "opened", "out", "since", "taken", "waiting", "wanted")

    def __init__(self, key: Key, now: float) -> None:
        self.key = key
        self.opened = False
        self.since = self.wanted = now
        self.credit = NARROW
        self.out: deque[bytes] = deque()
        self.waiting = 0
        self.arrived = bytearray()
        self.taken = 0


class _Attempt:
    """A needed channel: the servers that were not tried yet, and when all are tried again."""

    __slots__ = ("due", "failures", "untried")

    def __init__(self, now: float) -> None:
        self.due = now
        self.failures = 0
        self.untried: list[tuple[str, bool]] = []  # and whether through a second relay


class Channels:
    """The channels of one node.

    Args:
        tunnels: The tunnels that they use.
        links: The connected nodes; these need no channel.
        wanted: Returns the nodes to which channels are needed.
        receive: Called with a message and its sender's node.
        changed: Called with a node and whether there is a channel to it, when that changes.
    """

    def __init__(
        self,
        tunnels: Tunnels,
        links: Collection[str],
        *,
        wanted: Callable[[], Collection[str]],
        receive: Callable[[str, bytes], object],
        changed: Callable[[str, bool], object],
    ) -> None:
        self._tunnels = tunnels
        self._name = tunnels.name
        self._links = links
        self._wanted = wanted
        self._receive = receive
        self._changed = changed
        self._channels: dict[str, _Channel] = {}
        self._peers: dict[Key, str] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._looking = False
        tunnels.channels = self

    def __len__(self) -> int:
        return len(self._channels)

    def is_open(self, peer: str) -> bool:
        """Whether there is an open channel to a node."""
        channel = self._channels.get(peer)
        return channel is not None and channel.opened

    def send(self, peer: str, message: bytes) -> None:
        """Send a message over an open channel."""
        channel = self._channels[peer]
        for at in range(0, len(message), CHUNK):
            more = MORE if at + CHUNK < len(message) else LAST
            channel.out.append(more + message[at : at + CHUNK])
        channel.waiting += len(message)
        self._flush(channel)
        if channel.waiting > MOST_WAITING:
            self._tunnels.turn.post(self._give_up, channel, f"{peer} does not read")

    def want(self, peer: str) -> None:
        """Open a channel to a node, because an agent has a message for it; unless this was begun."""
        if peer not in self._attempts and peer not in self._channels:
            self._attempts[peer] = _Attempt(monotonic())
            self._try(peer)
        self._keep_looking()

    def look_soon(self) -> None:
        """Try again at once, because another lock server is connected."""
        for peer, attempt in list(self._attempts.items()):
            if peer not in self._channels:
                attempt.due = monotonic()
                self._try(peer)

    def connected(self, peer: str) -> None:
        """Close the channel to a node that is connected now: messages use the connection."""
        self._attempts.pop(peer, None)
        if peer in self._channels:
            self._drop(peer, "the nodes are connected")

    def avoid(self, server: str, why: str) -> None:
        """Lose the channels over a lock server that is lost or silent."""
        for channel in [each for each in self._channels.values() if each.key[0] == server]:
            self._lose(channel, why)

    # --- Opening --------------------------------------------------------------------------------

    def _try(self, peer: str) -> None:
        """Open a channel over the next server; after the last one, pause."""
        attempt = self._attempts[peer]
        now = monotonic()
        if not attempt.untried:
            if attempt.due > now:
                return
            servers = self._tunnels.servers()
            random.shuffle(servers)
            attempt.untried = [(server, far) for far in (True, False) for server in servers]
            attempt.due = now + min(LONGEST, PERIOD * 2**attempt.failures)
            attempt.failures += 1
            if attempt.failures == WARNED:
                text = (
                    "%s can't reach %s, where agents wait that its own agents have met: no server leads there. "
                    "Deadlocks between them may not be found; let both use the same servers"
                )
                self._tunnels.notices.warn("channel", peer, text, self._name, peer)
        if attempt.untried:
            server, far = attempt.untried.pop()
            key = (server, self._name, next(self._tunnels.numbers))
            self._channels[peer] = _Channel(key, now)
            self._peers[key] = peer
            self._tunnels.send(server, RELAY, Open(*key[1:], peer, True, far))

    def _opened_by(self, key: Key, message: Open) -> None:
        """Take in that another node has opened a channel."""
        peer = message.opener
        if message.target != self._name or peer == self._name:
            raise BadMessage(f"a tunnel from {peer} to {message.target} ends at neither")
        if key in self._peers:
            raise BadMessage(f"it has already opened the tunnel {key}")
        mine = self._channels.get(peer)
        refused = ""
        if peer in self._links:
            refused = "the nodes are connected"
        elif mine is not None and mine.key[1] == self._name < peer:
            refused = f"{self._name} opens one itself"
        elif mine is None and len(self._channels) >= MOST:
            refused = f"{self._name} already has {MOST} channels, which is the limit"
        if refused:
            self._tunnels.send(key[0], RELAY, Close(*key[1:], refused))
            return
        if mine is not None:
            self._drop(peer, f"{peer} has opened another one")
            if mine.opened:
                self._changed(peer, False)
        channel = self._channels[peer] = _Channel(key, monotonic())
        self._peers[key] = peer
        self._open(peer, channel)

    def _open(self, peer: str, channel: _Channel) -> None:
        channel.opened = True
        channel.since = monotonic()
        attempt = self._attempts.get(peer)
        if attempt is not None:
            attempt.untried.clear()
        self._changed(peer, True)

    # --- Input ----------------------------------------------------------------------------------

    def take_message(self, key: Key, message: Message) -> bool:
        """Take in a message of a relay; return whether it is about a channel."""
        if isinstance(message, Open):
            if message.narrow:
                self._opened_by(key, message)
            return message.narrow
        peer = self._peers.get(key)
        if peer is None:
            return False
        channel = self._channels[peer]
        match message:
            case Opened():
                if not channel.opened:
                    self._open(peer, channel)
            case Data():
                self._arrived(peer, channel, message.data)
            case Credit():
                channel.credit = min(NARROW, channel.credit + message.size)
                self._flush(channel)
            case Close():
                self._lose(channel, "")
            case _:
                assert_never(message)
        return True

    def _arrived(self, peer: str, channel: _Channel, data: bytes) -> None:
        channel.arrived += data[1:]
        channel.taken += len(data)
        if channel.taken >= SOON:
            self._tunnels.send(channel.key[0], RELAY, Credit(*channel.key[1:], channel.taken))
            channel.taken = 0
        try:
            if len(channel.arrived) > LARGEST:
                raise BadMessage(f"a message of more than {LARGEST} bytes")
            if data[:1] == LAST:
                whole = bytes(channel.arrived)
                channel.arrived.clear()
                self._receive(peer, whole)
        except (BadMessage, StrangeMessage) as error:
            text = "%s closes the channel to %s, which sent a wrong message: %s"
            self._tunnels.notices.warn("channel", peer, text, self._name, peer, error)
            self._give_up(channel, "a message was wrong")

    def _flush(self, channel: _Channel) -> None:
        """Send as much as the credit allows."""
        out = channel.out
        while out and len(out[0]) <= channel.credit:
            data = out[0]
            self._tunnels.send(channel.key[0], RELAY, Data(*channel.key[1:], data))
            channel.credit -= len(data)
            channel.waiting -= len(data) - 1
            out.popleft()

    # --- The end --------------------------------------------------------------------------------

    def _drop(self, peer: str, why: str) -> None:
        """Forget a channel; notify the other end of the reason, unless it is empty."""
        channel = self._channels.pop(peer)
        del self._peers[channel.key]
        if why:
            self._tunnels.send(channel.key[0], RELAY, Close(*channel.key[1:], why))

    def _lose(self, channel: _Channel, why: str) -> None:
        """Handle the loss of a channel, or a failed attempt: open it over another server, if needed."""
        peer = self._peers.get(channel.key)
        if peer is None:
            return
        self._drop(peer, why)
        if not channel.opened:
            self._try(peer)
            return
        attempt = self._attempts.get(peer)
        if attempt is not None and monotonic() - channel.since > PERIOD:
            del self._attempts[peer]  # it worked, so try again at once
        self._changed(peer, False)

    def _give_up(self, channel: _Channel, why: str) -> None:
        """Close a channel that does not work, and try again later."""
        peer = self._peers.get(channel.key)
        if peer is not None:
            attempt = self._attempts.setdefault(peer, _Attempt(0.0))
            channel.since = monotonic()
            attempt.due = channel.since + LONGEST
            self._lose(channel, why)

    def _keep_looking(self) -> None:
        if not self._looking:
            self._looking = True
            self._tunnels.executor.run_later(PERIOD, self._tunnels.turn.run, self._look)

    def _look(self) -> None:
        """From time to time: close channels that are not needed, and try again to open others."""
        self._looking = False
        now, wanted = monotonic(), self._wanted()
        for peer, channel in list(self._channels.items()):
            if peer in wanted:
                channel.wanted = now
            if not channel.opened:
                if now - channel.since > ANSWER:
                    self._lose(channel, "it does not answer")
            elif channel.key[1] == self._name and now - channel.wanted > LINGER:
                self._lose(channel, "it is not needed any more")
        for peer in list(self._attempts):
            if peer not in self._channels:
                if peer in wanted:
                    self._try(peer)
                else:
                    del self._attempts[peer]
        if self._attempts or any(c.key[1] == self._name for c in self._channels.values()):
            self._keep_looking()
