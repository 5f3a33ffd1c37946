"""The audit log of a lock server that is killed, and started again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers, running
from tests.helpers import eventually

HOLDER = """
import sys, locks
sys.argv[0] = "job.py"
tx = locks.original.begin_transaction([(("a", {name!r}), "write")], label={name!r})
print("ready", flush=True)
sys.stdin.readline()
"""
ON = ("--log-level=locks.audit=INFO", "--log-format=json")


def lines(servers: Servers) -> Iterator[dict[str, Any]]:
    """What the only server has logged as an audit log."""
    for line in servers.processes[0].errors().splitlines():
        said = json.loads(line)
        if said["logger"] == "locks.audit":
            yield said


@pytest.mark.slow
def test_who_had_it_when_the_server_was_killed() -> None:
    """A client that died, and a lock that was still held: both are in the log of the server, with client and address."""
    with World() as world:
        servers = Servers(world, ["a@127.0.0.1"], arguments=ON)
        with running(servers, HOLDER.format(name="first")):
            pass  # it is killed
        with running(servers, HOLDER.format(name="second")):

            def holds() -> list[dict[str, Any]]:
                return [each for each in lines(servers) if each["event"] == "holds"]

            (held,) = eventually(holds, LIMIT)
            assert (held["lock"], held["client"].split(" (")[0]) == ("a/second", "second")
            assert re.fullmatch(r"127\.0\.0\.1:\d+", held["address"])
            (first,) = [each for each in lines(servers) if each["event"] == "held"]
            assert (first["lock"], first["ended"]) == ("a/first", "client lost")
            servers.processes[0].process.kill()
            servers.processes[0].process.wait(LIMIT)
            assert "stopped" not in [each["event"] for each in lines(servers)]
            servers.start_again(0)
            servers.processes[0].process.terminate()
            assert servers.processes[0].process.wait(LIMIT) == 0
            events = [each["event"] for each in lines(servers)]
            assert (events[0], events[-1]) == ("started", "stopped")
