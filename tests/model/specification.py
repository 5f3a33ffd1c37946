"""The specification `docs/tla/Deadlocks.tla`, translated: each definition of it is a function of the same name here.

It is a model for the searches of `locks_lab.explorer`. Agents have numbers from 1, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from locks_lab.explorer.search import DepthFirst, Visit
from locks_lab.worlds.host import Violation

__all__ = ["Outcome", "Spec", "outcome"]


class Edge(NamedTuple):
    """An agent waits for another one at a lock; each stands there since it has surrendered so often."""

    by: int
    to: int
    lock: str
    by_since: int
    to_since: int

    @property
    def places(self) -> tuple[tuple[int, str, int], ...]:
        """Where the two agents stand."""
        return (self.by, self.lock, self.by_since), (self.to, self.lock, self.to_since)


Known = frozenset[Edge]
Move = tuple[Any, ...]


class State(NamedTuple):
    """The variables; what belongs to an agent or a lock has its place in a tuple."""

    queue: tuple[tuple[int, ...], ...]
    asked: tuple[int, ...]
    moved: tuple[tuple[int, ...], ...]
    heard: tuple[Known, ...]
    mail: frozenset[tuple[int, Known]]


class Spec:
    """The specification of one world.

    Args:
        scripts: The locks that each agent wants, one after the other.
        tells: Whether agents tell each other anything.
    """

    def __init__(self, scripts: Sequence[str], tells: bool = True) -> None:
        self.scripts = [script.split() for script in scripts]
        self.locks = sorted({lock for script in self.scripts for lock in script})
        self.agents = range(1, len(scripts) + 1)
        self.tells = tells

    # --- The wait-for graph, and what is known of it

    def edges(self, s: State) -> Iterator[Edge]:
        for n, lock in enumerate(self.locks):
            for place, by in enumerate(s.queue[n]):
                for to in s.queue[n][:place]:
                    yield Edge(by, to, lock, s.moved[by - 1][n], s.moved[to - 1][n])

    def own(self, s: State, a: int) -> Known:
        return frozenset(e for e in self.edges(s) if a in (e.by, e.to))

    @staticmethod
    def waits(a: int, queue: Iterable[tuple[int, ...]]) -> bool:
        return any(a in line[1:] for line in queue)

    def learnt(self, s: State, a: int, news: Iterable[Edge]) -> Known:
        every = s.heard[a - 1] | {e for e in news if a not in (e.by, e.to)}
        places = [p for f in every | self.own(s, a) for p in f.places]
        return frozenset(
            e
            for e in every
            if not any(p[:2] == q[:2] and p[2] < q[2] for p in e.places for q in places)
        )

    def known(self, s: State, a: int) -> Known:
        return self.own(s, a) | self.learnt(s, a, ())

    @staticmethod
    def ahead(a: int, known: Known) -> set[int]:
        found = {a}
        while more := {e.to for e in known if e.by in found and e.by <= a} - found:
            found |= more
        return found

    @staticmethod
    def behind(a: int, known: Known) -> set[int]:
        found = {a}
        while more := {e.by for e in known if e.to in found and e.to <= a} - found:
            found |= more
        return found

    def closing_in(self, a: int, known: Known) -> list[Edge]:
        ahead = self.ahead(a, known)
        return sorted(e for e in known if e.to == a and e.by < a and e.by in ahead)

    def closing(self, s: State, a: int) -> list[Edge]:
        return self.closing_in(a, self.known(s, a))

    def targets(self, s: State, a: int) -> set[int]:
        known = self.known(s, a)
        before, after = self.behind(a, known), self.ahead(a, known)
        return {min(b, c) for b in before if b > a for c in after if c > a}

    def news(self, s: State, a: int, b: int) -> Known:
        known = self.known(s, a)
        before, after = self.behind(a, known), self.ahead(a, known)
        return frozenset(
            e
            for e in known
            if ((e.by <= a and e.by in after) or (e.to <= a and e.to in before))
            and self.learnt(s, b, [e]) != self.learnt(s, b, ())
            and not any(to == b and e in edges for to, edges in s.mail)
        )

    # --- What happens

    def start(self) -> State:
        nothing = (0,) * len(self.locks)
        count = len(self.agents)
        return State(((),) * len(self.locks), (0,) * count, (nothing,) * count,
                     (frozenset(),) * count, frozenset())  # fmt: skip

    def moves(self, s: State) -> list[Move]:
        found: list[Move] = [("hear", *message) for message in s.mail]
        for a in self.agents:
            waits, has = self.waits(a, s.queue), any(a in line for line in s.queue)
            if s.asked[a - 1] < len(self.scripts[a - 1]):
                found += [] if waits else [("ask", a)]
            elif not waits and has:
                found.append(("end", a))
            if closing := self.closing(s, a):
                found += [("yield", a, lock) for lock in sorted({e.lock for e in closing})]
            elif self.tells:
                found += [
                    ("tell", a, b)
                    for b in sorted(self.targets(s, a))
                    if self.waits(b, s.queue) and self.news(s, a, b)
                ]
        return found

    def after(self, s: State, move: Move) -> State:
        what, a, *more = move
        match what:
            case "ask":
                lock = self.locks.index(self.scripts[a - 1][s.asked[a - 1]])
                asked = _put(s.asked, a - 1, s.asked[a - 1] + 1)
                return self._table(
                    s._replace(asked=asked), _put(s.queue, lock, (*s.queue[lock], a))
                )
            case "end":
                return self._table(s, tuple(_without(a, line) for line in s.queue))
            case "yield":
                if not self.closing_in(a, frozenset(self.edges(s))):
                    raise Violation(f"{a} gives way, and is not the youngest of a circle")
                lock = self.locks.index(more[0])
                moved = _put(s.moved[a - 1], lock, s.moved[a - 1][lock] + 1)
                known = self.known(s, a)
                forget = self.ahead(a, known) & self.behind(a, known)
                queue = _put(s.queue, lock, (*_without(a, s.queue[lock]), a))
                return self._table(s._replace(moved=_put(s.moved, a - 1, moved)), queue, forget)
            case "tell":
                (b,) = more
                return s._replace(mail=s.mail | {(b, self.news(s, a, b))})
            case "hear":
                edges = more[0]
                heard = self.learnt(s, a, edges) if self.waits(a, s.queue) else frozenset()
                mail = s.mail - {(a, edges)}
                return s._replace(mail=mail, heard=_put(s.heard, a - 1, heard))
            case _:
                raise AssertionError(move)

    def _table(
        self, s: State, queue: tuple[tuple[int, ...], ...], forget: Iterable[int] = ()
    ) -> State:
        heard = tuple(
            s.heard[a - 1] if self.waits(a, queue) and a not in forget else frozenset()
            for a in self.agents
        )
        return s._replace(queue=queue, heard=heard)

    # --- What is checked

    def check(self, s: State, moves: Sequence[Any]) -> None:
        """Raises `Violation` if somebody waits for ever, or the oldest agent of all has given way."""
        if not moves and any(s.queue):
            raise Violation("stuck")
        if any(s.moved[0]):
            raise Violation("the oldest yields")


class Outcome(NamedTuple):
    """What can come of a world: the number of states, and the smallest and largest number of surrenders."""

    states: int
    least: int
    most: int


class _Visit(Visit[State, Move]):
    """A state on the path, with the numbers of surrenders that follow it."""

    def __init__(self, state: State, moves: list[Move]) -> None:
        super().__init__(state, moves)
        self.found: list[tuple[int, int]] = [] if moves else [(0, 0)]


class _Search(DepthFirst[State, Move, tuple[int, int]]):
    model: Spec

    def choices(self, move: Move) -> list[Move]:
        return [move]

    def enter(self, state: State) -> _Visit:
        moves = self.model.moves(state)
        self.model.check(state, moves)
        return _Visit(state, moves)

    def take_in(self, here: Any, value: tuple[int, int]) -> None:
        surrendered = here.move[0] == "yield"
        here.found.append((value[0] + surrendered, value[1] + surrendered))

    def leave(self, here: Any) -> tuple[int, int]:
        return min(least for least, _ in here.found), max(most for _, most in here.found)


def outcome(spec: Spec) -> Outcome:
    """Visit all states.

    Raises:
        Violation: A check failed, or a state can be reached from itself.
    """
    search = _Search(spec, 1_000_000)
    least, most = search.run()
    return Outcome(len(search.known), least, most)


def _put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _without(a: int, line: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(b for b in line if b != a)
