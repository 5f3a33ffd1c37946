"""What goes wrong in the original goes right here, with real agents.

The numbers are those of the list of faults found by running the original. Rings and clients that
take several locks one by one (fault 1) are in test_rings.py; faults 12, 15 and 16 are about the
leader.
"""

from __future__ import annotations

import gc
import itertools
import json
import pathlib
from typing import Any

import pytest

import locks
from locks.model import related
from tests.api.clients import EXPLORE, AnswerWait, Run, many
from tests.helpers import eventually

RECORDED = pathlib.Path(__file__).parents[1] / "conformance" / "original-breaks.jsonl"
BREAKS = [json.loads(line) for line in RECORDED.read_text().splitlines()]


# --- The sequences in which the original breaks (faults 1 to 5) -------------------------------------


class Replay:
    """Runs one recorded sequence; after each step no two grants are in conflict."""

    def __init__(self, run: Run, sequence: list[list[Any]]) -> None:
        self.run = run
        names = sorted(
            {step[0] for step in sequence if step[0] not in ("watch", "end", "surrender")}
        )
        self.clients = dict(zip(names, run.begin(len(names)), strict=True))
        self.answers: dict[str, list[AnswerWait]] = {name: [] for name in names}
        self.roots = {tuple(step[-1][:1]) for step in sequence if isinstance(step[-1], list)}
        self.watched: list[tuple[Any, ...]] = []

    def step(self, step: list[Any], *, blocking: bool) -> None:
        if step[0] == "watch":
            locks.watch(step[1], watcher=self._view)
            self.watched.append(tuple(step[1]))
        elif step[0] == "end":
            self.end(step[1])
        elif step[0] == "surrender":
            self.surrender(step[1], tuple(step[2]))
        elif blocking:
            self.ask(step[0], tuple(step[2]), step[1])
        else:
            self.clients[step[0]].lock_nowait(step[2], step[1])
        self.check()

    def ask(self, name: str, lock_id: tuple[Any, ...], mode: str) -> None:
        client = self.clients[name]
        earlier = self.answers[name]
        busy = bool(earlier) and not earlier[-1].ready
        earlier.append(client.lock(lock_id, mode))
        if not busy:
            eventually(lambda: earlier[-1].ready or client.waits(lock_id))

    def surrender(self, name: str, lock_id: tuple[Any, ...]) -> None:
        """Surrender what the agent holds of these to somebody who waits, if anybody does."""
        client = self.clients[name]
        if self.answers[name] and not self.answers[name][-1].ready:
            return  # it is blocked: it can't ask for that
        held = [i.lock_id for i in locks.original.lock_info(client.agent) if i.held]
        for own in [i for i in held if related(i, lock_id)]:
            for other in self.clients.values():
                if other is not client and any(
                    c.agent == other.agent.id for c in locks.queue(own).waiting
                ):
                    client.call(locks.original.surrender_nowait, client.agent, own, other.agent)
                    break

    def end(self, name: str) -> None:
        client = self.clients.pop(name)
        answers = self.answers.pop(name)
        if answers and not answers[-1].ready:
            client.agent.stop()  # the client itself is blocked
            with pytest.raises(locks.TransactionEnded):
                answers[-1].get()
        else:
            client.end()

    def check(self) -> None:
        """No two grants are in conflict."""
        for root in self.roots:
            for a, b in itertools.combinations(locks.holders(root), 2):
                assert (
                    a.agent == b.agent
                    or a.mode == b.mode == "read"
                    or not related(a.lock_id, b.lock_id)
                ), (a, b)

    def served(self, name: str) -> bool:
        """Whether the client has been given all that it asked for."""
        if any(not answer.ready for answer in self.answers[name]):
            return False
        return locks.original.transaction_status(self.clients[name].agent).status != "waiting"

    def finish(self) -> None:
        """As long as anybody is there, somebody has all it wants; it ends."""
        while self.clients:
            name = eventually(lambda: next((n for n in self.clients if self.served(n)), None))
            for answer in self.answers[name]:
                assert answer.get().status == "have_all_locks"
            assert self.clients[name].await_all().get().status in ("have_all_locks", "no_locks")
            self.check()
            self.end(name)
        for lock_id in self.watched:
            locks.unwatch(lock_id, watcher=self._view)

    def _view(self, view: locks.values.View) -> None:
        """A watcher that does nothing."""


