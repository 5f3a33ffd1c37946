"""The collector for `prometheus_client`: it reads the program's node whenever it is collected.

Nothing is counted for it: it reads the node's own counters, and scans the lock table once, in a turn.
A program whose node is not running has no metrics; collecting does not start the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import asdict

from locks.core.statistics import BOUNDS, MOST_ELECTIONS, Durations, TimesStatistics
from locks.errors import MisuseError
from locks.metrics.names import METRICS
from locks.node.marks import memory_of
from locks.node.node import Node
from locks.node.observing.elections import is_contest
from locks.node.observing.times import MOST_NAMES, OTHERS, first_name
from locks.node.ports import Servers
from locks.program.default import default_node, is_at_hand
from locks.ranges import LONGEST_TEXT
from locks.runtime.first_use import Unloaded
from locks.version import __version__
from locks.words import is_held_up_id, show

if TYPE_CHECKING:
    from prometheus_client import core as prometheus
else:
    prometheus = Unloaded("prometheus_client.core")

__all__ = [
    "Metrics",
    "Present",
    "collector",
    "look",
    "node_at_hand",
    "refusing",
    "require_client",
    "servers_of",
    "why_not_once",
]

Labels = dict[str, str]


class Present(NamedTuple):
    """The contents of a lock table; locks of elections apart, for a candidate waits for as long as another one leads.

    Attributes:
        waiting: The number of waiting requests, by the first element of the id.
        held: The number of granted requests, by the first element of the id.
        longest_wait: Seconds for which the oldest request has been waiting.
        longest_hold: Seconds for which the oldest lock has been held.
        elections: The node that holds the lock of each election, by its name; empty if candidates only wait.
        first: The measured times, by the first element of the id; empty if that was not requested.
    """

    waiting: Mapping[str, int]
    held: Mapping[str, int]
    longest_wait: float
    longest_hold: float
    elections: Mapping[str, str]
    first: Mapping[str, TimesStatistics]


def look(node: Node, by_first: bool) -> Present:
    """Scan a lock table; call it in the turn.

    Args:
        node: The node.
        by_first: Whether to separate ids by their first elements; otherwise all are under one empty name.
    """
    times = node.server.times
    if by_first and times.by_first is None:
        times.by_first = {}
    waiting: dict[str, int] = {}
    held: dict[str, int] = {}
    elections: dict[str, str] = {}
    now = asked = got = times.clock()
    asked_at, got_at = times.asked, times.got
    for requester in node.server.machine.table.requesters.values():
        for slot, entries in requester.entries.items():
            if is_contest(slot.lock_id):
                election = show(slot.lock_id[1:])[:LONGEST_TEXT]
                if election in elections or len(elections) < MOST_ELECTIONS:
                    holds = any(entry.granted for entry in entries)
                    elections[election] = (
                        requester.id.node if holds else elections.get(election, "")
                    )
                continue
            if is_held_up_id(slot.lock_id):
                continue
            name = first_name(slot.lock_id) if by_first else ""
            if by_first and name not in waiting and len(waiting) >= MOST_NAMES:
                name = OTHERS
            for entry in entries:
                held[name] = held.get(name, 0) + entry.granted
                waiting[name] = waiting.get(name, 0) + (not entry.granted)
                if entry.granted:
                    got = min(got, got_at.get(entry.number, now))
                else:
                    asked = min(asked, asked_at.get(entry.number, now))
    measured = times.by_first or {}
    first = {name: each.statistics() for name, each in measured.items()} if by_first else {}
    return Present(waiting, held, now - asked, now - got, elections, first)


class Metrics:
    """A collector of this program's node for `prometheus_client`. `collector` creates it.

    Args:
        by_first: Whether some metrics have a label with the first element of the lock id.
        node: Returns the node; `None` if there is none.
    """

    def __init__(self, by_first: bool, node: Callable[[], Node | None]) -> None:
        self._by_first = by_first
        self._node = node

    def describe(self) -> list[prometheus.Metric]:
        """All metrics, without figures, so that registering the collector starts no node."""
        return [family(name) for name in METRICS]

    def collect(self) -> Iterator[prometheus.Metric]:
        """All metrics with figures, if the node is running."""
        node = self._node()
        if node is None:
            return
        found: dict[str, prometheus.Metric] = {}
        for name, labels, value in self._samples(node):
            each = found.setdefault(name, family(name))
            if isinstance(value, Durations):
                _add_histogram(each, name, labels, value)
            else:
                each.add_sample(name, labels, value)
        yield from found.values()

    def _samples(self, node: Node) -> Iterator[tuple[str, Labels, float | Durations]]:
        statistics = node.statistics()
        present: Present = node.turn.ask(look, node, self._by_first)
        table, times = statistics.table, statistics.times
        yield "locks_node", {"node": node.name, "version": __version__}, 1
        yield "locks_requests_total", {}, table.requests
        yield "locks_contended_total", {}, table.waits
        yield "locks_grants_total", {}, table.grants
        for labels, each in self._times(times, present):
            yield "locks_wait_seconds", {**labels, "outcome": "granted"}, each.waits
            yield "locks_wait_seconds", {**labels, "outcome": "given_up"}, each.given_up
            yield "locks_hold_seconds", labels, each.holds
        for name, counts in (("locks_waiting", present.waiting), ("locks_held", present.held)):
            if not self._by_first:
                yield name, {}, sum(counts.values())
            for first, count in counts.items() if self._by_first else ():
                yield name, {"first": first}, count
        yield "locks_longest_wait_seconds", {}, present.longest_wait
        yield "locks_longest_hold_seconds", {}, present.longest_hold
        for action, count in asdict(statistics.broken).items():
            yield "locks_deadlocks_total", {"action": action}, count
        yield "locks_agents", {}, statistics.agents
        yield "locks_watches", {}, statistics.watches
        yield "locks_transactions_total", {}, statistics.transactions
        yield "locks_transactions_aborted_total", {}, statistics.aborted
        yield "locks_timeouts_total", {}, statistics.timeouts
        yield "locks_clients_lost_total", {}, statistics.clients_lost
        yield "locks_elections_handed_on_total", {}, statistics.handed_on
        yield "locks_refused_total", {}, statistics.refused
        yield "locks_fullest_program_ratio", {}, statistics.fullest / 100
        for name, leader in present.elections.items():
            yield "locks_election_held", {"name": name, "leader": leader}, bool(leader)
        yield "locks_lost_total", {}, statistics.lost
        yield "locks_knowledge_messages_total", {}, statistics.knowledge
        yield from _others(node)
        yield "locks_connections_lost_total", {}, statistics.connections_lost
        traffic = statistics.traffic
        yield "locks_messages_total", {"direction": "sent"}, traffic.messages_sent
        yield "locks_messages_total", {"direction": "received"}, traffic.messages_received
        yield "locks_message_bytes_total", {"direction": "sent"}, traffic.bytes_sent
        yield "locks_message_bytes_total", {"direction": "received"}, traffic.bytes_received
        yield "locks_elected_total", {}, statistics.elected
        for led in statistics.leaders:
            yield "locks_leader_election_master_status", {"name": led.name}, led.leads
            yield "locks_leader_election_term", {"name": led.name}, led.term

    def _times(
        self, times: TimesStatistics, present: Present
    ) -> Iterator[tuple[Labels, TimesStatistics]]:
        if not self._by_first:
            yield {}, times
        for first, each in present.first.items():
            yield {"first": first}, each


def _others(node: Node) -> Iterator[tuple[str, Labels, float]]:
    """The metrics of connections with other nodes."""
    servers = _servers(node).nodes
    connected = node.nodes()
    yield "locks_connections", {"kind": "server"}, sum(each in servers for each in connected)
    yield "locks_connections", {"kind": "peer"}, sum(each not in servers for each in connected)
    yield "locks_connections", {"kind": "client"}, len(node.nodes(hidden=True))
    known, connected_now, needed = servers_of(node)
    yield "locks_servers", {}, known
    yield "locks_servers_connected", {}, connected_now
    yield "locks_servers_needed", {}, needed
    yield "locks_servers_refusing", {}, len(refusing(node))
    if node.name in servers:
        yield "locks_memory_ready", {}, not why_not_once(node)
    expires = None if node.cluster is None else node.cluster.network.keys.expires
    if expires is not None:
        yield "locks_certificate_expires_seconds", {}, expires


def servers_of(node: Node) -> tuple[int, int, int]:
    """How many servers the program has, how many of them can be asked now, and how many must be so that every lock can be taken."""
    servers = _servers(node)
    return len(servers.nodes), len(node.alive.intersection(servers.nodes)), servers.enough


def refusing(node: Node) -> dict[str, str]:
    """The servers that run and do not serve the program, each with the reason."""
    names = [each for each in _servers(node).nodes if each not in node.alive]
    return {name: node.refusals[name] for name in names if name in node.refusals}


def why_not_once(node: Node) -> str:
    """Why a lock server can't say what is done once; empty if it can, or is none. In the turn."""
    if node.cluster is None or node.name not in _servers(node).nodes:
        return ""
    return memory_of(node).why_not


