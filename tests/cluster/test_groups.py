"""Process groups on nodes: what users call, several nodes, and what can go wrong between them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Any

import gevent
import msgspec
import pykka
import pytest

import locks
from locks import groups
from locks.groups.scope import scope_of
from locks.net.messages import Tell
from tests.cluster.nodes import A, B, C, Nodes, Peer, peer, until_connected
from tests.helpers import eventually

BAD = "bad@127.0.0.1"


class Member(locks.actors.GeventActor):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if message == "told":
            return list(self.told)
        self.told.append(message)
        return None


class Plain(pykka.ThreadingActor):
    """An actor of Pykka's own."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return message


Where = tuple[str, Any]


def pid(node: locks.node.Node, member: pykka.ActorRef[Any]) -> Where:
    """Where others find an actor."""
    assert node.cluster is not None
    return node.turn.ask(node.cluster.actors.where, member)


def seen(node: locks.node.Node, group: Any, **options: Any) -> Counter[Where]:
    """Where the members of a group are, as a node knows them."""
    return Counter(pid(node, member) for member in groups.members(group, node=node, **options))


def meet(node: locks.node.Node, other: locks.node.Node) -> None:
    """Connect two nodes, of which each may have disconnected the other on purpose."""
    other.connect(peer(node), timeout=0)
    assert node.connect(peer(other), timeout=10)


def watch(node: locks.node.Node, group: Any) -> tuple[groups.GroupMonitor, list[Any]]:
    """A monitor, and what it is told."""
    told: list[Any] = []
    return groups.monitor(group, told.append, node=node), told


# --- One node -----------------------------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[locks.node.Node]:
    """This program's node, without a cluster."""
    yield locks.start(A)
    locks.stop()


def test_a_node_that_is_alone(alone: locks.node.Node) -> None:
    """Groups need no cluster; the functions use the program's node."""
    one, two = Member.start(), Plain.start()
    assert groups.members("g") == groups.which_groups() == []
    groups.join("g", one, two, one)
    groups.join(("h", 1), two)
    assert Counter(groups.members("g")) == {one: 2, two: 1}
    assert groups.local_members(("h", 1)) == [two]
    assert groups.which_groups() == ["g", ("h", 1)]
    assert groups.leave("g", one)
    assert groups.leave("g", one, two)
    assert not groups.leave("g", one)
    assert groups.which_groups() == [("h", 1)]
    two.stop()
    eventually(lambda: groups.which_groups() == [])
    one.stop()


def test_members_of_every_kind_leave_when_they_end(alone: locks.node.Node) -> None:
    """However an actor ends, it leaves: the two kinds of actors, and a transaction."""
    for start in (Member.start, Plain.start, locks.original.spawn_agent):
        monitor, told = watch(alone, "g")
        member = start()
        groups.join("g", member, member)
        assert groups.members("g") == [member, member]
        member.stop()
        eventually(lambda: groups.members("g") == [])
        eventually(lambda told=told: len(told) == 2)  # type: ignore[misc]
        assert told == [
            groups.Joined("g", [member, member]),
            groups.Left("g", [member, member]),
        ]
        monitor.cancel()


def test_what_is_refused(alone: locks.node.Node) -> None:
    """Bad input is refused with the reason, and changes nothing."""
    member = Member.start()
    proxy: Any = member.proxy()
    for call in (groups.join, groups.leave):
        with pytest.raises(locks.errors.InvalidOption, match="as a group"):
            call(object(), member)
        with pytest.raises(locks.errors.InvalidOption, match="no member"):
            call("g")
        bad: list[Any] = ["name", None, [member], proxy, threading.current_thread()]
        for wrong in bad:
            with pytest.raises(locks.errors.InvalidOption, match="not an actor's reference"):
                call("g", member, wrong)
    for scope in ("", 1, None, "x" * 256):
        with pytest.raises(locks.errors.InvalidOption):
            groups.members("g", scope=scope)  # type: ignore[arg-type]
    with pytest.raises(locks.errors.InvalidOption, match="watcher"):
        groups.monitor("g", "nobody")  # type: ignore[arg-type]
    assert groups.which_groups() == []
    locks.stop()
    with pytest.raises(locks.errors.NodeNotRunning):
        groups.join("g", member, node=alone)
    member.stop()


# --- Monitors -----------------------------------------------------------------------------------


def test_an_actor_is_told(alone: locks.node.Node) -> None:
    """An actor gets the changes as messages, in order, after the members of the beginning."""
    watcher, one, two = Member.start(), Member.start(), Member.start()
    groups.join("g", one)
    monitor = groups.monitor("g", watcher)
    assert monitor.members == [one]
    assert monitor.group == "g"
    groups.join("g", two)
    groups.join("h", two)
    groups.leave("g", one)
    two.stop()
    expected = [
        groups.Joined("g", [two]),
        groups.Left("g", [one]),
        groups.Left("g", [two]),
    ]
    eventually(lambda: watcher.ask("told") == expected)
    for actor in (one, watcher):
        actor.stop()


