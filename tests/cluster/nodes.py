"""Several nodes in one process, and a peer that says whatever a test wants it to say.

A program has one node as a rule; but a node is an object, and several of them can talk to each other.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, Literal, TypeVar

import msgspec

import locks
from locks.net import frames, messages
from locks.net.hello import (
    ACCEPTS,
    DIALS,
    VERSION,
    Hello,
    Refused,
    pack,
    prove,
    read_hello,
    recognise,
)
from locks.net.link import Link
from locks.net.messages import (
    Call,
    Done,
    Frame,
    Greeting,
    Limits,
    Reply,
    ToServer,
    decode,
    encode,
)
from locks.net.secrets import Cookie
from locks.node.options import Options, client_name
from tests.cluster.harness import COOKIE, Address, Proxy
from tests.helpers import LIMIT, eventually

T = TypeVar("T")
A, B, C = (f"{letter}@127.0.0.1" for letter in "abc")
ODD = "odd@127.0.0.1"


def hello(
    own: str,
    to: str,
    *,
    incarnation: int = 77,
    ticktime: float = 15.0,
    kind: Literal["client", "node"] = "node",
) -> bytes:
    """The first words of a node to another one."""
    return pack(Hello(VERSION, own, to, incarnation, ticktime, kind, bytes(32)))


class Nodes:
    """The nodes of one test."""

    def __init__(self) -> None:
        self.started: list[locks.node.Node] = []
        self.proxies: list[Proxy] = []

    def start(self, name: str, made: Mapping[str, Any] = {}, **given: Any) -> locks.node.Node:
        """Start a node, with these arguments of `Node`; what is not given is as `locks.start` has it."""
        defaults: dict[str, Any] = {
            "cookie": COOKIE,
            "listen": None,
            "peers": (),
            "tls": None,
            "net_ticktime": None,
            "mesh": True,
            "allow_plaintext": False,
        }
        if given.get("listen") is None:
            given["listen"] = True  # without it, and without mesh, it would be a client node
        options = Options.check(name, **{**defaults, **given})
        node = locks.node.Node(name, None, options, **made)
        self.started.append(node)
        return node

    def client(self, *servers: locks.node.Node, name: str = "", **given: Any) -> locks.node.Node:
        """Start a client node, and wait until it can ask its servers."""
        made = self.start(
            name or client_name(),
            mesh=False,
            listen=False,
            peers=[peer(server) for server in servers],
            **given,
        )
        until_members(made, *(server.name for server in servers))
        return made

    def meet(self, *names: str, **given: Any) -> list[locks.node.Node]:
        """Start nodes that are connected, each with all others."""
        made = [self.start(name, **given) for name in names]
        for number, node in enumerate(made):
            for other in made[:number]:
                assert node.connect(peer(other))
        for node in made:
            until_members(node, *names)
        return made

    def proxy(self, node: locks.node.Node) -> Proxy:
        """Put a proxy before a node."""
        made = Proxy(node.address)
        self.proxies.append(made)
        return made

    def stop(self) -> None:
        """Stop them all."""
        for node in self.started:
            node.stop()
        for proxy in self.proxies:
            proxy.close()


def peer(node: locks.node.Node) -> str:
    """How others are told of a node."""
    assert node.address is not None
    return f"{node.name}:{node.address[1]}"


def until_members(node: locks.node.Node, *names: str) -> None:
    """Wait until a node can ask the lock servers of these nodes, its own included, and no others."""
    eventually(lambda: node.alive == {node.name, *names})


def until_connected(node: locks.node.Node, *names: str) -> None:
    """Wait until a node is connected with these nodes and no others."""
    eventually(lambda: node.nodes() == sorted(names))


def link(node: locks.node.Node, other: str) -> Link:
    """The connection of a node with another one."""
    assert node.cluster is not None
    return node.cluster.network.links[other]


class Tx:
    """A transaction on a node, with a client that is a thread of its own.

    Args:
        node: The node.
        **options: As for `locks.original.spawn_agent`; it is notified in `told`, and of losses in `losses`.
    """

    def __init__(self, node: locks.node.Node, **options: Any) -> None:
        self.node = node
        self._thread = futures.ThreadPoolExecutor(1)
        self.told: list[locks.values.Notification] = []
        self.losses: list[locks.LockLost] = []
        options.setdefault("notify", self.told.append)
        self.agent = self.do(lambda: node.spawn_agent(**options))
        self.agent.on_lost = self.losses.append

    def later(self, job: Callable[[], T]) -> futures.Future[T]:
        """Have the client do something."""
        return self._thread.submit(job)

    def do(self, job: Callable[[], T]) -> T:
        """Have the client do something, and wait for it."""
        return self.later(job).result(LIMIT)

    def ask(
        self,
        lock_id: Any,
        nodes: Iterable[str] | None = None,
        require: Any = "all",
        *,
        mode: Any = "write",
        timeout: float | None = LIMIT,
    ) -> futures.Future[locks.values.LockResult]:
        """Lock; returns at once."""
        return self.later(
            lambda: locks.original.lock(
                self.agent,
                lock_id,
                mode,
                (self.node.name,) if nodes is None else list(nodes),
                require,
                timeout=timeout,
            )
        )

    def lock(self, *args: Any, **options: Any) -> locks.values.LockResult:
        """Lock, and wait for it."""
        return self.ask(*args, **options).result(LIMIT)

    def token(self, lock_id: Any, timeout: float = LIMIT) -> int:
        """The fencing token."""
        return self.do(lambda: locks.original.fencing_token(self.agent, lock_id, timeout=timeout))

    def ensure_held(self, lock_id: Any = None) -> None:
        """See `locks.original.ensure_held`."""
        self.do(lambda: locks.original.ensure_held(self.agent, lock_id))

    def granted(self, lock_id: Any) -> tuple[str, ...]:
        """The nodes where it is granted."""
        for info in self.agent.lock_info():
            if info.lock_id == lock_id:
                return info.granted
        return ()

    def end(self) -> None:
        """End the transaction, and then the client."""
        self.do(lambda: locks.original.end_transaction(self.agent))
        self._thread.shutdown()

    def die(self) -> None:
        """The client ends; the transaction was not ended."""
        self._thread.shutdown()


class News:
    """What a node's monitor is told."""

    def __init__(self, *nodes: locks.node.Node) -> None:
        self.told: list[Any] = []
        for node in nodes:
            node.monitor_nodes(self.told.append)

    @property
    def brief(self) -> list[tuple[str, str]]:
        """Up or down, and the name."""
        return [(type(each).__name__[4:].lower(), each.node) for each in self.told]

    def reasons(self) -> list[str]:
        """Why nodes went down."""
        return [each.reason for each in self.told if isinstance(each, locks.node.NodeDown)]


