"""The table of process groups: alone, against a naive model with several nodes, and message by message."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.groups.table import (
    Discover,
    GroupTable,
    Join,
    Leave,
    Send,
    Sync,
    Tell,
    UnwatchMember,
    WatchMember,
    WatchPeer,
)

# --- One node -----------------------------------------------------------------------------------


def test_monitors_of_one_group() -> None:
    """Each monitor of a group is told of it, and of no other, until it is taken away."""
    table = GroupTable()
    table.join("g", ("a",))
    assert table.monitor("g", "m") == ("a",)
    assert table.monitor("g", "n") == ("a",)
    assert table.monitor("h", "m") == ()
    told = [effect for effect in table.join("g", ("b", "b")) if isinstance(effect, Tell)]
    assert told == [Tell("m", True, "g", ("b", "b")), Tell("n", True, "g", ("b", "b"))]
    table.demonitor("g", "m")
    table.demonitor("g", "m")
    table.demonitor("nowhere", "m")
    assert table.leave("g", ("b", "a")) == [UnwatchMember("a"), Tell("n", False, "g", ("b", "a"))]
    assert table.join("h", ("a",)) == [WatchMember("a"), Tell("m", True, "h", ("a",))]


# --- Messages, one by one -----------------------------------------------------------------------


def test_a_peer_is_told_of_changes_only_after_it_was_told_all() -> None:
    """A peer whose `Sync` comes first must not hear that somebody has left whom it never knew."""
    table = GroupTable()
    table.join("g", ("a",))
    assert table.handle("p", Sync(())) == [WatchPeer("p")]
    assert table.leave("g", ("a",)) == [UnwatchMember("a")]
    assert table.join("g", ("b",)) == [WatchMember("b")]
    assert table.handle("p", Discover()) == [Send("p", Sync((("g", ("b",)),)))]
    assert table.join("g", ("c",)) == [WatchMember("c"), Send("p", Join("g", ("c",)))]


def test_joins_of_nobody_make_no_group() -> None:
    """OTP allows to join a group with no members at all; that makes none."""
    table = GroupTable()
    table.handle("p", Sync((("g", ()),)))
    table.handle("p", Join("h", ()))
    assert table.groups() == ()


# --- Several nodes, against a naive model -------------------------------------------------------

NODES = ("a", "b", "c")
GROUPS = ("g", "h")
MEMBERS = 2
Peer = tuple[str, int]  # the node, and which of its scope processes


def counted(members: Any) -> Counter[str]:
    """How often each member is there."""
    return Counter(members)


class Connection:
    """Between two nodes, from its handshake until both know that it is lost."""

    def __init__(self) -> None:
        self.cut = False
        self.queues: dict[str, deque[Any]] = {}  # by receiver
        self.seen: set[str] = set()  # who has noticed that it is up


class Network:
    """Tables that exchange messages, and what is expected of them.

    As in Erlang, messages between two nodes keep their order; each side notices for itself that a
    connection is up, and that it is lost, and may take in before what has arrived. A monitor of a
    process is a message to its node, and so is what it says.
    """

    def __init__(self, kind: type[GroupTable]) -> None:
        self._kind = kind
        self.serial = dict.fromkeys(NODES, 0)
        self.tables = {name: kind() for name in NODES}
        self.expected = {name: Counter[tuple[str, str]]() for name in NODES}
        self.current: dict[frozenset[str], Connection] = {}  # the newest of each pair
        self.links: dict[tuple[str, str], Connection] = {}  # those that a side takes for up
        self.watched: dict[str, set[Peer]] = {name: set() for name in NODES}
        self.watchers: dict[tuple[str, str], set[Peer]] = {}  # of the first's process, the second
        self.views: dict[tuple[str, str], Counter[str]] = {}
        self.monitor_all()

    def monitor_all(self) -> None:
        """Each table is monitored in each group."""
        for name, table in self.tables.items():
            for group in GROUPS:
                self.views[name, group] = counted(table.monitor(group, (name, group)))

    def peer(self, name: str) -> Peer:
        """The scope process of a node."""
        return (name, self.serial[name])

    # Effects.

    def perform(self, name: str, effects: list[Any]) -> None:
        """Carry effects of a table out."""
        for each in effects:
            effect: Any = each  # what is hashable is known here
            if isinstance(each, Send):
                self.send(name, effect.peer[0], (effect.peer, self.peer(name), effect.message))
            elif isinstance(each, WatchPeer):
                assert effect.peer not in self.watched[name], "watched twice"
                self.watched[name].add(effect.peer)
                self.send(name, effect.peer[0], ("watch", effect.peer, None))
            elif isinstance(each, Tell):
                assert effect.members, "told of nothing"
                view = self.views[effect.monitor]
                if effect.joined:
                    view.update(effect.members)
                else:
                    view.subtract(effect.members)

    def send(self, sender: str, to: str, item: Any) -> None:
        """Put something into a connection; it is lost if that is."""
        connection = self.links.get((sender, to))
        if connection is not None and not connection.cut:
            connection.queues.setdefault(to, deque()).append(item)

    # Events.

    def join(self, name: str, group: str, members: list[str]) -> None:
        """Members join a group."""
        self.expected[name].update((group, member) for member in members)
        self.perform(name, self.tables[name].join(group, tuple(members)))

    def leave(self, name: str, group: str, members: list[str]) -> None:
        """Members leave a group, and some that are not in it."""
        for member in members:
            if self.expected[name][group, member]:
                self.expected[name][group, member] -= 1
        self.perform(name, self.tables[name].leave(group, tuple(members)))

    def die(self, name: str, member: str) -> None:
        """A member ends."""
        for key in list(self.expected[name]):
            if key[1] == member:
                del self.expected[name][key]
        self.perform(name, self.tables[name].member_down(member))

    def restart(self, name: str) -> None:
        """The scope process of a node ends, and another one is started."""
        old = self.peer(name)
        self.serial[name] += 1
        self.tables[name] = self._kind()
        self.expected[name].clear()
        self.watched[name].clear()
        for group in GROUPS:
            self.views[name, group] = counted(self.tables[name].monitor(group, (name, group)))
        for other in NODES:
            if old in self.watchers.pop((name, other), ()):
                self.send(name, other, ("down", old, None))
            self.hello(name, other)

    def hello(self, name: str, other: str) -> None:
        """Discover a node."""
        self.send(name, other, (None, self.peer(name), Discover()))

    def connect(self, one: str, other: str) -> None:
        """A connection is made, unless there is one that works."""
        pair = frozenset((one, other))
        if pair not in self.current or self.current[pair].cut:
            self.current[pair] = Connection()

    def cut(self, one: str, other: str) -> None:
        """A connection breaks; what is sent from now on is lost, nobody knows it yet."""
        connection = self.current.get(frozenset((one, other)))
        if connection is not None:
            connection.cut = True

    def up(self, name: str, other: str) -> None:
        """A node notices that there is a new connection."""
        connection = self.current.get(frozenset((name, other)))
        if connection is None or connection.cut or name in connection.seen:
            return
        self.down(name, other)
        connection.seen.add(name)
        self.links[name, other] = connection
        self.hello(name, other)

    def down(self, name: str, other: str) -> None:
        """A node notices that a connection is lost."""
        connection = self.links.get((name, other))
        if connection is None or not connection.cut:
            return
        del self.links[name, other]
        self.watchers.pop((name, other), None)
        for peer in [peer for peer in self.watched[name] if peer[0] == other]:
            self.peer_down(name, peer)

    def peer_down(self, name: str, peer: Peer) -> None:
        """A node is told that a scope process is down."""
        if peer in self.watched[name]:
            self.watched[name].remove(peer)
            self.perform(name, self.tables[name].peer_down(peer))

    def deliver(self, sender: str, to: str) -> bool:
        """Take in the next message from a node; returns whether there is one."""
        connection = self.links.get((to, sender))
        queue = connection.queues.get(to) if connection is not None else None
        if not queue:
            return False
        what, peer, message = queue.popleft()
        if what == "watch":
            if peer == self.peer(to):
                self.watchers.setdefault((to, sender), set()).add(peer)
            else:
                self.send(to, sender, ("down", peer, None))
        elif what == "down":
            self.peer_down(to, peer)
        elif what in (None, self.peer(to)):
            self.handle(to, peer, message)
        return True

    def handle(self, name: str, peer: Peer, message: Any) -> None:
        """Give a message to a table. That of OTP crashes if told of those leaving it has not."""
        table = self.tables[name]
        before = sum(len(table.members(group)) for group in GROUPS)
        is_met = peer in table.peers()
        self.perform(name, table.handle(peer, message))
        if isinstance(message, Leave) and is_met:
            after = sum(len(table.members(group)) for group in GROUPS)
            assert before - after == len(message.members) * len(message.groups), message

    # What must be true.

    def check(self) -> None:
        """Always: own members are as expected, and monitors have been told exactly what is."""
        for name, table in self.tables.items():
            for group in GROUPS:
                own = Counter(table.local_members(group))
                assert own == self.own(name, group)
                view = self.views[name, group]
                assert all(count >= 0 for count in view.values()), "left before it has joined"
                assert +view == Counter(table.members(group)), "a monitor was told wrong"

    def own(self, name: str, group: str) -> Counter[str]:
        """The expected own members of a node."""
        found = {m: n for (g, m), n in self.expected[name].items() if g == group and n}
        return Counter(found)

    def settle(self) -> None:
        """Let all that is under way arrive; then all that are connected agree."""
        for name, other in both_ways():
            self.down(name, other)
            self.up(name, other)
        for _ in range(10_000):
            delivered = [self.deliver(*pair) for pair in both_ways()]
            if not any(delivered):
                break
            self.check()
        else:
            raise AssertionError("messages without end")
        for name, table in self.tables.items():
            there = [name, *[other for other in NODES if (name, other) in self.links]]
            for group in GROUPS:
                expected = sum((self.own(each, group) for each in there), Counter[str]())
                assert Counter(table.members(group)) == expected, "not who is there"
                assert (group in table.groups()) == bool(expected)
            assert set(table.peers()) == {self.peer(each) for each in there[1:]}, "wrong peers"


def both_ways() -> Iterator[tuple[str, str]]:
    """All ordered pairs of nodes."""
    for one, other in combinations(NODES, 2):
        yield one, other
        yield other, one


node_names = st.sampled_from(NODES)
pairs = st.sampled_from(list(both_ways()))
some_members = st.lists(st.integers(0, MEMBERS - 1), min_size=1, max_size=3)
changes = st.tuples(
    st.sampled_from(["join", "join", "leave"]), node_names, st.sampled_from(GROUPS), some_members
)
deaths = st.tuples(st.just("die"), node_names, st.integers(0, MEMBERS - 1))
restarts = st.tuples(st.just("restart"), node_names)
journeys = st.tuples(
    st.sampled_from(["connect", "connect", "cut", "up", "up", "down", "deliver", "deliver"]), pairs
)
all_met = [("connect", pair) for pair in combinations(NODES, 2)] + [("settle",)]
beginnings = st.sampled_from([all_met, []])
events = st.lists(
    st.one_of(changes, changes, journeys, journeys, deaths, restarts, st.just(("settle",))),
    max_size=60,
)


def play(network: Network, script: list[Any]) -> None:
    """Let events happen, one after the other, and check after each."""
    for what, *arguments in script:
        if what in ("join", "leave"):
            name, group, numbers = arguments
            arguments = [name, group, [f"{name}{number}" for number in numbers]]
        elif what == "die":
            arguments = [arguments[0], f"{arguments[0]}{arguments[1]}"]
        elif arguments and isinstance(arguments[0], tuple):
            arguments = list(arguments[0])
        getattr(network, what)(*arguments)
        network.check()
    network.settle()


@given(beginnings, events)
def test_connected_tables_agree(beginning: list[Any], script: list[Any]) -> None:
    """Whatever happens in whatever order, monitors are told exactly what is, and in the end all agree."""
    play(Network(GroupTable), beginning + script)


@given(beginnings, st.lists(st.one_of(changes, journeys, deaths), max_size=40))
def test_tables_that_were_apart_agree(beginning: list[Any], script: list[Any]) -> None:
    """The same, when all are connected anew in the end."""
    network = Network(GroupTable)
    play(network, beginning + script)
    again = [(what, pair) for pair in both_ways() for what in ("cut", "connect", "up")]
    play(network, again)
    assert all(len(table.peers()) == len(NODES) - 1 for table in network.tables.values())


class Forgetful(GroupTable):
    """One that keeps what a lost peer had."""

    def peer_down(self, peer: Any) -> list[Any]:
        return []


class Silent(GroupTable):
    """One that tells its monitors nothing of a `Sync`."""

    def _replace(self, known: Any, sync: Sync) -> list[Any]:
        super()._replace(known, sync)
        return []


class Hasty(GroupTable):
    """One that tells of changes to whomever it has heard of, as OTP does."""

    def handle(self, peer: Any, message: Any) -> list[Any]:
        effects = super().handle(peer, message)
        if peer in self._peers:
            self._peers[peer].told = True
        return effects


MET = [
    ("connect", ("a", "b")),
    ("up", ("a", "b")),
    ("up", ("b", "a")),
    ("join", "a", "g", [0]),
    ("settle",),
]


@pytest.mark.parametrize(
    ("kind", "script", "complaint"),
    [
        (Forgetful, [*MET, ("cut", ("a", "b"))], "wrong peers"),
        (Silent, MET, "a monitor was told wrong"),
        (
            Hasty,
            # A new scope gets the `Sync` that answers its hello, and the hello behind it not yet.
            [
                *MET,
                ("restart", "a"),
                ("join", "a", "g", [0]),
                *[("deliver", ("a", "b"))] * 2,
                ("deliver", ("b", "a")),
                ("leave", "a", "g", [0]),
            ],
            r"Leave\(members=\('a0',\), groups=\('g',\)\)",
        ),
    ],
)
def test_the_check_can_fail(kind: type[GroupTable], script: list[Any], complaint: str) -> None:
    """Tables with a fault are found, and each fault as what it is."""
    with pytest.raises(AssertionError, match=complaint):
        play(Network(kind), script)
    play(Network(GroupTable), script)
