"""The end of a lock server that waits for the programs which use it: it takes nothing new, and ends when nobody holds anything.

A program that holds or waits for a lock here when the draining begins, or later while it does so, goes on as before: its transactions may
need more locks to come to their end. All others are turned away, and to them the server is down: they use the other servers. A
program goes as soon as it has nothing left. Leaders and candidates are not waited for, because they hold and wait forever: their
elections go on at the other servers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from locks.core.server.tree import Entry
from locks.node.node import Node
from locks.node.observing.elections import is_contest
from locks.runtime.clock import monotonic
from locks.runtime.waiter import Event

__all__ = ["drain", "holds_up"]

logger = logging.getLogger("locks.nodes")

LOOK = 0.1  # seconds between two looks who has something left
SHOWN = 3  # programs that are named


def holds_up(entries: Iterable[Entry]) -> bool:
    """Whether an agent with these requests holds up the end of the server."""
    return not all(is_contest(entry.slot.lock_id) for entry in entries)


def drain(node: Node, limit: float, at_once: Event) -> None:
    """Turn programs away until nobody holds or waits for anything.

    Args:
        node: The lock server.
        limit: After how many seconds it ends anyway.
        at_once: Opened if it must end now.
    """
    deadline = monotonic() + limit
    busy = node.turn.run(_turn_away, node)
    logger.info("%s is about to end; programs that still use locks here: %d", node.name, len(busy))
    while busy and node.running and not at_once.is_open:
        if monotonic() >= deadline:
            text = "%s ends after %g s; programs that still use locks here: %d, such as %s"
            logger.warning(text, node.name, limit, len(busy), ", ".join(sorted(busy)[:SHOWN]))
            return
        at_once.wait(LOOK)
        busy = node.turn.run(_turn_away, node)


def _turn_away(node: Node) -> set[str]:
    """Turn those away who have nothing here; return the others. In the turn."""
    assert node.cluster is not None
    requesters = node.server.machine.table.requesters.items()
    busy = {agent.node for agent, requester in requesters if holds_up(requester.all())}
    servers = () if node.servers is None else node.servers.nodes
    node.cluster.network.turn_away(keep=busy.union(servers))
    return busy
