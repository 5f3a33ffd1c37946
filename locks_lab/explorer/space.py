"""The states of a world in an exploration, and the moves between them.

A state of the world is a tuple of numbers (`locks_lab.explorer.reactions`): of the parties' states,
of the messages on each link, and of the network's state. Each check concerns one party or two, and
its result is remembered.

Fewer states (`reduce`). Events at different parties are independent: in either order, they lead to
the same state. So one order of such events is enough.

* An agent's `settle` depends only on the messages that it has handled before. It is one event with
  the message before it: a message arrives, and the agent settles or does not. If it does not, and
  the message had no other effect, the next event is at the same agent.
* If nothing that other parties do can affect what a party does next, its events come first
  (`_first`).
* A client's inflation (`locks_lab.worlds.remote`) is seen by nobody, so it comes right before the client's next event.
* Changes of the network make no difference until a node notices (`locks_lab.explorer.outages`).

The first two rules apply only as long as no fault of the network is possible. The reduction keeps
every reachable state of each single party, every end, and every surrender. Checks that concern two
parties are made only in the visited states: conflicts between two clients' locks, and whether a
surrender was superfluous. Without `reduce`, these are all states.

Fencing tokens of different clients are compared by their real numbers, in the order in which the
clients get them. So there is no reduction in worlds with fencing tokens: all orders are tried, and
counters are not renamed.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from locks.core.messages import Remove
from locks.errors import assert_never
from locks.model import AgentId
from locks_lab.explorer.outages import Outages
from locks_lab.explorer.reactions import DIE, KINDS, NODES, VANISH, Reaction, Reactions
from locks_lab.worlds.checks import (
    check_exclusion,
    check_report,
    check_token,
    check_told,
    is_deadlock,
    keys,
)
from locks_lab.worlds.client import ScriptedClient
from locks_lab.worlds.events import FAULTS
from locks_lab.worlds.network import Change, Network, Pair
from locks_lab.worlds.world import World

__all__ = ["Space", "State", "Transition"]

NOTHING = (0, 0, 0)

Queues = tuple[tuple[int, tuple[int, ...]], ...]
State = tuple[tuple[int, ...], Queues, int]


class Transition(NamedTuple):
    """A move that is possible in a state.

    Attributes:
        party: The party of the event; -1 if it is not an event of one party.
        what: The number of the message that arrives, or a negative number for another kind of
            event.
        link: The link on which the message arrives, or -1.
        settle: Whether the agent settles right after.
        changes: If it is not an event of one party: the changes of the network, in order.
        alone: Whether events of other parties are not tried before it.
        inflates: Whether what is thin is inflated before.
    """

    party: int
    what: int
    link: int
    settle: bool = False
    changes: tuple[Change, ...] = ()
    alone: bool = False
    inflates: bool = False


class _Overview(NamedTuple):
    """The parties of a state, seen from outside; parties are given by their positions.

    Attributes:
        busy: The parties that can do something.
        idle: The live parties that cannot.
        woken: The idle parties to which others may send something.
        coming: For each party, the senders of messages in flight to it; -1 for a sender that has
            ended.
        spoken_of: The agents that another party knows, or will know.
    """

    busy: list[int]
    idle: list[int]
    woken: list[int]
    coming: list[set[int]]
    spoken_of: set[AgentId]


class Space(Reactions):
    """The states of a world, and the moves between them.

    Args:
        world: The world, in its first state; it is used up.
        rename: Rename counters, so that more states are equal.
        reduce: Leave out orders of independent events.
    """

    def __init__(self, world: World, rename: bool = True, reduce: bool = True) -> None:
        self.faulty = bool(world.cuts or world.crashes)
        if any(step.kind == "token" for client in world.clients for step in client.script):
            rename = reduce = False
        super().__init__(world, rename, reduce and not self.faulty)
        self.reduce = reduce
        self.reborn = any(  # whether clients may have other agents later
            client.agent.abort_on_deadlock or any(step.kind == "again" for step in client.script)
            for client in world.clients
        )
        self.outages = Outages(world, reduce)
        self.fine: set[tuple[int, int, int]] = set()
        self.judged: dict[Any, tuple[int, int, int]] = {}

    def start(self) -> State:
        """The state in which the world is."""
        world = self.world
        parties = []
        for server in world.servers.values():
            self.label(server)
            parties.append(self.party(server, False))
        for client in world.clients:
            client.clock = None  # agents that begin later are in the order of their clients
            parties.append(self.party(client, client.agent.unsettled, first=True))
        queues = {
            self.link(*link): tuple(self.message(m) for _, m in queue)
            for link, queue in world.links.items()
        }
        network = self.outages.number(world.network, world.cuts, world.crashes, world.restarts)
        for number in range(len(parties)):
            self._check(tuple(parties), number, network)
        return (tuple(parties), tuple(sorted(queues.items())), network)

    # --- What can happen

    def moves(self, state: State) -> list[Transition]:
        """All that can happen next; nothing needs to that is a fault."""
        parties, _, network = state
        if self.reduce:
            for number in range(self.servers, len(parties)):
                if self.forced[parties[number]]:
                    return self._moves_of(state, number)
            if not self.faulty or not self.outages.changes(network):
                first = self._first(state)
                if first is not None:
                    return self._moves_of(state, first, alone=True)
        found = self._moves_of(state)
        if network or self.faulty:
            found += [Transition(-1, 0, -1, changes=each) for each in self.outages.changes(network)]
        return found

    def is_unsettled(self, state: State) -> bool:
        """Whether an agent must still settle; another path does this earlier and continues."""
        return any(self.unsettled[party] for party in state[0])

    def is_fault(self, move: Transition) -> bool:
        """Whether this never needs to happen."""
        if move.changes:
            return move.changes[0][0] in FAULTS
        return move.what == DIE

    def _moves_of(
        self, state: State, only: int | None = None, alone: bool = False
    ) -> list[Transition]:
        """The possible events of all parties, or of one; without changes of the network.

        Args:
            state: The state of the world.
            only: The party, if it is only one.
            alone: Whether events of other parties are not tried before it.
        """
        parties, queues, network = state
        found: list[Transition] = []
        for link, queue in queues:
            number = self.link_to[link]
            if only in (None, number) and (not network or self._may_arrive(link, network)):
                self._add(found, parties, number, queue[0], link, alone)
        for number in range(self.servers, len(parties)) if only is None else (only,):
            for what in self.own[parties[number]]:
                self._add(found, parties, number, what, -1, alone)
        return found

    def _add(
        self,
        found: list[Transition],
        parties: tuple[int, ...],
        number: int,
        what: int,
        link: int,
        alone: bool,
    ) -> None:
        """Add an event. If `settle` is fused with it, add it both with and without; likewise with inflation before it."""
        old = parties[number]
        for party in dict.fromkeys((old, self.inflated[old])):
            inflates = party != old
            if inflates and self._is_same(old, party, what):
                continue
            if (
                self.fused
                and number >= self.servers
                and self.unsettled[self.react(party, what, False).after]
            ):
                found.append(Transition(number, what, link, True, (), alone, inflates))
            found.append(Transition(number, what, link, False, (), alone, inflates))

    def _is_same(self, old: int, party: int, what: int) -> bool:
        """Whether it makes no difference to inflate what is thin before an event, or the event is not possible then."""
        if what < 0 and what not in self.own[party]:
            return True
        return self.react(old, what, False) == self.react(party, what, False)

    def _first(self, state: State) -> int | None:
        """A party whose events may come first, because nothing that others do can affect them.

        The condition: every party that can act before it, and may then send it a message, already
        has a message in flight to it. Messages after this one do not make new events possible.
        """
        parties = state[0]
        there = self._overview(state)
        for me in there.busy:
            # One that may die is not: that it lives on must be tried as well.
            if (
                DIE not in self.own[parties[me]]
                and self._is_first(me, parties, there)
                and not self._lets_go(state, me)
            ):
                return me
        return None

    def _overview(self, state: State) -> _Overview:
        parties, queues, _ = state
        servers, refs = self.servers, self.refs
        coming: list[set[int]] = [set() for _ in parties]
        spoken_of: set[AgentId] = set()
        for party in parties:
            spoken_of |= self.mentions[party]
        for link, queue in queues:
            sender, receiver = self.link_from[link], self.link_to[link]
            lives = sender < servers or refs[parties[sender]] == self.links[link][0]
            coming[receiver].add(sender if lives else -1)
            for message in queue:
                spoken_of |= self.mentioned[message] - {self.links[link][1]}
        busy: list[int] = []
        idle: list[int] = []
        for number, party in enumerate(parties):
            if number < servers or refs[party] is not None:
                (busy if coming[number] or self.own[party] else idle).append(number)
        woken = [n for n in idle if n < servers or refs[parties[n]] in spoken_of]
        return _Overview(busy, idle, woken, coming, spoken_of)

    def _is_first(self, me: int, parties: tuple[int, ...], there: _Overview) -> bool:
        """Whether no party that may act first can send it a message, unless one is already in flight."""
        servers, coming = self.servers, there.coming
        active = [n for n in there.busy if n != me]
        if me < servers:  # agents may ask it; if they can be other agents then, on another link
            others = (*active, *there.woken) if active else ()
            asking = [n for n in others if n >= servers]
            return not self.reborn and all(n in coming[me] for n in asking)
        if self.refs[parties[me]] in there.spoken_of:  # any party may send to it
            if self.reborn and any(n >= servers for n in active):
                return False
            return not active or (not there.idle and all(n in coming[me] for n in active))
        # Only lock servers may: they answer the messages in flight to them.
        asked = [n for n in (*active, *there.woken) if n < servers and me in coming[n]]
        return all(n in coming[me] for n in asked)

    def _lets_go(self, state: State, me: int) -> bool:
        """Whether a client gives up a lock, whatever happens to it next.

        Then it must not come first: before its event, another client may be notified that it holds
        the same lock, and the check must see this.
        """
        old = state[0][me]
        told = self.live[old].told.items() if me >= self.servers else ()
        return bool(told) and not any(
            told <= self.live[self._reaction(state[0], move).after].told.items()
            for move in self._moves_of(state, me)
        )

    def _reaction(self, parties: tuple[int, ...], move: Transition) -> Reaction:
        """The result of an event."""
        party = parties[move.party]
        return self.react(self.inflated[party] if move.inflates else party, move.what, move.settle)

    def _may_arrive(self, link: int, network: int) -> bool:
        net: Network = self.outages.at(network).network
        return net.may_arrive(self.links[link])

    # --- Making it happen

    def after(self, state: State, move: Transition) -> State | None:
        """Make something happen; nothing if it leads nowhere that another order does not lead to."""
        if move.changes:
            for change in move.changes:
                state = self._after_change(state, change)
            return state
        parties, channels, network = state
        number, link = move.party, move.link
        old = parties[number]
        reaction = self._reaction(parties, move)
        if not move.inflates:
            self.compare(old, move.what, move.settle)
        new = reaction.after
        queues = dict(channels)
        if link >= 0:
            queue = queues[link]
            if len(queue) > 1:
                queues[link] = queue[1:]
            else:
                del queues[link]
        fused = self.fused and number >= self.servers and not move.alone
        if fused and self.unsettled[new] and reaction.silent:
            new = self.force(new)  # the next event must be one of this agent
        if new != old:
            parties = (*parties[:number], new, *parties[number + 1 :])
            if self.refs[new] != self.refs[old]:
                for each in [each for each in queues if self.link_to[each] == number]:
                    del queues[each]
            self._check(parties, number, network)
            if number >= self.servers:
                self._check_tokens(state[0], parties, number)
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
            net = self.outages.at(network).network
            net.send(sender, receiver, message)
            if not net.links.pop((sender, receiver), None):
                return
        queues[link] = (*queues.get(link, ()), message)

    def _after_change(self, state: State, change: Change) -> State:
        """The state after a change of nodes and connections."""
        parties, channels, number = state
        world = self.outages.at(number)
        network = world.network
        for link, queue in channels:
            network.links[self.links[link]] = deque((0, message) for message in queue)
        new = list(parties)
        events: list[tuple[int, int]] = []  # party, and its event
        there = network.make(change)
        match change:
            case ("notice", pair):
                events = self._noticed(pair, there, parties, new)
            case ("crash", node):
                world.crashes -= 1
                events = [(each, VANISH) for each in self._clients_at(node, parties)]
                if node in self.names:
                    new[self.names.index(node)] = self.party(None, False)
            case ("restart", node):
                world.restarts += 1
                if node in self.names:
                    server_machine = world.rule.server(node, world.restarts << 32)
                    self.label(server_machine, world.restarts)
                    new[self.names.index(node)] = self.party(server_machine, False)
            case ("cut", _):
                world.cuts -= 1
            case ("connect" | "mend", _):
                pass
            case _:
                assert_never(change)
        after = self.outages.number(network, world.cuts, world.crashes, world.restarts)
        queues = {
            self.link(*link): tuple(message for _, message in queue)
            for link, queue in network.links.items()
        }
        network.links.clear()
        for each, code in events:
            reaction = self.react(new[each], code, False)
            self.compare(new[each], code, False)
            before, new[each] = new[each], reaction.after
            if self.refs[before] != self.refs[reaction.after]:
                for link in [link for link in queues if self.link_to[link] == each]:
                    del queues[link]
            for link, message in reaction.sent:
                self._put(queues, tuple(new), link, message, after)
        for each in range(len(new)):
            self._check(tuple(new), each, after)
        return (tuple(new), tuple(sorted(queues.items())), after)

    def _noticed(
        self, pair: Pair, there: bool, parties: tuple[int, ...], new: list[int]
    ) -> list[tuple[int, int]]:
        """The events of a node's parties when the node notices that another one is up or down."""
        me, other = pair
        code = NODES - 2 * self.nodes.index(other) - there
        events = [(each, code) for each in self._clients_at(me, parties)]
        if me not in self.names:
            return events
        server = self.names.index(me)
        if there and other in self.names and not self.rename:
            new[server] = self._raised(new[server], new[self.names.index(other)])
        if not there:
            owners = self.live[parties[server]].table.requesters
            lost = [agent for agent in owners if agent.node == other]
            events += [(server, self.message(Remove(agent))) for agent in lost]
        return events

    def _raised(self, server: int, other: int) -> int:
        """A lock server, after it was informed of the last version of another one."""
        machine = pickle.loads(self.kept[server])
        machine.raise_to(self.live[other].version)
        return self.party(machine, False)

    def _clients_at(self, node: str, parties: tuple[int, ...]) -> Iterator[int]:
        for number in range(self.servers, len(parties)):
            ref = self.refs[parties[number]]
            if ref is not None and ref.node == node:
                yield number

    def surrendered(self, state: State, move: Transition) -> tuple[int, int, int]:
        """Whether an event carries a surrender out, superfluously, or with an untrue report."""
        if move.changes or move.party >= self.servers:
            return NOTHING
        parties = state[0]
        if not self._reaction(parties, move).done:
            return NOTHING
        message = self.messages[move.what]
        check_report(message.report)
        key = (parties, move.what)
        if key not in self.judged:
            world = self.whole(state)
            edges = world.edges()
            true = is_deadlock(message, edges, world.live_hosts())
            gone = {keys(edge) for edge in message.report.cycle} - {keys(edge) for edge in edges}
            self.judged[key] = (1, 0 if true else 1, 1 if gone else 0)
        return self.judged[key]

    # --- Looking at states

    def whole(self, state: State) -> World:
        """The world of a state, for inspection; it has no messages in flight."""
        parties, _, network = state
        world = self.outages.at(network)
        found = [self.live[party] for party in parties]
        world.servers = {
            name: server
            for name, server in zip(self.names, found[: self.servers], strict=True)
            if server is not None
        }
        world.clients = found[self.servers :]
        world.hosts = {c.ref: (c.host, c) for c in world.clients if not c.finished}
        return world

    def choices(self, move: Transition) -> list[Any]:
        """An event as choices of the world; those of thin clients are not its own."""
        if move.changes:
            return list(move.changes)
        number = move.party - self.servers + 1
        found: list[Any] = [("inflate", number)] if move.inflates else []
        if move.link >= 0:
            found.append(("deliver", self.links[move.link]))
        else:
            found.append((KINDS[move.what], number))
        return [*found, ("settle", number)] if move.settle else found

    def check_still(self, state: State) -> None:
        """Make the checks of a world without messages in flight, if the state is one."""
        if len(self.names) > 1 and not state[1] and not self.is_unsettled(state):
            world = self.whole(state)
            if not (world.network.notices() or world.network.connectable()):
                world.check_standing()

    def check_quiet(self, state: State) -> None:
        """Make the checks of a state in which nothing needs to happen any more."""
        self.whole(state).check_quiet()

    def check_end(self, state: State) -> World:
        """Check a state in which nothing can happen any more: all have finished, and nothing is left."""
        world = self.whole(state)
        world.check_end()
        return world

    def _check(self, parties: tuple[int, ...], number: int, network: int) -> None:
        """After an event of a party, check it together with each other party."""
        mine = parties[number]
        for other in parties[self.servers :] if number < self.servers else parties:
            if other != mine and (mine, other, network) not in self.fine:
                a, b = self.live[mine], self.live[other]
                if a is not None and b is not None:
                    self._check_two(a, b, network)
                self.fine.add((mine, other, network))

    def _check_tokens(self, before: tuple[int, ...], parties: tuple[int, ...], number: int) -> None:
        """Check that a client's new fencing token is larger than all earlier ones."""
        client, had = self.live[parties[number]], self.live[before[number]].tokens
        for key in [key for key, token in client.tokens.items() if had.get(key) != token]:
            live = [
                self.live[party] for party in (*parties[: self.servers], *before[self.servers :])
            ]
            check_token(client, key, live[self.servers :], live[: self.servers])

    def _check_two(self, a: Any, b: Any, network: int) -> None:
        net = self.outages.at(network).network
        if isinstance(a, ScriptedClient) and isinstance(b, ScriptedClient):
            for node in self.names:
                if net.vouches(node, a.home) and net.vouches(node, b.home):
                    check_exclusion(a.host, b.host, node)
        elif isinstance(a, ScriptedClient) or isinstance(b, ScriptedClient):
            client, server = (a, b) if isinstance(a, ScriptedClient) else (b, a)
            if net.vouches(server.node, client.home):
                check_told(client.host, server)