@pytest.mark.parametrize("blocking", [False, True], ids=["nowait", "blocking"])
@pytest.mark.parametrize("case", BREAKS, ids=[case["name"] for case in BREAKS])
def test_breaks(run: Run, case: dict[str, Any], blocking: bool) -> None:
    """No two conflicting grants, deadlocks resolve by themselves, everybody is served in the end."""
    replay = Replay(run, case["sequence"])
    for step in case["sequence"]:
        replay.step(step, blocking=blocking)
    replay.finish()


def test_checker_finds_conflicts(run: Run) -> None:
    """The check of `Replay` fails when two grants are in conflict."""
    replay = Replay(run, [["a1", "read", ["a"]], ["a2", "read", ["a"]]])
    for name in ("a1", "a2"):
        replay.step([name, "read", ["a"]], blocking=True)
    table = locks.start().server.machine.table
    entries = [entry for entry in table.view(("a",)) if entry.granted]
    for entry in entries:
        entry.mode = "write"
    with pytest.raises(AssertionError):
        replay.check()
    for entry in entries:
        entry.mode = "read"
    replay.finish()


# --- One by one -------------------------------------------------------------------------------------


def test_fault_1_ring_of_four(run: Run) -> None:
    """A ring of four that the original never resolves: the largest sits between two small ones."""
    one, two, three, four = run.begin(4)
    ring = [one, four, two, three]
    for i, client in enumerate(ring):
        client.lock(("ring", i)).get()
    answers = [client.lock(("ring", (i + 1) % 4)) for i, client in enumerate(ring)]
    pending = list(range(4))
    while pending:
        done = eventually(lambda: next((i for i in pending if answers[i].ready), None) is not None)
        assert done
        index = next(i for i in pending if answers[i].ready)
        assert answers[index].get().deadlocks
        ring[index].end()
        pending.remove(index)
    assert locks.statistics().table.surrenders == 1


def test_fault_4_no_upgrade_is_lost(run: Run) -> None:
    """Two clients read a counter under a read lock, upgrade and write it plus one: none is lost."""
    counter = [0]
    rounds = 50

    def increment(tx: locks.Transaction) -> None:
        tx.read_lock(("counter",))
        value = counter[0]
        run.pause()
        tx.write_lock(("counter",))
        counter[0] = value + 1

    def work() -> None:
        for _ in range(rounds):
            locks.run_transaction(increment, retries=1000)

    answers = [run.client().do(work) for _ in range(2)]
    for answer in answers:
        answer.get()
    assert counter[0] == 2 * rounds


def test_fault_6_versions_never_go_back(run: Run) -> None:
    """Versions rise when a lock was forgotten and is watched anew, and when the node restarts."""
    views: list[locks.values.View] = []
    tokens = []
    client = run.client()
    for _ in range(3):
        client.begin()
        client.lock(("a",)).get()
        tokens.append(client.call(lambda: locks.original.fencing_token(client.agent, ("a",))))
        client.end()
        locks.watch(("a",), watcher=views.append)
        locks.unwatch(("a",), watcher=views.append)
    eventually(lambda: len(views) == 3)
    locks.stop()
    client.begin()
    client.lock(("a",)).get()
    tokens.append(client.call(lambda: locks.original.fencing_token(client.agent, ("a",))))
    client.end()
    assert tokens == sorted(set(tokens))
    versions = [view.version for view in views]
    assert versions == sorted(set(versions))
    assert all(token <= version for token, version in zip(tokens, versions, strict=False))


def test_fault_7_a_client_that_also_watches(run: Run) -> None:
    """A client that watches the lock that it surrenders crashes nothing; it sees each view."""
    a, b = ("a",), ("b",)
    views: list[locks.values.View] = []
    one, two = run.begin(2)
    two.call(locks.watch, b, watcher=views.append)
    one.lock(a).get()
    two.lock(b).get()
    first = one.lock(b)
    run.until_waiting(one, b)
    second = two.lock(a)
    first.get()
    one.end()
    second.get()
    two.end()

    def kept() -> list[Any]:
        """Who has held it, one after the other."""
        holders = [[c.agent for c in view.holders] for view in list(views)]
        return [who for who, _ in itertools.groupby(holders)]

    wanted = [[], [two.agent.id], [one.agent.id], [two.agent.id], []]
    eventually(lambda: len(kept()) >= len(wanted))
    assert kept() == wanted
    locks.unwatch(b, watcher=views.append)


