"""Recordings of the original's lock table, replayed step for step.

One scenario a line: `{"family", "seed", "ops": [{"op", "agent", "id", "mode", "outdated",
"locks"}]}`. `locks` is the table after the operation: for each id with a queue its `holders` and
who is `waiting`. Holders are in no order. Waiting ones are in the order of the queue, where readers
next to each other belong together and are in no order. An agent with a granted read and a granted
write of an id is shown with its write alone. While its write waits, the original drops the agent's
waiting read in some cases and keeps it in others, and ours always keeps it: such a read is left out
on both sides. (When it is granted it counts as a holder again.)
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from locks.core.server.tree import Entry
from locks.model import LockId
from tests.lockstep import Lockstep, agent

HERE = Path(__file__).parent
FAMILIES = ["flat-write", "flat-rw", "surrender-flat"]

Shown = tuple[str, str]  # agent and mode
Queue = tuple[set[Shown], list[set[Shown]]]  # holders, and waiting groups


def load(name: str) -> list[dict[str, Any]]:
    """The lines of a recording."""
    return [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def groups(waiting: list[Shown]) -> list[set[Shown]]:
    """A queue with neighbouring readers put together, without the reads of waiting writers."""
    kept = [
        (who, mode) for who, mode in waiting if mode == "write" or (who, "write") not in waiting
    ]
    parts = [(read, list(part)) for read, part in groupby(kept, lambda shown: shown[1] == "read")]
    return [
        group for read, part in parts for group in ([set(part)] if read else [{s} for s in part])
    ]


def recorded(op: dict[str, Any]) -> dict[LockId, Queue]:
    """The table as it was recorded after an operation."""
    return {
        tuple(lock["id"]): (
            {(who, mode) for who, mode in lock["holders"]},
            groups([(who, mode) for who, mode in lock["waiting"]]),
        )
        for lock in op["locks"]
    }


def shown(both: Lockstep) -> dict[LockId, Queue]:
    """Our table in the same form."""

    def show(entry: Entry) -> Shown:
        return (f"a{entry.requester.id.serial}", entry.mode)

    found = {}
    for lock_id in both.table.ids():
        view = both.table.view(lock_id)
        holders = {show(entry) for entry in view if entry.granted}
        holders -= {(who, "read") for who, mode in holders if mode == "write"}
        found[lock_id] = (
            holders,
            groups([show(entry) for entry in view if not entry.granted]),
        )
    return found


def carry_out(both: Lockstep, op: dict[str, Any]) -> None:
    """One recorded operation on our table."""
    who = agent(int(op["agent"][1:]))
    if op["op"] == "request":
        both.request(who, tuple(op["id"]), op["mode"])
    elif op["op"] == "remove":
        both.remove(who)
    elif op["outdated"]:
        outdated_surrender(both, op)
    else:
        both.surrender(who, tuple(op["id"]))


def outdated_surrender(both: Lockstep, op: dict[str, Any]) -> None:
    """A surrender for an edge between versions that requests on this id no longer have."""
    who = agent(int(op["agent"][1:]))
    view = both.table.view(tuple(op["id"]))
    before = both.table.version
    for waiter in view:
        for holder in view:
            edge = ((waiter.number, waiter.since - 1), (holder.number, holder.since - 1))
            assert both.table.surrender(who, tuple(op["id"]), *edge) == []
    assert both.table.version == before
    both.counted["refused"] += len(view) ** 2


UPGRADE_LOST = "the original forgets the upgrade that waits (see lost-upgrade-after-surrender)"
PLACE_LOST = "the original drops the waiting read at the upgrade, and its place with it"
BEHIND_ITS_WAITER = "the original puts an upgrade behind a writer that waits for the same agent"

# Where the rule of our table leads to another queue on purpose: the operation, the lock id, and who
# waits for it then. The holders are the same all the time.
DIFFERENCES: dict[tuple[str, int], tuple[int, LockId, list[Shown], str]] = {
    ("surrender-flat", 62): (5, (1,), [("a3", "write")], UPGRADE_LOST),
    ("surrender-flat", 90): (10, ("a",), [("a3", "write")], UPGRADE_LOST),
    ("surrender-flat", 278): (5, ("ab",), [("a1", "write")], UPGRADE_LOST),
    ("surrender-flat", 178): (
        16,
        ("b",),
        [("a2", "read"), ("a2", "write"), ("a3", "write"), ("a4", "write")],
        PLACE_LOST,
    ),
    ("surrender-flat", 246): (
        21,
        ("b",),
        [("a2", "read"), ("a2", "write"), ("a1", "write")],
        PLACE_LOST,
    ),
    ("surrender-flat", 280): (
        11,
        ("a",),
        [("a4", "write"), ("a1", "write")],
        BEHIND_ITS_WAITER,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_scenarios(family: str) -> None:
    """After each operation the same agents hold and wait, in the same order.

    From a known difference on the same agents hold; there the queue is the one that is listed.
    """
    for scenario in load(family):
        replay(scenario)


def replay(scenario: dict[str, Any]) -> None:
    """One scenario, with a new table."""
    both = Lockstep()
    known = DIFFERENCES.get((scenario["family"], scenario["seed"]))
    for number, op in enumerate(scenario["ops"]):
        carry_out(both, op)
        ours, theirs = shown(both), recorded(op)
        at = f"{scenario['seed']}, after operation {number}: { {k: v for k, v in op.items() if k != 'locks'} }"
        assert {k: v[0] for k, v in ours.items()} == {k: v[0] for k, v in theirs.items()}, at
        if known is None or number < known[0]:
            assert ours == theirs, at
        elif number == known[0]:
            _, lock_id, waiting, why = known
            assert ours[lock_id][1] == groups(waiting) != theirs[lock_id][1], why


def test_the_recordings_are_whole() -> None:
    """All are there, with every kind of operation: an empty file would prove nothing."""
    assert [len(load(family)) for family in FAMILIES] == [150, 128, 118]
    operations = [
        (op["op"], op.get("outdated")) for f in FAMILIES for s in load(f) for op in s["ops"]
    ]
    assert {kind: operations.count(kind) for kind in set(operations)} == {
        ("request", None): 4080,
        ("remove", None): 1423,
        ("surrender", False): 319,
        ("surrender", True): 40,
    }


def test_a_changed_recording_is_noticed() -> None:
    """The comparison can fail: on a holder, on a waiting one, and on their order."""
    both = Lockstep()
    both.play("1 read x", "2 write x", "3 read x", "4 read x")
    state = {
        "holders": [["a1", "read"]],
        "waiting": [["a2", "write"], ["a4", "read"], ["a3", "read"]],
    }
    assert shown(both) == recorded({"locks": [{"id": ["x"], **state}]})
    wrong: dict[str, Any]
    for wrong in (
        {"holders": [["a1", "write"]]},
        {"holders": []},
        {"waiting": [["a2", "write"], ["a4", "read"]]},
        {"waiting": [["a3", "read"], ["a2", "write"], ["a4", "read"]]},
    ):
        assert shown(both) != recorded({"locks": [{"id": ["x"], **state, **wrong}]})
