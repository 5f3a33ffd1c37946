"""The model of the original (`locks_lab.original`) against the original itself.

Its lock server is given random operations on trees of ids, and its whole table is compared with the model's
after each, and all that it has told. Its agents are in rings of three and four, asked in each order.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from locks.model import REQUIREMENTS, AgentId, LockId
from locks.otp.bytes.terms import Atom, Pid
from locks_lab.original import table as model
from locks_lab.original.messages import Ask, End, Surrender
from locks_lab.original.runs import asked, is_resolved
from locks_lab.original.server import serve
from locks_lab.worlds.host import Violation
from tests.erlang.erlang import Call, Erlang, ErlangClient, settle
from tests.original.situations import Situation, situations

LOCKS = Atom("locks_server_locks")
SERVER = Atom("locks_server")


class Both:
    """The original's lock server and the model's, with the same agents."""

    def __init__(self, erlang: Erlang, agents: int) -> None:
        self.call = lambda module, function, *args: erlang.call("main", module, function, *args)
        self.pids: list[Pid] = [
            self.call("erlang", "spawn", Atom("timer"), Atom("sleep"), [Atom("infinity")])
            for _ in range(agents)
        ]
        self.names = {pid: AgentId(n, "e", n) for n, pid in enumerate(self.pids, 1)}
        # Its agents are ended in between, so it forgets all but its counter.
        self.sync()
        counter = self.call("ets", "lookup", Atom("locks_server_admin"), Atom("version"))
        self.table = model.Table(version=counter[0][1] if counter else 1)  # its first one is 2
        self.told: dict[AgentId, list[tuple[LockId, int]]] = {a: [] for a in self.names.values()}

    def sync(self) -> None:
        self.call("sys", "get_state", SERVER)

    def do(self, pid: Pid, op: Ask | Surrender | End) -> None:
        """The same at both; a crash that the model foresees is spared the original."""
        self.table, told = serve("e", self.table, op)
        for agent, info in told:
            self.told[agent].append((info.row.lock_id, info.row.version))
        message: tuple[Any, ...]
        match op:
            case Ask():
                message = (Atom("lock"), list(op.lock_id), pid, pid, Atom(op.mode))
            case Surrender():
                message = (Atom("surrender"), list(op.lock_id), op.version, pid)
            case End():
                message = (Atom("remove_agent"), pid)
        self.call("gen_server", "cast", SERVER, message)
        self.sync()

    def rows(self) -> tuple[model.Row, ...]:
        """The original's table, as the model would have it."""
        found = []
        for _, lock_id, version, _, queue, watchers in self.call("ets", "tab2list", LOCKS):
            if lock_id[0] != 1:
                continue  # of an election in another test
            groups = tuple(
                model.Group(
                    "write" if kind == Atom("w") else "read",
                    tuple(
                        model.Entry(self.names[agent], since, type_ == Atom("direct"))
                        for _, agent, _, since, type_ in entries
                    ),
                )
                for kind, entries in queue
            )
            assert not watchers
            found.append(model.Row(tuple(lock_id), version, groups))
        return tuple(found)

    def heard(self, pid: Pid) -> list[tuple[LockId, int]]:
        """What an agent was told of which row."""
        (_, messages) = self.call("erlang", "process_info", pid, Atom("messages"))
        return [(tuple(lock[1]), lock[2]) for _, lock, _, _ in messages]

    def close(self) -> None:
        for pid in self.pids:
            self.call("erlang", "exit", pid, Atom("kill"))
        self.sync()


def random_op(rng: random.Random, both: Both, ids: list[LockId]) -> tuple[Pid, Any]:
    """Something that an agent does."""
    pid = rng.choice(both.pids)
    agent = both.names[pid]
    held = [(row.lock_id, row.version) for row in both.table.rows if model.find(row.queue, agent)]
    kind = rng.random()
    if kind < 0.2 and held:
        lock_id, version = rng.choice(held)
        return pid, Surrender(agent, lock_id, version - (rng.random() < 0.1))
    if kind < 0.27:
        return pid, End(agent)
    return pid, Ask(agent, rng.choice(ids), rng.choice(("read", "write", "write")))


@pytest.mark.parametrize("batch", range(4))
def test_the_lock_table_on_trees(erlang: Erlang, batch: int) -> None:
    """Random operations on ids of one to five elements leave the same table, and tell the same."""
    operations = crashes = 0
    for seed in range(batch * 10, batch * 10 + 10):
        rng = random.Random(seed)
        both = Both(erlang, rng.randint(2, 4))
        parts = (1, 2) if rng.random() < 0.7 else (1,)
        depth = rng.choice((1, 2, 2, 3, 3, 5))
        ids = [i for n in range(depth) for i in itertools.product((1,), *[parts] * n)]
        try:
            for number in range(rng.randint(4, 20)):
                pid, op = random_op(rng, both, ids)
                try:
                    both.do(pid, op)
                except Violation:
                    crashes += 1
                    break
                operations += 1
                assert both.rows() == both.table.rows, (seed, number, op)
            for pid in both.pids:
                assert both.heard(pid) == both.told[both.names[pid]], (seed, pid)
        finally:
            both.close()
    print(f"{operations} operations, {crashes} crashes foreseen")
    assert operations > 50


RINGS = ("12", "123", "132")
LARGER = ("1234", "1243", "1324", "1342", "1423", "1432")


