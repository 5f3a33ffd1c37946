"""Tunnels: connections between two nodes through a third one that both are connected with.

Client nodes are connected with servers only. If two of them need a connection, as candidates of an
election do, one opens a *tunnel* to the other: a byte stream that a server relays
(`locks.otp.tunnel.relay`). Each end has a pair of sockets. The first is used like any connection:
the ordinary handshake runs over it, and an ordinary `Link` owns it. Data written to it comes out of
the second socket, and is sent to the relay in messages. So everything that works over a connection
works over a tunnel.

A tunnel depends on its two connections to the relay. If one of them is lost, the tunnel is lost,
and both ends notice. So no ticks are needed over it. A new tunnel is opened over another server.

TLS protects the connection between each end and the relay. The ends prove to each other that they
know the cookie.

Each end sends at most a window ahead of the data that the other end has taken in. Received data
that the socket does not take yet is kept; this is at most a window, too.
"""

from __future__ import annotations

import _socket
import itertools
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from gevent import socket as gevent_socket
from gevent.event import AsyncResult

from locks.errors import assert_never
from locks.net.hello import NoWay, Refused
from locks.net.stream import Stream, native_socket
from locks.otp.bytes.control import BadMessage, StrangeMessage
from locks.otp.process.local import Local
from locks.otp.tunnel.messages import (
    ABSENT,
    CHUNK,
    RELAY,
    TUNNELS,
    WINDOW,
    Close,
    Credit,
    Data,
    Message,
    Open,
    Opened,
    encode,
    unpack,
)
from locks.otp.tunnel.relay import MOST_EACH, Outgoing, Relay
from locks.ranges import plain
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    from gevent.hub import Hub
    from typing_extensions import TypeVarTuple, Unpack

    from locks.otp.bytes.terms import Pid
    from locks.otp.notices import Notices
    from locks.otp.process.processes import Processes
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

    Ts = TypeVarTuple("Ts")

__all__ = ["Tunnels"]

ANSWER = 1.0  # seconds within which a relay must answer; then the next one is tried
SOON = WINDOW // 4  # bytes taken in, until the other end gets credit for them
Key = tuple[str, str, int]  # the relay, the opener, and the opener's number


class Narrow(Protocol):
    """The owner of a node's narrow tunnels: `locks.otp.tunnel.channels`."""

    def take_message(self, key: Key, message: Message) -> bool:
        """Take in a message of a relay; return whether it is about a narrow tunnel."""
        ...  # pragma: no cover

    def avoid(self, server: str, why: str) -> None:
        """Avoid a relay that is lost or silent."""
        ...  # pragma: no cover


