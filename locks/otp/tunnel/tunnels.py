"""Tunnels: connections between two nodes by way of a third one that both are connected with.

Client nodes are connected with servers only. Where two of them have to do with each other all the same, as
candidates of an election have, one opens a *tunnel* to the other one: a byte stream that a server relays
(`locks.otp.tunnel.relay`). At each end there is a pair of sockets. One is a connection like any other: the ordinary
handshake is done over it, and the ordinary `Link` has it. What is written into it comes out of the other one, and
goes to the relay in messages. So all that works over a connection works over a tunnel.

A tunnel is as good as its two connections to the relay: if one of them is lost, so is the tunnel, and both ends
notice. So nothing needs to tick over it. A new one is opened over another server.

TLS is between each end and the relay. The ends prove to each other that they know the cookie.

Each end sends no more than a window ahead of what the other one has taken in. What it has taken in and its
socket does not take yet is kept, so that is a window at most, too.
"""

from __future__ import annotations

import _socket
import itertools
import random
import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import gevent
from gevent import socket as gevent_socket
from gevent.event import AsyncResult

from locks.errors import assert_never
from locks.otp.admission.strangers import NoWay, Refused, plain
from locks.otp.bytes.control import BadMessage, StrangeMessage
from locks.otp.links.stream import Stream, native_socket
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
from locks.runtime.waiter import run_in_hub

if TYPE_CHECKING:
    from gevent.hub import Hub

    from locks.otp.bytes.terms import Pid
    from locks.otp.notices import Notices
    from locks.otp.process.processes import Processes
    from locks.runtime import Executor
    from locks.runtime.inline import Turn

__all__ = ["Tunnels"]

ANSWER = 1.0  # seconds until a relay must have answered; then the next one is asked
SOON = WINDOW // 4  # bytes that were taken in, until the other end is told
Key = tuple[str, str, int]  # the relay, the opener, and the opener's number


