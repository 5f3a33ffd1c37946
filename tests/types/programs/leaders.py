"""Elections, by a function and by a behaviour; ownership; the table for stores; tests by simulation."""

from __future__ import annotations

from typing import Any

import pykka
from typing_extensions import assert_type

import locks
import locks_leader
from locks import mvcc, ownership
from locks.testing import Simulation, seeds, simulate


def report(leadership: locks_leader.Leadership, day: str) -> int:
    while not leadership.lost.wait(1):
        leadership.ensure_leading()
    return leadership.term


election = locks_leader.Election("report", policy="majority", nodes=["a@h"], label="reporter")
assert_type(election.run(report, "monday", timeout=5), int | None)
election.run("report")  # E
election.run(report, 17)  # E
election.run(report)  # E
election.run(lambda leadership: print(leadership.term))
locks_leader.Election("report", polcy="majority")  # E


@election
def clean(leadership: locks_leader.Leadership, room: str, *, twice: bool = False) -> int:
    return leadership.term


assert_type(clean("kitchen", twice=True), int | None)
clean(17)  # E
clean()  # E


@locks.once(("nightly", 17), remember=60)
def nightly(day: str) -> int:
    return 17


@locks.aio.once(("nightly", 17))
async def nightly_too(day: str) -> int:
    return 17


async def main() -> None:
    assert_type(nightly("monday"), int)
    assert_type(await nightly_too("monday"), int)
    nightly(17)  # E
    await nightly_too()  # E


class Counter(locks_leader.Behaviour):
    def init(self, first: int) -> None:
        self.count = first

    def elected(
        self, election: locks_leader.ElectionState, newcomer: pykka.ActorRef[Any] | None
    ) -> Any:
        return locks_leader.OnlyNew(self.count)

    def handle_leader_call(
        self, request: int, caller: locks_leader.Caller, election: locks_leader.ElectionState
    ) -> int:
        self.count += request
        return self.count


counter = locks_leader.start(Counter, 3, policy=locks_leader.quorum(2), nodes=["a@h", "b@h"])
assert_type(counter, pykka.ActorRef[Any])
count: int = locks_leader.leader_call(counter, 1, timeout=3)
locks_leader.start(Counter())  # E
locks_leader.leader_call("counter", 1)  # E

backlog: ownership.Backlog[tuple[str, int]] = ownership.Backlog([("ann", 1)])


def handle(task: tuple[str, int], token: int) -> None:
    print(task[0], token)


with locks_leader.Ownership("ingest", groups=64, label="ingester") as mine:
    assert_type(mine.owned(), dict[int, int])
    assert_type(mine.run(backlog, handle), int)
    mine.run(backlog, print)
    mine.run(backlog, lambda task: None)  # E
state = backlog.state(("ann", 1))
assert_type(state, ownership.TaskState)
if isinstance(state, ownership.AtHand):
    assert_type(state.token, int)
    state.worker.stop(now=True)
print(state.ahead)  # E
backlog.state("ann")  # E
with ownership.Ownership("local") as local, local.hold("resource") as token:
    assert_type(token, int)
    local.owns()  # E

table = mvcc.LockTable()
must_wait, guard = table.scan_and_enqueue(mvcc.Request(writes=["x"]), mvcc.Txn(1, 10))
assert_type(must_wait, bool)
table.wait_for(guard, timeout=5)
table.update_locks("x", mvcc.Committed(mvcc.Txn(1, 10), 10))
table.update_locks("x", "committed")  # E


@seeds(100)
def test_transfers(simulation: Simulation) -> None:
    simulation.client(print, "ann", name="clerk")
    simulation.run(seed=3)
    simulation.run(sed=3)  # E


@seeds(expect=("deadlock",))
def test_one_event_is_expected(simulation: Simulation) -> None:
    simulation.run()


@seeds(10, expect={"deadlock", "abort"})
def test_events_are_expected(simulation: Simulation) -> None:
    simulation.run()


seeds(10, expect=("dead",))  # E
seeds(10, expect="deadlock")  # E
simulate(test_one_event_is_expected, 10, expect=["cut"], nodes=2)
simulate(test_events_are_expected, 10, expect=("cat",))  # E


@locks_leader.Election("typed")
def typed(leadership: locks_leader.Leadership, number: int, text: str = "") -> float:
    return leadership.term / number


found: float | None = typed(1, text="a")
typed("1")  # E
typed(1, 2)  # E
typed(1, "a", 3)  # E