class _End:
    """One end of a tunnel, with the second socket of the pair. In the hub.

    Args:
        hub: The hub in which to wait for the socket.
        sock: The socket, not blocking.
        say: Sends data (bytes), credit (a number), or a close with its reason (text).

    Attributes:
        answer: At the opener, the result of opening: `None`, or why it failed.
    """

    def __init__(
        self, hub: Hub, sock: socket.socket, say: Callable[[bytes | int | str], object]
    ) -> None:
        self.answer: AsyncResult[str | None] = AsyncResult()
        self._socket = sock
        self._say = say
        self._credit = WINDOW
        self._arrived = bytearray()  # data that the socket has not taken yet
        self._taken = 0  # bytes that it has taken, without credit for the other end yet
        self._writes = False
        self._ends = False
        self._closed = False
        self._reader: Any = hub.loop.io(sock.fileno(), 1)
        self._writer: Any = hub.loop.io(sock.fileno(), 2)

    def start(self) -> None:
        """Begin to pass on data that is written to the first socket."""
        if not self._closed:
            self._reader.start(self._readable)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(min(CHUNK, self._credit))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close("the other end closed the connection")
            return
        self._credit -= len(data)
        if not self._credit:
            self._reader.stop()
        self._tell(data)

    def gain(self, count: int) -> None:
        """Take in credit: the other end has taken in this number of bytes."""
        if not self._closed:
            if not self._credit:
                self._reader.start(self._readable)
            self._credit = min(WINDOW, self._credit + count)

    def take_data(self, data: bytes) -> None:
        """Take in data from the other end."""
        if len(self._arrived) + len(data) > WINDOW:
            self.close("the other end sent more than its credit")
        elif not self._closed:
            self._arrived += data
            self._write()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._arrived)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.close("the other end closed the connection")
            return
        del self._arrived[:sent]
        self._taken += sent
        if bool(self._arrived) is not self._writes:
            self._writes = not self._writes
            if self._writes:
                self._writer.start(self._write)
            else:
                self._writer.stop()
        if self._ends and not self._arrived:
            self.dispose()
        elif self._taken >= SOON:
            count, self._taken = self._taken, 0
            self._tell(count)

    def _tell(self, what: bytes | int) -> None:
        try:
            self._say(what)
        except BaseException:  # it is unknown whether the other end gets it
            self.close("it was interrupted")
            raise

    def finish(self, reason: str) -> None:
        """End the connection, because the tunnel is closed; first deliver received data."""
        self.answer.set(reason)
        self._ends = True
        if not self._arrived:
            self.dispose()

    def close(self, reason: str) -> None:
        """Close the tunnel from this end."""
        if not self._closed:
            self.dispose()
            self._say(reason)

    def dispose(self) -> None:
        """Release the socket and its watchers."""
        if self._closed:
            return
        self._closed = True
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: release the socket."""
        self._socket.close()


class Tunnels:
    """The tunnels of one node: those that end here, and those that it relays. In the turn by default.

    Args:
        name: The node.
        is_connected: Whether it is connected with a node that it may relay to.
        processes: Sends messages over its connections.
        turn: Its turn.
        executor: Runs its greenlets.
        notices: Logs warnings about others.
        relays: Whether it relays for others.
        servers: Returns the nodes that may relay.
        admit: Takes in a connection that another node has begun over a tunnel. In the hub.

    Attributes:
        relay: The tunnels that this node relays.
        channels: The tunnels for messages of agents only.
        numbers: The numbers of tunnels that this node opens.
    """

    def __init__(
        self,
        name: str,
        is_connected: Callable[[str], bool],
        processes: Processes,
        turn: Turn,
        executor: Executor,
        notices: Notices,
        *,
        relays: bool,
        servers: Callable[[], list[str]],
        admit: Callable[[Stream], object],
    ) -> None:
        self.name = name
        self._processes = processes
        self.turn = turn
        self.executor = executor
        self.notices = notices
        self.servers = servers
        self._admit = admit
        self.relay = Relay(name, is_connected, servers)
        self.channels: Narrow | None = None
        self._ends: dict[Key, _End] = {}
        self.numbers = itertools.count(1)
        processes.register(TUNNELS, Local(self._to_end))
        if relays:
            processes.register(RELAY, Local(self._to_relay))

    def __len__(self) -> int:
        return len(self._ends)

    # --- Opening, in the hub --------------------------------------------------------------------

    def dial(self, name: str) -> Stream:
        """Open a tunnel to a node; waits.

        Raises:
            Refused: No server that this node is connected with can relay.
        """
        servers = self.turn.run(self.servers)
        random.shuffle(servers)
        refused = {}
        for far in (False, True):
            for server in servers:
                try:
                    return self._dial(server, name, far)
                except Refused as error:
                    refused[server] = str(error)
        why = "; ".join(f"{server}: {refused[server]}" for server in sorted(refused))
        text = plain(
            f"can't reach {name}: it has no address, and no server of this node relays to it: {why or 'there is none'}"
        )
        if set(refused.values()) <= {ABSENT}:
            raise NoWay(text)
        raise Refused(text, cause="no way")

    def _dial(self, server: str, name: str, indirect: bool) -> Stream:
        key = (server, self.name, next(self.numbers))
        near, far = _pair()
        end = self._new_end(key, near)
        try:
            self.turn.run(self._open, key, name, indirect, end)
            with gevent.Timeout(ANSWER, Refused("no answer", cause="silent")):
                reason = end.answer.get()
            if reason is not None:
                raise Refused(reason, cause="no way")
        except BaseException:
            end.close("the attempt was cancelled")
            far.close()
            raise
        end.start()
        return Stream(far, over=(name, server))

    def _new_end(self, key: Key, sock: socket.socket) -> _End:
        return _End(self.executor.hub, sock, lambda said: self._hear(key, said))

    def _open(self, key: Key, name: str, far: bool, end: _End) -> None:
        self._ends[key] = end
        self.send(key[0], RELAY, Open(*key[1:], name, False, far))

    # --- Output of the ends -----------------------------------------------------------------------

    def _hear(self, key: Key, said: bytes | int | str) -> None:
        """Send the output of an end to the other end. In the hub."""
        run = self.turn.run_surely if isinstance(said, str) else self.turn.run
        run(self._say, key, said)

    def _say(self, key: Key, said: bytes | int | str) -> None:
        if key not in self._ends:
            return  # it is closed
        name = key[1:]
        if isinstance(said, str):
            self._ends.pop(key)
            self.send(key[0], RELAY, Close(*name, said))
        else:
            message = Data(*name, said) if isinstance(said, bytes) else Credit(*name, said)
            self.send(key[0], RELAY, message)

    def send(self, node: str, process: str, message: Message) -> None:
        """Send a message to a relay, or to an end."""
        self._processes.send_named(node, process, encode(message))

    # --- Input ------------------------------------------------------------------------------------

    def _unpacked(self, term: Any) -> Message | None:
        """The message of a term; `None` if it is an unknown one, which is logged."""
        try:
            return unpack(term)
        except StrangeMessage as error:
            speaker = self._processes.speaker
            self.notices.warn("ignored", speaker, "%s ignored a message: %s", self.name, error)
            return None

    def _to_relay(self, term: Any, sender: Pid | None) -> None:
        message = self._unpacked(term)
        if message is not None:
            self._pass_on(self.relay.take_message(self._processes.speaker, message))

    def _pass_on(self, outgoing: list[Outgoing]) -> None:
        for node, process, message in outgoing:
            self.send(node, process, message)

    def _to_end(self, term: Any, sender: Pid | None) -> None:
        message = self._unpacked(term)
        if message is None:
            return
        server = self._processes.speaker
        key = (server, message.opener, message.number)
        if self.channels is not None and self.channels.take_message(key, message):
            return
        if isinstance(message, Open):
            self._opened_here(key, message)
            return
        end = self._ends.get(key)
        if end is None:
            return  # it was closed here
        match message:
            case Opened():
                self._in_hub(end.answer.set, None)
            case Data():
                self._in_hub(end.take_data, message.data)
            case Credit():
                self._in_hub(end.gain, message.size)
            case Close():
                del self._ends[key]
                self._in_hub(end.finish, message.reason)
            case _:
                assert_never(message)

    def _opened_here(self, key: Key, message: Open) -> None:
        """Take in that another node has opened a tunnel to this one."""
        if message.target != self.name or message.opener == self.name:
            raise BadMessage(f"a tunnel from {message.opener} to {message.target} ends at neither")
        if key in self._ends:
            raise BadMessage(f"it has already opened the tunnel {key}")
        reason = None
        if sum(server == key[0] for server, *_ in self._ends) >= MOST_EACH:
            reason = (
                f"{self.name} already has {MOST_EACH} tunnels over {key[0]}, which is the limit"
            )
        if reason is not None:
            self.send(key[0], RELAY, Close(*key[1:], reason))
            return
        near, far = _pair()
        end = self._ends[key] = self._new_end(key, near)
        self._in_hub(self._begin, end, Stream(far, over=(message.opener, key[0])))

    def _begin(self, end: _End, stream: Stream) -> None:
        end.start()
        self._admit(stream)

    def _in_hub(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        run_in_hub(self.executor.hub, function, *args)

    # --- The end ----------------------------------------------------------------------------------

    def lost(self, node: str) -> None:
        """Lose the tunnels over a node whose connection is lost."""
        self._pass_on(self.relay.lost(node))
        self.avoid(node, f"lost the connection to {node}, which relays")

    def avoid(self, node: str, why: str) -> None:
        """End the tunnels over a node; their users open others."""
        if self.channels is not None:
            self.channels.avoid(node, why)
        for key in [key for key in self._ends if key[0] == node]:
            end = self._ends.pop(key)
            self._in_hub(end.finish, why)

    def stop(self) -> None:
        """Close all ends, because the node leaves the cluster."""
        ends = list(self._ends.values())
        self._ends.clear()
        for end in ends:
            self.executor.run_soon(end.dispose)

    def leave_to_parent(self) -> None:
        """In a forked child: release all sockets, which belong to the parent."""
        for end in self._ends.values():
            end.leave_to_parent()


def _pair() -> tuple[socket.socket, Any]:
    """Two connected sockets: a native one that does not block, and one of gevent."""
    near, far = _socket.socketpair()
    made = native_socket(fileno=near.detach())
    made.setblocking(False)
    return made, gevent_socket.socket(fileno=far.detach())
