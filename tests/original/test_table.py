"""The lock table of the original, as a model: against the recordings, and where it is known to go wrong."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from locks.model import AgentId, LockId
from locks_lab.original.queues import find
from locks_lab.original.table import EMPTY, Table, remove, request, surrender, watch
from locks_lab.worlds.host import Violation

HERE = Path(__file__).parent.parent / "conformance"
Queue = tuple[set[tuple[str, str]], list[set[tuple[str, str]]]]  # holders, and waiting groups


def agent(name: str) -> AgentId:
    """An agent of a recording: a1 is older than a2."""
    return AgentId(int(name[1:]), "n1", int(name[1:]))


def recorded(op: dict[str, Any]) -> dict[LockId, Queue]:
    """The table as it was recorded after an operation; readers who are neighbours are one group."""
    found = {}
    for lock in op["locks"]:
        waiting: list[set[tuple[str, str]]] = []
        for mode, part in groupby(lock["waiting"], lambda shown: shown[1]):
            each = [(who, mode) for who, _ in part]
            waiting += [set(each)] if mode == "read" else [{one} for one in each]
        found[tuple(lock["id"])] = ({(who, mode) for who, mode in lock["holders"]}, waiting)
    return found


def shown(table: Table) -> dict[LockId, Queue]:
    """The model's table in the same form."""
    found = {}
    for row in table.rows:
        groups = [{(f"a{e.agent.serial}", g.mode) for e in g.entries} for g in row.queue]
        found[row.lock_id] = (groups[0], groups[1:])
    return found


def carry_out(table: Table, op: dict[str, Any]) -> Table:
    """A recorded operation on the model's table."""
    who, lock_id = agent(op["agent"]), tuple(op.get("id", ()))
    match op["op"]:
        case "request":
            return request(table, who, lock_id, op["mode"])[0]
        case "remove":
            return remove(table, who)[0]
        case "surrender":
            row = table.row(lock_id)
            version = row.version if row is not None else 0
            after, changed = surrender(table, who, lock_id, version - op["outdated"])
            assert not (op["outdated"] and changed)
            return after
        case other:
            raise ValueError(other)


@pytest.mark.parametrize(
    ("name", "number"), [("flat-write", 150), ("flat-rw", 128), ("surrender-flat", 118)]
)
def test_recordings(name: str, number: int) -> None:
    """All 396 recordings, step for step: the same holders, and the same queues behind them."""
    lines = (HERE / f"{name}.jsonl").read_text().splitlines()
    assert len(lines) == number
    for line in lines:
        table = EMPTY
        for op in json.loads(line)["ops"]:
            table = carry_out(table, op)
            assert shown(table) == recorded(op), (json.loads(line)["seed"], op)


# --- Where it goes wrong: the sequences of `original-breaks.jsonl` ------------------------------

SEQUENCES: dict[str, list[list[Any]]] = {
    each["name"]: each["sequence"]
    for each in map(json.loads, (HERE / "original-breaks.jsonl").read_text().splitlines())
}


def after(name: str) -> Table:
    """The table after a sequence."""
    table = EMPTY
    for step in SEQUENCES[name]:
        match step:
            case ["end", who]:
                table, _ = remove(table, agent(who))
            case ["surrender", who, lock_id]:
                row = table.row(tuple(lock_id))
                assert row is not None
                table, _ = surrender(table, agent(who), row.lock_id, row.version)
            case ["watch", lock_id]:
                table = watch(table, agent("a9"), tuple(lock_id))
            case [who, mode, lock_id]:
                table, _ = request(table, agent(who), tuple(lock_id), mode)
    return table


def has(table: Table, who: str, lock_id: LockId) -> str:
    """What an agent has of a lock id: of several merged writers, none."""
    row = table.row(lock_id)
    head = row.queue[0] if row is not None else None
    alone = head is not None and (head.mode == "read" or len(head.entries) == 1)
    return head.mode if head is not None and alone and head.of(agent(who)) else "nothing"


def test_which_sequences_have_a_test() -> None:
    """Those of agents that stay deadlocked are in `test_agents.py`."""
    assert set(SEQUENCES) == BROKEN | LOST | WAITING | STUCK


