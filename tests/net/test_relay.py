"""Links through servers, without sockets: servers and ends are joined by lists of frames."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.net import relay
from locks.net.messages import (
    CHUNK,
    WINDOW,
    BadMessage,
    NoWay,
    Open,
    Relay,
    Relaying,
    Took,
    decode,
    encode,
)
from locks.net.relay import RelayedLink, Relays, Switch
from locks.ranges import replace
from tests.helpers import SEED

A, B, C, S, T, U = "a@x", "b@x", "c@x", "s@x", "t@x", "u@x"


# --- The messages -------------------------------------------------------------------------------

NAMES = st.text(max_size=255)
NUMBERS = st.integers(0, 2**63 - 1)
MESSAGES = st.one_of(
    st.builds(
        Open, NUMBERS, NAMES, NAMES, NUMBERS, st.lists(NAMES, max_size=2).map(tuple), st.booleans()
    ),
    st.builds(Relay, NUMBERS, st.binary(max_size=100), st.booleans()),
    st.builds(Took, NUMBERS, st.integers(1, WINDOW)),
    st.builds(NoWay, NUMBERS, st.text(max_size=1000)),
)


@given(MESSAGES)
def test_each_message_comes_back_from_its_bytes(message: Relaying) -> None:
    """Whatever its fields are."""
    assert decode(encode(message)) == message


@given(MESSAGES, st.integers(0, 200), st.integers(0, 255))
def test_what_is_no_message_is_refused(message: Relaying, at: int, byte: int) -> None:
    """Bytes that were cut or changed are another message, or refused with one kind of error."""
    data = bytearray(encode(message))
    with pytest.raises(BadMessage):
        decode(bytes(data[: at % len(data)]))
    data[at % len(data)] = byte
    with contextlib.suppress(BadMessage):
        assert decode(bytes(data)) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        ["open", -1, A, B, 1],
        ["open", 2**63, A, B, 1],
        ["open", 1, "x" * 256, B, 1],
        ["open", 1, A, B, -1],
        ["open", 1, A, B, 1, [S, T, U]],
        ["open", 1, A, B, 1, [], 1],
        ["open", 1, A],
        ["relay", 1, bytes(CHUNK + 1)],
        ["relay", 1, "text"],
        ["took", 1, 0],
        ["took", 1, WINDOW + 1],
        ["noway", 1, "x" * 1001],
        ["other", 1, 1],
        [40, 1, A, B, 1],
        [],
        1,
    ],
)
def test_wrong_fields_are_refused(wrong: Any) -> None:
    """Each bound of a field is checked."""
    with pytest.raises(BadMessage):
        decode(msgspec.msgpack.encode(wrong))


# --- A server -----------------------------------------------------------------------------------


class Peer(NamedTuple):
    """The node at the other end of a connection."""

    name: str
    hidden: bool
    incarnation: int = 0


class Connection:
    """One end of a connection: frames go into a list."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_full = False
        self.sent: deque[bytes] = deque()
        self.closed: str | None = None

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self.sent.append(frame)

    def lose(self, reason: str) -> None:
        """Close it."""
        self.closed = reason


class Server:
    """A server that is connected with these nodes."""

    def __init__(self, clients: str = A + B + C, servers: tuple[str, ...] = ()) -> None:
        names = [clients[at : at + 3] for at in range(0, len(clients), 3)]
        self.connections = {name: Connection(Peer(name, name not in servers)) for name in names}
        self.connections |= {name: Connection(Peer(name, False)) for name in servers}
        links = cast(Any, self.connections)
        self.switch = Switch(S, links, lambda: [each for each in servers if each in links])

    def say(self, hop: str, message: Relaying) -> list[tuple[str, Any]]:
        """What it says to whom, after a node has said something."""
        self.switch.take(hop, message, encode(message))
        return self.said()

    def lose(self, hop: str) -> list[tuple[str, Any]]:
        """The same, after it has lost a connection."""
        del self.connections[hop]
        self.switch.lost(hop)
        return self.said()

    def said(self) -> list[tuple[str, Any]]:
        """What it has said since it was last asked."""
        found = [(n, decode(f)) for n, each in self.connections.items() for f in each.sent]
        for each in self.connections.values():
            each.sent.clear()
        return found

    def open(self, one: str, other: str, session: int = 1) -> None:
        """Open a link."""
        self.say(one, Open(session, one, other, 7))
        self.say(other, Open(session, other, one, 8, (), True))


