"""Records and checks which instances lead elections, as they report it to their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from locks.node.observing.statistics import Counters
from locks_lab.applications.application import Application
from locks_lab.worlds.host import Violation

__all__ = ["Elections"]


class Around(Protocol):
    """The surroundings of the node."""

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The nodes, by name."""

    @property
    def application(self) -> Application:
        """The application that runs on it."""


class Elections(Counters):
    """The counters of a simulated node, with a check that no two instances lead the same election.

    An instance reports that it no longer leads before it releases the lock that makes it the
    leader. On a node that is cut off, it notices the loss of this lock late. So once something has
    broken, the instances of each node are checked by themselves.

    Args:
        around: The surroundings, which know the clients.
    """

    __slots__ = ("_around", "_newest")

    def __init__(self, around: Around) -> None:
        super().__init__()
        self._around = around
        self._newest: dict[str, int] = {}  # the term of the last leader of each election

    def leading(self, name: str, instance: str, leads: bool, term: int) -> None:
        """Note whether an instance of an election leads, and its term."""
        before = self.leaders.get((name, instance))
        led = before is not None and before.leads
        super().leading(name, instance, leads, term)
        if led != leads:
            self._tell(f"leads {name}, term {term}" if leads else f"leads {name} no more")
        if leads:
            self._around.application.seen["elections"] += not led
            self._check(name, instance, term, is_new=not led)

    def left(self, name: str, instance: str) -> None:
        """An instance has left an election."""
        before = self.leaders.get((name, instance))
        super().left(name, instance)
        if before is not None and before.leads:
            self._tell(f"leads {name} no more")

    def _check(self, name: str, instance: str, term: int, is_new: bool) -> None:
        seen = self._around.application.seen
        counters: list[Elections] = [self]
        if not (seen["cuts"] or seen["crashes"]):
            counters = [node.counters for node in self._around.by_name.values()]
        newest = max(each._newest.get(name, 0) for each in counters)
        if any(
            election == name and each.leads and other != instance
            for of_node in counters
            for (election, other), each in of_node.leaders.items()
        ):
            self._around.application.fail(Violation(f"two lead {name}, in term {term}"))
        if is_new and term <= newest:
            self._around.application.fail(
                Violation(f"the leader of {name} has term {term}, and there was one of {newest}")
            )
        self._newest[name] = max(newest, term)

    def _tell(self, what: str) -> None:
        actor = self._around.application.running
        if actor is not None:
            self._around.application.note(actor.name, what, matters=True)
