"""The metrics for Prometheus: what they say, and that dashboard and alerts ask for what there is."""

from __future__ import annotations

import json
import re
import sys
import threading
from importlib import resources

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import locks
from locks.metrics.names import METRICS
from locks.metrics.serving import checked_address
from locks.node.observing.times import OTHERS
from locks.program.default import is_at_hand
from tests.api.test_logs import held, want
from tests.helpers import eventually
from tests.warm import run_program


def series() -> set[str]:
    """All names that a query can use; for a histogram, the names of its parts."""
    names = set()
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            names |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
        else:
            names.add(name)
    return names


class Scraped:
    """A registry, and what it says."""

    def __init__(self, by_first: bool = False) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(locks.metrics.collector(by_first=by_first))

    def families(self) -> set[str]:
        """The names of all metrics that are told."""
        text = prometheus_client.generate_latest(self.registry).decode()
        found = text_string_to_metric_families(text)
        return {each.name + "_total" * (each.type == "counter") for each in found}

    def value(self, name: str, /, **labels: str) -> float | None:
        """One figure."""
        return self.registry.get_sample_value(name, labels)


def test_a_wait_and_a_hold() -> None:
    """What waits and is held, now and in all, is what was done; a leader and candidates are neither."""
    locks.start()
    scraped = Scraped()
    with held(("$election", "chief")):
        candidate = want(("$election", "chief"))
        eventually(lambda: locks.statistics().table.waiting)
        assert scraped.value("locks_waiting") in (None, 0)
        assert scraped.value("locks_longest_hold_seconds") == 0
    candidate.join()
    locks.stop()
    locks.start()
    with held(("x", 1), ("x", 2)):
        thread = want(("x",))
        eventually(lambda: scraped.value("locks_waiting") == 1)
        assert scraped.value("locks_held") == 2
        assert (scraped.value("locks_longest_wait_seconds") or 0) > 0
        waited = scraped.value("locks_longest_wait_seconds") or 0
        assert (scraped.value("locks_longest_hold_seconds") or 0) > waited
    thread.join()
    assert scraped.value("locks_requests_total") == 3
    assert scraped.value("locks_contended_total") == 1
    assert scraped.value("locks_grants_total") == 3
    assert scraped.value("locks_wait_seconds_count", outcome="granted") == 1
    assert (scraped.value("locks_wait_seconds_sum", outcome="granted") or 0) >= waited
    assert scraped.value("locks_wait_seconds_count", outcome="given_up") == 0
    assert scraped.value("locks_hold_seconds_count") == 3
    assert scraped.value("locks_hold_seconds_bucket", le="+Inf") == 3
    assert (scraped.value("locks_waiting"), scraped.value("locks_held")) == (0, 0)
    assert scraped.value("locks_longest_wait_seconds") == 0


def test_the_first_element() -> None:
    """It is a label only if that is asked for, and of very many the rest is one."""
    locks.start()
    scraped = Scraped(by_first=True)
    with held(("jobs", 1), ("mail",)):
        assert scraped.value("locks_held", first="jobs") == 1
        assert scraped.value("locks_held", first="mail") == 1
    assert scraped.value("locks_hold_seconds_count", first="jobs") == 1
    with held(*((f"t{number}",) for number in range(150))):
        assert scraped.value("locks_held", first=OTHERS) == 50
    assert scraped.value("locks_hold_seconds_count", first=OTHERS) == 52
    assert scraped.value("locks_hold_seconds_count") is None


def test_nothing_is_started_for_it() -> None:
    """A program without a node has no figures, and gets no node by being asked."""
    scraped = Scraped()
    assert scraped.families() == set()
    assert not is_at_hand()


def test_all_metrics_are_told() -> None:
    """A node tells all that are listed, and no others; those of elections when it takes part in one."""
    node = locks.start()
    node.counters.leading("jobs", "one", True, 17)
    node.counters.leading("jobs", "two", False, 17)
    scraped = Scraped()
    with held(("$election", "jobs")):
        told = scraped.families()
        assert scraped.value("locks_election_held", name="jobs", leader=node.name) == 1
    assert told == METRICS.keys() - {"locks_certificate_expires_seconds"}  # of nodes with TLS
    assert scraped.value("locks_leader_election_master_status", name="jobs") == 1
    assert scraped.value("locks_leader_election_term", name="jobs") == 17
    assert scraped.value("locks_elected_total") == 1
    for metric in scraped.registry.collect():
        for sample in metric.samples:
            name = metric.name + "_total" * (metric.type == "counter")
            assert sample.name in series()
            assert sample.labels.keys() - {"le"} == set(METRICS[name].labels)


def asked_for(text: str) -> set[str]:
    """The names that a text with queries has."""
    return set(re.findall(r"\blocks_\w+", text))


def test_the_dashboard() -> None:
    """Its queries ask for what there is, and leave nothing out that is counted."""
    text = resources.files("locks.metrics").joinpath("dashboard.json").read_text("utf-8")
    panels = json.loads(text)["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    names = asked_for(" ".join(query["expr"] for each in panels for query in each["targets"]))
    assert names <= series()
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in names} == METRICS.keys()


def test_the_alerts() -> None:
    """Their expressions ask for what there is."""
    text = resources.files("locks.metrics").joinpath("alerts.yml").read_text("utf-8")
    expressions = re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)
    assert len(expressions) == text.count("- alert:") > 5
    names = asked_for(" ".join(expressions))
    assert names <= series()


@pytest.mark.parametrize("wrong", ["9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", ":1"])
def test_a_wrong_address(wrong: str) -> None:
    """It is refused, and so is one that is open to the network."""
    with pytest.raises(locks.errors.InvalidOption, match="HOST:PORT"):
        checked_address(wrong, False)
    with pytest.raises(locks.errors.InvalidOption, match="open to the network"):
        checked_address("10.0.0.1:9464", False)
    assert checked_address("10.0.0.1:9464", True) == ("10.0.0.1", 9464)
    assert checked_address("[::1]:9464", False) == ("::1", 9464)


def test_it_is_asked_while_others_work() -> None:
    """Clients that come and go harm nobody who collects, and the sums are right in the end."""
    scraped = Scraped(by_first=True)
    locks.start()

    def work() -> None:
        for number in range(100):
            with locks.transaction() as tx:
                tx.write_lock(("x", number % 3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        scraped.families()
    for thread in threads:
        thread.join()
    times = locks.statistics().times
    assert times.holds.total == 400 == locks.statistics().table.requests
    assert times.waits.total == locks.statistics().table.waits


SILENT = """
import socket
from locks.metrics import serving
serving._Handler.timeout = 0.1
port = int(serving.serve("127.0.0.1", 0).split(":")[2].split("/")[0])
with socket.create_connection(("127.0.0.1", port), 60) as sock:
    sock.sendall(b"GET /metr")
    print(sock.recv(100))
with socket.create_connection(("127.0.0.1", port), 60) as sock:
    sock.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
    print(sock.recv(12))
"""


def test_who_says_nothing_has_to_leave() -> None:
    """Each connection has a thread of the lock server: it does not stay with who is silent. Nothing is written of it."""
    done = run_program([sys.executable, "-c", SILENT])
    assert (done.stdout, done.stderr) == ("b''\nb'HTTP/1.0 200'\n", "")
