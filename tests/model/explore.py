"""Every interleaving of a small world: messages between two parties in order, all else in any order.

    print(explore(World(scripts, nodes)))

The machines and clients of `tests.model.world` are run as they are, and its checks are made in every
state. An agent looks at what it knows (`settle`) at any time after a message that leaves something
to look at, as on a node. When nothing can happen any more, all must have finished, and lock servers
and agents must be empty. No state may be reached from itself: so every schedule comes to an end.

How it is fast. A party's next state and what it sends depend on nothing but its own state and what
happens to it. So each such step is run once, and looked up from then on; a state of the world is a
tuple of numbers (of the parties' states, and of the messages on each link). Checks are of one
party, or of two, and remembered as well. States and messages are frozen to plain tuples, without
statistics, and without the reports of deadlocks except for how many there are.

What counts as the same state is said in `tests.model.freezing`.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Container
from typing import Any, NamedTuple

from locks.lock_tree import Entry
from locks.messages import Surrender
from locks.model import AgentId, Deadlock, blocks
from locks.server_machine import ServerMachine
from tests.model.freezing import SINGLE, UNORDERED, Labels, freeze
from tests.model.world import SERIALS, Choice, Client, Party, Violation, World, granted

STEP, TIME_OUT, SETTLE, DIE = -1, -2, -3, -4
KINDS = {STEP: "step", TIME_OUT: "time out", SETTLE: "settle", DIE: "die"}

State = tuple[tuple[int, ...], tuple[tuple[int, tuple[int, ...]], ...]]
Move = tuple[int, int, int]  # party, message or kind of event, link or -1


class TooMany(Exception):
    """There are more states than allowed: nothing is proven."""


class Outcome(NamedTuple):
    """What an exploration found.

    Attributes:
        states: Different states of the world.
        transitions: Events that lead from one to another.
        terminal: Those where nothing can happen any more.
        surrenders: How many deadlocks were resolved, at least and at most.
        superfluous: How many of those, at most, were none (any more).
        parties: Different states of single parties.
        seconds: How long it took.
        ends: What `at_end` returned for the terminal states.
    """

    states: int
    transitions: int
    terminal: int
    surrenders: tuple[int, int]
    superfluous: int
    parties: int
    seconds: float
    ends: frozenset[Any]

    def __str__(self) -> str:
        return (
            f"{self.states:8} states {self.transitions:9} transitions {self.terminal:4} terminal "
            f"{self.surrenders[0]}-{self.surrenders[1]} surrenders {self.superfluous} superfluous "
            f"{self.seconds:6.2f} s"
        )


# --- Exploring ----------------------------------------------------------------------------------


class Space:
    """The states of a world, and what leads from one to another."""

    def __init__(self, world: World, rename: bool) -> None:
        self.world = world
        self.rename = rename
        self.names = list(world.servers)
        self.servers = len(self.names)
        self.unordered = SINGLE if self.servers == 1 else UNORDERED
        self.kept: list[bytes] = []  # for each state of a party: itself, to be run
        self.live: list[Any] = []  # itself, to be looked at
        self.unsettled: list[bool] = []
        self.refs: list[AgentId | None] = []  # its agent, if that is alive
        self.own: list[tuple[int, ...]] = []  # what it can do by itself
        self.ids: dict[Any, int] = {}
        self.messages: list[Any] = []
        self.message_ids: dict[Any, int] = {}
        self.links: list[tuple[Party, Party]] = []
        self.link_ids: dict[tuple[Party, Party], int] = {}
        self.link_to: list[int] = []
        self.reactions: dict[tuple[int, int], tuple[int, tuple[tuple[int, int], ...], bool]] = {}
        self.fine: set[tuple[int, int]] = set()
        self.true: dict[Any, bool] = {}
        self.scratch = World([], world.servers)

    def start(self) -> State:
        """The state in which the world is."""
        world = self.world
        parties = []
        for server in world.servers.values():
            if self.rename:
                server.labels = Labels(server)  # type: ignore[attr-defined]
            parties.append(self.party(server, False))
        for client in world.clients:
            client.clock = None  # agents that begin later are in the order of their clients
            parties.append(self.party(client, client.agent.unsettled))
        queues = {
            self.link(*k): tuple(self.message(m) for _, m in q) for k, q in world.channels.items()
        }
        for number in range(len(parties)):
            self.check(tuple(parties), number)
        return (tuple(parties), tuple(sorted(queues.items())))

    def moves(self, state: State) -> list[Move]:
        """All that can happen."""
        parties, queues = state
        found = [(self.link_to[link], queue[0], link) for link, queue in queues]
        for number in range(self.servers, len(parties)):
            found += [(number, what, -1) for what in self.own[parties[number]]]
        return found

    def after(self, state: State, move: Move) -> State:
        """Make something happen."""
        parties, channels = state
        number, what, link = move
        old = parties[number]
        new, sent, _ = self.reactions.get((old, what)) or self.react(old, what)
        queues = dict(channels)
        if link >= 0:
            queue = queues[link]
            if len(queue) > 1:
                queues[link] = queue[1:]
            else:
                del queues[link]
        if new != old:
            parties = (*parties[:number], new, *parties[number + 1 :])
            if self.refs[new] != self.refs[old]:
                for each in [each for each in queues if self.link_to[each] == number]:
                    del queues[each]
            self.check(parties, number)
        for link, message in sent:
            to = self.link_to[link]
            if to < self.servers or self.refs[parties[to]] == self.links[link][1]:
                queues[link] = (*queues.get(link, ()), message)
        return (parties, tuple(sorted(queues.items())))

    def surrendered(self, state: State, move: Move) -> tuple[int, int]:
        """Whether an event carries a surrender out, and whether that is superfluous."""
        parties = state[0]
        if not self.reactions[parties[move[0]], move[1]][2]:
            return (0, 0)
        check_yields(self.messages[move[1]].report)
        key = (parties, move[1])
        if key not in self.true:
            world = self.whole(parties)
            self.true[key] = world.is_deadlock(self.messages[move[1]], world.edges())
        return (1, 0 if self.true[key] else 1)

    def whole(self, parties: tuple[int, ...]) -> World:
        """A world of parties, to look at."""
        found = [self.live[party] for party in parties]
        self.scratch.servers = dict(zip(self.names, found, strict=False))
        self.scratch.clients = found[self.servers :]
        return self.scratch

    def choice(self, move: Move) -> Choice:
        """An event as a choice of the world."""
        number, what, link = move
        if link >= 0:
            return ("deliver", self.links[link])
        return (KINDS[what], number - self.servers + 1)

    def react(self, old: int, what: int) -> tuple[int, tuple[tuple[int, int], ...], bool]:
        """Run one step of a party."""
        party = pickle.loads(self.kept[old])
        done = unsettled = False
        if isinstance(party, ServerMachine):
            message = self.messages[what]
            before = granted(party)
            if self.rename:
                party.labels.begin(party, message)  # type: ignore[attr-defined]
            effects = party.handle(message)
            self.scratch.check_kept(party, before, message, effects)
            check_rule(party, before)
            if isinstance(message, Surrender) and message.report is not None:
                done = effects[-1].message.done
            sent = [effect.message for effect in effects]
            if self.rename:
                sent = party.labels.end(party, message, sent)  # type: ignore[attr-defined]
            mail = [(party.node, e.agent, m) for e, m in zip(effects, sent, strict=True)]
        else:
            unsettled = self.unsettled[old] and what != SETTLE
            if what >= 0:
                party.receive(self.messages[what])
                unsettled = unsettled or party.agent.unsettled
            elif what == DIE:
                party.die(self.world.mortal[party.number])
            else:
                {STEP: party.step, TIME_OUT: party.time_out, SETTLE: party.settle}[what]()
            mail = party.out[:]
            party.out.clear()
        links = tuple((self.link(s, r), self.message(m)) for s, r, m in mail)
        found = self.reactions[old, what] = (self.party(party, unsettled), links, done)
        return found

    # --- Numbers for everything

    def party(self, party: ServerMachine | Client, unsettled: bool) -> int:
        """The number of a party's state."""
        ref = None
        own = []
        if isinstance(party, Client) and not party.finished:
            ref = party.ref
            # While a surrender is not answered nothing is looked at; the answer is a message.
            unsettled = unsettled and not party.agent._resolver.surrendering
            own = [SETTLE] if unsettled else []
            own += [STEP] if party.ready else []
            own += [TIME_OUT] if party.waiting == "for a while" else []
            own += [DIE] if party.number in self.world.mortal else []
        key = (freeze(party, self.unordered, {}), tuple(own))
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            self.kept.append(pickle.dumps(party, 5))
            self.live.append(party)
            self.unsettled.append(unsettled)
            self.refs.append(ref)
            self.own.append(tuple(own))
        return found

    def message(self, message: Any) -> int:
        """The number of a message."""
        key = (type(message), message)  # named tuples of different types may be equal
        found = self.message_ids.get(key)
        if found is None:
            found = self.message_ids[key] = len(self.messages)
            self.messages.append(message)
        return found

    def link(self, sender: Party, receiver: Party) -> int:
        """The number of a link."""
        found = self.link_ids.get((sender, receiver))
        if found is None:
            found = self.link_ids[sender, receiver] = len(self.links)
            self.links.append((sender, receiver))
            self.link_to.append(
                self.names.index(receiver)
                if isinstance(receiver, str)
                else self.servers + receiver.serial % SERIALS - 1
            )
        return found

    # --- Checks

    def check(self, parties: tuple[int, ...], number: int) -> None:
        """After an event at a party: what must be true of it and each other one."""
        mine = parties[number]
        for other in parties[self.servers :] if number < self.servers else parties:
            if other != mine and (mine, other) not in self.fine:
                a, b = self.live[mine], self.live[other]
                if isinstance(a, Client) and isinstance(b, Client):
                    self.scratch.clients = [a, b]
                    self.scratch.check_exclusion(a)
                else:
                    server, client = (b, a) if isinstance(a, Client) else (a, b)
                    self.scratch.servers = {server.node: server}
                    self.scratch.check_told(client, server.node)
                self.fine.add((mine, other))

    def check_end(self, parties: tuple[int, ...]) -> World:
        """All have finished, and nothing is left."""
        world = self.whole(parties)
        world.check_end()
        for client in world.clients:
            claims, resolver = client.agent._claims, client.agent._resolver
            kept = (claims.wishes, claims.open, claims.waiting, claims._unanswered)
            if client.agent.ended is None:  # it crashed
                continue
            if any(kept) or resolver.active or resolver._knows:
                raise Violation(f"left in client {client.number}")
        return world


