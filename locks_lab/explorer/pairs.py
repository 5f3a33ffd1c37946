"""Worlds with thin locks (`locks_lab.worlds.thin`), explored turn by turn beside the same worlds without any.

In the product, thin locks exist only on a node that meets no others, where all that follows from a call happens in one turn.
So a move is an event of a client with all that follows from it. Every order of these is tried, and before each:

* the client takes its step without an agent, if it may, or in the usual way: the product is free to do either;
* something else happens on the node, a query for example, or somebody begins to watch, after which no lock is thin; once in
  a run. As each state is compared as below, this tries what the clients do after it.

**Checks**, after each move, besides those of any world: of two conflicting locks the later one has the larger token; if what is
thin were inflated now, all machines, and all that clients were told, would be the same as in the world without thin locks.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from locks_lab.explorer.freezing import UNORDERED, freeze
from locks_lab.worlds.checks import check_token
from locks_lab.worlds.client import key_of
from locks_lab.worlds.host import Violation
from locks_lab.worlds.world import World

__all__ = ["Move", "PairedWorlds", "compare"]

Move = tuple[str, int]
"""`step`, `usual`, `time out` or `die`, with the number of a client; `look` or `watch`, with 0."""
State = tuple[int, tuple[()], int]
Pair = tuple[World, World]
Parts = tuple[tuple[str, Any], ...]


class PairedWorlds:
    """The states of a world with thin locks, and the turns between them; for `locks_lab.explorer.explore`.

    Args:
        world: The world, in its first state.

    Attributes:
        kept: The states by their numbers, each as two worlds: this one, and the same without thin locks.
    """

    def __init__(self, world: World) -> None:
        self.first = world
        self.kept: list[bytes] = []
        self._moves: list[list[Move]] = []
        self._numbers: dict[Any, int] = {}
        self._done: dict[tuple[State, Move], tuple[int, int, int]] = {}

    def start(self) -> State:
        """The first state."""
        thin, usual = self.first, pickle.loads(pickle.dumps(self.first))
        assert usual.thin is not None
        usual.thin.inflate()
        usual.thin = None
        return self._state(thin, usual, 1)

    def moves(self, state: State) -> list[Move]:
        """All that can happen next."""
        return list(self._moves[state[0]])

    def _moves_of(self, world: World, looks: int) -> list[Move]:
        thin = world.thin
        assert thin is not None
        found: list[Move] = []
        for kind, who in world.choices():
            assert isinstance(who, int)
            found.append((kind, who))
            if kind == "step" and thin.may_step(world.clients[who - 1]):
                found.append(("usual", who))
        due = looks and thin.usable and thin.is_due
        return [*found, ("look", 0), ("watch", 0)] if due else found

    def after(self, state: State, move: Move) -> State:
        """The state after a turn."""
        worlds = _two(self.kept[state[0]])
        before = _resolved(worlds[0])
        for world in worlds:
            _turn(world, move)
        after = _resolved(worlds[0])
        one, two, three = (new - old for new, old in zip(after, before, strict=True))
        self._done[state, move] = one, two, three
        return self._state(*worlds, state[2] * (move[0] not in ("look", "watch")))

    def _state(self, thin: World, usual: World, looks: int) -> State:
        kept = pickle.dumps((thin, usual))
        inflated, _ = _two(kept)
        assert thin.thin is not None
        assert inflated.thin is not None
        inflated.thin.inflate()
        parts = _parts(usual)
        compare(_parts(inflated), parts)
        rule = thin.thin.rule
        held = tuple(
            (each.holder.client.number, each.wanted, each.token) for each in rule.held.values()
        )
        whole = tuple(client.ref in thin.thin.whole for client in thin.clients)
        key = (parts, held, tuple(thin.thin.holders), rule.changes, whole, thin.thin.usable, looks)
        number = self._numbers.setdefault(key, len(self.kept))
        if number == len(self.kept):
            self.kept.append(kept)
            self._moves.append(self._moves_of(thin, looks))
        return number, (), looks

    # --- For the search

    def choices(self, move: Move) -> Sequence[Any]:
        """The turn itself: a world alone does not know it."""
        return [move]

    def is_fault(self, move: Move) -> bool:
        """Whether this never needs to happen."""
        return move[0] in ("die", "look", "watch")

    def is_unsettled(self, state: State) -> bool:
        """Nothing is left over after a turn."""
        return False

    def surrendered(self, state: State, move: Move) -> tuple[int, int, int]:
        """How many deadlocks were resolved, superfluously, and with outdated reports."""
        return self._done[state, move]

    def check_still(self, state: State) -> None:
        """There is one node."""

    def check_quiet(self, state: State) -> None:
        """Check that nobody is stuck."""
        self._inflated(state).check_quiet()

    def check_end(self, state: State) -> World:
        """Check that all have finished, and nothing is left."""
        world = self._inflated(state)
        world.check_end()
        return world

    def world(self, state: State) -> World:
        """The world with thin locks in a state."""
        return _two(self.kept[state[0]])[0]

    def _inflated(self, state: State) -> World:
        world = self.world(state)
        assert world.thin is not None
        world.thin.inflate()
        return world


def compare(found: Parts, wanted: Parts) -> None:
    """Check that a world whose thin locks were inflated is the same as the one that never had any."""
    for (what, one), (_, other) in zip(found, wanted, strict=True):
        if one != other:
            raise Violation(f"{what} differs from the world without thin locks")


def _two(kept: bytes) -> Pair:
    found: Pair = pickle.loads(kept)
    return found


def _resolved(world: World) -> tuple[int, int, int]:
    return len(world.carried_out), len(world.superfluous), len(world.outdated)


def _turn(world: World, move: Move) -> None:
    """A turn, with all that follows from it; clients get the tokens of all that they hold."""
    kind, who = move
    thin = world.thin
    match kind:
        case "look" | "watch":
            if thin is not None:
                thin.usable = kind == "look"
                thin.inflate()
        case "usual":
            if thin is not None:
                thin.whole.add(world.clients[who - 1].ref)
            world.do(("step", who))
        case _:
            world.do((kind, who))  # type: ignore[arg-type]
    world.deliver()
    for client in world.clients:
        if thin is None or not thin.holds(client):
            world._check_locks(client)
            for lock_id in [each for _, each in client.told if client.agent.holds(each)]:
                key, token = key_of(client.agent, lock_id), client.agent.token(lock_id)
                if key is not None and token is not None and client.tokens.get(key) != token:
                    client.tokens[key] = token
                    check_token(client, key, world.clients, world.servers.values())


def _parts(world: World) -> Parts:
    """All that matters of a world, part by part."""
    found = [
        ("the lock server", freeze(server, UNORDERED, {})) for server in world.servers.values()
    ]
    for client in world.clients:
        # An agent that had nothing before its end does not say what was thin.
        state = client.finished or freeze(client, UNORDERED, {})
        said = tuple(client.tokens.items()), repr(client.reports), client.number in world.mortal
        found.append((f"client {client.number}", (state, said)))
    return (*found, ("what is to come", (tuple(world.unsettled), world._created)))