# Two that exclude each other: who has what.
EXCLUSION = {
    "exclusion-writes-only": [("a1", "write", ("a",)), ("a2", "write", ("a", 2))],
    "exclusion-read-then-parent": [("a2", "write", ("a",)), ("a1", "read", ("a", 2))],
    "exclusion-read-then-parent-mirrored": [("a2", "read", ("a",)), ("a1", "write", ("a", 2))],
    "exclusion-deep": [("a2", "write", ("a", 2)), ("a1", "read", ("a", 2, "x"))],
    "exclusion-upgrade-of-child": [("a3", "write", ("a",)), ("a2", "read", ("a", 2))],
    "exclusion-watched-parent": [("a1", "write", ("a", 1)), ("a2", "write", ("a",))],
    "exclusion-watched-child": [("a1", "write", ("a",)), ("a2", "write", ("a", 1))],
    "exclusion-five-elements": [
        ("a1", "write", ("a", 1, "x", 1)),
        ("a2", "write", ("a", 1, "x", 1, "y")),
    ],
    "exclusion-surrender-of-child": [("a1", "write", ("a",)), ("a2", "write", ("a", 1))],
}
BROKEN = set(EXCLUSION)
LOST = {
    "lost-upgrade-after-surrender",
    "lost-request-after-surrender",
    "silent-loss-on-upgrade",
    "deadlock-kept-by-surrender",
}
WAITING = {
    "stale-parent-entry",
    "order-differs-parent-child",
    "siblings-wait-for-each-other",
    "readers-do-not-join",
}
STUCK = {
    "deadlock-inherited-entry",
    "flat-deadlock-writes",
    "flat-deadlock-read-write",
    "flat-deadlock-five-agents",
    "tree-deadlock-three-agents",
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_broken_exclusion(name: str) -> None:
    """Two agents have what excludes each other, as the original's table has it."""
    table = after(name)
    for who, mode, lock_id in EXCLUSION[name]:
        assert has(table, who, lock_id) == mode, table.rows


# What is written: w for a group of writers, r for one of readers; ~ for a copy.
LOOKS = {
    # a1's write is forgotten.
    "lost-upgrade-after-surrender": {"a": "r a1 a2"},
    # a2's request for the table has become a copy of the one for its row.
    "lost-request-after-surrender": {"a": "w a1~, w a2~", "a/1": "w a2", "a/2": "w a1, w a2~"},
    # a1 no longer reads, and was not told.
    "silent-loss-on-upgrade": {"a": "w a2, w a1"},
    # What a1 has on the second row is a copy now: it can't be surrendered.
    "deadlock-kept-by-surrender": {
        "a": "w a2, w a1~",
        "a/1": "w a2~, w a1",
        "a/2": "w a2~, w a1~",
    },
    # a3 waits for a1, who waits for it nowhere else.
    "stale-parent-entry": {
        "a": "r a3~ a2, w a1~",
        "a/2": "r a2~, w a1",
        "a/k": "w a1~, r a3 a2~",
    },
    "order-differs-parent-child": {
        "a": "r a3~ a1~, w a2~, w a4",
        "a/1": "r a1, w a2, r a3, w a4~",
    },
    "siblings-wait-for-each-other": {"a": "w a1~, w a3~", "a/1": "w a1", "a/2": "w a1~, w a3"},
    "readers-do-not-join": {"a": "r a1, r a3"},
}


@pytest.mark.parametrize("name", sorted(LOST | WAITING))
def test_lost_requests_and_needless_waits(name: str) -> None:
    """The rows, as they are left."""
    found = {}
    for row in after(name).rows:
        groups = []
        for mode, entries in row.queue:
            names = [f"a{e.agent.serial}{'' if e.direct else '~'}" for e in entries]
            groups.append(f"{mode[0]} {' '.join(names)}")
        found["/".join(map(str, row.lock_id))] = ", ".join(groups)
    assert found == LOOKS[name]


def test_versions_go_back_by_watching() -> None:
    """A row that was removed begins again at version 1 when somebody watches it."""
    table, _ = request(EMPTY, agent("a1"), ("a",), "write")
    table, _ = request(table, agent("a1"), ("a",), "write")
    table, _ = remove(table, agent("a1"))
    assert table.row(("a",)) is None
    row = watch(table, agent("a2"), ("a",)).row(("a",))
    assert row is not None
    assert row.version == 1 < table.version


def test_an_agent_that_watches_and_surrenders_crashes_the_lock_server() -> None:
    """Its index has a row in whose queue it is not."""
    table, _ = request(EMPTY, agent("a1"), ("a",), "write")
    table = watch(table, agent("a1"), ("a", 1))
    with pytest.raises(Violation, match=r"crashes: .* is not in the queue of a/1"):
        surrender(table, agent("a1"), ("a",), 1)


def test_find_says_the_first_entry() -> None:
    """Of a reader who waits to write, the read."""
    table, _ = request(EMPTY, agent("a1"), ("a",), "read")
    table, _ = request(table, agent("a2"), ("a",), "read")
    table, _ = request(table, agent("a1"), ("a",), "write")
    found = find(table.rows[0].queue, agent("a1"))
    assert found is not None
    assert found[0] == "read"