class _End:
    """One end of a tunnel, with the socket behind that of the connection. In the hub.

    Args:
        hub: Where to wait for the socket.
        sock: The socket, not blocking.
        say: Sends bytes; a number: that so many were taken in; or text: why it is closed.

    Attributes:
        answer: At the opener: whether the tunnel was opened; else why not.
    """

    def __init__(
        self, hub: Hub, sock: socket.socket, say: Callable[[bytes | int | str], object]
    ) -> None:
        self.answer: AsyncResult[str | None] = AsyncResult()
        self._socket = sock
        self._say = say
        self._credit = WINDOW
        self._arrived = bytearray()  # what the socket has not taken yet
        self._taken = 0  # what it has taken, and the other end was not told
        self._writes = False
        self._ends = False
        self._closed = False
        self._reader: Any = hub.loop.io(sock.fileno(), 1)
        self._writer: Any = hub.loop.io(sock.fileno(), 2)

    def start(self) -> None:
        """Begin to pass on what is written to the other socket."""
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
        """The other end has taken something in."""
        if not self._closed:
            if not self._credit:
                self._reader.start(self._readable)
            self._credit = min(WINDOW, self._credit + count)

    def take(self, data: bytes) -> None:
        """Something has arrived."""
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
        except BaseException:  # nobody knows what the other end has got
            self.close("it was interrupted")
            raise

    def finish(self, reason: str) -> None:
        """The tunnel is closed: what has arrived is delivered, then the connection ends."""
        self.answer.set(reason)
        self._ends = True
        if not self._arrived:
            self.dispose()

    def close(self, reason: str) -> None:
        """Nobody needs it any more at this end."""
        if not self._closed:
            self.dispose()
            self._say(reason)

    def dispose(self) -> None:
        """Give the socket and its watchers back."""
        if self._closed:
            return
        self._closed = True
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: let go of the socket."""
        self._socket.close()


class Tunnels:
    """The tunnels of one node: those that end here, and those that it relays. In the turn, unless it says otherwise.

    Args:
        name: The node.
        links: The nodes that it is connected with.
        processes: Who can be reached over its connections.
        turn: Its turn.
        executor: Where its greenlets live.
        notices: Logs warnings about others.
        relays: Whether it relays for others.
        servers: Says which nodes may relay.
        admit: Takes in a connection that somebody has begun over a tunnel. In the hub.
    """

    def __init__(
        self,
        name: str,
        links: Collection[str],
        processes: Processes,
        turn: Turn,
        executor: Executor,
        notices: Notices,
        *,
        relays: bool,
        servers: Callable[[], list[str]],
        admit: Callable[[Stream], object],
    ) -> None:
        self._name = name
        self._links = links
        self._processes = processes
        self._turn = turn
        self._executor = executor
        self._notices = notices
        self._servers = servers
        self._admit = admit
        self.relay = Relay(name, links.__contains__)
        self._ends: dict[Key, _End] = {}
        self._numbers = itertools.count(1)
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
        servers = self._turn.run(self._servers)
        random.shuffle(servers)
        refused = {}
        for server in servers:
            try:
                return self._dial(server, name)
            except Refused as error:
                refused[server] = str(error)
        why = "; ".join(f"{server}: {refused[server]}" for server in sorted(refused))
        text = plain(
            f"can't reach {name}: it has no address, and no server of this node relays to it: {why or 'there is none'}"
        )
        if set(refused.values()) <= {ABSENT}:
            raise NoWay(text, cause="no way")
        raise Refused(text, cause="no way")

    def _dial(self, server: str, name: str) -> Stream:
        key = (server, self._name, next(self._numbers))
        near, far = _pair()
        end = self._new_end(key, near)
        try:
            self._turn.run(self._open, key, name, end)
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
        return _End(self._executor.hub, sock, lambda said: self._hear(key, said))

    def _open(self, key: Key, name: str, end: _End) -> None:
        self._ends[key] = end
        self._send(key[0], RELAY, Open(*key[1:], name))

    # --- What the ends say ------------------------------------------------------------------------

    def _hear(self, key: Key, said: bytes | int | str) -> None:
        """An end has something to say to the other one. In the hub."""
        run = self._turn.run_surely if isinstance(said, str) else self._turn.run
        run(self._say, key, said)

    def _say(self, key: Key, said: bytes | int | str) -> None:
        if key not in self._ends:
            return  # it is closed
        name = key[1:]
        if isinstance(said, str):
            self._ends.pop(key)
            self._send(key[0], RELAY, Close(*name, said))
        else:
            message = Data(*name, said) if isinstance(said, bytes) else Credit(*name, said)
            self._send(key[0], RELAY, message)

    def _send(self, node: str, process: str, message: Message) -> None:
        self._processes.send_named(node, process, encode(message))

    # --- What arrives -----------------------------------------------------------------------------

    def _unpacked(self, term: Any) -> Message | None:
        """A message; `None` if it is none, which is logged."""
        try:
            return unpack(term)
        except StrangeMessage as error:
            speaker = self._processes.speaker
            self._notices.warn("ignored", speaker, "%s ignored a message: %s", self._name, error)
            return None

    def _to_relay(self, term: Any, sender: Pid | None) -> None:
        message = self._unpacked(term)
        if message is not None:
            self._pass_on(self.relay.take(self._processes.speaker, message))

    def _pass_on(self, outgoing: list[Outgoing]) -> None:
        for node, message in outgoing:
            self._send(node, TUNNELS, message)

    def _to_end(self, term: Any, sender: Pid | None) -> None:
        message = self._unpacked(term)
        if message is None:
            return
        server = self._processes.speaker
        key = (server, message.opener, message.number)
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
                self._in_hub(end.take, message.data)
            case Credit():
                self._in_hub(end.gain, message.size)
            case Close():
                del self._ends[key]
                self._in_hub(end.finish, message.reason)
            case _:
                assert_never(message)

    def _opened_here(self, key: Key, message: Open) -> None:
        """Somebody has opened a tunnel to this node."""
        if message.target != self._name or message.opener == self._name:
            raise BadMessage(f"a tunnel from {message.opener} to {message.target} ends at neither")
        if key in self._ends:
            raise BadMessage(f"it has already opened the tunnel {key}")
        reason = None
        if sum(server == key[0] for server, *_ in self._ends) >= MOST_EACH:
            reason = (
                f"{self._name} already has {MOST_EACH} tunnels over {key[0]}, which is the limit"
            )
        if reason is not None:
            self._send(key[0], RELAY, Close(*key[1:], reason))
            return
        near, far = _pair()
        end = self._ends[key] = self._new_end(key, near)
        self._in_hub(self._begin, end, Stream(far, over=(message.opener, key[0])))

    def _begin(self, end: _End, stream: Stream) -> None:
        end.start()
        self._admit(stream)

    def _in_hub(self, function: Callable[..., object], *args: Any) -> None:
        run_in_hub(self._executor.hub, function, *args)

    # --- The end ----------------------------------------------------------------------------------

    def lost(self, node: str) -> None:
        """The connection to a node is lost, and with it the tunnels over it."""
        self._pass_on(self.relay.lost(node))
        self.avoid(node, f"lost the connection to {node}, which relays")

    def avoid(self, node: str, why: str) -> None:
        """End the tunnels over a node; whoever wants them opens others."""
        for key in [key for key in self._ends if key[0] == node]:
            end = self._ends.pop(key)
            self._in_hub(end.finish, why)

    def stop(self) -> None:
        """The node leaves the cluster."""
        ends = list(self._ends.values())
        self._ends.clear()
        for end in ends:
            self._executor.run_soon(end.dispose)

    def abandon(self) -> None:
        """In a forked child: let go of all sockets; they belong to the parent."""
        for end in self._ends.values():
            end.abandon()


def _pair() -> tuple[socket.socket, Any]:
    """Two sockets that are connected: one of the system that does not block, and one of gevent."""
    near, far = _socket.socketpair()
    made = native_socket(fileno=near.detach())
    made.setblocking(False)
    return made, gevent_socket.socket(fileno=far.detach())
