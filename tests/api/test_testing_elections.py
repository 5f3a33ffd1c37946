"""`locks.testing`: elections, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pykka
import pytest

import locks
import locks_leader
from locks.testing import Simulation, Violation, simulate
from locks.testing.nodes import SimulatedNodes
from locks_leader import Election, aio
from locks_leader.shell import transactions

SCHEDULES = 20


class Settings(locks_leader.Behaviour):
    """A dictionary that every instance has, and only the leader changes."""

    def init(self) -> None:
        self.entries: dict[str, int] = {}

    def elected(self, election: locks_leader.ElectionState, newcomer: Any) -> dict[str, int]:
        asked = None if newcomer is None else [newcomer]
        for _, entries in election.ask_candidates("entries", of=asked).replies:
            self.entries = {**entries, **self.entries}
        return dict(self.entries)

    def surrendered(self, entries: dict[str, int], election: locks_leader.ElectionState) -> None:
        self.entries = dict(entries)

    def handle_leader_call(self, request: Any, caller: Any, election: Any) -> int:
        key, value = request
        self.entries[key] = value
        election.broadcast({key: value})
        return len(self.entries)

    def handle_leader_cast(self, message: Any, election: Any) -> None:
        self.handle_leader_call(message, None, election)

    def from_leader(self, entries: dict[str, int], election: Any) -> None:
        self.entries.update(entries)

    def handle_call(self, request: Any, caller: Any, election: Any) -> dict[str, int]:
        return dict(self.entries)


def written(simulation: Simulation, deaths: int) -> None:
    """Each client writes its name through an instance of its own; whoever lives finds it, and what the others find."""

    def write(name: str) -> dict[str, int]:
        mine = locks_leader.start(Settings)
        while True:
            with suppress(locks_leader.LeaderDied):
                locks_leader.leader_call(mine, (name, 1))
                break
        simulation.sleep(100)
        found: dict[str, int] = locks_leader.call(mine, "entries")
        return found

    clients = [simulation.client(write, name, name=name) for name in ("ann", "bob", "cleo", "dora")]
    simulation.run(deaths=deaths)
    living = [client for client in clients if not client.killed]
    for client in living:
        assert client.name in client.value
        assert client.value == living[0].value


def leading(simulation: Simulation, deaths: int) -> None:
    """One leads at a time, with a larger term than those before; nobody is asked to after a death."""
    now: list[str] = []
    terms: list[int] = []

    def lead(leadership: locks_leader.Leadership, name: str) -> str:
        leadership.ensure_leading()
        assert not now, f"{now} leads"
        assert all(term < leadership.term for term in terms)
        now.append(name)
        terms.append(leadership.term)
        try:
            simulation.sleep(1)
        finally:
            now.remove(name)
        leadership.ensure_leading()
        return name

    clients = [
        simulation.client(Election("job").run, lead, name, name=name) for name in ("a", "b", "c")
    ]
    simulation.run(deaths=deaths)
    for client in clients:
        assert client.killed or client.value == client.name


# --- What a program does ----------------------------------------------------------------------------


@pytest.mark.parametrize("patch", [False, True])
def test_one_leads_at_a_time(patch: bool) -> None:
    """`Election.run` leads in each of three clients, one after the other, under any schedule, also patched."""

    def scenario(simulation: Simulation) -> None:
        leading(simulation, 0)

    summary = simulate(scenario, SCHEDULES, patch=patch)
    assert summary.elections == 3 * SCHEDULES


def test_state_is_handed_over() -> None:
    """What was written through an instance that lives is found in all; instances die with their clients."""

    def scenario(simulation: Simulation) -> None:
        written(simulation, 2)

    summary = simulate(scenario, SCHEDULES, expect=("death",))
    assert summary.elections > SCHEDULES


def test_leader_is_killed() -> None:
    """`simulation.kill` kills an instance alone; its client is told that it is gone, and others go on with the state."""

    def scenario(simulation: Simulation) -> None:
        def stand(name: str) -> Any:
            mine = locks_leader.start(Settings)
            with suppress(locks_leader.LeaderDied):
                locks_leader.leader_call(mine, (name, 1))
            simulation.sleep(10)
            try:
                found = locks_leader.call(mine, "entries")
            except pykka.ActorDeadError:
                return "gone"
            return "alone" in found

        def kill() -> None:
            simulation.sleep(5)
            mine = locks_leader.start(Settings, role="worker")
            locks_leader.leader_call(mine, ("alone", 1))
            leader = locks_leader.info(mine).leader
            assert leader is not None
            simulation.kill(leader)

        clients = [simulation.client(stand, name) for name in ("a", "b", "c")]
        simulation.client(kill)
        simulation.run()
        assert sorted((client.value for client in clients), key=str) == [True, True, "gone"]

    assert simulate(scenario, SCHEDULES).deaths == SCHEDULES


def test_tasks_take_part() -> None:
    """`locks_leader.aio` in tasks, beside a client that is none: one leads at a time; what is killed gives it up."""

    def scenario(simulation: Simulation) -> None:
        now: list[str] = []

        async def lead(name: str) -> None:
            async with aio.Election("job").lead() as leadership:
                now.append(name)
                try:
                    assert len(now) == 1
                    await asyncio.sleep(3600)
                    leadership.ensure_leading()
                finally:
                    now.remove(name)

        def plain(leadership: locks_leader.Leadership) -> None:
            now.append("plain")
            assert len(now) == 1
            simulation.sleep(3600)
            now.remove("plain")

        first = simulation.client(lead, "one")
        simulation.client(lead, "two")
        simulation.client(Election("job").run, plain)
        simulation.client(lambda: (simulation.sleep(100), simulation.kill(first)))
        simulation.run()
        assert first.killed
        assert simulation.time > 7200

    simulate(scenario, SCHEDULES)


# --- What is found ----------------------------------------------------------------------------------


def test_two_leaders_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If candidates share the lock they contend for, two lead at once; that is a violation at once."""
    monkeypatch.setattr(transactions, "LOCK", ("read", transactions.LOCK[1]))

    def scenario(simulation: Simulation) -> None:
        for _ in range(2):
            simulation.client(Election("job").run, lambda _: simulation.sleep(1))
        simulation.run()

    with pytest.raises(Violation, match="two lead job"):
        simulate(scenario, 5, shrink=False)