def test_what_one_end_says_goes_to_the_other() -> None:
    """Both ways, until one of them ends it; what was on its way then is dropped."""
    server = Server()
    assert server.say(A, Open(1, A, B, 7)) == [(B, Open(1, A, B, 7, (S,)))]
    assert len(server.switch) == 0  # nothing is remembered of a request
    assert server.say(B, Open(1, B, A, 8, (), True)) == [(A, Open(1, B, A, 8, (), True))]
    for one, other in ((A, B), (B, A)):
        for message in (Relay(1, b"x", True), Relay(1, b"y"), Took(1, 1)):
            assert server.say(one, message) == [(other, message)]
    assert server.say(B, NoWay(1, "why")) == [(A, NoWay(1, "why")), (B, NoWay(1, "why"))]
    assert server.say(A, Relay(1, b"x")) == []
    assert len(server.switch) == 0


@pytest.mark.parametrize(
    ("speaker", "message"),
    [
        (A, Open(2, B, C, 7)),  # in another's name
        (A, Open(2, B, C, 7, (), True)),
        (A, Open(2, A, C, 7, (T,))),  # as if a server had passed it on
        (A, Relay(1, bytes(CHUNK))),  # after a window
    ],
)
def test_what_must_not_be_said_changes_nothing(speaker: str, message: Relaying) -> None:
    """It is refused; the caller ends the connection."""
    server = Server()
    server.open(A, B)
    for _ in range(WINDOW // CHUNK):
        server.say(A, Relay(1, bytes(CHUNK)))
    with pytest.raises(BadMessage):
        server.say(speaker, message)
    assert server.said() == []
    assert len(server.switch) == 1


@pytest.mark.parametrize("message", [Relay(1, b"x"), Took(1, 1), NoWay(1, "why")])
def test_a_third_one_has_no_part_in_it(message: Relaying) -> None:
    """What it says of a link of others leads nowhere."""
    server = Server()
    server.open(A, B)
    assert server.say(C, message) == []
    assert len(server.switch) == 1


def test_no_end_sends_more_than_a_window_ahead() -> None:
    """A stopped end has at most that much of one link at the server."""
    server = Server()
    server.open(A, B)
    for _ in range(WINDOW // CHUNK):
        server.say(A, Relay(1, bytes(CHUNK)))
    server.say(B, Took(1, 1))
    server.say(A, Relay(1, b"x"))
    with pytest.raises(BadMessage):
        server.say(A, Relay(1, b"x"))


def test_a_connection_that_is_full_ends_the_link() -> None:
    """Both ends are told, and other links of the sender go on."""
    server = Server()
    server.open(A, B)
    server.open(A, C, 2)
    server.connections[B].is_full = True
    why = NoWay(1, f"{B} does not read")
    assert server.say(A, Relay(1, b"x")) == [(A, why), (B, why)]
    assert server.say(A, Relay(2, b"x")) == [(C, Relay(2, b"x"))]


def test_the_loss_of_a_node_ends_its_links() -> None:
    """The other ends are told, and nothing is kept."""
    server = Server()
    server.open(A, B)
    server.open(C, A, 2)
    server.open(B, C, 3)
    why = f"{S} lost its connection to {A}"
    assert sorted(server.lose(A)) == [(B, NoWay(1, why)), (C, NoWay(2, why))]
    assert len(server.switch) == 1


def test_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one node, whichever end it is."""
    monkeypatch.setattr(relay, "MOST", 4)
    server = Server()
    for session in range(4):
        server.open(*((A, B) if session % 2 else (B, A)), session)
    assert server.say(A, Open(9, A, C, 7)) == [(C, Open(9, A, C, 7, (S,)))]
    ((to, said),) = server.say(C, Open(9, C, A, 7, (), True))
    assert (to, type(said)) == (C, NoWay)
    assert len(server.switch) == 4
    server.open(C, C)
    assert len(server.switch) == 4


def test_a_number_that_is_taken_changes_nothing() -> None:
    """A node that gives two links one number loses the second, and nobody else's."""
    server = Server()
    server.open(A, B)
    ((to, said),) = server.say(B, Open(1, B, C, 7, (), True))
    assert (to, type(said)) == (B, NoWay)
    assert server.say(A, Relay(1, b"x")) == [(B, Relay(1, b"x"))]


def test_a_target_of_another_server() -> None:
    """It is asked of all other servers; the answer returns the way that the request came."""
    server = Server(A, (T, U))
    asked = Open(1, A, B, 7, (S,))
    assert server.say(A, Open(1, A, B, 7)) == [(T, asked), (U, asked)]
    assert server.say(T, Open(1, B, A, 8, (), True)) == [(A, Open(1, B, A, 8, (), True))]
    assert server.say(A, Relay(1, b"x")) == [(T, Relay(1, b"x"))]
    assert server.lose(T) == [(A, NoWay(1, f"{S} lost its connection to {T}"))]
    # The second server asks no others, and the answer goes to the first one.
    assert server.say(U, Open(2, B, C, 7, (T,))) == []
    assert server.say(U, Open(2, B, A, 7, (U,))) == [(A, Open(2, B, A, 7, (U, S)))]
    assert server.say(A, Open(2, A, B, 7, (U,), True)) == [(U, Open(2, A, B, 7, (), True))]


# --- Nodes ----------------------------------------------------------------------------------------


class Node:
    """One incarnation of a node: what its links through servers need of it, and their user."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        self.world = world
        self.name = name
        self.incarnation = incarnation
        self.links: dict[str, Connection] = {}
        self.relayed: dict[str, RelayedLink] = {}
        self.named: set[str] = set()
        self.refusals: dict[str, str] = {}
        self.book = self.notices = self
        self.known: dict[str, Any] = {}
        self.is_running = True
        self.is_client = name not in world.servers
        self.posted: deque[Callable[[], object]] = deque()
        self.needs: set[str] = set()
        self.up: dict[str, tuple[int, int]] = {}
        self.relays = Relays(
            cast(Any, self),
            cast(Any, self),
            cast(Any, self),
            servers=lambda: [each for each in self.links if each in world.servers],
            needed=lambda: self.needs,
            on_up=self.on_up,
            on_down=self.on_down,
            on_frame=self.on_frame,
        )

    # What it is for its links: connections, turn, executor and log.

    def may_meet(self, name: str) -> bool:
        """Whether it may have a link with another node."""
        return name != self.name and name not in self.links

    def warn(self, *_: object) -> None:
        """Nobody reads it."""

    def post(self, act: Callable[..., object], *args: Any) -> None:
        """Do something at the end of the turn."""
        self.posted.append(partial(act, *args))

    def run(self, act: Callable[..., object], *args: Any) -> None:
        """Do something in a turn."""
        self.world.present = self.name
        act(*args)
        while self.posted:
            self.posted.popleft()()

    def run_later(self, seconds: float, act: Callable[..., object], *args: Any) -> None:
        """Do something later."""
        self.world.timers.append((self.world.now + seconds, self, partial(act, *args)))

    # What it does over its links.

    def on_up(self, link: RelayedLink) -> None:
        """A link is there: the user numbers what it sends over it."""
        assert link.peer.name not in self.up
        assert self.relayed[link.peer.name] is link
        self.up[link.peer.name] = (0, 0)

    def on_down(self, link: RelayedLink) -> None:
        """A link is gone."""
        del self.up[link.peer.name]

    def say(self, to: str, size: int) -> None:
        """Send the next frame to another node."""
        link = self.relayed[to]
        sent, got = self.up[to]
        self.up[to] = (sent + 1, got)
        about = (self.name, self.incarnation, to, link.peer.incarnation, sent, size)
        link.send(msgspec.msgpack.encode((*about, bytes(size))))

    def on_frame(self, link: RelayedLink, frame: bytes) -> None:
        """Take in a frame: it is the next one, and for this incarnation."""
        name, incarnation, to, to_incarnation, count, size, data = msgspec.msgpack.decode(frame)
        assert (name, incarnation) == (link.peer.name, link.peer.incarnation)
        assert (to, to_incarnation) == (self.name, self.incarnation)
        sent, got = self.up[name]
        assert (count, size) == (got, len(data))
        self.up[name] = (sent, got + 1)
        self.world.arrived += 1


class World:
    """Nodes and servers, and connections that are lost and made anew at any time."""

    def __init__(self, seed: int, ways: dict[str, str]) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.timers: list[tuple[float, Node, Callable[[], object]]] = []
        self.servers = {S, T}
        self.ways = {(name, each) for name, there in ways.items() for each in there.split()}
        self.ways |= {(S, T)}
        self.incarnations: defaultdict[str, int] = defaultdict(int)
        self.nodes: dict[str, Node] = {}
        self.silent: set[str] = set()
        self.arrived = 0
        self.present = ""  # the node whose turn it is
        self.fast: dict[str, float] = {}  # how many seconds the clocks of nodes are ahead
        for name in sorted({S, T, *ways}):
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node, perhaps again."""
        old = self.nodes.get(name)
        if old is not None:
            for other in list(old.links):
                self.cut(name, other)
            old.is_running = False
        self.incarnations[name] += 1
        self.nodes[name] = Node(self, name, self.incarnations[name])

    def connect(self, one: str, other: str) -> None:
        """Connect two nodes."""
        if other not in self.nodes[one].links:
            for node, peer in ((one, other), (other, one)):
                made = Peer(peer, self.nodes[peer].is_client, self.nodes[peer].incarnation)
                self.nodes[node].links[peer] = Connection(made)
            for node in (one, other):
                self.nodes[node].run(self.nodes[node].relays.look, True)

    def cut(self, one: str, other: str) -> None:
        """Lose a connection; what is on its way is lost."""
        for node, peer in ((one, other), (other, one)):
            if self.nodes[node].links.pop(peer, None) is not None:
                self.nodes[node].run(self.nodes[node].relays.lost, peer)

    def deliver(self) -> bool:
        """Deliver one frame; return whether there was one."""
        ready = [
            (sender, to)
            for sender, node in self.nodes.items()
            if sender not in self.silent
            for to, link in node.links.items()
            if link.sent and to not in self.silent
        ]
        if not ready:
            return False
        sender, to = self.random.choice(sorted(ready))
        frame = self.nodes[sender].links[to].sent.popleft()
        hop = self.nodes[to].links[sender]
        self.nodes[to].run(self.nodes[to].relays.take, hop, decode(frame), frame)
        assert hop.closed is None
        return True

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        due, self.timers = self.timers, []
        for at, node, act in due:
            if at > self.now:
                self.timers.append((at, node, act))
            elif node.is_running:
                act()

    def settle(self) -> None:
        """Connect all, and deliver everything, until nothing happens any more."""
        self.silent.clear()
        for _ in range(30):
            for way in sorted(self.ways):
                self.connect(*way)
            while self.deliver():
                pass
            self.pass_time(1.0)


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Makes worlds with a clock of their own."""

    def make(seed: int, **ways: str) -> World:
        made = World(seed, {f"{name}@x": there for name, there in ways.items()})
        monkeypatch.setattr(relay, "monotonic", lambda: made.now)
        monkeypatch.setattr(relay, "wall", lambda: made.now + made.fast.get(made.present, 0))
        monkeypatch.setattr(relay, "random", made.random)
        return made

    return make


Worlds = Callable[..., World]
BOTH = f"{S} {T}"


def linked(world: World, one: str, other: str) -> bool:
    """Whether both have one link with each other, the same."""
    here, there = world.nodes[one].relayed.get(other), world.nodes[other].relayed.get(one)
    if here is None or there is None:
        assert here is there
        return False
    assert here.session == there.session
    assert (here.peer.incarnation, there.peer.incarnation) == (
        world.nodes[other].incarnation,
        world.nodes[one].incarnation,
    )
    return True


@pytest.mark.parametrize("ways", [(S, S), (BOTH, BOTH), (S, T)], ids=["one", "two", "none common"])
def test_both_begin_at_once(worlds: Worlds, ways: tuple[str, str]) -> None:
    """There is one link, in whatever order things arrive."""
    for seed in range(50):
        world = worlds(seed, a=ways[0], b=ways[1])
        for one, other in ((A, B), (B, A)):
            world.nodes[one].needs.add(other)
        world.settle()
        assert linked(world, A, B)
        through = {S, T} if ways == (S, T) else {world.nodes[A].relayed[B].server}
        for server in (S, T):
            assert len(world.nodes[server].relays.switch) == (server in through)


def test_a_large_frame_waits_for_its_reader(worlds: Worlds) -> None:
    """It is sent in pieces, a window ahead; callers that wait are woken when it is sent."""
    world = worlds(1, a=S, b=S)
    world.nodes[A].needs.add(B)
    world.settle()
    link = world.nodes[A].relayed[B]
    woken: list[bool] = []
    link.drained[lambda: woken.append(link.is_full)] = None
    world.nodes[A].run(world.nodes[A].say, B, 20 * WINDOW)
    assert link.is_full
    assert sum(map(len, world.nodes[A].links[S].sent)) < WINDOW + 1000
    while world.deliver():
        assert sum(map(len, world.nodes[S].links[B].sent)) < WINDOW + 1000
    assert world.arrived == 1
    assert woken == [False]


@pytest.mark.parametrize("said", [Relay(0, b"x"), Took(0, 1), NoWay(0, "why")])
def test_only_its_own_server_speaks_of_a_link(worlds: Worlds, said: Relaying) -> None:
    """What another one says of it has no effect."""
    world = worlds(1, a=BOTH, b=BOTH)
    world.nodes[A].needs.add(B)
    world.settle()
    link = world.nodes[A].relayed[B]
    (other,) = {S, T} - {link.server}
    message = replace(said, session=link.session)
    node = world.nodes[A]
    node.run(node.relays.take, node.links[other], message, encode(message))
    world.settle()
    assert node.relayed[B] is link
    assert linked(world, A, B)
    assert node.up[B] == (0, 0)


def test_a_link_that_is_not_needed_is_closed(worlds: Worlds) -> None:
    """By the node that has opened it; the other one opens it again if it needs it."""
    world = worlds(1, a=S, b=S)
    world.nodes[A].needs.add(B)
    world.settle()
    assert linked(world, A, B)
    world.nodes[A].needs.clear()
    world.settle()
    assert not linked(world, A, B)
    assert not world.nodes[A].relays._attempts
    assert len(world.nodes[S].relays.switch) == 0
    assert not world.timers
    world.nodes[B].needs.add(A)
    world.nodes[B].relays.look()
    world.settle()
    assert linked(world, A, B)


def test_what_a_silent_server_says_late_replaces_nothing(worlds: Worlds) -> None:
    """Requests that it held back arrive when there is a newer link, or a newer incarnation."""
    for seed in range(30):
        world = worlds(seed, a=BOTH, b=BOTH)
        world.settle()
        world.silent.add(S)
        world.nodes[A].needs.add(B)
        world.nodes[A].run(world.nodes[A].relays.look)
        while world.deliver():
            pass
        if seed % 2:
            world.pass_time(1.0)
            while world.deliver():
                pass
        before = world.nodes[A].relayed[B]
        assert linked(world, A, B)
        world.silent.clear()
        while world.deliver():
            pass
        assert world.nodes[A].relayed[B] is before
        assert linked(world, A, B)


@pytest.mark.parametrize("fast", [{}, {A: 100.0}], ids=["same", "another"])
def test_who_avoids_a_silent_server_takes_the_other_end_along(
    worlds: Worlds, fast: dict[str, float]
) -> None:
    """It may be the end that did not open the link, and its clock may be another one."""
    for seed in range(30):
        world = worlds(seed, a=BOTH, b=BOTH)
        world.fast = fast
        for name in (A, B):
            world.nodes[name].needs = {A, B}
        world.settle()
        through = world.nodes[A].relayed[B].server
        world.silent.add(through)
        node = world.nodes[(A, B)[seed % 2]]
        node.run(node.relays.avoid, through, "it is silent")
        for _ in range(10):
            while world.deliver():
                pass
            world.pass_time(1.0)
        assert linked(world, A, B)
        assert world.nodes[A].relayed[B].server != through


@pytest.mark.parametrize("number", range(20))
def test_random_worlds(worlds: Worlds, number: int) -> None:
    """Whatever is lost, silent or started again: frames arrive in order, from and for the right incarnation.

    In the end both ends agree whether there is a link, and there is one wherever it is needed; servers remember no others.
    """
    world = worlds(SEED + number, a=BOTH, b=BOTH, c=S, d=T)
    clients = [A, B, C, "d@x"]
    chance = world.random
    for name, other in itertools.pairwise(clients):
        world.nodes[name].needs.add(other)
    world.settle()
    for _ in range(1500):
        what = chance.random()
        one, other = chance.sample(clients, 2)
        node = world.nodes[one]
        if what < 0.6:
            for _ in range(5):
                world.deliver()
        elif what < 0.85 and other in node.relayed:
            node.run(node.say, other, chance.choice((1, 100, CHUNK, 5 * WINDOW)))
        elif what < 0.87:
            node.needs = set(chance.sample(clients, 2)) - {one}
            node.run(node.relays.look)
        elif what < 0.89:
            world.cut(*chance.choice(sorted(world.ways)))
        elif what < 0.94:
            world.connect(*chance.choice(sorted(world.ways)))
        elif what < 0.95:
            world.silent = set(chance.sample([S, T], chance.randrange(2)))
        elif what < 0.955:
            name = chance.choice([*clients, S, T])
            world.start(name)
        elif what < 0.96 and other in node.relayed:
            node.run(node.relays.avoid, node.relayed[other].server, "a test")
        else:
            world.pass_time(chance.choice((0.001, 0.1, 1.0)))
    world.settle()
    pairs = [(one, other) for one in clients for other in clients if one < other]
    there = {pair for pair in pairs if linked(world, *pair)}
    for one, other in pairs:
        if other in world.nodes[one].needs or one in world.nodes[other].needs:
            assert (one, other) in there
    passing = sum(len(world.nodes[server].relays.switch) for server in (S, T))
    over_two = sum(
        world.nodes[a].relayed[b].server != world.nodes[b].relayed[a].server for a, b in there
    )
    assert passing == len(there) + over_two
    assert world.arrived
