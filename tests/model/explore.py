"""Every interleaving of a small world: messages between any two parties in order, all else in any.

    explore(World(scripts, nodes))

It runs the machines and clients of `tests.model.world` and makes the same checks.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from locks.messages import Surrender, Told
from locks.model import AgentId
from locks.server_machine import ServerMachine
from tests.model.world import SERIALS, Choice, Client, Party, Violation, World, granted

DROPPED = {
    "LockTable": {"_requests", "_grants", "_waits", "_surrenders", "_refused"},
    "Client": {"aborts", "reports", "options", "script", "nodes", "clock", "out"},
    "ServerMachine": {"_handlers"},
}
# Dictionaries that are only looked into, or whose order decides only in which order messages to
# different parties are sent.
UNORDERED = frozenset(
    [
        "_entries",
        "_knows",
        "_tellers",
        "_surrendering",
        "_unanswered",
        "_releasing",
        "_used",
        "_standings",
        "waiting",
        "told",
        "_unclaimed",
        "open",
        "wishes",
    ]
)


def by_key(item: tuple[Any, Any]) -> Any:
    return repr(item[0]) if not isinstance(item[0], int) else item[0]


def freeze(value: Any, seen: dict[int, int] | None = None, ordered: bool = True) -> Any:
    seen = {} if seen is None else seen
    kind = type(value)
    if value is None or kind in (int, str, bool, Fraction) or isinstance(value, tuple):
        return value
    if isinstance(value, dict):
        items = value.items() if ordered else sorted(value.items(), key=by_key)
        return tuple([(freeze(k, seen), freeze(v, seen, ordered)) for k, v in items])
    if kind is list:
        return tuple([freeze(v, seen) for v in value])
    if kind in (set, frozenset):
        return frozenset([freeze(v, seen) for v in value])
    if isinstance(value, partial):
        return (value.func.__name__, value.args)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    names = getattr(kind, "__slots__", None) or value.__dict__
    found = [kind.__name__]
    for name in names:
        if name in DROPPED.get(kind.__name__, ()):
            continue
        if name == "deadlocks":
            found.append(len(value.deadlocks))
        else:
            found.append(freeze(getattr(value, name), seen, name not in UNORDERED))
    return tuple(found)


class Outcome(NamedTuple):
    states: int
    transitions: int
    terminal: int
    surrenders: tuple[int, int]
    superfluous: int
    seconds: float
    locals: int = 0


STEP, TIME_OUT, SETTLE, DIE = -1, -2, -3, -4
KINDS = {STEP: "step", TIME_OUT: "time out", SETTLE: "settle", DIE: "die"}


class Explorer:
    def __init__(self, world: World, limit: int = 300_000, reduce: bool = True) -> None:
        self.world = world
        self.limit = limit
        self.names = list(world.servers)
        self.count = len(self.names)
        self.parties = {name: i for i, name in enumerate(self.names)}
        self.kept: list[bytes] = []
        self.live: list[Any] = []
        self.flag: list[bool] = []
        self.refs: list[AgentId | None] = []
        self.spontaneous: list[tuple[int, ...]] = []
        self.ids: dict[Any, int] = {}
        self.messages: list[Any] = []
        self.message_ids: dict[Any, int] = {}
        self.links: list[tuple[Party, Party]] = []
        self.link_ids: dict[tuple[Party, Party], int] = {}
        self.link_from: list[int] = []
        self.link_to: list[int] = []
        self.reduce = reduce
        self.talks: list[bool] = []  # an agent that is active may send to other agents
        self.wakes: list[bool] = []  # a message that may make an agent active
        self.results: dict[tuple[int, int], Any] = {}
        self.fine: set[tuple[int, int]] = set()
        self.true: dict[Any, bool] = {}
        self.scratch = World([], world.servers.keys())

    # local states

    def local(self, party: Any, flag: bool) -> int:
        if isinstance(party, Client):
            if party.agent._resolver.surrendering:
                flag = False
            if party.finished:
                flag = False
        key = (freeze(party), flag, getattr(party, "number", 0))
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            self.kept.append(pickle.dumps(party, 5))
            self.live.append(party)
            self.flag.append(flag)
            own: list[int] = []
            ref = None
            if isinstance(party, Client):
                ref = None if party.finished else party.ref
                if flag:
                    own.append(SETTLE)
                if party.ready:
                    own.append(STEP)
                elif party.waiting == "for a while":
                    own.append(TIME_OUT)
                if party.number in self.world.mortal and not party.finished:
                    own.append(DIE)
            self.refs.append(ref)
            self.talks.append(ref is not None and party.agent._resolver.active)
            self.spontaneous.append(tuple(own))
        return found

    def message(self, message: Any) -> int:
        key = (type(message), message)  # named tuples of different types may be equal
        found = self.message_ids.get(key)
        if found is None:
            found = self.message_ids[key] = len(self.messages)
            self.messages.append(message)
            self.wakes.append(
                type(message) is Told and len({record.agent for record in message.records}) > 1
            )
        return found

    def link(self, sender: Party, receiver: Party) -> int:
        key = (sender, receiver)
        found = self.link_ids.get(key)
        if found is None:
            found = self.link_ids[key] = len(self.links)
            self.links.append(key)
            to = receiver
            self.link_from.append(
                self.parties[sender]
                if isinstance(sender, str)
                else self.count + sender.serial % SERIALS - 1
            )
            self.link_to.append(
                self.parties[to] if isinstance(to, str) else self.count + to.serial % SERIALS - 1
            )
        return found

    def react(self, local: int, what: int) -> Any:
        """What becomes of a party by one event: its new state, what it sends, surrender done."""
        party = pickle.loads(self.kept[local])
        done = None
        if isinstance(party, ServerMachine):
            message = self.messages[what]
            before = granted(party)
            effects = party.handle(message)
            self.scratch.check_kept(party, before, message, effects)
            sent = [(party.node, e.agent, e.message) for e in effects]
            if isinstance(message, Surrender) and message.report is not None:
                done = effects[-1].message.done
            new = self.local(party, False)
        else:
            flag = self.flag[local]
            if what >= 0:
                party.receive(self.messages[what])
                flag = flag or party.agent.unsettled
            elif what == SETTLE:
                flag = False
                party.settle()
            elif what == STEP:
                party.step()
            elif what == TIME_OUT:
                party.time_out()
            else:
                party.die(self.world.mortal[party.number])
            sent = list(party.out)
            party.out.clear()
            new = self.local(party, flag)
        outs = tuple((self.link(s, r), self.message(m)) for s, r, m in sent)
        found = self.results[local, what] = (new, outs, done)
        return found

    # global states

    def start(self) -> Any:
        world = self.world
        locals_ = [self.local(server, False) for server in world.servers.values()]
        for client in world.clients:
            client.clock = None
            locals_.append(
                self.local(client, client.number in world.unsettled and client.agent.unsettled)
            )
        channels = {
            self.link(*link): tuple(self.message(m) for _, m in queue)
            for link, queue in world.channels.items()
        }
        state = (tuple(locals_), tuple(sorted(channels.items())))
        for party in range(len(locals_)):
            self.check(state[0], party)
        return state

    def moves(self, state: Any) -> list[tuple[int, int, int]]:
        """(party, input, link)."""
        locals_, channels = state
        found = [(self.link_to[link], queue[0], link) for link, queue in channels]
        for party in range(self.count, len(locals_)):
            for own in self.spontaneous[locals_[party]]:
                found.append((party, own, -1))
        return self.persistent(state, found) if self.reduce and len(found) > 1 else found

    def persistent(self, state: Any, moves: list[tuple[int, int, int]]) -> list[Any]:
        """The moves of one party, if nothing that others do can add to them; or all."""
        locals_, channels = state
        by: dict[int, list[tuple[int, int, int]]] = {}
        for move in moves:
            by.setdefault(move[0], []).append(move)
        if len(by) == 1:
            return moves
        full = {(self.link_from[link], self.link_to[link]) for link, _ in channels}
        woken = {
            self.link_to[link]
            for link, queue in channels
            if any(self.wakes[message] for message in queue)
        }
        count = self.count
        best = moves
        for party, own in by.items():
            if len(own) < len(best) and self.alone(party, by, locals_, full, woken):
                best = own
        return best

    def alone(self, party: int, by: Any, locals_: Any, full: Any, woken: Any) -> bool:
        """Whether no other party can send to this one on an empty link before it acts."""
        count = self.count
        alive = {i for i in range(count, len(locals_)) if self.refs[locals_[i]] is not None}
        act = set(by) - {party}
        while True:
            servers = any(i < count for i in act)
            clients = any(i >= count for i in act)
            new = set()
            if clients:
                new |= set(range(count))
            if servers or any(i >= count and (self.talks[locals_[i]] or i in woken) for i in act):
                new |= alive
            new -= act
            new.discard(party)
            if not new:
                break
            act |= new
        if party < count:
            return all(i < count or (i, party) in full for i in act)
        talk = any(i < count for i in act)
        return all(
            (i, party) in full
            or (i >= count and not (talk or self.talks[locals_[i]] or i in woken))
            for i in act
        )

    def after(self, state: Any, move: tuple[int, int, int]) -> tuple[Any, Any]:
        locals_, channels = state
        party, what, link = move
        local = locals_[party]
        result = self.results.get((local, what)) or self.react(local, what)
        new, outs, done = result
        queues = dict(channels)
        if link >= 0:
            rest = queues[link][1:]
            if rest:
                queues[link] = rest
            else:
                del queues[link]
        if new != local:
            locals_ = (*locals_[:party], new, *locals_[party + 1 :])
            if self.refs[new] != self.refs[local]:
                for old in list(queues):
                    if self.link_to[old] == party:
                        del queues[old]
        for out, message in outs:
            to = self.link_to[out]
            if to < self.count or self.refs[locals_[to]] == self.links[out][1]:
                queues[out] = (*queues.get(out, ()), message)
        if new != local:
            self.check(locals_, party)
        return (locals_, tuple(sorted(queues.items()))), done

    def check(self, locals_: tuple[int, ...], party: int) -> None:
        mine = locals_[party]
        others = range(self.count, len(locals_)) if party < self.count else range(len(locals_))
        for other in others:
            if other != party:
                pair = (mine, locals_[other])
                if pair not in self.fine:
                    a, b = self.live[mine], self.live[locals_[other]]
                    self.check_pair(a, b)
                    self.fine.add(pair)

    def check_pair(self, a: Any, b: Any) -> None:
        scratch = self.scratch
        if isinstance(b, ServerMachine):
            a, b = b, a
        if isinstance(a, ServerMachine):
            scratch.servers = {a.node: a}
            scratch.check_told(b, a.node)
        else:
            scratch.clients = [a, b]
            scratch.check_exclusion(a)

    def whole(self, locals_: tuple[int, ...]) -> World:
        """A world of the parties in these states, to look at."""
        scratch = self.scratch
        scratch.servers = {n: self.live[i] for n, i in zip(self.names, locals_, strict=False)}
        scratch.clients = [self.live[i] for i in locals_[self.count :]]
        return scratch

    def is_true(self, locals_: tuple[int, ...], what: int) -> bool:
        key = (locals_, what)
        found = self.true.get(key)
        if found is None:
            world = self.whole(locals_)
            found = self.true[key] = world.is_deadlock(self.messages[what], world.edges())
        return found

    def name(self, move: tuple[int, int, int]) -> Choice:
        party, what, link = move
        if link >= 0:
            return ("deliver", self.links[link])
        return (KINDS[what], party - self.count + 1)


def explore(
    world: World,
    limit: int = 300_000,
    at_end: Callable[[World], None] | None = None,
    reduce: bool = True,
) -> Outcome:
    begun = time.perf_counter()
    ex = Explorer(world, limit, reduce)
    start = ex.start()
    # state -> (least, most surrenders from here, most superfluous), or None while on the path
    known: dict[Any, Any] = {start: None}
    transitions = terminal = 0
    frames: list[list[Any]] = [[start, ex.moves(start), None, 10**9, -1, 0, None]]
    ends: set[Any] = set()
    result = None
    move = None
    try:
        while frames:
            frame = frames[-1]
            state, moves = frame[0], frame[1]
            if result is not None:
                weight, wrong = frame[2]
                frame[3] = min(frame[3], result[0] + weight)
                frame[4] = max(frame[4], result[1] + weight)
                frame[5] = max(frame[5], result[2] + wrong)
                result = None
            if not moves:
                if frame[4] < 0:  # terminal
                    terminal += 1
                    if state[0] not in ends:
                        ends.add(state[0])
                        w = ex.whole(state[0])
                        w.check_end()
                        if at_end:
                            at_end(w)
                    frame[3] = frame[4] = 0
                result = known[state] = tuple(frame[3:])
                frames.pop()
                continue
            move = moves.pop()
            transitions += 1
            new, done = ex.after(state, move)
            weight = wrong = 0
            if done:
                weight = 1
                wrong = 0 if ex.is_true(state[0], move[1]) else 1
            if new in known:
                found = known[new]
                if found is None:
                    raise Violation("endless")
                frame[3] = min(frame[3], found[0] + weight)
                frame[4] = max(frame[4], found[1] + weight)
                frame[5] = max(frame[5], found[2] + wrong)
            else:
                if len(known) >= limit:
                    raise RuntimeError(f"more than {limit} states")
                frame[2] = (weight, wrong)
                known[new] = None
                frames.append([new, ex.moves(new), None, 10**9, -1, 0, move])
    except Violation as v:
        v.path = [ex.name(f[6]) for f in frames[1:]] + [ex.name(move)]
        raise
    return Outcome(
        len(known),
        transitions,
        terminal,
        result[:2],
        result[2],
        time.perf_counter() - begun,
        len(ex.kept),
    )
