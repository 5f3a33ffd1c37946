"""Logs and counts deadlocks, losses, and news of other nodes."""

from __future__ import annotations

import logging
from typing import Any

from locks.core.messages import Lost
from locks.model import AgentId, Deadlock
from locks.node.observing.statistics import Counters
from locks.node.ports import Background, NodePort
from locks.runtime.clock import monotonic
from locks.runtime.logs import EVENTS, Sparing, log_event
from locks.words import FEW_IDS, show, show_all

__all__ = ["News", "are_servers", "log_node_down", "log_node_up"]

MOST_DEADLOCKS = 20  # that are logged in a minute
MANY_DEADLOCKS = 60  # in a minute; more of them are worth a warning
MOST_LOSSES = 100


class News:
    """Deadlocks and losses of one node. For the turn, after its commit; the log is written after it.

    Args:
        name: The node's name.
        background: Writes the log.
        counters: The node's counters.
    """

    def __init__(self, name: str, background: Background, counters: Counters) -> None:
        self._name = name
        self._background = background
        self._counters = counters
        self._deadlocks = Sparing(MOST_DEADLOCKS)
        self._losses = Sparing(MOST_LOSSES)

    def yielded(self, report: Deadlock) -> None:
        """An agent of this node has yielded."""
        self._counters.deadlocks += 1
        self._counters.aborted += report.action == "aborted"
        if report.server != self._name:
            self._background.run_soon(self._log_deadlock, report)

    def broke(self, report: Deadlock) -> None:
        """The lock server of this node has broken a circle; its record counts it."""
        self._background.run_soon(self._log_deadlock, report)

    def lost(self, agent: AgentId, client: str, lost: Lost) -> None:
        """A client of this node has lost locks."""
        self._counters.lost += len(lost.lock_ids)
        self._background.run_soon(self._log_lost, agent, client, lost)

    # --- Outside of the turn --------------------------------------------------------------------

    def _log_deadlock(self, report: Deadlock) -> None:
        is_shown = self._deadlocks.admit(monotonic())
        if self._deadlocks.seen == MANY_DEADLOCKS:
            log_event(
                "many_deadlocks",
                "%s: %d deadlocks were resolved within %d s; transactions that lock in the same order have none",
                self._name,
                MANY_DEADLOCKS,
                self._deadlocks.period,
                node=self._name,
                count=MANY_DEADLOCKS,
                seconds=self._deadlocks.period,
            )
        if not is_shown:
            return
        left_out = self._deadlocks.take_left_out()
        before = f" ({left_out} more before it are not shown)" if left_out else ""
        text = str(report)
        has_steps = logging.getLogger(EVENTS["deadlock"].logger).isEnabledFor(logging.DEBUG)
        log_event(
            "deadlock",
            "%s: a deadlock was resolved%s: %s",
            self._name,
            before,
            text if has_steps else text.partition("\n")[0],
            node=self._name,
            agent=str(report.agent),
            lock=show(report.lock_id),
            action=report.action,
            report=text,
            left_out=left_out,
        )

    def _log_lost(self, agent: AgentId, client: str, lost: Lost) -> None:
        if self._losses.admit(monotonic()):
            log_event(
                "lost",
                "%s: %s (%s) lost %s: %s",
                self._name,
                client,
                agent,
                show_all(lost.lock_ids),
                lost.error,
                node=self._name,
                agent=str(agent),
                client=client,
                locks=[show(lock_id) for lock_id in lost.lock_ids[:FEW_IDS]],
            )


def log_node_up(node: NodePort, peer: str, was_lost: bool) -> None:
    """Log that a node is connected. Call this outside of the turn.

    Args:
        node: The node that logs it.
        peer: The other node.
        was_lost: Whether both are servers, and had lost each other.
    """
    what, about = _named(node, peer)
    if was_lost:
        log_event("server_back", "%s is connected with %s again", node.name, what, **about)
    else:
        log_event("node_up", "%s is connected with %s", node.name, what, **about)


def log_node_down(node: NodePort, peer: str, reason: str, matters: bool) -> None:
    """Log that the connection with a node is lost. Call this outside of the turn.

    Args:
        node: The node that logs it.
        peer: The other node.
        reason: The reason, as text.
        matters: Whether both are servers, and the logging node is not about to stop.
    """
    what, about = _named(node, peer)
    event = "server_down" if matters else "node_down"
    text = "%s lost the connection with %s: %s"
    log_event(event, text, node.name, what, reason, **about, reason=reason)


def _named(node: NodePort, peer: str) -> tuple[str, dict[str, Any]]:
    """A description of a peer, and the fields of log events about it."""
    server = node.servers is not None and peer in node.servers.nodes
    about = {"node": node.name, "peer": peer, "server": server}
    return f"server {peer}" if server else peer, about


def are_servers(node: NodePort, peer: str) -> bool:
    """Whether both are lock servers of the same programs."""
    return node.servers is not None and {node.name, peer} <= set(node.servers.nodes)
