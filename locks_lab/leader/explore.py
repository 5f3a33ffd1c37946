"""Every order in which things can happen in a small world of elections.

    print(explore(ElectionPlan(cuts=1).world()))

The nodes of `locks_lab.leader.world` are run without changes, with the same checks. A state is a
tuple of numbers: of the nodes' states, of the messages on each link, of the network, and of the
history. A node's next state depends only on its state and on the event, so each step of a node is
run once, and looked up afterwards. The search is depth first. No state may be reached from itself.
So every schedule ends, in a state that passes the final checks.

Fewer states: a change of the network makes no difference until a node notices
(`locks_lab.explorer.outages`). Eager events (`ElectionPlan.eager`) have no states of their own. An
agent that begins later is younger than all others of its node. Agents of two nodes are compared by
the number of agents that began there before. Other orders of ages occur only in random worlds.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from typing import Any, NamedTuple

from locks_lab.explorer.freezing import UNORDERED, freeze
from locks_lab.explorer.outages import Outages
from locks_lab.explorer.search import DepthFirst, TooManyStates, Visit
from locks_lab.leader.checks import History, check_casts, check_grounds, check_polls, check_quiet
from locks_lab.leader.node import SimulatedNode, Uses
from locks_lab.leader.world import FREE, ElectionWorld
from locks_lab.schedules.schedule import AnyChoice as Choice
from locks_lab.worlds.network import Change, Link, home_of
from locks_lab.worlds.world import Faults
from locks_lab.worlds.world import World as LockWorld

__all__ = ["ExploredElections", "TooManyStates", "explore"]

FREELY = UNORDERED | {"up", "known", "watchers", "calls", "casts", "cancelled", "answers"}

Queues = tuple[tuple[int, tuple[int, ...]], ...]
State = tuple[tuple[int, ...], Queues, int, int, Uses]  # nodes, links, network, history, uses left


class ExploredElections(NamedTuple):
    """The result of an exploration.

    Attributes:
        states: The number of different states of the world.
        transitions: The number of events that lead from one state to another.
        quiet: The number of states in which nothing needs to happen any more.
        ends: The number of these in which nothing can happen any more.
        nodes: The number of different states of single nodes.
        elections: The largest number of elections on any path.
        seconds: The duration.
    """

    states: int
    transitions: int
    quiet: int
    ends: int
    nodes: int
    elections: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.quiet:,} quiet "
            f"states, {self.ends:,} ends, {self.nodes:,} states of nodes, at most {self.elections} "
            f"elections, {self.seconds:.1f} s"
        )


class _Reaction(NamedTuple):
    """The result of a step of a node."""

    after: int
    sent: tuple[tuple[int, int], ...]
    elections: tuple[Any, ...]
    written: tuple[Any, ...]


class _Space:
    """The states of a world, and the moves between them.

    Args:
        world: The world, in its first state; it is used up.
        reduce: Leave out changes of the network that no node has noticed.
    """

    def __init__(self, world: ElectionWorld, reduce: bool) -> None:
        self.plan = world.plan
        self.names = list(world.plan.nodes)
        self.kept: list[bytes] = []
        self.live: list[SimulatedNode] = []
        self.own: list[tuple[Choice, ...]] = []
        self.ids: dict[Any, int] = {}
        self.messages: list[Any] = []
        self.message_ids: dict[Any, int] = {}
        self.links: list[Link] = []
        self.link_ids: dict[Link, int] = {}
        self.reactions: dict[Any, _Reaction] = {}
        self.histories: list[History] = []
        self.history_ids: dict[Any, int] = {}
        self.fine: set[Any] = set()
        scratch = LockWorld([], self.names, Faults(cuts=world.cuts))
        self.outages = Outages(scratch, reduce)
        self.seen: dict[int, dict[tuple[str, str], str]] = {}
        self.most = 0
        queues = {
            self._link(link): tuple(self._message(m) for _, m in queue)
            for link, queue in world.network.links.items()
        }
        self.first: State = (
            tuple(self._node(world.nodes[name]) for name in self.names),
            tuple(sorted(queues.items())),
            self.outages.number(world.network, world.cuts, 0, 0),
            self._history(world.history),
            world.uses,
        )

    def start(self) -> State:
        """The state in which the world is."""
        return self.first

    # --- What can happen

    def moves(self, state: State) -> list[tuple[Any, ...]]:
        """All that can happen next."""
        nodes, queues, network, _, uses = state
        seen = self._seen(network)
        found: list[tuple[Any, ...]] = []
        for link, _ in queues:
            a, b = map(home_of, self.links[link])
            if seen[b, a] in ("up", "breaking"):
                found.append(("deliver", link))
        for number, node in enumerate(nodes):
            found += [("own", number, each) for each in self.own[node]]
            if any(uses):
                found += [("own", number, each) for each in self.live[node].uses(uses)]
        return found + [("net", *each) for each in self.outages.changes(network)]

    def is_free(self, move: tuple[Any, ...]) -> bool:
        """Whether this never needs to happen."""
        return self.choices(move)[0][0] in FREE

    def choices(self, move: tuple[Any, ...]) -> list[Choice]:
        """The same as choices of the world."""
        if move[0] == "deliver":
            return [("deliver", self.links[move[1]])]
        return [move[2]] if move[0] == "own" else list(move[1:])

    # --- Making it happen

    def after(self, state: State, move: tuple[Any, ...]) -> State:
        """Make something happen, and check all that must be true."""
        nodes, queues, network, history, uses = state
        channels = dict(queues)
        if move[0] == "net":
            for choice in move[1:]:
                state = self._change(state, choice)
            return state
        if move[0] == "deliver":
            link = move[1]
            message, rest = channels[link][0], channels[link][1:]
            if rest:
                channels[link] = rest
            else:
                del channels[link]
            number = self.names.index(home_of(self.links[link][1]))
            reaction = self._react(nodes[number], ("deliver", link, message))
        else:
            number = move[1]
            uses = uses.after(move[2])
            reaction = self._react(nodes[number], move[2])
        return self._done(nodes, channels, network, history, uses, number, reaction)

    def _change(self, state: State, change: Change) -> State:
        nodes, queues, number, history, uses = state
        scratch = self.outages.at(number)
        network = scratch.network
        network.links = {
            self.links[link]: deque((0, message) for message in queue) for link, queue in queues
        }
        there = network.make(change)
        if change[0] == "cut":
            scratch.cuts -= 1
        channels = {
            self._link(link): tuple(message for _, message in queue)
            for link, queue in network.links.items()
        }
        after = self.outages.number(network, scratch.cuts, 0, 0)
        if change[0] != "notice":
            return (nodes, tuple(sorted(channels.items())), after, history, uses)
        me, other = (self.names.index(each) for each in change[1])
        version = self.live[nodes[other]].server.version if there else None
        reaction = self._react(nodes[me], ("notice", self.names[other], version))
        return self._done(nodes, channels, after, history, uses, me, reaction)

    def _done(
        self,
        nodes: tuple[int, ...],
        channels: dict[int, tuple[int, ...]],
        network: int,
        history: int,
        uses: Uses,
        number: int,
        reaction: _Reaction,
    ) -> State:
        seen = self._seen(network)
        nodes = (*nodes[:number], reaction.after, *nodes[number + 1 :])
        for link, message in reaction.sent:
            a, b = map(home_of, self.links[link])
            if seen[a, b] == "up":
                channels[link] = (*channels.get(link, ()), message)
        live = {name: self.live[node] for name, node in zip(self.names, nodes, strict=True)}
        if reaction.elections or reaction.written:
            new = self.histories[history].copy()
            new.take_in(reaction.elections, reaction.written, live)
            history = self._history(new)
        instances = [each for node in live.values() for each in node.instances.values()]
        if nodes not in self.fine:
            check_grounds(instances)
            self.fine.add(nodes)
        check_polls(instances, seen, lambda link: self._nothing_on(link, channels, live))
        return (nodes, tuple(sorted(channels.items())), network, history, uses)

    def _nothing_on(
        self, link: Link, channels: dict[int, tuple[int, ...]], live: dict[str, SimulatedNode]
    ) -> bool:
        wire = (home_of(link[0]), home_of(link[1]))
        if wire[0] == wire[1]:
            return link not in live[wire[0]].local
        return not {self.link_ids.get(link), self.link_ids.get(wire)} & channels.keys()

    def check_quiet(self, state: State) -> None:
        """Make the checks of a state in which nothing needs to happen any more."""
        live = {name: self.live[node] for name, node in zip(self.names, state[0], strict=True)}
        check_quiet(live, self._seen(state[2]), self.plan.policy)
        if self.outages.at(state[2]).cuts == self.plan.cuts:
            instances = [each for node in live.values() for each in node.instances.values()]
            check_casts(instances, self.histories[state[3]])

    # --- Each step of a node

    def _react(self, old: int, event: tuple[Any, ...]) -> _Reaction:
        found = self.reactions.get((old, event))
        if found is None:
            node: SimulatedNode = pickle.loads(self.kept[old])
            kind = event[0]
            if kind == "deliver":
                node.arrives(self.links[event[1]], self.messages[event[2]])
            elif kind == "notice":
                node.notices(event[1], event[2])
            else:
                node.do(event)
            sent = tuple((self._link((s, r)), self._message(m)) for s, r, m in node.out)
            elections, written = tuple(node.elections), tuple(node.written)
            node.out.clear()
            node.elections.clear()
            node.written.clear()
            found = _Reaction(self._node(node), sent, elections, written)
            self.reactions[old, event] = found
        return found

    # --- Numbers for everything

    def _node(self, node: SimulatedNode) -> int:
        frozen = (freeze(node, FREELY, {}), node.kinds)
        found = self.ids.get(frozen)
        if found is None:
            found = self.ids[frozen] = len(self.kept)
            self.kept.append(pickle.dumps(node, 5))
            self.live.append(node)
            self.own.append(tuple(node.choices()))
        return found

    def _message(self, message: Any) -> int:
        key = (type(message), message)  # named tuples of different types may be equal
        found = self.message_ids.get(key)
        if found is None:
            found = self.message_ids[key] = len(self.messages)
            self.messages.append(message)
        return found

    def _link(self, link: Link) -> int:
        found = self.link_ids.get(link)
        if found is None:
            found = self.link_ids[link] = len(self.links)
            self.links.append(link)
        return found

    def _history(self, history: History) -> int:
        key = history.key
        found = self.history_ids.get(key)
        if found is None:
            found = self.history_ids[key] = len(self.histories)
            self.histories.append(history.copy())
            self.most = max(self.most, len(history.elections))
        return found

    def _seen(self, network: int) -> Any:
        found = self.seen.get(network)
        if found is None:
            found = self.seen[network] = dict(self.outages.at(network).network.seen)
        return found


class _ElectionSearch(DepthFirst[State, tuple[Any, ...], bool]):
    """Counts the states in which nothing needs to happen any more."""

    def __init__(self, space: _Space, limit: int) -> None:
        super().__init__(space, limit)
        self.space = space
        self.quiet = self.ends = 0

    def choices(self, move: tuple[Any, ...]) -> list[Choice]:
        return self.space.choices(move)

    def enter(self, state: State) -> Visit[State, tuple[Any, ...]]:
        moves = self.space.moves(state)
        if all(map(self.space.is_free, moves)):
            self.space.check_quiet(state)
            self.quiet += 1
            self.ends += not moves
        return Visit(state, moves)

    def leave(self, here: Visit[State, tuple[Any, ...]]) -> bool:
        return True


def explore(world: ElectionWorld, limit: int = 1_000_000, reduce: bool = True) -> ExploredElections:
    """Explore a world depth first; nodes do not crash, and instances are not killed.

    Args:
        world: The world, in its first state; it is used up.
        limit: The largest number of states.
        reduce: Leave out changes of the network that no node has noticed.

    Raises:
        Violation: A check failed. `schedule` has the choices of the world that lead there.
        TooManyStates: There are more than `limit` states.
    """
    begun = time.perf_counter()
    space = _Space(world, reduce)
    search = _ElectionSearch(space, limit)
    search.run()
    return ExploredElections(
        len(search.known),
        search.transitions,
        search.quiet,
        search.ends,
        len(space.kept),
        space.most,
        time.perf_counter() - begun,
    )
