"""A real Prometheus, where one is installed: it scrapes lock servers, and reads the rules and the dashboard; each alert fires and is resolved."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cluster.conftest import Certify
from tests.cluster.harness import World
from tests.cluster.servers import NAMES, Servers, running
from tests.helpers import LIMIT, eventually, free_port

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no `prometheus` on PATH (Debian: prometheus)"
)
CONFIGURATION = """
global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: {interval}}}
rule_files: [{rules}]
scrape_configs:
  - job_name: locks
    static_configs: [{{targets: {targets}}}]
"""
PROGRAM = """
import sys, locks, prometheus_client
prometheus_client.REGISTRY.register(locks.metrics.collector())
server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
for number in range(7):
    with locks.transaction() as tx:
        tx.write_lock(("a", number))
print(server.server_port, flush=True)
sys.stdin.readline()
"""


class Prometheus:
    """The server, by its address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str, **query: str) -> Any:
        """What it answers; it fails if the question is wrong."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            return json.load(answer)["data"]

    def value(self, query: str) -> float | None:
        """The value of a query that has one, if it has one by now."""
        found = self.get("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(
    folder: Path, rules: Path, targets: list[str], interval: str
) -> Iterator[Prometheus]:
    """While it runs: it scrapes these."""
    configuration = folder / "prometheus.yml"
    text = CONFIGURATION.format(rules=rules, targets=json.dumps(targets), interval=interval)
    configuration.write_text(text)
    if shutil.which("promtool") is not None:
        command = ["promtool", "check", "config", str(configuration)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        assert checked.returncode == 0, checked
    log = folder / "log"
    options = (f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}")
    command = ["prometheus", *options, "--web.listen-address=127.0.0.1:0"]
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, text=True)
    try:
        listens = re.compile(r'msg="Listening on" address=(\S+)')
        eventually(lambda: "Server is ready" in log.read_text("utf-8"))
        found = eventually(lambda: listens.search(log.read_text("utf-8")))
        assert found is not None
        yield Prometheus(found[1])
    finally:
        process.kill()
        process.wait(LIMIT)


@pytest.mark.slow
def test_it_reads_all_there_is(tmp_path: Path) -> None:
    """Figures arrive, no rule fails, and each query of the dashboard is one."""
    files = resources.files("locks.metrics")
    dashboard = json.loads(files.joinpath("dashboard.json").read_text("utf-8"))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        targets = [f"127.0.0.1:{int(program.stdout.readline())}"]
        rules = Path(str(files.joinpath("alerts.yml")))
        with prometheus(tmp_path, rules, targets, "200ms") as server:
            eventually(lambda: server.value("locks_transactions_total") == 7)
            assert server.value("locks_grants_total") == 7
            assert server.value("sum(locks_hold_seconds_bucket{le='+Inf'})") == 7
            for panel in dashboard["panels"]:
                for query in panel["targets"]:
                    expression = query["expr"].replace("$__rate_interval", "1m")
                    server.get("query", query=expression.replace("$instance", ".*"))

            def states() -> list[tuple[str, str]]:
                (group,) = server.get("rules")["groups"]
                return [(rule["health"], rule["state"]) for rule in group["rules"]]

            eventually(lambda: all(health != "unknown" for health, _ in states()))
            assert set(states()) == {("ok", "inactive")}
    finally:
        program.kill()
        program.communicate(timeout=LIMIT)


# --- Alerts -------------------------------------------------------------------------------------

SHORTER = [
    (r"for: \S+", "for: 1s"),
    (r"\[\d+m\]", "[20s]"),
    (r"(longest_wait_seconds|longest_hold_seconds) > \d+", r"\1 > 1"),
]
HOLDER = """
import sys, locks
tx = locks.original.begin_transaction([({wanted}, "write")])
print("ready", flush=True)
sys.stdin.readline()
"""
WAITER = """
import locks
print("ready", flush=True)
locks.original.begin_transaction([(("a",), "write")])
"""
GIVES_UP = """
import locks
print("ready", flush=True)
while True:
    try:
        locks.original.begin_transaction([(("a",), "write")], timeout=0.01)
    except locks.LockTimeout:
        pass
"""
DEADLOCKS = """
import threading, locks
def work(barrier, *order):
    while True:
        barrier.wait()
        try:
            with locks.transaction() as tx:
                tx.write_lock(order[:1])
                barrier.wait()
                tx.write_lock(order[1:])
        except locks.DeadlockAborted:
            pass
for pair in ("ab", "cd", "ef"):
    barrier = threading.Barrier(2)
    for order in (pair, pair[::-1]):
        threading.Thread(target=work, args=(barrier, *order)).start()
print("ready", flush=True)
"""
CANDIDATE = """
import sys, time, locks_leader
election = locks_leader.Election({name!r})
election.start()
while {waits} and election.leadership is None: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
"""
RESTLESS = """
import locks_leader
print("ready", flush=True)
while True:
    locks_leader.Election("restless").run(lambda leadership: None)
