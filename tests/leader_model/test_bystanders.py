"""Two instances that begin at about the same time never leave out each other's node: every order of messages."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from locks.groups.table import Discover, Effect, GroupTable, Send, Tell
from locks_leader.core.bystanders import Bystanders

A, B = "a", "b"
OTHER = {A: B, B: A}
GROUP = "election"


class Two:
    """Two nodes, their process groups, what is on its way, and an instance on each that has joined.

    Args:
        connected: Whether the nodes are connected from the beginning.
        asks: Whether instances ask the other node when they begin.
    """

    def __init__(self, connected: bool, asks: bool = True) -> None:
        self.connected = connected
        self.asks = asks
        self.tables: dict[str, GroupTable] = {}
        self.links: dict[str, list[Any]] = {A: [], B: []}  # to each node
        self.news: dict[str, list[Any]] = {A: [], B: []}  # to the instance of each node
        self.instances: dict[str, Bystanders] = {}
        self.knew_of_each_other = False  # the nodes did, when one of the instances began

    def moves(self) -> Iterator[tuple[str, str]]:
        """What can happen next."""
        for node in (A, B):
            if node not in self.tables:
                yield "groups are used", node
            if node not in self.instances:
                yield "begins", node
            if self.links[node]:
                yield "arrives", node
            if self.news[node]:
                yield "is told", node
        if not self.connected:
            yield "connected", ""

    def do(self, move: tuple[str, str]) -> None:
        """Do it."""
        what, node = move
        if what == "groups are used":
            self._use_groups(node)
        elif what == "begins":
            self._begin(node)
        elif what == "arrives":
            self._arrive(node, self.links[node].pop(0))
        elif what == "is told":
            self._tell(node, *self.news[node].pop(0))
        else:
            self.connected = True
            for each in self.tables:
                self._send(each, Discover())

    def leaves_out(self, node: str) -> bool:
        """Whether there is an instance on a node that leaves out the other one."""
        instance = self.instances.get(node)
        return instance is not None and OTHER[node] not in instance.asked({A, B})

    def _use_groups(self, node: str) -> None:
        self.tables[node] = GroupTable()
        self._send(node, Discover())

    def _begin(self, node: str) -> None:
        if node not in self.tables:
            self._use_groups(node)
        table = self.tables[node]
        known = table.monitor(GROUP, "monitor")
        self._perform(node, table.join(GROUP, (node,)))
        there = {A, B} if self.connected and self.asks else {node}
        instance = self.instances[node] = Bystanders(node, there)
        self.knew_of_each_other |= self.connected
        for member in known:
            instance.joined(member, str(member))
        if instance.unheard:
            self._send(node, "question")

    def _arrive(self, node: str, message: Any) -> None:
        if message == "question":
            self._send(node, "answer")
        elif message == "answer":
            self.news[node].append(("heard", (OTHER[node],)))
        elif node in self.tables:
            self._perform(node, self.tables[node].handle(OTHER[node], message))

    def _tell(self, node: str, what: str, members: tuple[str, ...]) -> None:
        for member in members:
            if node in self.instances and member != node:
                if what == "joined":
                    self.instances[node].joined(member, member)
                elif what == "heard":
                    self.instances[node].heard(member)

    def _perform(self, node: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(node, effect.message)
            elif isinstance(effect, Tell):
                self.news[node].append(("joined" if effect.joined else "left", effect.members))

    def _send(self, node: str, message: Any) -> None:
        if self.connected:
            self.links[OTHER[node]].append(message)


def explore(first: Two) -> Iterator[Two]:
    """Every state that can be reached."""
    left = [pickle.dumps(first)]
    seen = set(left)
    while left:
        state = left.pop()
        two = pickle.loads(state)
        yield two
        for move in two.moves():
            then = pickle.loads(state)
            then.do(move)
            new = pickle.dumps(then)
            if new not in seen:
                seen.add(new)
                left.append(new)


@pytest.mark.slow
def test_one_of_two_asks_on_the_node_of_the_other() -> None:
    """At any time, whoever of two connected nodes begins when; in the end both do."""
    states = 0
    for two in explore(Two(connected=True)):
        states += 1
        assert not (two.leaves_out(A) and two.leaves_out(B))
        if not list(two.moves()):
            assert not any(map(two.leaves_out, (A, B)))
    assert states > 1000


@pytest.mark.explore
def test_a_node_that_comes_later() -> None:
    """Two islands meet: each instance asks on the other's node when all is told. A newcomer is no island."""
    states = 0
    for two in explore(Two(connected=False)):
        states += 1
        if two.knew_of_each_other:
            assert not (two.leaves_out(A) and two.leaves_out(B))
        if not list(two.moves()):
            assert not any(map(two.leaves_out, (A, B)))
    assert states > 1000


def test_without_asking_both_would_lead() -> None:
    """Two that begin at the same time, and leave out whom they do not know: the exploration finds it."""
    states = explore(Two(connected=True, asks=False))
    assert any(two.leaves_out(A) and two.leaves_out(B) for two in states)


def test_who_is_left_out() -> None:
    """Nodes without instances that have answered, or have come later; never the own one."""
    mine = Bystanders(A, {A, B, "c"})
    alive = {A, B, "c", "later"}
    assert mine.asked(alive) == {A, B, "c"}
    mine.heard(B)
    assert mine.asked(alive) == {A, "c"}
    mine.joined("one", B)
    mine.joined("two", "later")
    assert mine.asked(alive) == {A, B, "c", "later"}
    assert mine.asked({A, B}) == {A, B}
    mine.down("one")
    mine.down("nobody")
    assert mine.asked(alive) == {A, "c", "later"}
