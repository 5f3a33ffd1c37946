"""A real Prometheus, where one is installed: it scrapes a lock server, and reads the rules and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import LIMIT, eventually

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no `prometheus` on PATH (Debian: prometheus)"
)
CONFIGURATION = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: locks
    static_configs: [{{targets: ["{target}"]}}]
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


def test_it_reads_all_there_is(tmp_path: Path) -> None:
    """Figures arrive, no rule fails, and each query of the dashboard is one."""
    files = resources.files("locks.metrics")
    dashboard = json.loads(files.joinpath("dashboard.json").read_text("utf-8"))
    started = []
    try:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        assert program.stdout is not None
        target = f"127.0.0.1:{int(program.stdout.readline())}"
        rules = files.joinpath("alerts.yml")
        configuration = tmp_path / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(rules=rules, target=target))
        if shutil.which("promtool") is not None:
            command = ["promtool", "check", "config", str(configuration)]
            checked = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
            assert checked.returncode == 0, checked
        log = tmp_path / "log"
        with log.open("w") as output:
            options = (f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path / 'data'}")
            command = ["prometheus", *options, "--web.listen-address=127.0.0.1:0"]
            started.append(subprocess.Popen(command, stderr=output, text=True))
        listens = re.compile(r'msg="Listening on" address=(\S+)')
        eventually(lambda: "Server is ready" in log.read_text("utf-8"))
        found = eventually(lambda: listens.search(log.read_text("utf-8")))
        assert found is not None
        prometheus = Prometheus(found[1])
        eventually(lambda: prometheus.value("locks_transactions_total") == 7)
        assert prometheus.value("locks_grants_total") == 7
        assert prometheus.value("sum(locks_hold_seconds_bucket{le='+Inf'})") == 7
        for panel in dashboard["panels"]:
            for query in panel["targets"]:
                expression = query["expr"].replace("$__rate_interval", "1m")
                prometheus.get("query", query=expression.replace("$instance", ".*"))

        def states() -> list[tuple[str, str]]:
            (group,) = prometheus.get("rules")["groups"]
            return [(rule["health"], rule["state"]) for rule in group["rules"]]

        eventually(lambda: all(health != "unknown" for health, _ in states()))
        assert set(states()) == {("ok", "inactive")}
    finally:
        for each in started:
            each.kill()
            each.communicate(timeout=LIMIT)
