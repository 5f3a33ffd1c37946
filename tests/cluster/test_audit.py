"""The audit log of a lock server that is killed, and started again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cluster.commands import locks, running
from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, NAMES, Servers
from tests.helpers import eventually

HOLDER = """
import sys, locks
sys.argv[0] = "job.py"
tx = locks.begin_transaction([(("a", {name!r}), "write")], label={name!r})
print("ready", flush=True)
sys.stdin.readline()
"""
LEADER = """
import sys, time, locks_leader
election = locks_leader.Election("chief", label="the first")
election.start()
while election.leadership is None: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_who_had_it_when_the_server_was_killed(tmp_path: Path) -> None:
    """A client that died, a leader, and a lock that was still held: each is in the history, with its client and its end."""
    path = tmp_path / "audit.log"
    with World() as world:
        servers = Servers(world, ["a@127.0.0.1"], arguments=[f"--audit={path}"])
        with running(servers, HOLDER.format(name="first")):
            pass  # it is killed
        with running(servers, HOLDER.format(name="second"), LEADER):
            eventually(lambda: '"holds", "lock": "a/second"' in path.read_text(), LIMIT)
            servers.processes[0].process.kill()
            servers.processes[0].process.wait(LIMIT)
            servers.start_again(0)
            done = locks(servers, "history", "--audit", str(path), "a", "--json")
            holds = json.loads(done.out)["holds"]
            assert re.fullmatch(r"127\.0\.0\.1:\d+", holds[1]["address"])
            clients = [each["client"].split(" (")[0] for each in holds]
            ended = [each["ended"] for each in holds]
            assert (clients[:2], ended[:2]) == (
                ["first", "second"],
                ["client lost", "with the server"],
            )
            led = locks(servers, "history", "--audit", str(path), "election chief", "--json")
            (leader,) = [each for each in json.loads(led.out)["holds"] if each["before"]]
            assert leader["client"].startswith("the first")
            servers.processes[0].process.terminate()
            assert servers.processes[0].process.wait(LIMIT) == 0
        assert json.loads(path.read_text().splitlines()[-1])["event"] == "stopped"


@pytest.mark.slow
def test_history_over_the_network(tmp_path: Path) -> None:
    """Each server tells what its own log says, the newest first to be kept; one without a log is named."""
    with World() as world:
        servers = Audited(world)
        with running(servers, HOLDER.format(name="first")) as (first,):
            first.communicate("over\n", timeout=LIMIT)
        with running(servers, HOLDER.format(name="second")):
            logs = [world.folder / name for name in NAMES[:2]]
            for path in logs:
                eventually(
                    lambda path=path: '"holds", "lock": "a/second"' in path.read_text(), LIMIT
                )
            done = locks(servers, "history", "a", "--json")
            said = json.loads(done.out)
            assert done.status == 0
            known = {(each["client"].split(" (")[0], each["node"]) for each in said["holds"]}
            assert known == {(name, node) for name in ("first", "second") for node in NAMES[:2]}
            assert said["silent"] == {
                NAMES[2]: "it writes no audit log; start it with --audit FILE"
            }
            assert (
                json.loads(locks(servers, "history", "a", "--limit", "1", "--json").out)["left_out"]
                == len(known) - 1
            )
            nobody = locks(servers, "history", "nothing")
            assert (nobody.status, nobody.out) == (
                *(1, "The audit logs have nobody who held nothing.\n"),
            )
            long_ago = locks(servers, "history", "a", "--at", "2020-01-01T00:00")
            assert long_ago.status == 1


class Audited(Servers):
    """Three servers, two of which write an audit log."""

    def options(self, name: str) -> list[str]:
        """The file of each."""
        return [] if name == NAMES[2] else [f"--audit={self.world.folder / name}"]
