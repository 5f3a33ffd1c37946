"""Process groups with a real OTP: its `pg` and ours see each other's members.

A second Python node asks the node of OTP what it knows, through `rpc` (a call of its process `rex`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pykka
import pytest

import locks
from locks import groups
from locks.otp.bytes.terms import Atom, Pid
from locks.otp.names.epmd import Refused
from locks.otp.options import Options
from tests.helpers import eventually
from tests.otp.erlang import COOKIE, ERLANG, MISSING, erlang_node, port_mapper

pytestmark = pytest.mark.skipif(not ERLANG, reason=MISSING)

OTP, PYTHON, CONTROL = (f"{name}@127.0.0.1" for name in ("groups", "python", "control"))
SCOPE = Atom("locks_pg")


class Member(pykka.ThreadingActor):
    """Keeps what it is told."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if message == "told":
            return list(self.told)
        self.told.append(message)
        return None


class Otp:
    """A node of OTP, in the hands of a Python node of its own that has nothing to do with groups."""

    def __init__(self, control: locks.node.Node) -> None:
        self._control = control
        self.scope: Any = None

    def call(self, module: str, function: str, *arguments: Any) -> Any:
        """Have it call a function; processes come as pids."""
        order = (Atom("call"), Atom(module), Atom(function), list(arguments), Atom("user"))
        return as_pids(self._control.remote("rex", OTP).ask(order, timeout=5))

    def spawn(self) -> Any:
        """A process there that does nothing; its pid."""
        return self.call("erlang", "spawn", Atom("timer"), Atom("sleep"), [Atom("infinity")])

    def join(self, group: Any, *members: Pid) -> None:
        """Let its processes join a group."""
        assert self.call("pg", "join", SCOPE, group, list(members)) == Atom("ok")

    def leave(self, group: Any, *members: Pid) -> None:
        """Let its processes leave a group."""
        assert self.call("pg", "leave", SCOPE, group, list(members)) == Atom("ok")

    def members(self, group: Any) -> list[Pid]:
        """The members of a group as it knows them, in order of pids."""
        return sorted(self.call("pg", "get_members", SCOPE, group))

    def start_scope(self) -> None:
        """Start the scope there."""
        ok, self.scope = self.call("pg", "start", SCOPE)
        assert ok == Atom("ok")

    def is_alive(self, process: Pid) -> bool:
        """Whether a process of it lives."""
        return self.call("erlang", "is_process_alive", process) is True

    def kill(self, process: Pid) -> None:
        """Kill a process of it, and wait until it is dead."""
        self.call("erlang", "exit", process, Atom("kill"))
        eventually(lambda: not self.is_alive(process))

    def end_scope(self) -> None:
        """End the scope there: it has lived until now."""
        if self.scope is not None:
            assert self.is_alive(self.scope), "the scope of OTP has crashed"
            scope, self.scope = self.scope, None
            self.kill(scope)


def as_pids(value: Any) -> Any:
    """References to processes as their pids, wherever they are in a value."""
    if isinstance(value, locks.node.RemoteRef):
        return value.target
    if type(value) in (list, tuple):
        return type(value)([as_pids(each) for each in value])
    return value


def start(name: str) -> locks.node.Node:
    """A Python node that finds others through epmd."""
    options = Options.check(
        name,
        cookie=COOKIE,
        listen=True,
        peers=(),
        tls=None,
        epmd=True,
        net_ticktime=None,
        mesh=False,
        allow_plaintext=False,
    )
    return locks.node.Node(name, None, options)


@pytest.fixture(scope="module")
def control() -> Iterator[locks.node.Node]:
    """A node of OTP, an epmd, and a Python node that is connected with it."""
    before = os.environ.get("ERL_EPMD_PORT")
    with port_mapper() as port, erlang_node(OTP, port):
        os.environ["ERL_EPMD_PORT"] = str(port)
        made = start(CONTROL)
        assert made.connect(OTP)
        yield made
        made.stop()
        if before is None:
            del os.environ["ERL_EPMD_PORT"]
        else:
            os.environ["ERL_EPMD_PORT"] = before


@pytest.fixture
def otp(control: locks.node.Node) -> Iterator[Otp]:
    """The node of OTP, without a scope; if a test starts one, it must live until the end."""
    found = Otp(control)
    yield found
    found.end_scope()


@pytest.fixture
def node(control: locks.node.Node) -> Iterator[locks.node.Node]:
    """A Python node that is not connected; epmd may not have noticed yet that the last one of its name has ended."""

    def started() -> locks.node.Node | None:
        try:
            return start(PYTHON)
        except Refused:
            return None

    made = eventually(started)
    assert made is not None
    yield made
    made.stop()


def pid(node: locks.node.Node, member: pykka.ActorRef[Any]) -> Pid:
    """The pid by which others know an actor."""
    assert node.cluster is not None
    return node.turn.ask(node.cluster.remotes.pid_of, member)


def seen(node: locks.node.Node, group: Any) -> list[Pid]:
    """The members of a group as a Python node knows them, in order of pids."""
    return sorted(pid(node, member) for member in groups.members(group, node=node))


