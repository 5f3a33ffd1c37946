"""The states of a world, for exploring it: numbers for everything, and each step run once.

A party's next state and what it sends depend on nothing but its own state and what happens to it. So
each such step is run once, and looked up from then on (`Space.react`); a state of the world is a
tuple of numbers: of the parties' states, of the messages on each link, and of the network's state.
Checks are of one party, or of two, and remembered as well. States and messages are frozen to plain
tuples, without statistics, and without the reports of deadlocks except for how many there are
(`locks.sim.freezing` says what counts as the same).

Fewer states (`reduce`). Events at different parties do not depend on each other: whichever comes
first, what they lead to is the same. So of all orders of such events one is enough.

* An agent's look at what it knows (`settle`) depends on nothing but what it took in before. It is
  made one event with the message before it: a message arrives, and the agent looks or does not. If
  it does not, and nothing else has come of the message, the next event is one at this very agent.
* As long as no other party knows of an agent, or can get to know of it, but for what it is told by
  lock servers, nothing that others do makes a difference to it (`_private`). Its events come first.

What is reachable for each single party, each end, and each surrender stays the same. Two clients'
locks are compared in the states that are visited: without `reduce` in all of them.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from locks.messages import Remove, Surrender
from locks.model import AgentId
from locks.server_machine import ServerMachine
from locks.sim.checks import (
    check_exclusion,
    check_kept,
    check_rule,
    check_told,
    check_yields,
    granted,
    is_deadlock,
)
from locks.sim.client import SERIALS, Client, Violation
from locks.sim.freezing import SINGLE, UNORDERED, Labels, freeze
from locks.sim.network import Link, Network, Party
from locks.sim.world import Choice, World

__all__ = ["Move", "Space", "State"]

STEP, TIME_OUT, SETTLE, DIE, VANISH, NODES = -1, -2, -3, -4, -5, -10
KINDS = {STEP: "step", TIME_OUT: "time out", SETTLE: "settle", DIE: "die"}

Queues = tuple[tuple[int, tuple[int, ...]], ...]
State = tuple[tuple[int, ...], Queues, int]


class Move(NamedTuple):
    """Something that can happen.

    Attributes:
        party: Where; -1 if it is not one party's event.
        what: The number of the message that arrives, or a negative number for another kind.
        link: The link on which it arrives, or -1.
        settle: Whether the agent looks at what it knows right after.
        choice: For what is not one party's event.
    """

    party: int
    what: int
    link: int
    settle: bool = False
    choice: Choice | None = None


class Reaction(NamedTuple):
    """What a step of a party leads to.

    Attributes:
        after: The number of its next state.
        sent: What it sends: link and message.
        done: Whether a surrender was carried out.
        silent: Whether nobody else can tell that anything happened.
    """

    after: int
    sent: tuple[tuple[int, int], ...]
    done: bool
    silent: bool


class Space:
    """The states of a world, and what leads from one to another.

    Args:
        world: The world, in its first state; it is used up.
        rename: Rename counters, so that more states are the same.
        reduce: Leave out orders of independent events.
    """

    def __init__(self, world: World, rename: bool = True, reduce: bool = True) -> None:
        self.world = world
        self.rename = rename
        self.reduce = reduce
        self.names = list(world.servers)
        self.servers = len(self.names)
        self.unordered = SINGLE if self.servers == 1 else UNORDERED
        self.faulty = bool(world.cuts or world.crashes)
        self.reborn = any(  # whether clients may have other agents later
            client.agent.abort_on_deadlock or any(step.kind == "again" for step in client.script)
            for client in world.clients
        )
        # For each state of a party:
        self.kept: list[bytes] = []  # itself, to be run
        self.live: list[Any] = []  # itself, to be looked at
        self.unsettled: list[bool] = []
        self.forced: list[bool] = []  # whether the next event must be one of this party
        self.refs: list[AgentId | None] = []  # its agent, if that is alive
        self.own: list[tuple[int, ...]] = []  # what it can do by itself
        self.mentions: list[frozenset[AgentId]] = []  # the agents that it may tell others of
        self.ids: dict[Any, int] = {}
        self.messages: list[Any] = []
        self.mentioned: list[frozenset[AgentId]] = []  # in each message
        self.message_ids: dict[Any, int] = {}
        self.links: list[Link] = []
        self.link_ids: dict[Link, int] = {}
        self.link_from: list[int] = []
        self.link_to: list[int] = []
        self.networks: list[Any] = []
        self.network_ids: dict[Any, int] = {}
        self.reactions: dict[tuple[int, int, bool], Reaction] = {}
        self.fine: set[tuple[int, int, int]] = set()
        self.true: dict[Any, bool] = {}
        self.scratch = World([], self.names)

    def start(self) -> State:
        """The state in which the world is."""
        world = self.world
        parties = []
        for server in world.servers.values():
            if self.rename:
                self._label(server)
            parties.append(self._party(server, False))
        for client in world.clients:
            client.clock = None  # agents that begin later are in the order of their clients
            parties.append(self._party(client, client.agent.unsettled))
        queues = {
            self._link(*link): tuple(self._message(m) for _, _, m in queue)
            for link, queue in world.links.items()
        }
        network = self._network(world.network, world.cuts, world.crashes, world.restarts)
        for number in range(len(parties)):
            self._check(tuple(parties), number, network)
        return (tuple(parties), tuple(sorted(queues.items())), network)

    # --- What can happen

    def moves(self, state: State) -> list[Move]:
        """All that can happen next; nothing needs to that is a fault."""
        parties, queues, network = state
        whole = network == 0
        if self.reduce:
            for number in range(self.servers, len(parties)):
                if self.forced[parties[number]]:
                    return self._moves_of(state, number)
            if whole and not self.faulty:
                first = self._first(state)
                if first is not None:
                    return self._moves_of(state, first)
        found: list[Move] = []
        for link, queue in queues:
            if whole or self._may_arrive(link, network):
                self._add(found, parties, Move(self.link_to[link], queue[0], link))
        for number in range(self.servers, len(parties)):
            for what in self.own[parties[number]]:
                self._add(found, parties, Move(number, what, -1))
        if not whole or self.faulty:
            world = self._with_network(network)
            net = world.network
            choices: list[Choice] = [("notice", pair) for pair in net.notices()]
            choices += [("connect", pair) for pair in net.connectable()]
            choices += world.fault_choices()
            found += [Move(-1, 0, -1, choice=choice) for choice in choices]
        return found

    def is_fault(self, move: Move) -> bool:
        """Whether this never needs to happen."""
        if move.choice is not None:
            return move.choice[0] in ("cut", "mend", "crash", "restart")
        return move.what == DIE

    def _moves_of(self, state: State, number: int) -> list[Move]:
        """All that can happen at one party."""
        parties, queues, network = state
        found: list[Move] = []
        for link, queue in queues:
            if self.link_to[link] == number and (not network or self._may_arrive(link, network)):
                self._add(found, parties, Move(number, queue[0], link))
        for what in self.own[parties[number]]:
            self._add(found, parties, Move(number, what, -1))
        return found

    def _add(self, found: list[Move], parties: tuple[int, ...], move: Move) -> None:
        """Add an event; with `reduce`, once with and once without a look at what is known."""
        number, what = move.party, move.what
        if not self.reduce or number < self.servers:
            found.append(move)
            return
        after = self.react(parties[number], what, False).after
        if self.unsettled[after]:
            found.append(Move(number, what, move.link, True))
        found.append(move)

    def _first(self, state: State) -> int | None:
        """A party whose events may come first, for nothing that others do makes a difference to them.

        That is so when each party that can do anything before it, and may then send it a message,
        has one on its way to it already: what comes after that one does not add to what can happen.
        """
        parties, queues, _ = state
        servers, refs, mentions = self.servers, self.refs, self.mentions
        count = len(parties)
        coming: list[set[int]] = [set() for _ in range(count)]  # from whom messages are on their way
        spoken_of: set[AgentId] = set()  # by others than themselves
        for party in parties:
            spoken_of |= mentions[party]
        for link, queue in queues:
            sender, receiver = self.link_from[link], self.link_to[link]
            if sender < servers or refs[parties[sender]] == self.links[link][0]:
                coming[receiver].add(sender)
            else:
                coming[receiver].add(-1)  # an agent that has ended
            for message in queue:
                spoken_of |= self.mentioned[message] - {self.links[link][1]}
        live = [n for n in range(count) if n < servers or refs[parties[n]] is not None]
        busy = [n for n in live if coming[n] or self.own[parties[n]]]
        for me in busy:
            if self._is_first(me, parties, coming, spoken_of, live, busy):
                return me
        return None

    def _is_first(
        self,
        me: int,
        parties: tuple[int, ...],
        coming: list[set[int]],
        spoken_of: set[AgentId],
        live: list[int],
        busy: list[int],
    ) -> bool:
        servers = self.servers
        active = [n for n in busy if n != me]
        idle = [n for n in live if n != me and n not in active]
        if me < servers and self.reborn:
            return False
        if me >= servers and self.refs[parties[me]] in spoken_of:
            return all(n in coming[me] for n in active) and not (idle and active)
        for n in active:  # it grows
            for other in list(idle):
                if other < servers or self.refs[parties[other]] in spoken_of:
                    idle.remove(other)
                    active.append(other)
            if me < servers:
                if n >= servers and n not in coming[me]:
                    return False
            elif n < servers and n not in coming[me] and me in coming[n]:
                return False
        return True

    def _may_arrive(self, link: int, network: int) -> bool:
        net: Network = self._with_network(network).network
        return net.may_arrive(self.links[link])

    # --- Making it happen

    def after(self, state: State, move: Move) -> State | None:
        """Make something happen; nothing if it leads nowhere that another order does not lead to."""
        if move.choice is not None:
            return self._after_choice(state, move.choice)
        parties, channels, network = state
        number, what, link = move[:3]
        old = parties[number]
        reaction = self.react(old, what, move.settle)
        new = reaction.after
        queues = dict(channels)
        if link >= 0:
            queue = queues[link]
            if len(queue) > 1:
                queues[link] = queue[1:]
            else:
                del queues[link]
        if self.reduce and number >= self.servers and self.unsettled[new] and reaction.silent:
            new = self._force(new)
        if new != old:
            parties = (*parties[:number], new, *parties[number + 1 :])
            if self.refs[new] != self.refs[old]:
                for each in [each for each in queues if self.link_to[each] == number]:
                    del queues[each]
            self._check(parties, number, network)
        for link, message in reaction.sent:
            self._put(queues, parties, link, message, network)
        after = (parties, tuple(sorted(queues.items())), network)
        if self.forced[new] and not self._moves_of(after, number):
            return None
        return after

    def _put(
        self,
        queues: dict[int, tuple[int, ...]],
        parties: tuple[int, ...],
        link: int,
        message: int,
        network: int,
    ) -> None:
        to = self.link_to[link]
        if to >= self.servers and self.refs[parties[to]] != self.links[link][1]:
            return
        if network:
            sender, receiver = self.links[link]
            net = self._with_network(network).network
            net.send(sender, receiver, message)
            if not net.links.pop((sender, receiver), None):
                return
        queues[link] = (*queues.get(link, ()), message)

    def _after_choice(self, state: State, choice: Choice) -> State:
        """What concerns the network: nodes and connections."""
        parties, channels, number = state
        kind, what = choice
        world = self._with_network(number)
        network = world.network
        for link, queue in channels:
            network.links[self.links[link]] = deque((0, 0.0, message) for message in queue)
        new = list(parties)
        events: list[tuple[int, int]] = []  # party, and what happens to it
        if kind == "notice":
            me, other = what
            there = network.notice(what)
            code = NODES - 2 * self.names.index(other) - there
            events = [(each, code) for each in self._clients_at(me, parties)]
            if not there:
                server = self.names.index(me)
                askers = self.live[parties[server]].table.askers
                lost = [agent for agent in askers if agent.node == other]
                events += [(server, self._message(Remove(agent))) for agent in lost]
        elif kind == "crash":
            world.crashes -= 1
            network.crash(what)
            events = [(each, VANISH) for each in self._clients_at(what, parties)]
            new[self.names.index(what)] = self._party(None, False)
        elif kind == "restart":
            world.restarts += 1
            network.restart(what)
            server_machine = world.rule.server(what, world.restarts << 32)
            if self.rename:
                self._label(server_machine, world.restarts)
            new[self.names.index(what)] = self._party(server_machine, False)
        elif kind == "cut":
            world.cuts -= 1
            network.cut(what)
        elif kind == "mend":
            network.mend(what)
        else:
            network.connect(what)
        after = self._network(network, world.cuts, world.crashes, world.restarts)
        queues = {
            self._link(*link): tuple(message for _, _, message in queue)
            for link, queue in network.links.items()
        }
        network.links.clear()
        for each, code in events:
            reaction = self.react(new[each], code, False)
            before, new[each] = new[each], reaction.after
            if self.refs[before] != self.refs[reaction.after]:
                for link in [link for link in queues if self.link_to[link] == each]:
                    del queues[link]
            for link, message in reaction.sent:
                self._put(queues, tuple(new), link, message, after)
        for each in range(len(new)):
            self._check(tuple(new), each, after)
        return (tuple(new), tuple(sorted(queues.items())), after)

    def _clients_at(self, node: str, parties: tuple[int, ...]) -> Iterator[int]:
        for number in range(self.servers, len(parties)):
            ref = self.refs[parties[number]]
            if ref is not None and ref.node == node:
                yield number

    def surrendered(self, state: State, move: Move) -> tuple[int, int]:
        """Whether an event carries a surrender out, and whether that is superfluous."""
        if move.choice is not None or move.party >= self.servers:
            return (0, 0)
        parties = state[0]
        if not self.reactions[parties[move.party], move.what, False].done:
            return (0, 0)
        message = self.messages[move.what]
        check_yields(message.report)
        key = (parties, move.what)
        if key not in self.true:
            world = self.whole(state)
            self.true[key] = is_deadlock(message, world.edges(), world.live_hosts())
        return (1, 0 if self.true[key] else 1)

    def react(self, old: int, what: int, settle: bool) -> Reaction:
        """What one step of a party leads to."""
        found = self.reactions.get((old, what, settle))
        if found is not None:
            return found
        party = pickle.loads(self.kept[old])
        if isinstance(party, ServerMachine):
            found = self._serve(party, self.messages[what])
        else:
            found = self._act(party, old, what, settle)
        self.reactions[old, what, settle] = found
        return found

    def _serve(self, server: ServerMachine, message: Any) -> Reaction:
        before = granted(server)
        if self.rename:
            server.labels.begin(server, message)  # type: ignore[attr-defined]
        effects: list[Any] = server.handle(message)
        check_kept(server, before, message, effects)
        check_rule(server, before)
        done = isinstance(message, Surrender) and message.report is not None
        done = done and effects[-1].message.done
        sent = [effect.message for effect in effects]
        if self.rename:
            sent = server.labels.end(server, message, sent)  # type: ignore[attr-defined]
        mail = [
            (self._link(server.node, effect.agent), self._message(each))
            for effect, each in zip(effects, sent, strict=True)
        ]
        return Reaction(self._party(server, False), tuple(mail), done, False)

    def _act(self, client: Client, old: int, what: int, settle: bool) -> Reaction:
        unsettled = self.unsettled[old] and what != SETTLE
        before = (client.told, client.waiting, client.ref)
        if what >= 0:
            client.host.receive(self.messages[what])
            unsettled = unsettled or client.agent.unsettled
        elif what <= NODES:
            node, there = divmod(NODES - what, 2)
            (client.node_up if there else client.node_down)(self.names[node])
            unsettled = unsettled or client.agent.unsettled
        elif what == DIE:
            client.die(self.world.mortal[client.number])
        elif what == VANISH:
            client.vanish()
        elif what == SETTLE:
            client.host.settle()
        else:
            (client.step if what == STEP else client.time_out)()
            unsettled = unsettled or client.agent.unsettled
        if settle:
            client.host.settle()
            unsettled = False
        out = client.host.out
        sent = tuple((self._link(s, r), self._message(m)) for s, r, m in out)
        out.clear()
        silent = not sent and before == (client.told, client.waiting, client.ref)
        return Reaction(self._party(client, unsettled), sent, False, silent)

    # --- Looking at states

    def whole(self, state: State) -> World:
        """The world of a state, to look at; what is on its way is not in it."""
        parties, _, network = state
        world = self._with_network(network)
        found = [self.live[party] for party in parties]
        world.servers = {
            name: server
            for name, server in zip(self.names, found[: self.servers], strict=True)
            if server is not None
        }
        world.clients = found[self.servers :]
        world.hosts = {c.ref: (c.host, c) for c in world.clients if not c.finished}
        return world

    def choices(self, move: Move) -> list[Choice]:
        """An event as choices of the world."""
        if move.choice is not None:
            return [move.choice]
        number = move.party - self.servers + 1
        if move.link >= 0:
            found: list[Choice] = [("deliver", self.links[move.link])]
        else:
            found = [(KINDS[move.what], number)]
        return [*found, ("settle", number)] if move.settle else found

    def check_quiet(self, state: State) -> None:
        """Nothing needs to happen any more."""
        self.whole(state).check_quiet()

    def check_end(self, state: State) -> World:
        """Nothing can happen any more: all have finished, and nothing is left."""
        world = self.whole(state)
        world.check_end()
        for client in world.clients:
            claims, resolver = client.agent._claims, client.agent._resolver
            kept = (claims.wishes, claims.open, claims.waiting, claims._unanswered)
            if client.agent.ended is None:  # it crashed, or it waits for nodes that are down
                continue
            if any(kept) or resolver.active or resolver._knows:
                raise Violation(f"left in client {client.number}")
        return world

    def _check(self, parties: tuple[int, ...], number: int, network: int) -> None:
        """After an event at a party: what must be true of it and each other one."""
        mine = parties[number]
        for other in parties[self.servers :] if number < self.servers else parties:
            if other != mine and (mine, other, network) not in self.fine:
                a, b = self.live[mine], self.live[other]
                if a is not None and b is not None:
                    self._check_two(a, b, network)
                self.fine.add((mine, other, network))

    def _check_two(self, a: Any, b: Any, network: int) -> None:
        net = self._with_network(network).network
        if isinstance(a, Client) and isinstance(b, Client):
            for node in self.names:
                if net.vouches(node, a.home) and net.vouches(node, b.home):
                    check_exclusion(a.host, b.host, node)
        elif isinstance(a, Client) or isinstance(b, Client):
            client, server = (a, b) if isinstance(a, Client) else (b, a)
            if net.vouches(server.node, client.home):
                check_told(client.host, server)

    # --- Numbers for everything

    def _party(self, party: ServerMachine | Client | None, unsettled: bool) -> int:
        """The number of a party's state."""
        ref = None
        own = []
        if isinstance(party, Client):
            # While a surrender is not answered nothing is looked at; the answer is a message.
            unsettled = unsettled and not party.finished
            unsettled = unsettled and not party.agent._resolver.surrendering
            if not party.finished:
                ref = party.ref
                own = [SETTLE] if unsettled and not self.reduce else []
                own += [STEP] if party.ready else []
                own += [TIME_OUT] if party.waiting == "for a while" else []
                own += [DIE] if party.number in self.world.mortal else []
        key = (freeze(party, self.unordered, {}), tuple(own), unsettled)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            self.kept.append(pickle.dumps(party, 5))
            self.live.append(party)
            self.unsettled.append(unsettled)
            self.forced.append(False)
            self.refs.append(ref)
            self.own.append(tuple(own))
            self.mentions.append(_mentions(party))
        return found

    def _force(self, party: int) -> int:
        """The number of the same state when the next event must be one of this party."""
        key = ("forced", party)
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.kept)
            for column in (self.kept, self.live, self.unsettled, self.refs, self.own):
                column.append(column[party])  # type: ignore[attr-defined]
            self.mentions.append(self.mentions[party])
            self.forced.append(True)
        return found

    def _message(self, message: Any) -> int:
        """The number of a message."""
        key = (type(message), message)  # named tuples of different types may be equal
        found = self.message_ids.get(key)
        if found is None:
            found = self.message_ids[key] = len(self.messages)
            self.messages.append(message)
            self.mentioned.append(frozenset(_agents_in(message)))
        return found

    def _link(self, sender: Party, receiver: Party) -> int:
        """The number of a link."""
        found = self.link_ids.get((sender, receiver))
        if found is None:
            found = self.link_ids[sender, receiver] = len(self.links)
            self.links.append((sender, receiver))
            self.link_from.append(
                self.names.index(sender)
                if isinstance(sender, str)
                else self.servers + sender.serial % SERIALS - 1
            )
            self.link_to.append(
                self.names.index(receiver)
                if isinstance(receiver, str)
                else self.servers + receiver.serial % SERIALS - 1
            )
        return found

    def _network(self, network: Network, *left: int) -> int:
        """The number of a state of the network; 0 is the first one."""
        key = (
            tuple(network.seen.items()),
            frozenset(network.crashed),
            frozenset(network.apart),
            *left,
        )
        found = self.network_ids.get(key)
        if found is None:
            found = self.network_ids[key] = len(self.networks)
            self.networks.append(key)
        return found

    def _with_network(self, number: int) -> World:
        """The scratch world, with a state of the network."""
        seen, crashed, apart, cuts, crashes, restarts = self.networks[number]
        world, network = self.scratch, self.scratch.network
        network.seen = dict(seen)
        network.crashed, network.apart = set(crashed), set(apart)
        world.cuts, world.crashes, world.restarts = cuts, crashes, restarts
        world.faults, world.rule = self.world.faults, self.world.rule
        return world

    def _label(self, server: ServerMachine, life: int = 0) -> None:
        server.labels = Labels(server, life, not self.faulty)  # type: ignore[attr-defined]


def _agents_in(value: Any) -> Iterator[AgentId]:
    """All agents that a value speaks of."""
    if isinstance(value, AgentId):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _agents_in(each)


def _mentions(party: ServerMachine | Client | None) -> frozenset[AgentId]:
    """The agents that a party knows of, and may tell others of; not a client's own one."""
    found: set[AgentId] = set()
    if isinstance(party, ServerMachine):
        informer = party._informer
        found |= {asker.id for asker in informer._closers}
        for asker in party.table.askers.values():
            if asker.waits or asker.waited:
                found.add(asker.id)
            for entry in asker.all():
                if entry.told_to:
                    found.add(asker.id)
                    found |= {other.id for other in entry.told_to}
    elif isinstance(party, Client) and not party.finished:
        resolver = party.agent._resolver
        found |= {*resolver._knows, *resolver._tellers}
        if resolver._graph is not None:
            found |= {record.agent for record in resolver._graph._records.values()}
        found.discard(party.ref)
    return frozenset(found)
