"""Reports whether an instance leads, to the log and to the statistics of the node."""

from __future__ import annotations

from functools import partial
from typing import Any

from locks.node import Node
from locks.runtime.logs import log_event
from locks.words import LockId, show
from locks_leader.core.machine import Machine

__all__ = ["Leadership"]


class Leadership:
    """Whether an instance leads.

    Args:
        instance: The instance, as text.
        node: Its node.
        lock_id: The lock of its election.
    """

    def __init__(self, instance: Any, node: Node, lock_id: LockId) -> None:
        self._instance = instance
        self._node = node
        self._about = show(lock_id[1:])
        self._leads = False
        self._term = -1

    def note_role(self, machine: Machine) -> None:
        """The instance has taken something in."""
        leads = machine.role == "leader"
        if leads is not self._leads or machine.term != self._term:
            self._term = machine.term
            self._node.counters.leading(self._about, str(self._instance), leads, self._term)
        if leads is not self._leads:
            another = machine.leader is not None
            self._change("another instance leads" if another else "it lost its lock on a node")

    def instance_ended(self, reason: object) -> None:
        """The instance ends."""
        self._node.counters.left(self._about, str(self._instance))
        if self._leads:
            self._change("it has ended" + ("" if reason == "normal" else f": {reason!r}"))

    def _change(self, reason: str) -> None:
        self._leads = not self._leads
        node, instance, election = self._node.name, str(self._instance), self._about
        about = {"node": node, "election": election, "instance": instance}
        if self._leads:
            text = "%s: %s leads %s, term %s"
            log = partial(
                log_event, "elected", text, node, instance, election, self._term, term=self._term
            )
        else:
            text = "%s: %s no longer leads %s: %s"
            log = partial(
                log_event, "stepped_down", text, node, instance, election, reason, reason=reason
            )
        self._node.executor.run_soon(partial(log, **about))