class Stranger:
    """A connection to a node, in the hands of the test.

    Args:
        address: Where the node listens.
        sock: The connection, if the node has begun it.
    """

    def __init__(self, address: Address | None, sock: socket.socket | None = None) -> None:
        self.socket = sock or socket.create_connection(address, LIMIT)  # type: ignore[arg-type]
        self.rest = b""

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def frame(self, body: bytes) -> None:
        """Send a frame, as after the handshake."""
        self.send(frames.frame(body))

    def say_hello(
        self,
        name: str,
        own: str,
        *,
        incarnation: int = 77,
        ticktime: float = 15.0,
        kind: Literal["client", "node"] = "node",
    ) -> None:
        """Go through the hello as the node `own`, which connects to the node `name`."""
        dialled = hello(own, name, incarnation=incarnation, ticktime=ticktime, kind=kind)
        cookies = [Cookie(COOKIE)]
        try:
            self.frame(dialled)
            accepted = self.next_frame()
            read_hello(accepted, own, name)
            self.frame(prove(DIALS, dialled, accepted, cookies))
            found = recognise(self.next_frame(), ACCEPTS, dialled, accepted, cookies)
        except Refused as error:
            raise ConnectionError(str(error)) from error
        assert found is not None

    def next_frame(self) -> bytes:
        """The body of the next frame."""
        while True:
            size = 4 + int.from_bytes(self.rest[:4], "big")
            if len(self.rest) >= max(4, size):
                body, self.rest = self.rest[4:size], self.rest[size:]
                return body
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the node has closed the connection")
            self.rest += data

    def messages(self) -> Iterable[Any]:
        """What the node says after the handshake, until it closes the connection."""
        while True:
            try:
                body = self.next_frame()
            except ConnectionError:
                return
            yield decode(body) if body else None

    def is_closed(self, limit: float = LIMIT) -> bool:
        """Whether the node closes the connection, whatever it says before."""
        self.socket.settimeout(limit)
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Close it."""
        self.socket.close()


class Peer(Stranger):
    """A node that is connected with another one.

    Args:
        address: Where that one listens.
        node: Its name.
        name: What this one is called.
        ticktime: Its tick time.
    """

    def __init__(
        self, address: Address | None, node: str, name: str = ODD, ticktime: float = 15.0
    ) -> None:
        super().__init__(address)
        self.name = name
        self.say_hello(node, name, ticktime=ticktime)
        self._calls = itertools.count(1)

    def say(self, frame: Frame) -> None:
        """Send a frame."""
        self.frame(encode(frame))

    def raw(self, *fields: Any) -> None:
        """Send a frame of these fields, whatever they are."""
        self.frame(msgspec.msgpack.encode(fields))

    def ask(self, question: Any) -> None:
        """Put a question to the node."""
        self.say(Call(next(self._calls), question))

    def tell_server(self, message: Any) -> None:
        """Send the lock server a message of an agent."""
        self.say(ToServer(message))

    def greet(self, *known: Any, version: Any = 1) -> None:
        """Greet the node; a node that is named without an age is alive."""
        entries = [(*each, 0.0) if len(each) == 3 else each for each in known]
        self.ask(Greeting(version, tuple(messages.News(*each) for each in entries), Limits()))

    def calls(self) -> Iterator[Call]:
        """The calls of that node."""
        for message in self.messages():
            if isinstance(message, Call):
                yield message

    def answer(self, call: Call) -> None:
        """Answer a greeting."""
        self.say(Reply(call.number, Done()))
