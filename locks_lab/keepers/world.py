"""A model of nodes that keep grants: every order of events of a small world.

    world = World(["p a", "q a"], servers=1).kept()
    print(visit_all(world, world.check))

The machines are those of `locks_lab.keepers.machines`. Each client takes some locks for writing, one after the other, on a majority of
the servers, and then releases all. Messages on one link arrive in order, all else happens in any order.

**Time** passes in ticks. At each tick, each clock goes forward by 2 or 3, whichever it likes. While all is well, a message arrives before the
next tick, and what is due is done before the next tick. There are `ticks` of them, so each schedule ends.

**Faults**: a node stops, for a time or for ever, and its clock goes on; a link delivers nothing for a time; a connection breaks, and each side notices later,
with or without the messages on the way; a server restarts. After a restart its versions are larger than all others, as decision 0005 assumes.

**Checks**, in each state:

* *Tokens*: no two agents have the same token; if the grants of an agent that holds a lock stand at a majority of the servers, no agent ever had a larger one.
* *Exclusion*: of agents that hold one lock, all but the one with the largest token are excused. What excuses one depends on the *promise*.
  `"lease"`: since it holds the lock, its node was stopped, or a link of it delivered nothing or was broken. `"connection"`: since it holds the lock, a connection of its node has
  broken. That is the promise without kept grants.
* *Told*: an agent that has lost a lock is notified.
* *Bound*: nobody waits for an idle grant whose lease is over.
* *Progress*: when nothing can happen any more, and all faults are over, no client waits.

A deadlock is resolved at once: the youngest agent of the circle, as the servers know it, aborts. How agents find it is the subject of `locks_lab.worlds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

from locks.errors import assert_never
from locks.model import AgentId, majority
from locks_lab.keepers.machines import (
    LEASE,
    Answer,
    Ask,
    Done,
    Granted,
    Keep,
    Keeping,
    Kept,
    Line,
    Lost,
    Message,
    Place,
    Raise,
    Raised,
    Recall,
    Refused,
    Server,
    keeper_of,
)
from locks_lab.worlds.host import Violation

__all__ = ["OURS", "Faults", "Rules", "World"]

FAULTS = ("stop", "go", "hold", "flow", "cut", "connect", "restart")

Promise = Literal["lease", "connection"]
CHECKS = ("tokens", "exclusion", "told", "bound", "progress")
Move = tuple[Any, ...]


class Faults(NamedTuple):
    """How much may still happen.

    Attributes:
        ticks: Ticks of the clocks.
        stops: How often a node stops.
        holds: How often a link delivers nothing for a time.
        cuts: How often a connection breaks.
        restarts: How often a server restarts.
    """

    ticks: int = 0
    stops: int = 0
    holds: int = 0
    cuts: int = 0
    restarts: int = 0


NO_FAULTS = Faults()


class Rules(NamedTuple):
    """The machines; each can be replaced by a wrong one."""

    server: type[Server] = Server
    keeping: type[Keeping] = Keeping


OURS = Rules()


class Grant(NamedTuple):
    """What a client was granted at a server.

    Attributes:
        lock: The lock.
        server: The number of the server.
        since: The version of the grant.
        asked: The version that the server is asked to confirm.
        reached: The version that it has confirmed.
    """

    lock: int
    server: int
    since: int
    asked: int
    reached: int


class Held(NamedTuple):
    """A lock that a client holds; `kept` if it uses one that its node keeps."""

    lock: int
    token: int
    kept: bool


class Client(NamedTuple):
    """A client, and its agent.

    Attributes:
        agent: The agent.
        todo: The locks that it is still to take.
        phase: Whether it is `ready` for its next step, `waits`, or how it has ended.
        held: The locks that it holds.
        grants: The grants of its agent.
        excused: Whether others may hold its locks.
    """

    agent: AgentId
    todo: tuple[int, ...]
    phase: Literal["ready", "waits", "over", "aborted", "lost"] = "ready"
    held: tuple[Held, ...] = ()
    grants: tuple[Grant, ...] = ()
    excused: bool = False


class Node(NamedTuple):
    """A node: whether it runs, its clock, and for each lock what it keeps."""

    awake: bool
    clock: int
    keeps: tuple[Keeping | None, ...]


class Link(NamedTuple):
    """The connection of a node with a server, and the messages on it; `None` says that it is broken."""

    up: bool = True
    flows: bool = True
    there: tuple[Message | None, ...] = ()
    back: tuple[Answer | None, ...] = ()


class State(NamedTuple):
    """A state of the world. Links are numbered by node, then by server."""

    servers: tuple[Server, ...]
    clocks: tuple[int, ...]
    nodes: tuple[Node, ...]
    clients: tuple[Client, ...]
    links: tuple[Link, ...]
    begun: tuple[frozenset[int], ...]
    left: Faults


class World:
    """A world, which is also the model of a search.

    Args:
        clients: The clients, the oldest first, each as its node and its locks: `"p a b"`.
        servers: The number of servers.
        keeps: The nodes that keep grants.
        faults: How much may happen.
        rules: The machines.
        promise: Which losses of a held lock count as wrong.
        drift: The numbers by which a clock goes forward at a tick.
        checks: The checks that are made.
    """

    def __init__(
        self,
        clients: Sequence[str],
        servers: int = 1,
        keeps: Sequence[str] = ("p",),
        faults: Faults = NO_FAULTS,
        rules: Rules = OURS,
        promise: Promise = "lease",
        drift: Sequence[int] = (2, 3),
        checks: Sequence[str] = CHECKS,
    ) -> None:
        scripts = [client.split() for client in clients]
        self.names = sorted({script[0] for script in scripts})
        self.locks = sorted({lock for _, *locks in scripts for lock in locks})
        self.keepers = keeps
        self.rules = rules
        self.promise = promise
        self.drift = drift
        self.checks = checks
        self.servers = servers
        none = (None,) * len(self.locks)
        self.first = State(
            (rules.server(0, (Line(),) * len(self.locks)),) * servers,
            (0,) * servers,
            (Node(True, 0, none),) * len(self.names),
            tuple(
                Client(AgentId(age, node, 0), tuple(map(self.locks.index, locks)))
                for age, (node, *locks) in enumerate(scripts, 1)
            ),
            (Link(),) * (len(self.names) * servers),
            (frozenset[int](),) * len(self.locks),
            faults,
        )

    def kept(self, by: str = "p") -> World:
        """Begin when a node keeps the first lock at all servers, since just now."""
        node, draft = self.names.index(by), _Draft(self, self.first)
        agent = AgentId(0, by, 1)
        grants = [(str(at), at + 1) for at in range(self.servers)]
        keeping, messages = self.rules.keeping.begin(agent, 0, self.servers, grants, 0, 0)
        for name, message in messages:
            at = int(name)
            assert isinstance(message, Keep)
            place = Line((Place(agent, message.since),))
            server = self.rules.server(message.since, (place, *draft.servers[at].lines[1:]))
            draft.servers[at], _ = server.handle(message, 0)
            keeping = keeping.answered(name, message.since)
        draft.begun[0] = frozenset([keeping.token])
        draft.keep(node, 0, keeping)
        self.first = draft.state()
        return self

    # --- The model

    def start(self) -> State:
        """The first state."""
        return self.first

    def moves(self, state: State) -> list[Move]:
        """All that can happen next."""
        return list(self._moves(state))

    def _moves(self, state: State) -> Iterator[Move]:
        pressing = False
        for number, link in enumerate(state.links):
            awake = state.nodes[number // self.servers].awake
            for way, queue in (("there", link.there), ("back", link.back)):
                if queue and link.flows and (way == "there" or awake):
                    pressing |= link.up
                    yield ("deliver", number, way)
        for at, server in enumerate(state.servers):
            if server.is_due(state.clocks[at]):
                pressing = True
                yield ("expire", at)
        for at, node in enumerate(state.nodes):
            if node.awake and any(each and each.is_due(node.clock) for each in node.keeps):
                pressing = True
                yield ("timer", at)
        circles = self._circles(state)
        for at, client in enumerate(state.clients):
            if self._node(client, state).awake:
                if client.phase == "ready":
                    yield ("step", at)
                elif client.phase == "waits" and client.agent in circles:
                    yield ("yield", at)
        yield from self._faults(state)
        if state.left.ticks and not pressing:
            keepers = sum(name in self.keepers for name in self.names)
            for steps in product(self.drift, repeat=self.servers + keepers):
                yield ("tick", steps)

    def _faults(self, state: State) -> Iterator[Move]:
        left = state.left
        for at, node in enumerate(state.nodes):
            if not node.awake:
                yield ("go", at)
            elif left.stops:
                yield ("stop", at)
        for number, link in enumerate(state.links):
            if not link.flows:
                yield ("flow", number)
            elif left.holds and link.up:
                yield ("hold", number)
            if link.up and left.cuts:
                yield ("cut", number, False)
                if link.there or link.back:
                    yield ("cut", number, True)
            closed = not (link.up or link.there or link.back)
            if closed and state.nodes[number // self.servers].awake:
                yield ("connect", number)
        if left.restarts:
            for at in range(self.servers):
                yield ("restart", at)

    def after(self, state: State, move: Move) -> State:
        """The state after a move."""
        draft = _Draft(self, state)
        draft.do(move)
        return draft.state()

    def _node(self, client: Client, state: State) -> Node:
        return state.nodes[self.names.index(client.agent.node)]

    def _circles(self, state: State) -> set[AgentId]:
        """The youngest agents of the circles, as the servers know them."""
        ahead: dict[AgentId, set[AgentId]] = {}
        for server in state.servers:
            for line in server.lines:
                for at, place in enumerate(line.places):
                    others = [each.agent for each in line.places[:at]]
                    ahead.setdefault(place.agent, set()).update(others)
        for middle in ahead:
            for agents in ahead.values():
                if middle in agents:
                    agents |= ahead[middle]
        return {
            max(other for other in reached if agent in ahead.get(other, ()))
            for agent, reached in ahead.items()
            if agent in reached
        }

    # --- Checks

    def check(self, state: State, moves: Sequence[Move]) -> None:
        """Check all that must be true in a state.

        Raises:
            Violation: Something is not.
        """
        for wrong, what in self._wrong(state, moves):
            if wrong in self.checks:
                raise Violation(f"{wrong}: {what}")

    def _wrong(self, state: State, moves: Sequence[Move]) -> Iterator[tuple[str, str]]:
        for lock in range(len(self.locks)):
            holders = [
                (held.token, client)
                for client in state.clients
                for held in client.held
                if held.lock == lock
            ]
            for token, client in holders:
                stands = self._stands(state, client, lock)
                if stands and token < max(state.begun[lock]):
                    yield "tokens", "an agent has a larger one than the holder"
                if not stands and self._knows_all(state, client):
                    yield "told", "a client does not know that it has lost a lock"
            earlier = sorted(holders, key=lambda each: each[0])[:-1]
            if not all(client.excused for _, client in earlier):
                yield "exclusion", "two clients hold one lock"
        for at, server in enumerate(state.servers):
            for line in server.lines:
                late = line.is_over(state.clocks[at] - max(self.drift))
                if late and len(line.places) > 1:
                    yield "bound", "a client waits for an idle grant whose lease is over"
        if all(move[0] in (*FAULTS, "tick") for move in moves):
            well = all(link.up and link.flows for link in state.links)
            well = well and all(node.awake for node in state.nodes)
            if well and any(client.phase == "waits" for client in state.clients):
                yield "progress", "a client waits for ever"

    def _knows_all(self, state: State, client: Client) -> bool:
        """Whether nothing is under way to or from the node of a client, and nothing is due there."""
        node, at = self._node(client, state), self.names.index(client.agent.node)
        links = state.links[at * self.servers : (at + 1) * self.servers]
        quiet = all(link.up and link.flows and not link.there + link.back for link in links)
        due = any(each is not None and each.is_due(node.clock) for each in node.keeps)
        return node.awake and quiet and not due

    def _stands(self, state: State, client: Client, lock: int) -> bool:
        """Whether the grants of a client stand at enough servers."""
        keeping = self._node(client, state).keeps[lock]
        if keeping is not None and keeping.user == client.agent:
            agent = keeper_of(client.agent.node)
            places = [(int(each.server), Place(agent, each.since)) for each in keeping.leases]
        else:
            places = [
                (each.server, Place(client.agent, each.since))
                for each in client.grants
                if each.lock == lock
            ]
        standing = [
            at for at, place in places if state.servers[at].lines[lock].places[:1] == (place,)
        ]
        return len(standing) >= majority(self.servers)


class _Draft:
    """A state that is being changed."""

    def __init__(self, world: World, state: State) -> None:
        self.world = world
        self.servers = list(state.servers)
        self.clocks = list(state.clocks)
        self.nodes = list(state.nodes)
        self.clients = list(state.clients)
        self.links = list(state.links)
        self.begun = list(state.begun)
        self.left = state.left

    def state(self) -> State:
        """The state now. Only differences of times matter: leases end at `LEASE`, and the first one was asked for at 0."""
        for at, server in enumerate(self.servers):
            ends = [line.until for line in server.lines if line.until]
            by = min(ends) - LEASE if ends else self.clocks[at]
            if by:
                self.clocks[at] -= by
                self.servers[at] = server._replace(
                    lines=tuple(
                        line._replace(until=line.until - by) if line.until else line
                        for line in server.lines
                    )
                )
        self.nodes = [_from_zero(node) for node in self.nodes]
        return State(
            tuple(self.servers),
            tuple(self.clocks),
            tuple(self.nodes),
            tuple(self.clients),
            tuple(self.links),
            tuple(self.begun),
            self.left,
        )

    def do(self, move: Move) -> None:
        """Make a move."""
        match move:
            case ("deliver", number, "there"):
                link = self.links[number]
                self.links[number] = link._replace(there=link.there[1:])
                node, at = divmod(number, self.world.servers)
                server, message = self.servers[at], link.there[0]
                if message is None:
                    self._answer(at, server.forget(self.world.names[node]))
                else:
                    self._answer(at, server.handle(message, self.clocks[at]))
            case ("deliver", number, "back"):
                link = self.links[number]
                self.links[number] = link._replace(back=link.back[1:])
                node, at = divmod(number, self.world.servers)
                self._arrives(node, at, link.back[0])
            case ("expire", at):
                self._answer(at, self.servers[at].expire(self.clocks[at]))
            case ("timer", node):
                for lock, keeping in enumerate(self.nodes[node].keeps):
                    if keeping is not None and keeping.is_due(self.nodes[node].clock):
                        self._give_up(node, lock)
            case ("step", at):
                self._step(at)
            case ("yield", at):
                self._abort(at, "aborted")
            case ("tick", steps):
                self._tick(steps)
            case _:
                self._fault(move)

    def _tick(self, steps: Sequence[int]) -> None:
        self.left = self.left._replace(ticks=self.left.ticks - 1)
        servers = self.world.servers
        self.clocks = [now + step for now, step in zip(self.clocks, steps[:servers], strict=True)]
        keepers = [at for at, name in enumerate(self.world.names) if name in self.world.keepers]
        for at, step in zip(keepers, steps[servers:], strict=True):
            node = self.nodes[at]
            self.nodes[at] = node._replace(clock=node.clock + step)

    # --- Faults

    def _fault(self, move: Move) -> None:
        left, servers = self.left, self.world.servers
        match move:
            case ("stop", node):
                self.left = left._replace(stops=left.stops - 1)
                self.nodes[node] = self.nodes[node]._replace(awake=False)
                self._excuse(node, "lease")
            case ("go", node):
                self.nodes[node] = self.nodes[node]._replace(awake=True)
            case ("hold", number):
                self.left = left._replace(holds=left.holds - 1)
                self.links[number] = self.links[number]._replace(flows=False)
                self._excuse(number // servers, "lease")
            case ("flow", number):
                self.links[number] = self.links[number]._replace(flows=True)
            case ("cut", number, loses):
                self.left = left._replace(cuts=left.cuts - 1)
                link = Link() if loses else self.links[number]
                broken = Link(False, True, (*link.there, None), (*link.back, None))
                self.links[number] = broken
                self._excuse(number // servers, "connection")
            case ("connect", number):
                self.links[number] = Link()
                node, at = divmod(number, servers)
                for client in self.clients:
                    if client.agent.node == self.world.names[node] and client.phase == "waits":
                        self._send(node, at, Ask(client.agent, client.todo[0]))
            case ("restart", at):
                self.left = left._replace(restarts=left.restarts - 1)
                version = max(server.version for server in self.servers)
                lines = (Line(),) * len(self.world.locks)
                self.servers[at] = self.world.rules.server(version, lines)
                for node in range(len(self.nodes)):
                    link = self.links[node * servers + at]
                    back = (*link.back, None) if link.up else link.back
                    self.links[node * servers + at] = Link(False, True, (), back)
                    self._excuse(node, "connection")
            case _:
                raise AssertionError(move)

    def _excuse(self, node: int, fault: Promise) -> None:
        """Excuse the clients of a node that hold locks, if this fault counts."""
        if self.world.promise in ("lease", fault):
            for at, client in enumerate(self.clients):
                if client.agent.node == self.world.names[node] and client.held:
                    self.clients[at] = client._replace(excused=True)

    # --- Messages

    def _answer(self, at: int, done: tuple[Server, Sequence[tuple[str, Answer]]]) -> None:
        self.servers[at], answers = done
        for name, answer in answers:
            number = self.world.names.index(name) * self.world.servers + at
            link = self.links[number]
            if link.up:
                self.links[number] = link._replace(back=(*link.back, answer))

    def _send(self, node: int, at: int, message: Message) -> None:
        number = node * self.world.servers + at
        link = self.links[number]
        if link.up:
            self.links[number] = link._replace(there=(*link.there, message))

    def _arrives(self, node: int, at: int, answer: Answer | None) -> None:
        match answer:
            case None:
                self._closed(node, at)
            case Granted(agent, lock, since):
                client = self._of(agent)
                if client is not None and (
                    (client.todo[:1] == (lock,) and client.phase == "waits") or _holds(client, lock)
                ):
                    self._grants(agent, (*client.grants, Grant(lock, at, since, 0, 0)))
            case Raised(agent, lock, since, upto):
                client = self._of(agent)
                if client is not None:
                    grants = [
                        each._replace(reached=max(each.reached, upto))
                        if each[:3] == (lock, at, since)
                        else each
                        for each in client.grants
                    ]
                    self._grants(agent, tuple(grants))
            case Lost(agent, lock, since):
                client = self._of(agent)
                if client is not None:
                    left = [each for each in client.grants if each[:3] != (lock, at, since)]
                    self._grants(agent, tuple(left))
            case Kept(lock, since):
                keeping = self.nodes[node].keeps[lock]
                if keeping is not None:
                    self.keep(node, lock, keeping.answered(str(at), since))
            case Refused(lock, since) | Recall(lock, since):
                keeping = self.nodes[node].keeps[lock]
                if keeping is not None and keeping.names(str(at), since):
                    if isinstance(answer, Refused):
                        self.keep(node, lock, keeping.without(str(at)))
                    self._give_up(node, lock)
            case _:
                assert_never(answer)

    def _closed(self, node: int, at: int) -> None:
        """A node notices that a connection is broken."""
        for lock, keeping in enumerate(self.nodes[node].keeps):
            if keeping is not None:
                keeping = keeping.without(str(at))
                self.keep(node, lock, keeping)
                if len(keeping.leases) < majority(self.world.servers):
                    self._give_up(node, lock)
        for client in self.clients:
            if client.agent.node == self.world.names[node]:
                left = tuple(each for each in client.grants if each.server != at)
                self._grants(client.agent, left)

    # --- Nodes

    def keep(self, node: int, lock: int, keeping: Keeping | None) -> None:
        """Note what a node keeps."""
        keeps = list(self.nodes[node].keeps)
        keeps[lock] = keeping
        self.nodes[node] = self.nodes[node]._replace(keeps=tuple(keeps))

    def _give_up(self, node: int, lock: int) -> None:
        """Keep a lock no longer: release it, or hand it over to the agent that uses it."""
        keeping = self.nodes[node].keeps[lock]
        assert keeping is not None
        self.keep(node, lock, None)
        for server, message in keeping.give_up():
            self._send(node, int(server), message)
        if keeping.user is not None:
            client = self._of(keeping.user)
            assert client is not None
            at = self.clients.index(client)
            held = tuple(
                each._replace(kept=False) if each.lock == lock else each for each in client.held
            )
            grants = [Grant(lock, int(lease.server), lease.since, 0, 0) for lease in keeping.leases]
            self.clients[at] = client._replace(held=held)
            self._grants(client.agent, (*client.grants, *grants))

    # --- Clients

    def _of(self, agent: AgentId) -> Client | None:
        return next((each for each in self.clients if each.agent == agent), None)

    def _step(self, at: int) -> None:
        """A client takes its next lock without a message, or requests it; or it ends."""
        client = self.clients[at]
        node = self.world.names.index(client.agent.node)
        if not client.todo:
            self._end(at)
            return
        lock = client.todo[0]
        keeping = self.nodes[node].keeps[lock]
        if keeping is not None and keeping.may_use(self.nodes[node].clock):
            keeping = keeping.use(client.agent)
            self.keep(node, lock, keeping)
            self._begins(at, keeping.token, True)
            if keeping.is_due(self.nodes[node].clock):
                self._give_up(node, lock)
            return
        if keeping is not None:
            if keeping.user is not None:
                self._give_up(node, lock)
            self.keep(node, lock, None)
        self.clients[at] = client._replace(phase="waits")
        for server in range(self.world.servers):
            self._send(node, server, Ask(client.agent, lock))

    def _begins(self, at: int, token: int, kept: bool) -> None:
        """A client holds the lock that it wanted."""
        client = self.clients[at]
        lock, *todo = client.todo
        if token in self.begun[lock]:
            raise Violation("tokens: two agents have the same one")
        self.begun[lock] |= {token}
        held = (*client.held, Held(lock, token, kept))
        node, servers = self.world.names.index(client.agent.node), self.world.servers
        links = self.links[node * servers : (node + 1) * servers]
        broken = not all(link.up for link in links)
        excused = client.excused or (
            broken or not all(link.flows for link in links)
            if self.world.promise == "lease"
            else broken and not kept
        )
        self.clients[at] = Client(client.agent, tuple(todo), "ready", held, client.grants, excused)

    def _grants(self, agent: AgentId, grants: tuple[Grant, ...]) -> None:
        """The grants of a client have changed."""
        client = self._of(agent)
        if client is None or client.phase not in ("ready", "waits"):
            return
        at = self.clients.index(client)
        self.clients[at] = client = client._replace(grants=tuple(sorted(grants)))
        enough = majority(self.world.servers)
        for held in client.held:
            if not held.kept and sum(each.lock == held.lock for each in grants) < enough:
                self._abort(at, "lost")
                return
        if client.phase == "waits":
            self._wants(at)

    def _wants(self, at: int) -> None:
        """Look whether a client holds the lock that it waits for; if not, have a token confirmed."""
        client = self.clients[at]
        mine = [each for each in client.grants if each.lock == client.todo[0]]
        if len(mine) < majority(self.world.servers):
            return
        for token in sorted({max(each.since, each.asked) for each in mine}, reverse=True):
            good = [each for each in mine if each.since <= token <= max(each.since, each.reached)]
            if len(good) >= majority(self.world.servers):
                self._begins(at, token, False)
                return
        token = max(each.since for each in mine)
        node = self.world.names.index(client.agent.node)
        grants = set(client.grants)
        for each in mine:
            if each.since < token and each.asked < token:
                grants = grants - {each} | {each._replace(asked=token)}
                self._send(node, each.server, Raise(client.agent, each.lock, each.since, token))
        self.clients[at] = client._replace(grants=tuple(sorted(grants)))

    def _end(self, at: int) -> None:
        """A client releases all its locks; its node may keep them."""
        client = self.clients[at]
        name = client.agent.node
        node = self.world.names.index(name)
        self.clients[at] = client._replace(phase="over", held=(), grants=(), excused=False)
        for held in client.held:
            keeping = self.nodes[node].keeps[held.lock]
            if held.kept:
                assert keeping is not None
                self.keep(node, held.lock, keeping.ended())
                continue
            granted = [(str(e.server), e.since) for e in client.grants if e.lock == held.lock]
            kept: set[int] = set()
            if name in self.world.keepers and keeping is None:
                now = self.nodes[node].clock
                new, messages = self.world.rules.keeping.begin(
                    client.agent, held.lock, self.world.servers, granted, held.token, now
                )
                self.keep(node, held.lock, new)
                for server, message in messages:
                    kept.add(int(server))
                    self._send(node, int(server), message)
            for server in {*range(self.world.servers)} - kept:
                self._send(node, server, Done(client.agent, held.lock))

    def _abort(self, at: int, phase: Literal["aborted", "lost"]) -> None:
        """A client ends without its locks."""
        client = self.clients[at]
        node = self.world.names.index(client.agent.node)
        self.clients[at] = client._replace(phase=phase, held=(), grants=(), excused=False)
        waiting = client.todo[:1] if client.phase == "waits" else ()
        for held in client.held:
            keeping = self.nodes[node].keeps[held.lock]
            if held.kept and keeping is not None:
                self.keep(node, held.lock, keeping.ended())
        for lock in (*(held.lock for held in client.held if not held.kept), *waiting):
            for server in range(self.world.servers):
                self._send(node, server, Done(client.agent, lock))


def _from_zero(node: Node) -> Node:
    """A node whose first lease was asked for at 0, and whose clock stops when all leases are over."""
    asked = [lease.asked for each in node.keeps if each is not None for lease in each.leases]
    by = min(asked, default=node.clock)
    clock = min(node.clock, max(asked, default=node.clock) + LEASE) - by
    if not by:
        return node._replace(clock=clock)
    keeps = (
        each
        and each._replace(
            leases=tuple([lease._replace(asked=lease.asked - by) for lease in each.leases])
        )
        for each in node.keeps
    )
    return Node(node.awake, clock, tuple(keeps))


def _holds(client: Client, lock: int) -> bool:
    return any(held.lock == lock and not held.kept for held in client.held)