@pytest.mark.parametrize("receiver", ["agent", "server"])
def test_fault_7_garbage_messages_crash_nothing(run: Run, receiver: str) -> None:
    """Whatever is sent to an agent or to the lock server, it goes on with its work."""
    (one,) = run.begin(1)
    one.lock(("a",)).get()
    ref = one.agent if receiver == "agent" else locks.start().server
    for garbage in (None, "garbage", {"a": 1}, ("look", ("a",))):
        ref.tell(garbage)
        with pytest.raises(locks.MisuseError, match=r"message|operation"):
            ref.ask(garbage)
    assert ref.is_alive()
    assert one.lock(("b",)).get().status == "have_all_locks"


@pytest.mark.parametrize("require", ["all", "any", "majority", "all_alive", "majority_alive"])
def test_fault_8_every_requirement(run: Run, require: str) -> None:
    """Each requirement works, also in a list of objects, where the original drops it."""
    (one,) = run.begin(1)
    here = one.agent.node.name
    nodes = [here] if require in ("all", "majority") else [here, "down@nowhere"]
    one.lock(("a",), "write", nodes, require).get()
    one.call(locks.original.lock_objects, one.agent, [(("b",), "write", nodes, require)])
    one.await_all().get()
    assert [(i.require, i.nodes, i.held) for i in locks.original.lock_info(one.agent)] == [
        (require, tuple(nodes), True)
    ] * 2


def test_fault_9_table_lock_over_many_rows(run: Run) -> None:
    """A table lock over 120 rows (1,000 when explored) of others is granted when they are released; so are all rows."""
    rows = many(120, 1_000)
    one, two, three = run.begin(3)
    one.call(locks.original.lock_objects, one.agent, [(("t", i), "write") for i in range(rows)])
    one.await_all().get()
    table = two.lock(("t",))
    run.until_waiting(two, ("t",))
    three.call(locks.original.lock_objects, three.agent, [(("t", i), "read") for i in range(rows)])
    last = three.await_all()
    one.end()
    table.get()
    assert not last.ready
    two.end()
    last.get()
    assert len(locks.holders(("t",))) == rows


def count_objects() -> tuple[int, int]:
    """Count the agents of this node that are still in memory, and all objects."""
    node = locks.start()
    gc.collect()
    objects = gc.get_objects()
    return sum(
        type(o) is locks.actors.Agent and getattr(o, "node", None) is node for o in objects
    ), len(objects)


def test_fault_10_transactions_leave_nothing(run: Run) -> None:
    """After 1,200 more transactions in one client there are no more objects than after 300."""
    (client,) = run.begin(1)

    def work(number: int) -> None:
        for i in range(number):
            agent, _ = locks.original.begin_transaction([(("a", i % 7), "write")])
            locks.original.lock(agent, ("b",))
            locks.original.end_transaction(agent)

    client.call(work, 300)
    agents, objects = count_objects()
    client.call(work, many(400, 100_000))
    agents_later, objects_later = count_objects()
    assert agents_later == agents == 1
    assert objects_later - objects < 500


def test_fault_13_no_wake_up_is_lost(run: Run) -> None:
    """Many blocking calls of clients that contend, each transaction with several: all return."""
    contenders, locks_each = 4, 5
    transactions = many(2_000, 1_000_000) // (contenders * locks_each)

    def work() -> int:
        served = 0
        for i in range(transactions):
            with locks.transaction() as tx:
                for j in range(locks_each):
                    tx.lock(("a", j, i % 3))
                    served += 1
        return served

    answers = [run.client().do(work) for _ in range(contenders)]
    limit = 3600.0 if EXPLORE else 60.0
    assert [answer.get(limit) for answer in answers] == [transactions * locks_each] * contenders
