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
from contextlib import ExitStack, contextmanager
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
PARENT = HOLDER.format(wanted="(locks.values.Atom('locks_leader'),)")


def shortened() -> str:
    """The rules that are shipped, with limits that a test can wait for."""
    text = resources.files("locks.metrics").joinpath("alerts.yml").read_text("utf-8")
    for pattern, instead in SHORTER:
        text, count = re.subn(pattern, instead, text)
        assert count
    return text


class Site:
    """What Prometheus scrapes: three lock servers; one of another cluster, which allows one wait for each program; and one with a certificate that expires soon.

    Args:
        world: What ends them.
        certify: Makes the certificate.
    """

    def __init__(self, world: World, certify: Certify) -> None:
        self.targets: list[str] = []
        self._certify = certify
        self.three = Metered(world, NAMES, self.targets)
        self.other = Narrow(world, ["other@127.0.0.1"], self.targets)
        tls = certify("soon", "127.0.0.1", days=3)
        options = ["--tls", *map(str, (tls.certificate, tls.key, tls.ca))]
        self.dated = Metered(world, ["dated@127.0.0.1"], self.targets, options)

    # Each plants something; at its end it is mended.

    @contextmanager
    def lock_is_held(self) -> Iterator[None]:
        """Somebody holds a lock, somebody waits for it, and somebody gives up again and again."""
        with running(self.three, HOLDER.format(wanted="('a',)"), WAITER, GIVES_UP):
            yield

    @contextmanager
    def servers_are_down(self) -> Iterator[None]:
        """Two of three servers are killed; they are started again."""
        for server in self.three.processes[1:]:
            server.kill()
        yield
        for index in (1, 2):
            self.three.start_again(index)

    @contextmanager
    def client_dies(self) -> Iterator[None]:
        """A program is killed that holds a lock."""
        with running(self.three, HOLDER.format(wanted="('b',)")) as (holder,):
            holder.kill()
            yield

    @contextmanager
    def deadlocks(self) -> Iterator[None]:
        """Two threads lock in opposite orders, as fast as they can."""
        with running(self.three, DEADLOCKS):
            yield

    @contextmanager
    def nobody_leads(self) -> Iterator[None]:
        """Somebody holds the lock above those of all elections."""
        with running(self.three, PARENT, CANDIDATE.format(name="orphan", waits=False)) as programs:
            yield
            programs[0].kill()

    @contextmanager
    def two_lead(self) -> Iterator[None]:
        """A second cluster has an election of the same name."""
        candidate = CANDIDATE.format(name="twin", waits=True)
        with running(self.three, candidate), running(self.other, candidate):
            yield

    @contextmanager
    def leaders_change(self) -> Iterator[None]:
        """Three candidates give up what they have just got."""
        with running(self.three, *[RESTLESS] * 3):
            yield

    @contextmanager
    def program_at_limit(self) -> Iterator[None]:
        """A program waits where it may wait once."""
        with running(self.other, HOLDER.format(wanted="('a',)"), WAITER):
            yield

    @contextmanager
    def certificate_expires(self) -> Iterator[None]:
        """A server has a certificate for three days; it is renewed, and the server reads it again."""
        yield
        self._certify("soon", "127.0.0.1", days=300)
        self.dated.processes[0].signal(signal.SIGHUP)


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


PLANTED: dict[str, tuple[str, ...]] = {
    "lock_is_held": ("LocksWaitTakesLong", "LocksHeldForLong", "LocksManyTimeouts"),
    "servers_are_down": ("LocksNoMajority", "LocksServerMissing"),
    "client_dies": ("LocksLost",),
    "deadlocks": ("LocksManyDeadlocks",),
    "nobody_leads": ("LocksNoLeader",),
    "two_lead": ("LocksTwoLeaders",),
    "leaders_change": ("LocksLeaderChangesOften",),
    "program_at_limit": ("LocksProgramAtLimit",),
    "certificate_expires": ("LocksCertificateExpires",),
}


@pytest.mark.explore
def test_each_alert_fires_and_is_resolved(tmp_path: Path, certify: Certify) -> None:
    """Each alert that is shipped fires in the situation that it is for, and no longer when that is mended."""
    rules = tmp_path / "alerts.yml"
    rules.write_text(shortened())
    named = re.findall(r"- alert: (\w+)", rules.read_text())
    assert sorted(named) == sorted(each for alerts in PLANTED.values() for each in alerts)
    with ExitStack() as stack:
        site = Site(stack.enter_context(World()), certify)
        server = stack.enter_context(prometheus(tmp_path, rules, site.targets, "1s"))

        def firing() -> set[str]:
            alerts = server.get("alerts")["alerts"]
            return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

        def until(situation: str, mended: bool) -> None:
            alerts = {*PLANTED[situation]}
            try:
                eventually(
                    lambda: not firing() & alerts if mended else firing() >= alerts, 3 * LIMIT
                )
            except AssertionError:
                state = "mended" if mended else "planted"
                raise AssertionError(
                    f"{situation} is {state}, of {alerts} fire {firing()}"
                ) from None

        for situation in PLANTED:
            with getattr(site, situation)():
                until(situation, mended=False)
            until(situation, mended=True)