def test_a_monitor_that_is_cancelled(alone: locks.node.Node) -> None:
    """Nothing is told after `cancel`, not even what was about to be; other monitors go on."""
    held = threading.Event()
    blocks = gevent.monkey.get_original("threading", "Event")()

    def hold() -> None:
        held.set()
        blocks.wait(10)

    alone.executor.run_soon(hold)
    held.wait(10)
    first, told = watch(alone, "g")
    _, all_told = watch(alone, "g")
    member = Member.start()
    groups.join("g", member)
    first.cancel()
    first.cancel()
    blocks.set()
    groups.leave("g", member)
    eventually(lambda: len(all_told) == 2)
    assert told == []
    member.stop()


def test_a_monitor_ends_with_its_actor(alone: locks.node.Node) -> None:
    """Who has ended is told nothing, and nothing is kept for it."""
    watcher, member = Member.start(), Member.start()
    groups.monitor("g", watcher)
    monitors = scope_of(alone, groups.SCOPE)._table._monitors
    assert len(monitors) == 1
    watcher.stop()
    eventually(lambda: not monitors)
    groups.monitor("g", watcher)
    assert not monitors
    groups.join("g", member)
    member.stop()


def test_a_watcher_that_fails_harms_nobody(
    alone: locks.node.Node, caplog: pytest.LogCaptureFixture
) -> None:
    """A callable that raises is logged, and others are told as ever."""

    def fail(news: Any) -> None:
        raise ZeroDivisionError("as it must")

    groups.monitor("g", fail)
    _, told = watch(alone, "g")
    member = Member.start()
    groups.join("g", member)
    eventually(lambda: told == [groups.Joined("g", [member])])
    assert "as it must" in caplog.text
    member.stop()


# --- Several nodes ------------------------------------------------------------------------------


def test_members_of_several_nodes(nodes: Nodes) -> None:
    """All nodes see all members, whoever has used the scope first, and can talk to them."""
    a, b, c = nodes.meet(A, B, C)
    mine, theirs = Member.start(), Member.start()
    groups.join("g", mine, node=a)
    groups.join("g", theirs, theirs, node=b)
    expected = Counter([pid(a, mine), pid(b, theirs), pid(b, theirs)])
    for node in (a, b, c):
        eventually(lambda node=node: seen(node, "g") == expected)  # type: ignore[misc]
    assert groups.local_members("g", node=b) == [theirs, theirs]
    assert groups.local_members("g", node=c) == []
    assert groups.which_groups(node=c) == ["g"]
    for member in groups.members("g", node=c):
        member.tell("hello")
    eventually(lambda: theirs.ask("told") == ["hello", "hello"])
    eventually(lambda: mine.ask("told") == ["hello"])
    with pytest.raises(locks.errors.InvalidOption, match="another node"):
        groups.leave("g", *groups.members("g", node=c), node=c)
    with pytest.raises(locks.errors.InvalidOption, match="watcher"):
        groups.monitor("g", groups.members("g", node=c)[0], node=c)
    theirs.stop()
    for node in (a, b, c):
        eventually(lambda node=node: seen(node, "g") == Counter([pid(a, mine)]))  # type: ignore[misc]
    mine.stop()


def test_a_name_that_is_taken(nodes: Nodes) -> None:
    """A scope needs its name on a node that is not alone, and keeps it from others."""
    a = nodes.start(A)
    actor = Member.start()
    a.register("taken", actor)
    with pytest.raises(locks.MisuseError, match="is in use on"):
        groups.join("g", actor, node=a, scope="taken")
    groups.join("g", actor, node=a, scope="free")
    with pytest.raises(locks.MisuseError, match=r"has it$"):
        a.register("free", actor)
    actor.stop()


class Bad(Peer):
    """A node that says something to process groups."""

    def __init__(self, node: locks.node.Node) -> None:
        super().__init__(node.address, node.name, BAD)
        eventually(lambda: BAD in node.nodes())

    def tell(self, *message: Any) -> None:
        """Say something to the scope."""
        self.say(Tell(groups.SCOPE, msgspec.msgpack.encode(message)))


