"""Shrinking: from a failed run to the smallest case that fails in the same way.

First the world is made smaller: clients, steps, nodes and options are left out, then steps are made
simpler. Each smaller world is tried with the remaining moves. These may not fit any more, so it is
also tried with some random schedules. Then moves are left out, first many at once and then one by
one. This is repeated until nothing helps any more. Every change makes the case smaller by `weight`,
so shrinking ends. The result depends only on the case: the same case is always shrunk to the same
one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_args

from locks.model import LockId
from locks_lab.cases.case import Case, Move, case_of, kind_of, replay
from locks_lab.schedules.plan import lock_name, node_names
from locks_lab.schedules.schedule import POLICIES, run
from locks_lab.worlds.events import Choice
from locks_lab.worlds.script import Script, Step, StepKind

__all__ = ["shrink", "weight"]

BUDGET = 600_000  # events
TRIES = 8  # schedules at random for each smaller world
KINDS = get_args(StepKind)


def shrink(case: Case, kind: str, budget: int = BUDGET, world: bool = True) -> Case:
    """Find the smallest case that fails in the same way.

    Args:
        case: A case that fails.
        kind: The kind of its failure, from `kind_of`.
        budget: The largest number of events to simulate.
        world: Whether the world may become smaller, and not only the schedule.
    """
    shrinker = _Shrinker(case, kind, budget)
    shrinker.run(world)
    return shrinker.best


def weight(case: Case) -> tuple[int, ...]:
    """The size of a case; the sizes that make it hard to understand come first."""
    steps = [step for steps in case.scripts for step in steps]
    return (
        len(case.scripts),
        len(case.nodes),
        sum(move.kind in ("cut", "crash", "ends", "crashes") for move in case.moves),
        len(steps),
        len(case.options) + len(case.unlinked),
        len({step.lock_id for step in steps}),
        sum(map(_complexity, steps)) + sum(1 + (home != case.nodes[0]) for home in case.homes),
        len(case.moves),
    )


def _complexity(step: Step) -> int:
    return (
        KINDS.index(step.kind)
        + (step.mode == "read")
        + len(step.lock_id)
        + len(step.nodes)
        + (step.require != "all")
    )


def _limit(case: Case) -> int:
    """More events than a case can take."""
    return 1000 + 100 * sum(map(len, case.scripts))


class _Shrinker:
    def __init__(self, case: Case, kind: str, budget: int) -> None:
        self.best = case
        self.kind = kind
        self.left = budget
        self.tried: set[str] = set()

    def run(self, world: bool) -> None:
        before = None
        while before != self.best and self.left > 0:
            before = self.best
            for smaller in (
                () if not world else (_without_clients, _without_nodes, _without_steps, _simpler)
            ):
                self._greedily(smaller)
            self._fewer_moves()
        if world and self.left > 0:
            self._fails(_renamed(self.best))

    def _greedily(self, smaller: Any) -> None:
        """Take a smaller case that still fails, as long as there is one."""
        found = True
        while found and self.left > 0:
            found = False
            for case in smaller(self.best):
                if weight(case) < weight(self.best) and self._take(case, TRIES):
                    found = True
                    break

    def _take(self, case: Case, tries: int = 0) -> bool:
        """Try a case, and keep it if it fails."""
        text = str(case)
        if text in self.tried or self.left <= 0:
            return False
        self.tried.add(text)
        if self._fails(case):
            return True
        return any(self._fails_somehow(case, seed) for seed in range(tries))

    def _fails(self, case: Case) -> bool:
        found = replay(case, limit=_limit(case))
        self.left -= found.events
        if found.kind != self.kind:
            return False
        self.best = case._replace(moves=found.moves)
        return True

    def _fails_somehow(self, case: Case, seed: int) -> bool:
        """Whether a world fails under a schedule at random, with faults as in its moves."""
        plan = case.plan
        schedule: list[Choice] = []
        try:
            run(
                plan.world(),
                random.Random(seed),
                POLICIES[seed % len(POLICIES)],
                _limit(case),
                schedule=schedule,
            )
        except Exception as error:
            if kind_of(error) == self.kind:
                self.left -= len(schedule)
                return self._fails(case_of(plan, schedule))
        self.left -= len(schedule)
        return False

    def _fewer_moves(self) -> None:
        """Leave out moves, half of them at once and then fewer."""
        size = len(self.best.moves)
        while size and self.left > 0:
            at = len(self.best.moves)
            while at > 0 and self.left > 0:
                at = max(0, at - size)
                moves = self.best.moves
                self._take(self.best._replace(moves=moves[:at] + moves[at + size :]))
                at = min(at, len(self.best.moves))
            size //= 2


# --- Smaller worlds -----------------------------------------------------------------------------


def _without_clients(case: Case) -> Iterator[Case]:
    """The case without each of the clients in turn; the other clients are renumbered."""
    count = len(case.scripts)
    for gone in range(count, 0, -1) if count > 1 else ():
        yield case._replace(
            scripts=case.scripts[: gone - 1] + case.scripts[gone:],
            homes=case.homes[: gone - 1] + case.homes[gone:],
            moves=tuple(_renumbered(move, gone) for move in case.moves if not _of(move, gone)),
        )


def _of(move: Move, client: int) -> bool:
    return any(party.partition(".")[0] == str(client) for party in move.parties)


def _renumbered(move: Move, gone: int) -> Move:
    def new(party: str) -> str:
        number, dot, generation = party.partition(".")
        if not number.isdigit() or int(number) < gone:
            return party
        return f"{int(number) - 1}{dot}{generation}"

    return move._replace(parties=tuple(map(new, move.parties)))


def _without_nodes(case: Case) -> Iterator[Case]:
    """Without each of the nodes."""
    for gone in case.nodes[::-1] if len(case.nodes) > 1 else ():
        nodes = tuple(node for node in case.nodes if node != gone)
        yield case._replace(
            scripts=tuple(
                tuple(
                    step._replace(nodes=tuple(node for node in step.nodes if node != gone))
                    for step in steps
                )
                for steps in case.scripts
            ),
            nodes=nodes,
            homes=tuple(nodes[0] if home == gone else home for home in case.homes),
            unlinked=tuple(pair for pair in case.unlinked if gone not in pair),
            moves=tuple(move for move in case.moves if gone not in move.parties),
        )


def _without_steps(case: Case) -> Iterator[Case]:
    """Without faults, without each of the options, and without each of the steps."""
    for kinds in (("cut", "mend", "connect"), ("crash", "restart"), ("ends", "crashes")):
        yield case._replace(moves=tuple(move for move in case.moves if move.kind not in kinds))
    for option in case.options:
        yield case._replace(options=tuple(each for each in case.options if each != option))
    for client, steps in enumerate(case.scripts):
        for half in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
            yield _with(case, client, half)
        for at in range(len(steps)):
            yield _with(case, client, steps[:at] + steps[at + 1 :])


def _with(case: Case, client: int, steps: Script) -> Case:
    return case._replace(scripts=(*case.scripts[:client], steps, *case.scripts[client + 1 :]))


def _simpler(case: Case) -> Iterator[Case]:
    """With simpler lock ids, homes and steps."""
    ids = _ids(case)
    for lock_id in ids:
        yield from (_with_id(case, lock_id, lock_id[:depth]) for depth in range(1, len(lock_id)))
        for other in ids[: ids.index(lock_id)]:
            yield _with_id(case, lock_id, other)
    for pair in case.unlinked:
        yield case._replace(unlinked=tuple(each for each in case.unlinked if each != pair))
    if case.homes:
        yield case._replace(homes=())
    for client, home in enumerate(case.homes):
        if home != case.nodes[0]:
            homes = (*case.homes[:client], case.nodes[0], *case.homes[client + 1 :])
            yield case._replace(homes=homes)
    for client, steps in enumerate(case.scripts):
        for at, step in enumerate(steps):
            for new in _simpler_step(step):
                yield _with(case, client, (*steps[:at], new, *steps[at + 1 :]))


def _simpler_step(step: Step) -> Iterator[Step]:
    if step.asks:
        yield step._replace(kind="lock", mode="write", nodes=(), require="all")
        yield step._replace(kind="lock")
        yield step._replace(mode="write")
        yield step._replace(require="all")
        yield step._replace(nodes=())
        for gone in step.nodes:
            yield step._replace(nodes=tuple(node for node in step.nodes if node != gone))


def _ids(case: Case) -> list[LockId]:
    found = [step.lock_id for steps in case.scripts for step in steps if step.lock_id]
    return list(dict.fromkeys(found))


def _with_id(case: Case, old: LockId, new: LockId) -> Case:
    """The case with a lock id, and the ids below it, replaced by another."""
    return case._replace(
        scripts=tuple(
            tuple(
                step._replace(lock_id=new + step.lock_id[len(old) :])
                if step.lock_id[: len(old)] == old
                else step
                for step in steps
            )
            for steps in case.scripts
        )
    )


def _renamed(case: Case) -> Case:
    """With lock ids and nodes that are named in the order in which they occur."""
    roots = dict.fromkeys(lock_id[0] for lock_id in _ids(case))
    names = {root: lock_name(number) for number, root in enumerate(roots)}
    nodes = dict(zip(case.nodes, node_names(len(case.nodes)), strict=True))

    def renamed(step: Step) -> Step:
        lock_id = step.lock_id
        if lock_id:
            lock_id = (names[lock_id[0]], *lock_id[1:])
        return step._replace(lock_id=lock_id, nodes=tuple(nodes[node] for node in step.nodes))

    return case._replace(
        scripts=tuple(tuple(map(renamed, steps)) for steps in case.scripts),
        nodes=tuple(nodes.values()),
        homes=tuple(nodes.get(home, home) for home in case.homes),
        unlinked=tuple((nodes.get(a, a), nodes.get(b, b)) for a, b in case.unlinked),
        moves=tuple(
            move._replace(parties=tuple(nodes.get(party, party) for party in move.parties))
            for move in case.moves
        ),
    )
