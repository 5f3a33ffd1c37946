"""Several data sets, each with a lock of its own: whoever moves on moves on to the next one.

Each lock is kept on primaries of its own, as keys of a large store are; so a state is a state of the model for each
data set, and a move is one of its moves. A worker goes on to the next data set when it has moved on from one, or has
processed it. All begin with the first one; or, if they are `spread`, each with another one, and the first one
comes after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from locks.errors import InvalidOption
from locks_lab.worlds.host import Violation

from .model import Setting, State, Tale
from .stories import Teller

__all__ = ["Several", "SeveralMove", "tell_several"]

SeveralMove = tuple[str, int, int, int]  # a move of the model, and the data set
States = tuple[State, ...]


class Several:
    """The states of some data sets, and the moves between them: a `locks_lab.explorer.shortest.Model`.

    Args:
        setting: The setting, with the number of data sets.

    Raises:
        InvalidOption: The setting makes no sense.
    """

    def __init__(self, setting: Setting) -> None:
        if not 1 <= setting.data_sets <= 9:
            raise InvalidOption(f"data_sets={setting.data_sets!r}: there are 1 to 9")
        if setting.outages:
            raise InvalidOption(
                f"data_sets={setting.data_sets!r} and outages={setting.outages!r}: give one of them"
            )
        self.setting = setting
        self.tale = Tale(setting)

    def start(self) -> States:
        """No worker has done anything."""
        return (self.tale.start(),) * self.setting.data_sets

    def key(self, states: States) -> Hashable:
        """The key by which two states are the same: servers are interchangeable."""
        return tuple(map(self.tale.key, states))

    def moves(self, states: States) -> list[SeveralMove]:
        """All that can happen next."""
        return [
            (*move, d)
            for d, state in enumerate(states)
            for move in self.tale.moves(state)
            if move[0] != "step" or self._is_its_turn(states, move[1], d)
        ]

    def _is_its_turn(self, states: States, w: int, d: int) -> bool:
        """Whether a worker has got to a data set."""
        number = self.setting.data_sets
        if d == (w % number if self.setting.spread else 0):
            return True
        return states[(d - 1) % number].workers[w].doing in ("moved on", "done")

    def after(self, states: States, move: SeveralMove) -> States:
        """The states after a move."""
        kind, w, s, d = move
        return (*states[:d], self.tale.after(states[d], (kind, w, s)), *states[d + 1 :])

    def price(self, states: States, party: Hashable, other: Hashable) -> int:
        """The cost when another worker goes on."""
        if isinstance(party, int) and party >= 0:
            for state in states:
                if state.workers[party].doing == "waiting":
                    return self.tale.price(state, party, other)
        return self.tale.price(states[0], party, other)

    # --- What must be true

    def check_safe(self, states: States, moves: object = ()) -> None:
        """Never two workers at one data set.

        Raises:
            Violation: Two workers process a data set.
        """
        self._check(self.tale.check_safe, states, moves)

    def check_live(self, states: States, moves: object = ()) -> None:
        """Each data set is processed.

        Raises:
            Violation: All workers have ended with one, and none of them has processed it.
        """
        self._check(self.tale.check_live, states, moves)

    def check_some(self, states: States, moves: object = ()) -> None:
        """At least one data set is processed.

        Raises:
            Violation: All workers have moved on from all data sets.
        """
        doing = {worker.doing for state in states for worker in state.workers}
        if doing == {"moved on"}:
            raise Violation(f"nobody processes any of the {len(states)} data sets")

    def check_free(self, states: States, moves: Sequence[SeveralMove]) -> None:
        """At rest there is no lock: no worker is left.

        Raises:
            Violation: A worker that has ended has left its lock, and another one moved on.
        """
        if not moves:
            self._check(self.tale.check_free, states, ())

    def _check(self, check: Callable[[State, Any], None], states: States, moves: object) -> None:
        """Check each data set."""
        for number, state in enumerate(states, 1):
            try:
                check(state, moves)
            except Violation as error:
                raise Violation(f"at data set {number}, {error}") from None


def tell_several(several: Several, schedule: Sequence[SeveralMove]) -> Iterator[str]:
    """What happens under a schedule, as sentences."""
    tellers = [
        Teller(several.tale, [(kind, w, s) for kind, w, s, which in schedule if which == d])
        for d in range(several.setting.data_sets)
    ]
    last = 0
    for kind, w, s, d in schedule:
        if d != last:
            yield from _at(last, tellers[last].rest())
            last = d
        yield from _at(d, tellers[d].move((kind, w, s)))
    yield from _at(last, tellers[last].rest())


def _at(d: int, sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        yield f"At data set {d + 1}, {sentence[0].lower()}{sentence[1:]}"
