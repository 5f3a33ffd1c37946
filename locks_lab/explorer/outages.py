"""The states of a world's network in an exploration, and the changes that are possible in each.

With `reduce`, a change that no node has noticed makes no difference. A connection breaks, or is
made, at the moment when the first node notices, and a node ends or begins at the same moment.
"""

from __future__ import annotations

from typing import Any

from locks.errors import assert_never
from locks_lab.worlds.network import Change, Network, Pair
from locks_lab.worlds.world import World

__all__ = ["Outages"]


class Outages:
    """The states of a network, by number; 0 is the first one.

    Args:
        world: The world.
        reduce: Leave out changes that no node has noticed.
    """

    def __init__(self, world: World, reduce: bool) -> None:
        self._world = world
        self._reduce = reduce
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._scratch = World([], list(world.servers))
        self._scratch.network.nodes = world.network.nodes
        self._scratch.network.spokes = world.network.spokes
        # Too many states; that a connection of client nodes breaks is tried by cuts.
        self._scratch.network.spokes_break = False

    def number(self, network: Network, *left: int) -> int:
        """The number of a state, with how many cuts, crashes and restarts are left or were."""
        key = (
            tuple(network.seen.items()),
            frozenset(network.crashed),
            frozenset(network.apart),
            *left,
        )
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._states)
            self._states.append(key)
        return found

    def at(self, number: int) -> World:
        """A world without parties, with this state of the network; it is good until the next call."""
        seen, crashed, apart, cuts, crashes, restarts = self._states[number]
        world, network = self._scratch, self._scratch.network
        network.seen = dict(seen)
        network.crashed, network.apart = set(crashed), set(apart)
        world.cuts, world.crashes, world.restarts = cuts, crashes, restarts
        world.faults, world.rule = self._world.faults, self._world.rule
        return world

    def changes(self, number: int) -> list[tuple[Change, ...]]:
        """The possible changes of the network, each as a sequence of single changes."""
        world = self.at(number)
        network = world.network
        notices: list[tuple[Change, ...]] = [(("notice", pair),) for pair in network.notices()]
        connects: list[tuple[Change, ...]] = [
            (("connect", pair),) for pair in network.connectable()
        ]
        faults: list[tuple[Change, ...]] = [(change,) for change in world.breaks()]
        if not self._reduce:
            return notices + connects + faults
        return notices + [
            each for begun in connects + faults for each in self._noticed(begun, number)
        ]

    def _noticed(self, begun: tuple[Change, ...], number: int) -> list[tuple[Change, ...]]:
        """All ways in which a change of the network continues until a node notices it."""
        network = self.at(number).network
        for change in begun:
            network.make(change)
        last = begun[-1]
        match last:
            case ("mend", pair):
                return self._connected(begun, number, network, [pair])
            case ("restart", node):
                both = [pair for pair in network.connectable() if node in pair]
                return self._connected(begun, number, network, both)
            case ("connect" | "cut" | "notice", pair):
                pairs = [each for each in network.notices() if each in (pair, pair[::-1])]
            case ("crash", node):
                pairs = [each for each in network.notices() if each[1] == node]
            case _:
                assert_never(last)
        return [(*begun, ("notice", pair)) for pair in pairs] or [begun]

    def _connected(
        self, begun: tuple[Change, ...], number: int, network: Network, pairs: list[Pair]
    ) -> list[tuple[Change, ...]]:
        """All ways in which a repair continues until a node notices the new connections."""
        possible = network.connectable()
        if not possible and (network.apart or network.crashed):
            return [begun]  # it needs another repair, too
        return [
            found
            for pair in possible
            if pair in pairs
            for found in self._noticed((*begun, ("connect", pair)), number)
        ]
