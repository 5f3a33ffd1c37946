"""What lock servers count of their clients: an alert that is shipped needs no metrics of programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import LIMIT, Servers, running
from tests.helpers import eventually, free_port

prometheus = pytest.importorskip("prometheus_client.parser")

CANDIDATE = """
import sys, time, locks_leader
election = locks_leader.Election("chief", label={label!r})
election.start()
while {waits} and election.leadership is None: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
"""
HOLDER = """
import sys, locks
tx = locks.original.begin_transaction([(("a",), "write")])
print("ready", flush=True)
sys.stdin.readline()
"""
GIVES_UP = """
import sys, locks
try:
    locks.original.begin_transaction([(("a",), "write")], timeout=0.1)
except locks.LockTimeout:
    print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def servers() -> Iterator[tuple[Servers, str]]:
    """A lock server, and the address of its metrics."""
    port = free_port()
    with World() as world:
        servers = Servers(world, ["a@127.0.0.1"], arguments=[f"--metrics=127.0.0.1:{port}"])
        yield servers, f"http://127.0.0.1:{port}"


def scrape(address: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples: by their names and the values of their labels, by the labels' names."""
    with urlopen(f"{address}/metrics", timeout=LIMIT) as answer:
        families = prometheus.text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


def test_what_a_server_counts(servers: tuple[Servers, str]) -> None:
    """A client that is lost with locks, an election's lock that is handed on and by whom it is held, waits that are given up."""
    cluster, address = servers
    candidates = [CANDIDATE.format(label=label, waits=label == "one") for label in ("one", "two")]
    with running(cluster, *candidates) as (first, second):
        (leader,) = leaders(address)
        assert f"client-{first.pid}-" in leader
        first.kill()
        eventually(lambda: any(f"client-{second.pid}-" in name for name in leaders(address)))
        found = scrape(address)
        assert found["locks_elections_handed_on_total", ()] == 1
        assert found["locks_clients_lost_total", ()] == 1
    given_up = ("locks_wait_seconds_count", ("given_up",))
    with running(cluster, HOLDER, GIVES_UP):
        eventually(lambda: scrape(address)[given_up] == 1)
    found |= scrape(address)
    assert any(name == "process_resident_memory_bytes" for name, _ in found)
    ((_, (node, version)),) = [key for key in found if key[0] == "locks_node"]
    assert node == "a@127.0.0.1"
    assert version[0].isdigit()
    text = resources.files("locks.metrics").joinpath("alerts.yml").read_text("utf-8")
    there = {name for name, _ in found} | {"locks_certificate_expires_seconds"}  # with TLS
    for expression in re.findall(r"^ +expr: (.*)$", text, re.MULTILINE):
        names = [set(re.findall(r"\blocks_\w+", each)) for each in expression.split(" or ")]
        assert any(each <= there for each in names), expression


def leaders(address: str) -> list[str]:
    """The nodes that hold the lock of the election, by the metrics."""
    found = scrape(address)
    return [labels[0] for name, labels in found if name == "locks_election_held" and labels[0]]


def status_of(url: str) -> tuple[int, str]:
    """The status of a page, and its text."""
    try:
        with urlopen(url, timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_alive_and_ready() -> None:
    """A server whose peers are gone is alive, and not ready: it says how many there are."""
    with World() as world:
        port = free_port()
        known = [f"{name}@127.0.0.1:{free_port()}" for name in "bc"]
        all_of_them = f"--servers={','.join([f'a@127.0.0.1:{port}', *known])}"
        metrics = free_port()
        server = world.server(
            "a@127.0.0.1", port=port, arguments=[all_of_them, f"--metrics=127.0.0.1:{metrics}"]
        )
        assert server.address
        address = f"http://127.0.0.1:{metrics}"
        said = "1 of 3 lock servers can be asked; 2 are needed\n"
        assert status_of(f"{address}/healthz") == (200, said)
        assert status_of(f"{address}/readyz") == (503, said)
        other = int(known[0].rpartition(":")[2])
        world.server("b@127.0.0.1", port=other, arguments=[all_of_them])
        eventually(lambda: "begun without a memory" in status_of(f"{address}/readyz")[1])
        assert status_of(f"{address}/readyz")[0] == 503
        last = int(known[1].rpartition(":")[2])
        world.server("c@127.0.0.1", port=last, arguments=[all_of_them])
        eventually(lambda: status_of(f"{address}/readyz")[0] == 200)
