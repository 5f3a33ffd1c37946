"""Messages of every kind from their declared forms, with one field out of its type, range or size.

A `Maker` makes the term of a message by the annotations of its fields. Each field, and each element of a list in it,
is a *spot*. The same seed makes the same message again; with the number of a spot, there stands something that the
annotation does not allow. So a new message, or a new field, is tried without a word about it here.

`Rig` is a node in this process with something of everything in it, and a link that leads nowhere. What comes over
the link is taken in as from a socket. `Rig.state` is all that must be as before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from locks.otp.bytes import control
from locks.otp.bytes.behaviours import CALL, CAST
from locks.otp.bytes.fields import tag_of
from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term
from locks.otp.links.budgets import Traffic
from locks.wire.forms import LOCK_SERVER, OURS
from locks.wire.messages import TAGS
from locks.wire.versions import ASKED, DAY, now

import locks
from locks.actors import GeventActor
from locks.core import messages
from locks.groups.scope import scope_of
from locks.model import AgentId, LockId, Place, RequestRecord
from locks.net.hello import Peer
from locks.net.link import Link
from locks.net.network import FRAME_LIMIT, SEND_LIMIT
from locks.ranges import Range, Size, Version
from tests.cluster.nodes import A, Nodes

BAD = "bad@127.0.0.1"
CREATION = 5
OTHER_TYPES = [
    1.5, -0.0, b"\xff", "x" * 70_000, {}, {"a": 1}, (), (1,) * 12, Term(b"M\0\0\0\1\3\xa0"),
    2**8191, -(2**8191), Atom("blue"), Atom("x" * 255), ImproperList((1,), 2), [[]] * 3, [{}],
]  # fmt: skip
Bad = list[Any]


class Maker:
    """Makes one term.

    Args:
        seed: What the message is made of.
        spot: The number of the spot that is wrong; of none.
        own: The agent to which, or of which, is spoken.

    Attributes:
        spots: How many spots there were.
    """

    def __init__(self, seed: int, spot: int | None, own: AgentId) -> None:
        self.random = random.Random(seed)
        self.spots = 0
        self._spot = spot
        self._own = own
        self._wrong = random.Random(f"{seed} {spot}")

    def spot(self, good: Any, wrong: Bad, same_type: bool = False) -> Any:
        """A value at a spot: a good one, or if it is the one that is wrong, another one."""
        self.spots += 1
        if self._spot != self.spots - 1:
            return good
        return self._wrong.choice(wrong if same_type else [*wrong, *wrong, *OTHER_TYPES])

    def of(self, kind: Any) -> Any:
        """A term of a type."""
        made = SPECIAL.get(kind)
        if made is not None:
            return made(self)
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated:
            return self._bounded(*args[:2])
        if kind is bool:
            return self.spot(self.random.random() < 0.5, [0, 1, None, "true", Atom("yes")])
        if origin is Literal:
            wrong = [self.random.choice(args), *[a + "s" for a in args], Atom("x"), True, 1]
            return self.spot(Atom(self.random.choice(args)), wrong)
        if origin in (Union, UnionType):
            if self.random.random() < 0.3:
                return None
            return self.of(args[args[0] is NoneType])
        if hasattr(kind, "_fields"):
            return self.all_of(list(get_type_hints(kind, include_extras=True).values()))
        if origin is tuple:
            return self.all_of(list(args))
        raise TypeError(f"say how {kind} is made")

    def all_of(self, kinds: list[Any]) -> Any:
        """A tuple of terms."""
        made = tuple([self.of(each) for each in kinds])
        return self.spot(made, [made[:-1], (*made, 1), list(made), True, 0])

    def _bounded(self, base: Any, bound: Any) -> Any:
        if base is int and isinstance(bound, Range):
            wrong = [
                bound.least - 1,
                bound.most + 1,
                -(2**63),
                2**64,
                2**8191,
                1.0,
                True,
                "1",
                None,
            ]
            good = self.random.choice([bound.least, bound.most, bound.most // 7])
            return self.spot(good, wrong)
        if base is str and isinstance(bound, Size):
            wrong = ["x" * (bound.most + 1), b"\xffx", 1, None, Atom("x"), ["x"]]
            return self.spot(self.random.choice(["x", "x" * bound.most]), wrong)
        assert isinstance(bound, Size)
        good = [self.of(get_args(base)[0]) for _ in range(self.random.choice([0, 1, 1, 2]))]
        long = [(good or [0])[0]] * min(bound.most + 1, 11_000)
        return self.spot(good, [tuple(good), {}, None, 1, "x", long if bound.most < 11_000 else 0])

    # --- What the wire has forms of its own for

    def version(self) -> Any:
        """A version."""
        far = now() + ASKED + DAY
        wrong = [-1, far, 2**62, 2**63, 2**64, 2**8191, True, 1.0, None, "1"]
        return self.spot(self.random.choice([0, 7, now()]), wrong)

    def lock_id(self) -> Any:
        """A lock id."""
        good = self.random.choice([["x"], ["x", 1], ["y", b"\xff", None, True], [2**62]])
        wrong = [[], ["x"] * 257, ["x" * 70_000], [[1]], [{}], ("x",), "x", None, ["$held up", 1]]
        return self.spot(good, wrong)

    def place(self) -> Any:
        """A place in an order."""
        good = self.random.choice([1, -3, (1, 3), (2**4000, 3)])
        wrong = [(1, 0), (1, -2), (1, 2, 3), (1.0, 2), 2**4097, (1, 2**4097), (True, 2), None, 1.5]
        return self.spot(good, wrong)

    def pid(self) -> Any:
        """An agent of some node."""
        return self.spot(Pid(9 << 12, BAD, CREATION), [9 << 12, None, "x", BAD, [Pid(1, BAD, 1)]])

    def own_pid(self) -> Any:
        """A process of the node that speaks."""
        wrong = [1, None, "x", BAD, Pid(1, "c@127.0.0.1", 1), Pid(1, A, 1)]
        return self.spot(Pid(9 << 12, BAD, CREATION), wrong)

    def own_number(self) -> Any:
        """An agent of the node that speaks, by its number."""
        return self.spot(9 << 12, [-1, 1 << 64, 1.0, True, None, "1", Pid(1, BAD, 1)])

    def receiver(self) -> Any:
        """The agent that is spoken to, by its number."""
        return self.spot(self._own.created, [self._own.created + 1, -1, None, True, "1", 1 << 64])

    def speaker(self) -> Any:
        """The name of the node that speaks."""
        return self.spot(BAD, [A, "c@127.0.0.1", "", "x" * 256, None, 1, Atom(BAD), b"\xff"])

    def record(self) -> Any:
        """A record of a request."""
        known = self.random.random() < 0.5
        made = self.of(RequestRecord)
        if type(made) is tuple and len(made) == 11 and known and type(made[2]) is Pid:
            made = (
                (*made[:2], 0, 0, *made[4:]) if type(made[3]) is str and len(made[3]) < 9 else made
            )
        return made

    def server_message(self, kind: type[Any]) -> Any:
        """A message to the lock server."""
        hints = get_type_hints(kind, include_extras=True)
        kinds = [TO_SERVER.get(each, each) for each in hints.values()]
        return (CAST, self._head(kind, kinds))

    def agent_message(self, kind: type[Any]) -> Any:
        """A message to an agent."""
        hints = get_type_hints(kind, include_extras=True)
        kinds = list(hints.values())
        if kind is messages.Knowledge:
            kinds[0] = OWN_PID
        elif next(iter(hints)) == "node":
            kinds[0] = SPEAKER
        return self._head(kind, [OWN_SURRENDER if k is messages.Surrender else k for k in kinds])

    def _head(self, kind: type[Any], kinds: list[Any]) -> Any:
        tag = Atom(TAGS.get(kind, tag_of(kind)))
        made = [self.of(each) for each in kinds]
        # Another atom is the tag of a message that is ignored.
        head = self.spot(tag, [str(tag), None, 1, (), {}, [tag], 2**8191], True)
        # One part less; without the head it is no message of ours, and is let alone.
        return self.spot((OURS, head, *made), [(OURS, head, *made[1:])], True)


class _Special:
    """Stands for a type that only the wire knows."""


SPEAKER, OWN_PID, OWN_NUMBER, RECEIVER, OWN_SURRENDER = (_Special() for _ in range(5))
SPECIAL: dict[Any, Callable[[Maker], Any]] = {
    Version: Maker.version,
    LockId: Maker.lock_id,
    Place: Maker.place,
    AgentId: Maker.pid,
    SPEAKER: Maker.speaker,
    OWN_PID: Maker.own_pid,
    OWN_NUMBER: Maker.own_number,
    RECEIVER: Maker.receiver,
    OWN_SURRENDER: lambda maker: maker.all_of(
        [
            RECEIVER if each is AgentId else each
            for each in get_type_hints(messages.Surrender, include_extras=True).values()
        ],
    ),
}
TO_SERVER: dict[Any, Any] = {AgentId: OWN_NUMBER, Hashable: OWN_PID}


# --- The kinds of messages ----------------------------------------------------------------------

Message = Callable[[Maker, "Rig"], bytes]


def _to_server(kind: type[Any]) -> Message:
    return lambda maker, rig: rig.reg(LOCK_SERVER, maker.server_message(kind))


def _to_agent(kind: type[Any]) -> Message:
    return lambda maker, rig: control.Send(rig.agent, maker.agent_message(kind)).pack()


def _granted(maker: Maker, rig: Rig) -> bytes:
    kinds = get_type_hints(RequestRecord, include_extras=True)
    made = [maker.of(k) for k in (SPEAKER, kinds["number"], LockId, kinds["mode"], Place, Version)]
    return control.Send(rig.agent, (OURS, Atom("granted"), *made)).pack()


OF_ACTORS = (1, 8, 18)  # a link or an exit of an agent is refused


def _control(operation: int) -> Message:
    def make(maker: Maker, rig: Rig) -> bytes:
        parts, has_message, _ = control._FORMS[operation]
        made: list[Any] = [operation]
        mine = [Pid(3, "c@127.0.0.1", 1), 3, "x", Reference(A, 1, (1,))]
        pids = 0
        mine_first = operation not in (2, 12, 31, 32)
        for check in parts:
            name = check.__name__
            if name == "_pid" or (name == "_process" and operation in (19, 20, 21)):
                first = pids == 0 and mine_first
                pids += 1
                good = rig.me if first else rig.actor if operation in OF_ACTORS else rig.agent
                made.append(maker.spot(good, mine, same_type=name == "_process"))
            elif name == "_process":
                made.append(maker.spot(rig.me, [1, "x", []], same_type=True))
            elif name == "_ref":
                made.append(maker.spot(rig.reference(), [1, None, "x", rig.me], same_type=True))
            elif name == "_atom":
                made.append(maker.spot(Atom("nobody"), [1, "x", rig.me, []], same_type=True))
            elif name in ("_number", "_unlink_id"):
                made.append(maker.spot(1, [-1, 1 << 64, 1.0, None, True]))
            else:
                made.append(Atom(""))
        term = maker.spot(tuple(made), [tuple(made[:-1]), (*made, 1, 2, 3), list(made)], True)
        return b"p" + rig.encode(term) + (rig.encode([]) if has_message else b"")

    return make


SCOPE = "groups of the fuzz"
GROUPS, MEMBERS, NAMES = (_Special() for _ in range(3))
SPECIAL[MEMBERS] = lambda maker: maker.spot([maker.own_pid()], [None, (), 1, [Pid(1, A, 1)]])
SPECIAL[NAMES] = lambda maker: maker.spot(["group"], [None, (), 1, "group"], same_type=True)
SPECIAL[GROUPS] = lambda maker: maker.spot(
    [maker.spot(("a", maker.of(MEMBERS)), [("a",), 1, None, ["a", []]])], [None, (), 1, [1]]
)


def _asked(verb: str, kind: Any) -> Message:
    def make(maker: Maker, rig: Rig) -> bytes:
        caller = maker.spot(rig.me, [Pid(1, A, 1), Pid(1, "c@127.0.0.1", 1)], same_type=True)
        request = (OURS, Atom(verb), maker.of(kind))
        return rig.reg(LOCK_SERVER, (CALL, (caller, rig.reference()), request))

    return make


# The operations that change something here, or are answered, when they are right.
CONTROL = (1, 2, 3, 6, 8, 12, 13, 16, 18, 19, 20, 21, 22, 23, 35, 36)
KINDS: dict[str, Message] = {
    **{kind.__name__: _to_server(kind) for kind in get_args(messages.ServerMessage)},
    **{kind.__name__: _to_agent(kind) for kind in get_args(messages.AgentMessage)},
    "granted": _granted,
    **{f"operation {number}": _control(number) for number in CONTROL},
}
KINDS |= {
    "view": _asked("view", LockId),
    "discover": lambda maker, rig: rig.reg(SCOPE, (Atom("discover"), maker.of(OWN_PID))),
    "sync": lambda maker, rig: rig.reg(
        SCOPE, (CAST, (Atom("sync"), maker.of(OWN_PID), maker.of(GROUPS)))
    ),
    "join": lambda maker, rig: rig.reg(
        SCOPE, (Atom("join"), maker.of(OWN_PID), "group", maker.of(MEMBERS))
    ),
    "leave": lambda maker, rig: rig.reg(
        SCOPE, (Atom("leave"), maker.of(OWN_PID), maker.of(MEMBERS), maker.of(NAMES))
    ),
}


# --- The node -----------------------------------------------------------------------------------


class Nowhere:
    """In place of the socket of a link that leads nowhere."""

    def send(self, data: bytes) -> int:
        """Nobody gets it."""
        return len(data)

    def close(self) -> None:
        """Nothing."""


class Rig:
    """A node with something of everything in it."""

    def __init__(self, nodes: Nodes) -> None:
        self.node = nodes.start(A)
        cluster = self.node.cluster
        assert cluster is not None
        self.cluster = cluster
        self.traffic = Traffic()  # of this link alone
        self.link = self._link()
        self.me = Pid(3, BAD, CREATION)
        self._count = 0
        cluster.network.links[BAD] = self.link
        self.node.turn.run(cluster._joined, BAD)
        self.holder = self.node.spawn_agent()
        self.holder.lock_all([(("x", 1), "write", (A,), "all"), (("z",), "read", (A,), "all")], 5)
        made = self.node.spawn_agent()
        self.node.turn.run(made.event, made.machine.ask_all, [(("x",), "write", (A,), "all")])
        self.agent = Pid(made.id.created, A, cluster.network.creation)
        self._actor = GeventActor.start()
        self.actor = self.node.turn.run(cluster.remotes.pid_of, self._actor)
        self.made = made
        self.scope = self.node.turn.run(scope_of, self.node, SCOPE)
        self.take(_to_server(messages.Watch)(Maker(1, None, made.id), self))
        self.take(_to_server(messages.Request)(Maker(1, None, made.id), self))
        assert self.link.closed is None

    def _link(self) -> Link:
        """A link of which nothing is read, and that nobody flushes but `begin`."""
        nowhere: Any = Nowhere()
        made = Link(
            Peer(BAD, CREATION, 0),
            nowhere,
            address=("nowhere", 0),
            hub=self.cluster.executor.hub,
            turn=self.node.turn,
            tls=None,
            ticktime=60.0,
            frame_limit=FRAME_LIMIT,
            send_limit=SEND_LIMIT,
            on_frame=lambda *_: None,
            on_lost=lambda *_: None,
            unsent=[],
            traffic=self.traffic,
        )
        made.tick_due = math.inf  # it is never time
        return made

    def begin(self) -> None:
        """Nothing was sent, and the link is open."""
        self.link.closed = None
        self.node.turn.run(self.link.flush)
        self.traffic.sent = 0

    def close(self) -> None:
        """Put the link away, before the node is stopped."""
        self._actor.stop()
        self.cluster.network.links.pop(BAD, None)

    def encode(self, term: Any) -> bytes:
        """Bytes of a term."""
        from locks.otp.bytes import etf

        return etf.encode(term)

    def reg(self, name: str, term: Any) -> bytes:
        """A message to a name."""
        return control.RegSend(self.me, Atom(name), term).pack()

    def reference(self) -> Reference:
        """A reference that was not given before."""
        self._count += 1
        return Reference(BAD, CREATION, (self._count, 7))

    def take(self, frame: bytes) -> None:
        """Take a frame in as from the link."""
        go_on = self.node.turn.run(self.cluster.processes.reading.receive, self.link, frame)
        while go_on is not None:  # it is a large one
            go_on = self.node.turn.run(go_on)

    def state(self) -> Any:
        """All that must be as before."""
        cluster, processes = self.cluster, self.cluster.processes
        machine = self.node.server.machine
        table = machine.table
        entries = [
            (e.number, e.requester.id, e.slot.lock_id, e.mode, e.granted, e.place, e.since)
            for owner in table.requesters.values()
            for e in owner.all()
        ]
        agents = [
            (id, agent.machine.ended, agent.machine.status(), agent.machine.lock_info())
            for id, agent in self.node.agents_by_id.items()
        ]
        return (
            table.version,
            entries,
            machine._watchers.all(),
            list(cluster.relays.links),
            agents,
            {name: list(there) for name, there in processes._monitored.items()},
            list(processes._monitors),
            {name: list(there) for name, there in processes._links.items()},
            list(processes._calls),
            list(processes._names),
            list(processes._locals),
            sorted(cluster.members),
            {name: known.address for name, known in cluster.network.book.known.items()},
            self.node.alive,
            [(group, self.scope.members(group)) for group in self.scope._table.groups()],
        )


def wrong(rig: Rig, kind: str, seed: int) -> bytes | None:
    """A message of a kind with one wrong field; `None` if there is no term for it."""
    counted = Maker(seed, None, rig.made.id)
    KINDS[kind](counted, rig)
    spot = random.Random(seed).randrange(counted.spots)
    try:
        return KINDS[kind](Maker(seed, spot, rig.made.id), rig)
    except locks.LocksError:
        return None