def test_terms_that_fall_are_found() -> None:
    """A leader with a term that is no larger than that of one before is a violation."""
    node = SimulatedNodes(["n1"]).by_name["n1"]
    node.counters.leading("job", "one", leads=True, term=7)
    node.counters.leading("job", "one", leads=True, term=9)
    node.counters.left("job", "one")
    node.counters.leading("work", "one", leads=True, term=1)
    node.application.check()
    node.counters.leading("job", "two", leads=True, term=9)
    with pytest.raises(Violation, match="the leader of job has term 9, and there was one of 9"):
        node.application.check()


def test_an_instance_of_the_program_is_refused() -> None:
    """One that was started outside of the clients lives on the program's node, and is refused, with what to do."""
    outside = locks_leader.start(Settings)

    def scenario(simulation: Simulation) -> None:
        def client() -> None:
            for call in (locks_leader.call, locks_leader.cast, locks_leader.leader_call):
                with pytest.raises(locks.MisuseError, match="is not simulated"):
                    call(outside, "entries")

        simulation.client(client)
        simulation.run()

    try:
        simulate(scenario, 1)
    finally:
        outside.stop()
        locks.stop()


# --- Many seeds -------------------------------------------------------------------------------------


@pytest.mark.explore
@pytest.mark.parametrize("scenario", [leading, written])
def test_many_schedules(scenario: Callable[[Simulation, int], None]) -> None:
    """The same under 1,000 schedules, with up to two deaths."""
    simulate(lambda simulation: scenario(simulation, simulation.seed % 3), 1000)
