"""Servers are restarted by the book, one at a time: no contended lock that a majority has granted is lost.

    python -m tests.cluster.test_rolling_restart 100 1

restarts each of three servers so many times in turn, with so many contended locks, and says how many were lost.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, NAMES, Servers, locks, running
from tests.helpers import eventually

PROGRAM = """
import sys, threading, locks
number, holds = {number}, {holds}
lost = []
held = threading.Semaphore(0)
over = threading.Event()
def take(each):
    try:
        with locks.transaction() as tx:
            tx.write_lock(("contended", each))
            held.release()
            over.wait()
            tx.ensure_held()
    except locks.LocksError as error:
        lost.append(f"{{each}}: {{error}}")
        held.release()
threads = [threading.Thread(target=take, args=(each,), daemon=True) for each in range(number)]
for each in threads:
    each.start()
for each in threads if holds else ():
    held.acquire()
print("ready", flush=True)
sys.stdin.readline()
over.set()
for each in threads:
    each.join()
print(len(lost), *lost[:3], flush=True)
"""


def standing(servers: Servers, pid: int | None = None) -> int:
    """How many locks a program holds on all servers, added up; or all programs."""
    status, out, _ = locks(servers, "ps", "--json")
    rows = json.loads(out)["locks"] if status == 0 else []
    own = [row for row in rows if row["state"] == "granted" and pid in (None, row["pid"])]
    return sum(len(row["servers"]) for row in own)


def restartable(servers: Servers, name: str) -> tuple[bool, dict[str, Any]]:
    """Whether `locks status --before-restart` ends with 0, and what it says."""
    done = locks(servers, "status", "--before-restart", name, "--timeout", "2", "--json")
    said: dict[str, Any] = json.loads(done.out)["restart"]
    assert said["safe"] == (done.status == 0), done
    return said["safe"], said


def waiting(servers: Servers) -> int:
    """How many requests wait."""
    status, out, _ = locks(servers, "ps", "--json")
    rows = json.loads(out)["locks"] if status == 0 else []
    return sum(row["state"] == "waiting" for row in rows)


def restart_in_turn(servers: Servers, number: int, rounds: int = 1) -> tuple[str, list[int]]:
    """One program holds locks, two others queue for them, and all servers are restarted.

    Returns:
        What the first one says in the end of what it has lost; and on how many servers its locks stood before each restart,
        added up.
    """
    holder = PROGRAM.format(number=number, holds=True)
    queuing = PROGRAM.format(number=number, holds=False)
    stood = []
    with running(servers, holder, queuing, queuing) as programs:
        pid = programs[0].pid
        eventually(lambda: waiting(servers) >= 2 * number, limit=LIMIT)
        for index in list(range(len(NAMES))) * rounds:
            eventually(lambda name=NAMES[index]: restartable(servers, name)[0], limit=LIMIT)  # type: ignore[misc]
            servers.restart(index)
            eventually(lambda: standing(servers, pid) == len(NAMES) * number, limit=LIMIT)
            stood.append(standing(servers, pid))
        for program in programs[1:]:
            program.kill()
        out, _ = programs[0].communicate("over\n", timeout=LIMIT)
    return out, stood


@pytest.mark.explore
def test_a_rolling_restart_loses_no_contended_lock() -> None:
    """After each restart, all locks stand on all servers again; and in the end, the program has them all."""
    with World() as world:
        said, _ = restart_in_turn(Servers(world), 10)
        assert said == "0\n"


HOLDER = """
import sys, locks
with locks.transaction(label="holder") as tx:
    tx.write_lock(("everywhere",))
    tx.write_lock(("at", "b"), nodes=["b@127.0.0.1"])
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_what_a_restart_would_cost() -> None:
    """`locks status --before-restart` names what would be lost, what is on too few servers, and who is missing."""
    a, b, c = NAMES
    with World() as world:
        servers = Servers(world)
        with running(servers, HOLDER):
            eventually(lambda: standing(servers) == 4)
            eventually(lambda: restartable(servers, a)[0])  # all know what is done
            assert restartable(servers, a) == (
                *(True, {"server": a, "safe": True, "missing": [], "lost": [], "few": []}),
            )
            safe, said = restartable(servers, b)
            assert (safe, said["missing"], said["lost"]) == (False, [], [])
            assert [(lock["typed"], lock["servers"]) for lock in said["few"]] == [("at/b", [b])]
            servers.processes[2].process.kill()
            eventually(lambda: restartable(servers, a)[1]["lost"])
            safe, said = restartable(servers, a)
            assert (safe, said["missing"], said["few"]) == (False, [c], [])
            assert [lock["typed"] for lock in said["lost"]] == ["everywhere"]
            done = locks(servers, "status", "--before-restart", a, "--timeout", "1")
            assert "write everywhere of holder (-c, pid " in done.out
            assert f"would be lost (it is on {a}, {b})." in done.out
        assert locks(servers, "status", "--before-restart", "x@y").status == 2


if __name__ == "__main__":
    with World() as world:
        print(*restart_in_turn(Servers(world), int(sys.argv[1]), int(sys.argv[2])))
