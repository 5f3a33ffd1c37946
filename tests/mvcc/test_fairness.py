"""First come, first served; nobody starves; every client gets through."""

from __future__ import annotations

import itertools
import random
from collections.abc import Generator

import pytest

from locks.mvcc import Aborted, Committed, Guard, Request, Span, Txn
from locks.mvcc.table import LockStates
from tests.helpers import EXPLORE
from tests.mvcc.invariants import check_invariants


def attempt(table: LockStates, request: Request, txn: Txn, guard: Guard | None) -> Guard | None:
    """Scan; write if nothing is in the way. Return the guard if the request has to wait."""
    before = {state.key: state for state in table.states()}
    must_wait, guard = table.scan_and_enqueue(request, txn, guard)
    if must_wait:
        return guard
    for span in request.writes:
        state = before.get(span.start)
        if state is not None and (state.holder is None or state.holder.id != txn.id):
            line = [place for place in (state.reservation, *state.queued_writers) if place]
            assert all(p.number >= guard.number or p.txn.id == txn.id for p in line), "overtaken"
        table.acquire_lock(span.start, txn)
    table.dequeue(guard)
    return None


def test_writers_have_their_turn_in_the_order_in_which_they_came() -> None:
    """A hundred of them, whoever scans again first."""
    table, draw = LockStates(), random.Random(3)
    txns = [Txn(n, n) for n in range(101)]
    table.acquire_lock("a", txns[0])
    request = Request(writes=["a"])
    guards = {txn: table.scan_and_enqueue(request, txn)[1] for txn in txns[1:]}
    for holder, following in itertools.pairwise(txns):
        table.update_locks("a", Committed(holder, holder.timestamp))
        for txn in draw.sample(list(guards), min(5, len(guards))):
            if txn != following:
                assert table.scan_and_enqueue(request, txn, guards[txn])[0]
        assert attempt(table, request, following, guards.pop(following)) is None


def test_a_request_for_several_keys_does_not_starve() -> None:
    """Others want one key each, again and again; it has each key after those that came before."""
    table = LockStates()
    keys = "abc"
    number = iter(range(1, 100_000))
    running: dict[str, Txn] = {}
    lines: dict[str, list[tuple[Txn, Guard]]] = {key: [] for key in keys}

    def come(key: str) -> None:
        txn = Txn(next(number), 1)
        must_wait, guard = table.scan_and_enqueue(Request(writes=[key]), txn)
        if must_wait:
            lines[key].append((txn, guard))
        else:
            table.acquire_lock(key, txn)
            running[key] = txn

    for key in keys * 4:
        come(key)
    patient = Txn(next(number), 1)
    request = Request(writes=list(keys))
    must_wait, guard = table.scan_and_enqueue(request, patient)
    served = 0
    while must_wait:
        for key in keys:
            come(key)
            txn = running.pop(key, None)
            if txn is not None:
                table.update_locks(key, Committed(txn, 1))
                served += 1
            for waiter in lines[key]:
                if waiter[1].waits_at is None and key not in running:
                    lines[key].remove(waiter)
                    if not table.scan_and_enqueue(Request(writes=[key]), waiter[0], waiter[1])[0]:
                        table.acquire_lock(key, waiter[0])
                        running[key] = waiter[0]
                    else:
                        lines[key].append(waiter)
                    break
        if guard.waits_at is None:
            must_wait, _ = table.scan_and_enqueue(request, patient, guard)
        check_invariants(table)
        assert served <= 3 * 4 * 3, "it starves"


class World:
    """Clients that run transactions of several requests each, one step at a time."""

    def __init__(self, seed: int, detect: bool) -> None:
        self.draw = random.Random(seed)
        self.table = LockStates(detect=detect)
        self.last_id = 0
        self.committed = 0
        self.aborted = 0

    def client(self) -> Generator[Guard | None, None, None]:
        """Run one transaction until it is committed; yields the guard that it waits for."""
        draw = self.draw
        requests = []
        for _ in range(draw.randint(1, 3)):
            keys = draw.sample("abcdef", draw.randint(1, 2))
            requests.append(Request(reads=keys) if draw.random() < 0.3 else Request(writes=keys))
        while True:
            self.last_id += 1
            txn = Txn(self.last_id, self.last_id, draw.choice([None, 1, 2]))
            if (yield from self.run(txn, requests)):
                self.table.update_locks(Span("a", "z"), Committed(txn, txn.timestamp))
                self.committed += 1
                return
            self.table.update_locks(Span("a", "z"), Aborted(txn))
            self.aborted += 1
            yield None

    def run(self, txn: Txn, requests: list[Request]) -> Generator[Guard | None, None, bool]:
        for request in requests:
            guard = attempt(self.table, request, txn, None)
            while guard is not None:
                while guard.waits_at is not None:
                    yield guard
                if guard.ending is not None:
                    self.table.dequeue(guard)
                    return False
                guard = attempt(self.table, request, txn, guard)
            yield None
        return True


@pytest.mark.parametrize("detect", [True, False], ids=["graph", "push"])
@pytest.mark.parametrize("seed", range(400 if EXPLORE else 25))
def test_all_clients_get_through(seed: int, detect: bool) -> None:
    """Nobody is overtaken, every deadlock is resolved, and nothing is left over."""
    world = World(seed, detect)
    clients = [world.client() for _ in range(12)]
    asleep = 0
    while clients:
        client = world.draw.choice(clients)
        guard = next(client, "done")
        if guard == "done":
            clients.remove(client)
        # Without detection who finds himself asleep pushes.
        if isinstance(guard, Guard) and not detect:
            world.table.resolve_deadlocks(guard.txn.id)
        asleep = asleep + 1 if isinstance(guard, Guard) else 0
        assert asleep < 2000, f"nobody goes on: {world.table.states()}"
        check_invariants(world.table)
    assert world.committed == 12
    assert world.table.states() == ()
    statistics = world.table.statistics()
    assert (statistics.guards, statistics.transactions) == (0, 0)
    assert statistics.deadlocks == world.aborted


def test_there_are_deadlocks_in_these_runs() -> None:
    """Or the test above would prove little."""
    aborted = 0
    for seed in range(25):
        world = World(seed, True)
        clients = [world.client() for _ in range(12)]
        while clients:
            client = world.draw.choice(clients)
            if next(client, "done") == "done":
                clients.remove(client)
        aborted += world.aborted
    assert aborted > 20