def check_yields(report: Deadlock) -> None:
    """The youngest agent of a cycle has yielded."""
    if report.agent != max(report.agents):
        raise Violation(f"not the youngest of its cycle yields: {report}")


def check_rule(server: ServerMachine, before: Container[tuple[int, int]]) -> None:
    """Each waiting request waits for something; each new grant leaves nobody out.

    A request that another one of its agent covers, and that is granted with it, may have somebody
    ahead of it.
    """
    table = server.table
    entries = [entry for asker in table.askers.values() for entry in asker.all()]
    for entry in entries:
        mine = entry.record(server.node)
        if entry.granted and (entry.number, entry.since) in before:
            continue
        others = [other.record(server.node) for other in entries if other is not entry]
        if not entry.granted:
            if not any(blocks(other, mine) for other in others):
                raise Violation(f"{mine} waits for nothing")
        elif any(blocks(other, mine._replace(state="waiting")) for other in others):
            covers = [o for o in entry.asker.all() if o is not entry and o.granted]
            if not any(o.write or not entry.write for o in covers if covers_id(o, entry)):
                raise Violation(f"{mine} is granted too early")


def covers_id(one: Entry, other: Entry) -> bool:
    """Whether a request is on the id of another one, or above it."""
    above = one.slot.lock_id
    return above == other.slot.lock_id[: len(above)]


