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

What counts as the same state. Every order of dictionaries is kept that decides anything but the
order of messages to different parties (`UNORDERED`, and `SINGLE` with a single node). Messages to
agents that have ended do nothing; they are dropped. And servers' counters are renamed (`Labels`):

* Versions and numbers of requests are used for nothing but which of two states of *one* request, or
  of its agent (`turned`), is the newer, whether they are the same, and in which order one agent's
  requests came. So each agent has a counter of its own at each server. Numbers of different
  agents only have to differ. Resolvers also make up a version (`known.version + 1`): so whether two
  versions are next to each other is kept, while larger distances are all the same.
* The version in an answer to a surrender is later than all that was known before. It is explored
  as one that is also later than what anyone makes up.
* Places are compared for related requests alone, so each first element of ids counts its own.

With renamed counters, and with one set's order in `Resolver`, the records within one message may
stand in another order, and so a tie between several cycles may fall differently. `rename=False`
explores with the real counters: the tests compare the two for small worlds.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from locks.lock_tree import Asker, Entry
from locks.messages import Request, Released, Remove, Surrender, Surrendered, Told
from locks.model import AgentId, RequestRecord
from locks.server_machine import ServerMachine
from tests.model.world import SERIALS, Choice, Client, Party, Violation, World, granted

DROPPED = {
    "LockTable": {"_requests", "_grants", "_waits", "_surrenders", "_refused"},
    "Client": {"aborts", "reports", "options", "script", "nodes", "clock", "out"},
    "ServerMachine": {"_handlers"},
}
# Dictionaries that are only looked into, or gone through only to send to different parties.
UNORDERED = set(
    "_entries told_to _knows _tellers _surrendering _unanswered _releasing _used _standings waiting "
    "told _unclaimed open wishes latest places".split()
)
SINGLE = UNORDERED | {"askers"}  # gone through only where agents wait at other nodes
STEP, TIME_OUT, SETTLE, DIE = -1, -2, -3, -4
KINDS = {STEP: "step", TIME_OUT: "time out", SETTLE: "settle", DIE: "die"}
LATER = 10**15  # later than each renamed version
ROOM = 10**6  # for the versions of one agent

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


# --- Freezing -----------------------------------------------------------------------------------


def freeze(value: Any, unordered: set[str], seen: dict[int, int], ordered: bool = True) -> Any:
    """A value as tuples that are equal if, and only if, there is no difference that matters."""
    kind = type(value)
    if value is None or kind in (int, str, bool, Fraction) or isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        items = value.items() if ordered else sorted(value.items(), key=by_key)
        return tuple(
            [(freeze(k, unordered, seen), freeze(v, unordered, seen, ordered)) for k, v in items]
        )
    if kind is list:
        return tuple([freeze(v, unordered, seen) for v in value])
    if kind in (set, frozenset):
        return frozenset(value)
    if isinstance(value, partial):
        return (value.func.__name__, value.args)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    dropped = DROPPED.get(kind.__name__, ())
    found = [kind.__name__]
    for name in getattr(kind, "__slots__", None) or value.__dict__:
        if name == "deadlocks":
            found.append(len(value.deadlocks))
        elif name not in dropped:
            found.append(freeze(getattr(value, name), unordered, seen, name not in unordered))
    return tuple(found)


def by_key(item: tuple[Any, Any]) -> Any:
    """Sort key for the items of a dictionary whose order does not matter."""
    key = item[0]
    return key if isinstance(key, int) else key.id if isinstance(key, Asker) else repr(key)


# --- Renaming -----------------------------------------------------------------------------------


