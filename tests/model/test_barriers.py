"""What parties do at a barrier, in small worlds: every order of messages, with deaths and time-outs at every point.

The parties are the real ones (`locks.core.barrier`), at a naive lock table with the one rule of the real one. Each
sends its messages in their order; which of them arrives next is open. What the lock server answers is taken in at once: an answer
that is late is as good as a next message that is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from locks.core import barrier as protocol
from locks.core.barrier import (
    Await,
    AwaitCall,
    Begin,
    Broken,
    End,
    Enter,
    Leave,
    Look,
    Open,
    Outcome,
    Passed,
    Round,
    Stand,
    Step,
    TimedOut,
)
from locks.core.server.table import LockTable
from locks.model import AgentId, Contender, LockId

ROOT = protocol.root_of(("b",))
MUTEX = (*ROOT, "mutex")
Message = tuple[Any, ...]
Attend = Callable[[LockId, int], protocol.Party]


class Request(NamedTuple):
    """One request in the table: whose it is, and whether it is of the transaction that stands, or has the mutex."""

    party: int
    agent: AgentId
    lock_id: LockId
    mode: str
    granted: bool


class Party(NamedTuple):
    """One party.

    Attributes:
        parties: How many it says that have to come.
        visits: How often it will come after this time.
        history: What it was told, in this visit: by that it is where it is.
        agents: How many transactions it has begun.
        round: In which round it stands, if it was told a number, or is the host.
        sent: What did not arrive yet.
        grants: What it was granted, with versions.
        called: Whether it was told that it is called.
        state: `"here"`, `"dead"` (not noticed yet), or `"gone"`.
    """

    parties: int
    visits: int
    history: tuple[Any, ...] = ()
    agents: int = 0
    round: Round | None = None
    sent: tuple[Message, ...] = ()
    grants: tuple[tuple[LockId, int], ...] = ()
    called: bool = False
    state: str = "here"


class World(NamedTuple):
    """All parties, the lock table, and what has come of visits."""

    parties: tuple[Party, ...]
    table: tuple[Request, ...] = ()
    watches: tuple[tuple[int, LockId], ...] = ()
    version: int = 0
    deaths: int = 0
    delays: int = 0  # how many times a time may be over
    results: tuple[tuple[Round | None, int, Outcome | str], ...] = ()


class Violation(AssertionError):
    """Something is not as it must be."""


class Explorer:
    """Explores worlds.

    Args:
        attend: What parties do; wrong ones are to be caught.
    """

    def __init__(self, attend: Attend = protocol.attend) -> None:
        @cache
        def after(parties: int, history: tuple[Any, ...]) -> Step | Outcome:
            steps = attend(ROOT, parties)
            try:
                step = next(steps)
                for answer in history:
                    step = steps.send(dict(answer) if type(answer) is tuple and answer and type(answer[0]) is tuple and not isinstance(answer[0], Contender) else answer)
            except StopIteration as done:
                outcome: Outcome = done.value
                return outcome
            return step

        self._after = after
        self.outcomes: Counter[str] = Counter()

    def explore(self, world: World) -> int:
        """Look at every state; return how many there are."""
        for number in range(len(world.parties)):
            world = self._go_on(world, number)
        world = _canonical(world)
        seen, left = {world}, [world]
        while left:
            world = left.pop()
            moves = list(self._moves(world))
            if not any(must for must, _ in moves):
                self._check_end(world)
            for _, then in moves:
                then = _canonical(then)
                if then not in seen:
                    seen.add(then)
                    left.append(then)
        return len(seen)

    # --- Moves: whether it must happen at some time, and what comes of it

    def _moves(self, world: World) -> Iterator[tuple[bool, World]]:
        for number, party in enumerate(world.parties):
            if party.state == "here":
                if party.sent:
                    yield True, self._arrive(world, number)
                if world.deaths and not isinstance(self._step(party), Outcome):
                    yield False, _with(
                        world._replace(deaths=world.deaths - 1), number, sent=(), state="dead"
                    )
                if world.delays and (answer := self._late(party)) is not None:
                    late = world._replace(delays=world.delays - 1)
                    yield self._step(party) == _MOMENT, self._tell(late, number, answer)
            elif party.state == "dead":
                mine = {each.agent for each in world.table if each.party == number}
                for agent in mine:  # in any order
                    yield True, self._remove(world, agent)
                if not mine:
                    result = (party.round, number, "died")
                    done = world._replace(results=(*world.results, result))
                    yield True, _with(done, number, state="gone", round=None)

    def _step(self, party: Party) -> Step | Outcome:
        return self._after(party.parties, party.history)

    def _late(self, party: Party) -> Any:
        step = self._step(party)
        if isinstance(step, AwaitCall):
            return False
        return () if isinstance(step, Await) else None

    def _arrive(self, world: World, number: int) -> World:
        party = world.parties[number]
        (what, *args), rest = party.sent[0], party.sent[1:]
        world = _with(world, number, sent=rest)
        if what == "request":
            return self._request(world, Request(number, *args, granted=False))
        if what == "remove":
            return self._remove(world, *args)
        if what == "release":
            agent, lock_id = args
            kept = tuple(e for e in world.table if (e.agent, e.lock_id) != (agent, lock_id))
            return self._grant(world._replace(table=kept))
        if what == "watch":
            world = world._replace(watches=(*world.watches, (number, args[0])))
            return self._tell_watchers(world, args[0])
        assert what == "look"
        return self._tell(world, number, tuple(map(_contender, world.table)))

    # --- The lock table

    def _request(self, world: World, request: Request) -> World:
        world = self._grant(world._replace(table=(*world.table, request)))
        return self._tell_watchers(world, request.lock_id)

    def _remove(self, world: World, agent: AgentId) -> World:
        kept = tuple(each for each in world.table if each.agent != agent)
        return self._grant(world._replace(table=kept))

    def _grant(self, world: World) -> World:
        """Grant what can be; then tell all of them at once."""
        told: dict[int, list[LockId]] = {}
        table = list(world.table)
        for index, each in enumerate(table):
            if not each.granted and not any(
                _conflict(each, other)
                for at, other in enumerate(table)
                if other.granted or at < index
            ):
                table[index] = each._replace(granted=True)
                told.setdefault(each.party, []).append(each.lock_id)
        world = world._replace(table=tuple(table))
        for number, granted in told.items():
            for lock_id in granted:
                world = world._replace(version=world.version + 1)
                if lock_id != MUTEX:
                    known = (*world.parties[number].grants, (lock_id, world.version))
                    world = _with(world, number, grants=known)
        for number, granted in told.items():
            if world.parties[number].state == "here":
                step = self._step(world.parties[number])
                if MUTEX in granted:
                    assert isinstance(step, Enter)
                    world = self._tell(world, number, True)
                elif isinstance(step, Await):
                    world = self._go_on(world, number)
        return world

    def _tell_watchers(self, world: World, lock_id: LockId) -> World:
        if any(each.lock_id == lock_id for each in world.table):
            for number, watched in world.watches:
                if watched == lock_id:
                    world = _with(world, number, called=True)
                    world = self._go_on(world, number)
        return world

    # --- A party

    def _tell(self, world: World, number: int, answer: Any) -> World:
        party = world.parties[number]
        world = _with(world, number, history=(*party.history, answer))
        return self._go_on(world, number)

    def _go_on(self, world: World, number: int) -> World:
        """A party goes on as far as it can without being told anything."""
        while True:
            party = world.parties[number]
            if party.state != "here":
                return world
            agent = AgentId(party.agents, str(number), 0)
            mutex = AgentId(party.agents, str(number), 1)
            step = self._step(party)
            answer: Any = None
            send: list[Message] = []
            more: dict[str, Any] = {}
            if isinstance(step, Enter):
                if ("request", mutex, MUTEX, "write") not in party.sent:
                    asked = any(e.agent == mutex for e in world.table)
                    if not asked:
                        return _with(world, number, sent=(*party.sent, ("request", mutex, MUTEX, "write")))
                return world
            if isinstance(step, Look):
                return _with(world, number, sent=(*party.sent, ("look",)))
            if isinstance(step, Await):
                found = tuple(each for each in party.grants if each[0] in step.wanted)
                if not found and step.patience != "none":
                    return world
                answer = found
            elif isinstance(step, AwaitCall):
                if not party.called:
                    if (number, step.call) in world.watches or ("watch", step.call) in party.sent:
                        return world
                    return _with(world, number, sent=(*party.sent, ("watch", step.call)))
                answer = True
            elif isinstance(step, Begin):
                answer = agent
            elif isinstance(step, Stand):
                send = [("request", agent, *each) for each in step.wanted]
                more = {"round": _round_of(step, party.parties)}
            elif isinstance(step, Leave):
                send = [("remove", mutex)]
            elif isinstance(step, Open):
                send = [("release", agent, step.turnstile)]
            elif isinstance(step, End):
                send = [("remove", agent), ("remove", mutex)]
                more = {"round": None, "grants": (), "called": False, "agents": party.agents + 1}
            else:  # it is over
                self.outcomes[type(step).__name__] += 1
                world = world._replace(results=(*world.results, (party.round, number, step)))
                ended = party._replace(
                    round=None, grants=(), called=False, history=(), agents=party.agents + 1,
                    sent=(*party.sent, ("remove", agent), ("remove", mutex)),
                )  # fmt: skip
                if not party.visits or isinstance(step, TimedOut):
                    return _put(world, number, ended._replace(state="done"))
                world = _put(world, number, ended._replace(visits=party.visits - 1))
                continue
            history = (*party.history, answer)
            world = _with(world, number, history=history, sent=(*party.sent, *send), **more)