def explore(
    world: World,
    limit: int = 1_000_000,
    most: int | None = None,
    at_end: Callable[[World], Any] | None = None,
    rename: bool = True,
) -> Outcome:
    """Explore a world depth first.

    Args:
        world: The world, in its first state; it is used up.
        limit: The most states.
        most: The most surrenders; one more on any path is a violation.
        at_end: Looks at each terminal state: at its parties, not at counters of the world.
        rename: Rename counters, so that more states are the same.

    Raises:
        Violation: With the schedule that leads there, as choices of the world, in `schedule`.
        TooMany: There are more than `limit` states.
    """
    begun = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # millions of tuples, and no garbage that refers to itself
    try:
        found = _explore(Space(world, rename), limit, most, at_end)
    finally:
        if collecting:
            gc.enable()
    return found._replace(seconds=time.perf_counter() - begun)


def _explore(
    space: Space, limit: int, most: int | None, at_end: Callable[[World], Any] | None
) -> Outcome:
    state = space.start()
    # Of each state: the least and the most surrenders from there on, and the most superfluous
    # ones; nothing while it is on the path.
    known: dict[State, tuple[int, int, int] | None] = {state: None}
    path: list[list[Any]] = [[state, space.moves(state), None, (0, 0), 1 << 30, -1, 0]]
    transitions = terminal = 0
    ends: dict[tuple[int, ...], Any] = {}
    try:
        while True:
            here = path[-1]
            state, moves, move = here[:3]
            if moves:
                move = here[2] = moves.pop()
                transitions += 1
                new = space.after(state, move)
                here[3] = space.surrendered(state, move)
                if here[3][0] and most is not None and sum(e[3][0] for e in path) > most:
                    raise Violation(f"more than {most} surrenders")
                if new not in known:
                    if len(known) >= limit:
                        raise TooMany(f"more than {limit} states")
                    known[new] = None
                    path.append([new, space.moves(new), None, (0, 0), 1 << 30, -1, 0])
                    continue
                found = known[new]
                if found is None:
                    raise Violation("this can go on for ever")
            else:
                if move is None:
                    terminal += 1
                    if state[0] not in ends:
                        end = space.check_end(state[0])
                        ends[state[0]] = at_end(end) if at_end is not None else None
                    here[4:] = (0, 0, 0)
                found = known[state] = tuple(here[4:])
                path.pop()
                if not path:
                    break
                here = path[-1]
            done, superfluous = here[3]
            here[4] = min(here[4], found[0] + done)
            here[5] = max(here[5], found[1] + done)
            here[6] = max(here[6], found[2] + superfluous)
    except Violation as violation:
        violation.schedule = [space.choice(e[2]) for e in path if e[2]]  # type: ignore[attr-defined]
        raise
    return Outcome(
        len(known),
        transitions,
        terminal,
        found[:2],
        found[2],
        len(space.kept),
        0.0,
        frozenset(ends.values()),
    )