class Labels:
    """The counters of one server, renamed.

    Attributes:
        latest: For each agent, its latest version.
        last: The agent that has the latest version of all.
        places: The last place for each first element of ids.
        first: The last place when renaming began.
    """

    def __init__(self, machine: ServerMachine) -> None:
        self.latest: dict[AgentId, int] = {}
        self.last: AgentId | None = None
        self.places: dict[Any, int] = {}
        self.first = machine.table.last_place
        machine.table.last_place = 0
        machine.table.version = LATER

    def begin(self, machine: ServerMachine, message: Any) -> None:
        """Before a step: the place counter is that of the id."""
        if isinstance(message, (Request, Surrender)):
            machine.table.last_place = self.places.get(message.lock_id[0], self.first)

    def end(self, machine: ServerMachine, message: Any, sent: list[Any]) -> list[Any]:
        """After a step: rename what is new, in the server and in what it sends."""
        table = machine.table
        if isinstance(message, (Request, Surrender)):
            self.places[message.lock_id[0]] = table.last_place
        table.last_place = 0
        table.version = LATER
        entries = list(table._entries.values())
        new: dict[AgentId, set[int]] = {}

        def note(agent: AgentId, *versions: int) -> None:
            new.setdefault(agent, set()).update(v for v in versions if v > LATER)

        for entry in entries:
            note(entry.asker.id, entry.number, entry.since, entry.version)
        for asker in table.askers.values():
            note(asker.id, asker.turned)
        for one in sent:
            for record in getattr(one, "records", ()):
                note(record.agent, record.number, record.since, record.version)
        names: dict[int, int] = {}
        for agent, versions in new.items():
            before = LATER if self.last == agent else LATER - 1
            latest = self.latest.get(agent, agent.serial * ROOM)
            for version in sorted(versions):
                latest += min(version - before, 2)
                names[version] = latest
                before = version
            if versions:
                self.latest[agent] = latest
        if names:
            top = max(names)
            (self.last,) = (agent for agent, versions in new.items() if top in versions)
            table._entries.clear()
            for entry in entries:
                self._rename(entry, names)
                table._entries[entry.number] = entry
            for asker in table.askers.values():
                asker.turned = names.get(asker.turned, asker.turned)
        if isinstance(message, Remove):
            self.latest.pop(message.agent, None)
            if self.last == message.agent:
                self.last = None
            if not self.latest and not entries:
                self.places.clear()
        return [self._renamed(one, names) for one in sent]

    def _rename(self, entry: Entry, names: dict[int, int]) -> None:
        entry.number = names.get(entry.number, entry.number)
        entry.since = names.get(entry.since, entry.since)
        entry.version = names.get(entry.version, entry.version)
        if entry.told_to:
            entry.told_to = {asker: names.get(v, v) for asker, v in entry.told_to.items()}

    def _renamed(self, sent: Any, names: dict[int, int]) -> Any:
        if isinstance(sent, Surrendered):
            sent = sent._replace(version=LATER)
        if not names or not isinstance(sent, (Told, Released, Surrendered)):
            return sent
        return sent._replace(records=tuple(self._record(r, names) for r in sent.records))

    def _record(self, record: RequestRecord, names: dict[int, int]) -> RequestRecord:
        return record._replace(
            number=names.get(record.number, record.number),
            since=names.get(record.since, record.since),
            version=names.get(record.version, record.version),
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
        queues = {self.link(*k): tuple(self.message(m) for _, m in q) for k, q in world.channels.items()}
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


def explore(
    world: World,
    limit: int = 1_000_000,
    at_end: Callable[[World], Any] | None = None,
    rename: bool = True,
) -> Outcome:
    """Explore a world depth first.

    Args:
        world: The world, in its first state; it is used up.
        limit: The most states.
        at_end: Looks at each terminal state: at its parties, not at counters of the world.
        rename: Rename counters, so that more states are the same.

    Raises:
        Violation: With the schedule that leads there, as choices of the world, in `schedule`.
        TooMany: There are more than `limit` states.
    """
    begun = time.perf_counter()
    space = Space(world, rename)
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
    seconds = time.perf_counter() - begun
    return Outcome(
        len(known),
        transitions,
        terminal,
        found[:2],
        found[2],
        len(space.kept),
        seconds,
        frozenset(ends.values()),
    )