def test_what_others_may_not_say(
    nodes: Nodes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no message of groups is logged and ignored; one that is wrong ends its connection. Nothing changes."""
    monkeypatch.setattr("locks.net.notices.PERIOD", 0)
    a = nodes.start(A)
    mine = Member.start()
    groups.join("g", mine, node=a)
    member = [BAD, 2]
    for wrong in (
        ("join", "g", [["else@where", 2]]),
        ("join", "g", [list(pid(a, mine))]),
        ("join", "g", 7),
        ("join", {}, [member]),
        ("sync", [["g", [[A, 7]]]]),
    ):
        bad = Bad(a)
        bad.tell(*wrong)
        assert bad.is_closed()
        eventually(lambda: BAD not in a.nodes())
    bad = Bad(a)
    bad.tell("nonsense")
    bad.tell("which_groups", 1)
    eventually(lambda: caplog.text.count("ignored a message") == 2)
    bad.tell("join", "g", [member])  # not met: not an error, and not listened to
    bad.tell("discover")
    bad.tell("join", "h", [member, member])
    eventually(lambda: seen(a, "h") == {(BAD, 2): 2})
    assert groups.members("g", node=a) == [mine]
    bad.tell("leave", [member], ["h"])
    eventually(lambda: seen(a, "h") == {(BAD, 2): 1})
    bad.close()
    eventually(lambda: groups.which_groups(node=a) == ["g"])
    mine.stop()


def test_memberships_of_a_node_are_counted(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They may come and go; too many at once, however they are told, end its connection, and nobody hears of them."""
    monkeypatch.setattr("locks.groups.scope.MOST_MEMBERSHIPS", 50)
    a = nodes.start(A)
    mine = Member.start()
    groups.join("g", mine, node=a)
    member = [BAD, 2]

    def meet() -> Bad:
        bad = Bad(a)
        bad.tell("discover")
        return bad

    bad = meet()
    for _ in range(20):
        bad.tell("join", "h", [member] * 30)
        bad.tell("leave", [member] * 30, ["h"])
        bad.tell("sync", [["h", [member] * 40]])
        bad.tell("sync", [])
    bad.tell("join", "h", [member] * 45)
    eventually(lambda: seen(a, "h") == {(BAD, 2): 45})
    for too_much in (
        ("join", "i", [member] * 60),
        ("sync", [["i", [member] * 30], ["j", [member] * 30]]),
    ):
        bad.tell(*too_much)
        eventually(lambda: BAD not in a.nodes())
        assert groups.which_groups(node=a) == ["g"]
        bad = meet()
    bad.close()
    assert "it has more than 50 memberships of process groups here" in caplog.text
    mine.stop()


def test_nothing_is_left_of_what_is_over(nodes: Nodes) -> None:
    """Of members that have left or ended, and of peers that are gone, nothing is kept."""
    a, b = nodes.meet(A, B)
    groups.which_groups(node=a)
    for _ in range(20):
        leaves, ends = Member.start(), Member.start()
        groups.join("g", leaves, ends, node=b)
        eventually(lambda: len(groups.members("g", node=a)) == 2)
        groups.leave("g", leaves, node=b)
        ends.stop()
        leaves.stop()
        eventually(lambda: groups.members("g", node=a) == [])
    a.disconnect(B)
    until_connected(b)
    for node in (a, b):
        scope = scope_of(node, groups.SCOPE)
        assert scope._table.peers() == ()
        eventually(lambda scope=scope: not scope._watches)  # type: ignore[misc]
        actors = node.cluster.actors  # type: ignore[union-attr]
        eventually(lambda actors=actors: not actors._numbers)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_on_three_nodes(nodes: Nodes, seed: int) -> None:
    """Nodes that come, go, and change their members agree in the end, and so do their monitors."""
    print(f"seed {seed}")
    random = Random(seed)
    made = nodes.meet(A, B, C, mesh=False)
    members = {node.name: [Member.start() for _ in range(2)] for node in made}
    monitors = {node.name: watch(node, "g") for node in made}
    for _ in range(200):
        node, other = random.sample(made, 2)
        what = random.random()
        if what < 0.85:
            change = groups.join if random.random() < 0.6 else groups.leave
            change("g", *random.choices(members[node.name], k=random.randint(1, 3)), node=node)
        elif what < 0.92:
            node.disconnect(other.name)
        else:
            meet(node, other)
    for node, other in combinations(made, 2):
        meet(node, other)
    expected = Counter(
        pid(node, member) for node in made for member in groups.local_members("g", node=node)
    )
    for node in made:
        eventually(lambda node=node: seen(node, "g") == expected)  # type: ignore[misc]
        monitor, told = monitors[node.name]

        def view(told: list[Any] = told, node: locks.node.Node = node) -> Counter[Where]:
            found: Counter[Where] = Counter()
            for news in told:
                change = found.update if isinstance(news, groups.Joined) else found.subtract
                change(pid(node, member) for member in news.members)
                assert all(count >= 0 for count in found.values()), "left before it has joined"
            return +found

        assert monitor.members == []
        eventually(lambda view=view: view() == expected)  # type: ignore[misc]
    for each in members.values():
        for member in each:
            member.stop()


def test_scopes_are_apart(alone: locks.node.Node) -> None:
    """A group of one scope has nothing to do with that of another."""
    one, two = Member.start(), Member.start()
    groups.join("g", one)
    groups.join("g", two, scope="pg")
    assert groups.members("g") == groups.members("g", scope=groups.SCOPE) == [one]
    assert groups.members("g", scope="pg") == [two]
    assert groups.which_groups(scope="another") == []
    for actor in (one, two):
        actor.stop()
