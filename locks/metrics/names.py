"""The metrics, by name: the basis of dashboards and alerts. Nothing here needs `prometheus_client`."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["METRICS", "Metric"]


class Metric(NamedTuple):
    """One metric.

    Attributes:
        kind: Its kind.
        says: Its description.
        labels: The names of its labels, besides `first`.
        by_first: Whether it has the label `first`, if that was requested.
    """

    kind: Literal["counter", "gauge", "histogram"]
    says: str
    labels: tuple[str, ...] = ()
    by_first: bool = False


METRICS = {
    "locks_node": Metric(
        "gauge",
        "1, for the node of the program, with the version of locks.",
        ("node", "version"),
    ),
    "locks_requests_total": Metric("counter", "Requests that the lock server received."),
    "locks_contended_total": Metric("counter", "Requests that were not granted immediately."),
    "locks_grants_total": Metric(
        "counter", "Grants of the lock server, including those after a surrender."
    ),
    "locks_wait_seconds": Metric(
        "histogram",
        "How long requests waited at the lock server if they were not granted immediately; outcome: granted, or given_up.",
        ("outcome",),
        by_first=True,
    ),
    "locks_hold_seconds": Metric("histogram", "How long released locks were held.", by_first=True),
    "locks_waiting": Metric(
        "gauge",
        "Requests that wait at the lock server now, except those of elections' candidates.",
        by_first=True,
    ),
    "locks_held": Metric(
        "gauge",
        "Locks that are granted at the lock server now, except those of leaders.",
        by_first=True,
    ),
    "locks_longest_wait_seconds": Metric(
        "gauge",
        "How long the oldest request has been waiting at the lock server; 0 if none is waiting.",
    ),
    "locks_longest_hold_seconds": Metric(
        "gauge", "How long the oldest lock has been held; 0 if none is held."
    ),
    "locks_deadlocks_total": Metric(
        "counter",
        "Deadlocks that the lock server resolved; action: surrendered, or aborted.",
        ("action",),
    ),
    "locks_agents": Metric("gauge", "Transactions of this program's clients now."),
    "locks_watches": Metric(
        "gauge", "Lock ids that are watched at the lock server now, once for each watcher."
    ),
    "locks_transactions_total": Metric("counter", "Transactions begun by this program's clients."),
    "locks_transactions_aborted_total": Metric(
        "counter", "Transactions that were aborted to resolve a deadlock."
    ),
    "locks_timeouts_total": Metric("counter", "Waits of this program's clients that timed out."),
    "locks_lost_total": Metric("counter", "Locks that this program's clients held and lost."),
    "locks_clients_lost_total": Metric(
        "counter", "Client nodes that were lost while they held locks of the lock server."
    ),
    "locks_knowledge_messages_total": Metric(
        "counter", "Messages in which agents reported to each other who waits for whom."
    ),
    "locks_connections": Metric(
        "gauge", "Nodes that are connected; kind: server, client, or peer.", ("kind",)
    ),
    "locks_connections_lost_total": Metric(
        "counter", "Connections with other nodes that were lost."
    ),
    "locks_messages_total": Metric(
        "counter",
        "Messages between this node and others; direction: sent, or received.",
        ("direction",),
    ),
    "locks_message_bytes_total": Metric(
        "counter", "Total size of these messages, before TLS.", ("direction",)
    ),
    "locks_servers": Metric("gauge", "Nodes on which this program's locks are taken."),
    "locks_servers_connected": Metric("gauge", "Servers that can be asked now."),
    "locks_servers_needed": Metric(
        "gauge", "How many of the servers must be up so that every lock can be taken."
    ),
    "locks_servers_refusing": Metric(
        "gauge",
        "Servers that run and do not serve this program: another list of servers, another cookie, a clock that differs.",
    ),
    "locks_memory_ready": Metric(
        "gauge",
        "1 if the lock server can say what is done once; 0 if it has begun without a memory, or can't write its state file.",
    ),
    "locks_certificate_expires_seconds": Metric(
        "gauge", "When the node's certificate expires, in seconds since 1970; only with TLS."
    ),
    "locks_election_held": Metric(
        "gauge",
        "1 if the lock of the election of this name is held at the lock server, by this node; 0, by none, if candidates only wait.",
        ("name", "leader"),
    ),
    "locks_elections_handed_on_total": Metric(
        "counter", "Locks of elections that the lock server granted to candidates that waited."
    ),
    "locks_refused_total": Metric(
        "counter", "Requests that the lock server refused because their program was at a limit."
    ),
    "locks_fullest_program_ratio": Metric(
        "gauge",
        "The largest share of a limit that a program uses at the lock server now; 1 is all of it.",
    ),
    "locks_leader_election_master_status": Metric(
        "gauge", "1 if this program leads the election of this name, 0 if it follows.", ("name",)
    ),
    "locks_elected_total": Metric("counter", "How often this program began to lead."),
    "locks_leader_election_term": Metric(
        "gauge", "The term of the leader that this program knows.", ("name",)
    ),
}
"""The metrics, by name."""