@pytest.mark.parametrize(
    "circle", [*RINGS, *(pytest.param(circle, marks=pytest.mark.explore) for circle in LARGER)]
)
def test_rings(erlang: Erlang, circle: str, fresh: Any) -> None:
    """Rings whose clients ask one after the other, in all orders: the same ones stay stuck."""
    size, ages = len(circle), [int(age) for age in circle]
    for order in itertools.permutations(range(1, size + 1)):
        table = fresh()
        clients = [ErlangClient(erlang, f"ring{fresh()[1]}") for _ in ages]
        assert sorted(clients, key=lambda c: c.agent.number) == clients
        place = {age: n for n, age in enumerate(ages)}
        for age in ages:
            clients[age - 1].lock((*table, place[age]), "write", erlang.name)
        calls = []
        for age in order:
            wanted = (*table, (place[age] + 1) % size)
            calls.append((age, clients[age - 1].ask(wanted, "write", erlang.name)))
            settle(clients)
        done: set[int] = set()
        while new := [age for age, call in calls if call.is_done and age not in done]:
            for age in new:
                clients[age - 1].end()
            done.update(new)
            settle(clients)
        assert (len(done) == size) == is_resolved(asked(order, circle=ages)), order
        for age in set(ages) - done:
            clients[age - 1].die()


def seen(nodes: Sequence[Erlang], table: Any, situation: Situation, name: str) -> str:
    """What becomes of real clients, as `Situation.foreseen` says it."""
    home = nodes[0]
    clients = [
        ErlangClient(home, f"{name}c{n}", abort_on_deadlock=situation.aborts)
        for n, _ in enumerate(situation.circle)
    ]
    assert sorted(clients, key=lambda c: c.agent.number) == clients
    size, place = len(clients), {age: n for n, age in enumerate(situation.circle)}

    def ask(age: int, further: int) -> Call:
        wanted = (place[age] + further) % size
        if further and situation.require:
            there, require = [node.name for node in nodes], situation.require
        else:
            there, require = [nodes[wanted % len(nodes)].name], "all"
        return clients[age - 1].ask((*table, wanted), "write", *there, require=require)

    for age in situation.circle:
        ask(age, 0).get()
    calls = {}
    for age in situation.order:
        calls[age] = ask(age, 1)
        time.sleep(0.02)  # not a wait for a result: the next one asks when all has settled
    expected = situation.foreseen()
    found = dict.fromkeys(calls, "s")
    if situation.dies:
        found[situation.dies] = "d"
        clients[situation.dies - 1].die()
        time.sleep(0.05)
    holding = {age for age in calls if found[age] == "s" and calls[age].succeeded}
    broken = situation.require is None and any(
        situation.circle[(place[age] + 1) % size] in holding for age in holding
    )
    limit = time.monotonic() + 10
    while True:
        for age, call in calls.items():
            if found[age] == "s" and call.is_done:
                found[age] = "f" if call.succeeded else "a"
                if call.succeeded:
                    clients[age - 1].end()
        now = "".join(found[age] for age in sorted(found)) + "!" * broken
        if now == expected:
            limit = min(limit, time.monotonic() + 0.1)  # that it stays so
        if time.monotonic() > limit:
            break
        time.sleep(0.005)
    for age, letter in found.items():
        if letter == "s":
            clients[age - 1].die()
    return now


@pytest.mark.parametrize(
    "kind",
    [
        "abort",
        "nodes",
        *(pytest.param(kind, marks=pytest.mark.explore) for kind in ("abort nodes", "death")),
        *(
            pytest.param(kind, marks=[pytest.mark.explore] * (kind != "majority"))
            for kind in REQUIREMENTS
        ),
    ],
)
def test_clients_that_abort_or_die_and_several_nodes(
    erlang: Erlang, more_erlang: Callable[..., Erlang], kind: str, fresh: Any
) -> None:
    """Rings whose agents abort, whose locks are on several nodes, or one of whose clients dies: the same becomes of all."""
    wanted = [each for each in situations() if each.kind == kind]
    nodes = [erlang]
    for number in range(2, len(wanted[0].nodes) + 1):
        nodes.append(more_erlang(f"e{number}@127.0.0.1"))
        assert erlang.call("main", "net_adm", "ping", Atom(nodes[-1].name)) == Atom("pong")
    for each in wanted:
        table = fresh()
        found = seen(nodes, table, each, f"end{table[1]}")
        print(each, found)
        assert found == each.foreseen(), str(each)


def test_what_was_surrendered_counts_as_held(erlang: Erlang, fresh: Any) -> None:
    """Two clients are told that they have one lock; the model foresaw it."""
    table = fresh()
    one, two, three = (ErlangClient(erlang, f"served{fresh()[1]}") for _ in range(3))
    a, b = (*table, "a"), (*table, "b")
    two.lock(b, "write", erlang.name)
    one.lock(a, "write", erlang.name)
    asked = []
    for client, lock_id in ((one, b), (three, b), (two, a)):
        asked.append(client.ask(lock_id, "write", erlang.name))
        settle((one, two, three))
    asked[0].get()
    one.end()
    for call in asked[1:]:
        assert call.get()[0] == Atom("ok")
    status = erlang.call("main", "locks", "transaction_status", two.agent)
    assert status[0] == Atom("have_all_locks")
    two.end()
    three.end()