def until_same(node: locks.node.Node, otp: Otp, group: Any, *expected: Pid) -> None:
    """Wait until both nodes know these members of a group."""
    eventually(lambda: seen(node, group) == sorted(expected) == otp.members(group))


def news_of(node: locks.node.Node, group: Any) -> list[tuple[str, list[Any]]]:
    """What a monitor of a group is told: of own members their references, of others their pids."""
    told: list[tuple[str, list[Any]]] = []

    def take(news: groups.Joined | groups.Left) -> None:
        told.append((type(news).__name__, as_pids(news.members)))

    assert groups.monitor(group, take, node=node).members == []
    return told


@pytest.mark.parametrize("first", ["scope of OTP", "connection", "scope of Python"])
def test_both_see_all_members(node: locks.node.Node, otp: Otp, first: str) -> None:
    """Members from before the nodes and scopes have met, and after, are seen by both sides."""
    ours, theirs = Member.start(), otp.spawn()

    def start_ours() -> None:
        groups.join("early", ours, node=node)

    def start_theirs() -> None:
        otp.start_scope()
        otp.join("early", theirs)

    def connect() -> None:
        assert node.connect(OTP)

    steps = {
        "scope of OTP": (start_theirs, connect, start_ours),
        "connection": (connect, start_ours, start_theirs),
        "scope of Python": (start_ours, start_theirs, connect),
    }
    for step in steps[first]:
        step()
    until_same(node, otp, "early", pid(node, ours), theirs)
    more = otp.spawn()
    groups.join("late", ours, node=node)
    otp.join("late", theirs, more)
    until_same(node, otp, "late", pid(node, ours), theirs, more)
    assert set(groups.which_groups(node=node)) == {"early", "late"}
    assert sorted(otp.call("pg", "which_groups", SCOPE)) == ["early", "late"]
    ours.stop()


def test_the_dead_leave_on_both_sides(node: locks.node.Node, otp: Otp) -> None:
    """A member that dies leaves all its groups, as often as it has joined, on both sides."""
    otp.start_scope()
    assert node.connect(OTP)
    ours, theirs, stays = Member.start(), otp.spawn(), otp.spawn()
    told = news_of(node, "g")
    for group in ("g", "h"):
        groups.join(group, ours, ours, node=node)
        otp.join(group, theirs, stays)
        until_same(node, otp, group, *[pid(node, ours)] * 2, theirs, stays)
    mine = pid(node, ours)
    otp.kill(theirs)
    for group in ("g", "h"):
        until_same(node, otp, group, mine, mine, stays)
    ours.stop()
    for group in ("g", "h"):
        until_same(node, otp, group, stays)
    eventually(lambda: told[-2:] == [("Left", [theirs]), ("Left", [ours, ours])])


def test_a_lost_connection(node: locks.node.Node, otp: Otp) -> None:
    """Nodes that are cut off lose each other's members, and get the present ones when they are back."""
    otp.start_scope()
    assert node.connect(OTP)
    told = news_of(node, "g")
    ours, later = Member.start(), Member.start()
    theirs, leaves, new = otp.spawn(), otp.spawn(), otp.spawn()
    groups.join("g", ours, node=node)
    until_same(node, otp, "g", pid(node, ours))
    otp.join("g", theirs, leaves)
    until_same(node, otp, "g", pid(node, ours), theirs, leaves)
    assert node.disconnect(OTP)
    assert groups.members("g", node=node) == [ours]
    eventually(lambda: otp.members("g") == sorted([theirs, leaves]))
    otp.kill(leaves)
    otp.join("g", new)
    groups.join("g", later, node=node)
    groups.leave("g", ours, node=node)
    assert node.connect(OTP)
    until_same(node, otp, "g", pid(node, later), theirs, new)
    assert told[2:] == [
        ("Left", [theirs, leaves]),
        ("Joined", [later]),
        ("Left", [ours]),
        ("Joined", told[-1][1]),
    ]
    assert sorted(told[-1][1]) == sorted([theirs, new])
    for actor in (ours, later):
        actor.stop()


@pytest.mark.parametrize(
    "group",
    [
        Atom("atom"),
        ("tuple", 1),
        [Atom("a"), "list"],
        [97, 98],
        {"k": 1, (2,): [None], Atom("z"): 1.5},
        1,
        1.0,
        True,
        2**70,
        b"\xff\x00",
        b"text",
    ],
    ids=repr,
)
def test_names_of_groups(node: locks.node.Node, otp: Otp, group: Any) -> None:
    """A name is the same group on both sides, whatever it is made of, and no other one."""
    otp.start_scope()
    assert node.connect(OTP)
    ours, theirs, other = Member.start(), otp.spawn(), otp.spawn()
    groups.join(group, ours, node=node)
    for near in (1, 1.0, Atom("true"), "atom", "tuple"):
        if not isinstance(group, bool) and (near, type(near)) != (group, type(group)):
            otp.join(near, other)
    otp.join(group, theirs)
    until_same(node, otp, group, pid(node, ours), theirs)
    ours.stop()
