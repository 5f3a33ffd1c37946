"""The states of a world's network, for exploring it, and what can happen to it in each of them.

With `reduce`, what nobody has noticed makes no difference: a connection breaks, or is made, when the
first one notices, and a node ends or begins with it.
"""

from __future__ import annotations

from typing import Any

from locks.sim.network import Network
from locks.sim.world import Choice, World

__all__ = ["Outages", "change"]


class Outages:
    """The states of a network, by number; 0 is the first one.

    Args:
        world: The world.
        reduce: Leave out what nobody has noticed.
    """

    def __init__(self, world: World, reduce: bool) -> None:
        self._world = world
        self._reduce = reduce
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._scratch = World([], list(world.servers))

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

    def changes(self, number: int) -> list[tuple[Choice, ...]]:
        """What can happen to the network, each as choices of the world in this order."""
        world = self.at(number)
        network = world.network
        notices: list[tuple[Choice, ...]] = [(("notice", pair),) for pair in network.notices()]
        connects: list[tuple[Choice, ...]] = [
            (("connect", pair),) for pair in network.connectable()
        ]
        faults: list[tuple[Choice, ...]] = [(choice,) for choice in world.fault_choices()]
        if not self._reduce:
            return notices + connects + faults
        return notices + [
            each for begun in connects + faults for each in self._noticed(begun, number)
        ]

    def _noticed(self, begun: tuple[Choice, ...], number: int) -> list[tuple[Choice, ...]]:
        """A change of the network up to where somebody notices it, in all ways."""
        network = self.at(number).network
        for choice in begun:
            change(network, choice)
        if begun[-1][0] in ("mend", "restart"):
            after = network.connectable()
            blocked = not after and (network.apart or network.crashed)  # it needs the other, too
            found = [
                each
                for pair in after
                if begun[-1][1] in (pair, *pair)
                for each in self._noticed((*begun, ("connect", pair)), number)
            ]
            return [begun] if blocked else found
        what = begun[-1][1]
        pairs = [p for p in network.notices() if what in (p, p[::-1], p[1])]
        return [(*begun, ("notice", pair)) for pair in pairs] or [begun]


def change(network: Network, choice: Choice) -> bool:
    """Make a choice happen to a network; whether it is a connection that is seen as up now."""
    found: bool | None = getattr(network, choice[0])(choice[1])
    return bool(found)