def _servers(node: Node) -> Servers:
    """Where the program's locks are taken; a node that has taken none yet is not asked to choose."""
    return node.servers or Servers.alone(node.name)


def family(name: str) -> prometheus.Metric:
    """A metric of `prometheus_client`, without figures yet."""
    metric = METRICS[name]
    return prometheus.Metric(name.removesuffix("_total"), metric.says, metric.kind)


def _add_histogram(
    each: prometheus.Metric, name: str, labels: Labels, durations: Durations
) -> None:
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    for bound, count in zip(bounds, accumulate(durations.counts), strict=True):
        each.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
    each.add_sample(f"{name}_count", labels, durations.total)
    each.add_sample(f"{name}_sum", labels, durations.seconds)


def node_at_hand() -> Node | None:
    """The program's node, if it runs; it is not started."""
    return default_node() if is_at_hand() else None


def collector(*, by_first: bool = False) -> Any:
    """Create a collector of this program's metrics, for a registry of `prometheus_client`.

        prometheus_client.REGISTRY.register(locks.metrics.collector())

    Args:
        by_first: Give the metrics of waits and holds a label `first`, the first element of the lock id: for programs in
            which that is one of a few words. If there are more than 100, the rest is `(others)`. Times before the first
            collection are not separated.

    Raises:
        MisuseError: `prometheus_client` is not installed.
    """
    require_client()
    return Metrics(by_first, node_at_hand)


def require_client() -> None:
    """Raise `MisuseError` unless `prometheus_client` is installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        raise MisuseError(
            f"metrics need prometheus_client ({error}): pip install 'pykka-locks[metrics]'"
        ) from None
