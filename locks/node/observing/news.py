"""What a node logs of deadlocks, losses, and other nodes, and counts of them."""

from __future__ import annotations

import time

from locks.core.messages import Lost
from locks.form import COMPILED
from locks.model import AgentId, Deadlock
from locks.node.observing.statistics import Counters
from locks.node.ports import Background, NodePort
from locks.runtime.logs import Sparing, log_event
from locks.words import FEW_IDS, show, show_all

__all__ = ["News", "log_peer"]

MOST_DEADLOCKS = 20  # that are logged in a minute
MOST_LOSSES = 100


class News:
    """Deadlocks and losses of one node. For the turn, when it is committed; what is logged goes out after it.

    Args:
        name: The node's name.
        background: Where it is logged.
        counters: What is counted.
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
        if not self._deadlocks.admit(time.monotonic()):
            return
        left_out = self._deadlocks.take_left_out()
        before = f" ({left_out} more before it are not shown)" if left_out else ""
        log_event(
            "deadlock",
            "%s: a deadlock was resolved%s: %s",
            self._name,
            before,
            report,
            node=self._name,
            agent=str(report.agent),
            lock=show(report.lock_id),
            action=report.action,
            report=str(report),
            compiled=COMPILED,
            left_out=left_out,
        )

    def _log_lost(self, agent: AgentId, client: str, lost: Lost) -> None:
        if self._losses.admit(time.monotonic()):
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


def log_peer(node: NodePort, peer: str, reason: str | None) -> None:
    """Log that a node is connected, or with a reason that it is lost. Outside of the turn."""
    server = node.scope is not None and peer in node.scope.nodes
    what = f"server {peer}" if server else peer
    about = {"node": node.name, "peer": peer, "server": server}
    if reason is None:
        log_event("node_up", "%s is connected with %s", node.name, what, **about)
    else:
        log_event(
            "node_down",
            "%s lost the connection with %s: %s",
            node.name,
            what,
            reason,
            **about,
            reason=reason,
        )