"""
PARENT = HOLDER.format(wanted="('$election',)")


def shortened() -> str:
    """The rules that are shipped, with limits that a test can wait for."""
    text = resources.files("locks.metrics").joinpath("alerts.yml").read_text("utf-8")
    for pattern, instead in SHORTER:
        text, count = re.subn(pattern, instead, text)
        assert count
    return text


class Metered(Servers):
    """Lock servers with metrics.

    Args:
        world: What ends them.
        names: Their names.
        targets: Filled with the addresses of their metrics.
        arguments: More arguments of each.
    """

    def __init__(
        self, world: World, names: Sequence[str], targets: list[str], arguments: Sequence[str] = ()
    ) -> None:
        self._metrics = {name: f"127.0.0.1:{free_port()}" for name in names}
        targets += self._metrics.values()
        super().__init__(world, names, net_ticktime=10, arguments=arguments)

    def options(self, name: str) -> list[str]:
        """Where its metrics are."""
        return [f"--metrics={self._metrics[name]}"]


class Narrow(Metered):
    """The same, where each program may have one wait."""

    settings: ClassVar = {"LOCKS_LIMITS": "waits=1"}


HELD = HOLDER.format(wanted="('a',)")
TWIN = CANDIDATE.format(name="twin", waits=True)
# What fires while programs run: at three lock servers, and at one of another cluster.
PLANTED: list[tuple[tuple[str, ...], list[str], list[str]]] = [
    (("LocksWaitTakesLong", "LocksHeldForLong", "LocksManyTimeouts"), [HELD, WAITER, GIVES_UP], []),
    (("LocksManyDeadlocks",), [DEADLOCKS], []),
    (("LocksNoLeader",), [PARENT, CANDIDATE.format(name="orphan", waits=False)], []),
    (("LocksTwoLeaders",), [TWIN], [TWIN]),
    (("LocksLeaderChangesOften",), [RESTLESS] * 3, []),
    (("LocksProgramAtLimit",), [], [HELD, WAITER]),
]
DOWN = ("LocksNoMajority", "LocksServerMissing")
# A program with another list of servers, and metrics of its own.
STRANGE = """
import os, sys, locks, prometheus_client
prometheus_client.REGISTRY.register(locks.metrics.collector())
locks.start(servers=os.environ["LOCKS_SERVERS"].split(",")[:2])
prometheus_client.start_http_server({port}, "127.0.0.1")
print("ready", flush=True)
sys.stdin.readline()
"""
OTHERS = (*DOWN, "LocksServerRefuses", "LocksOnceRefused", "LocksLost", "LocksCertificateExpires")


@pytest.mark.explore
def test_each_alert_fires_and_is_resolved(world: World, tmp_path: Path, certify: Certify) -> None:
    """Each alert that is shipped fires in the situation that it is for, and no longer when that is mended."""
    rules = tmp_path / "alerts.yml"
    rules.write_text(shortened())
    named = re.findall(r"- alert: (\w+)", rules.read_text())
    assert sorted(named) == sorted([*OTHERS, *(each for alerts, *_ in PLANTED for each in alerts)])
    targets: list[str] = []
    three = Metered(world, NAMES, targets)
    other = Narrow(world, ["other@127.0.0.1"], targets)
    tls = certify("soon", "127.0.0.1", days=3)
    options = ["--tls", *map(str, (tls.certificate, tls.key, tls.ca))]
    dated = Metered(world, ["dated@127.0.0.1"], targets, options)
    strange = free_port()
    targets.append(f"127.0.0.1:{strange}")
    with prometheus(tmp_path, rules, targets, "1s") as server:

        def firing() -> set[str]:
            alerts = server.get("alerts")["alerts"]
            return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

        def fire(*alerts: str) -> None:
            eventually(lambda: firing() >= {*alerts}, 3 * LIMIT)

        def are_resolved(*alerts: str) -> None:
            eventually(lambda: not firing() & {*alerts}, 3 * LIMIT)

        for alerts, here, there in PLANTED:
            with running(three, *here), running(other, *there):
                fire(*alerts)
            are_resolved(*alerts)
        with running(three, HELD):
            pass  # it is killed
        fire("LocksLost")
        are_resolved("LocksLost")
        with running(three, STRANGE.format(port=strange)):
            fire("LocksServerRefuses")
        are_resolved("LocksServerRefuses")
        for down in three.processes[1:]:
            down.kill()
        fire(*DOWN)
        for index in (1, 2):
            three.start_again(index)
        are_resolved(*DOWN)
        fire("LocksOnceRefused")
        for index in range(3):
            three.restart(index)
        are_resolved("LocksOnceRefused")
        fire("LocksCertificateExpires")
        certify("soon", "127.0.0.1", days=300)
        dated.processes[0].signal(signal.SIGHUP)
        are_resolved("LocksCertificateExpires")
