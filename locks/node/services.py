"""The services of a node besides locks, such as process groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Protocol

from locks.core.facts import MemberFact, MemberPage
from locks.node.client.clients import parts_of

__all__ = ["Member", "Service", "Services"]

MOST_ITEMS = 100  # in one page
LARGEST_PAGE = 64 * 1024  # bytes of names of groups at which a page is full


class Member(NamedTuple):
    """An actor of the node that is a member of a group, as reported by a service.

    Attributes:
        group: The group, as other nodes see it.
        size: How many bytes this takes.
        name: The name of the actor.
    """

    group: Any
    size: int
    name: str


class Service(Protocol):
    """A service of a node."""

    def node_stopped(self) -> None:
        """The node has stopped; in the turn."""

    def members_here(self) -> Iterable[Member]:
        """The actors of this node that are members of its groups; in the turn."""


class Services:
    """The services of one node, by kind and name. Everything is for the turn."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Service] = {}

    def get(self, kind: str, name: str, make: Callable[[], Service]) -> Any:
        """The service of this kind and name; made when it is first needed."""
        found = self._found.get((kind, name))
        if found is None:
            found = self._found[kind, name] = make()
        return found

    def node_stopped(self) -> None:
        """The node has stopped."""
        for service in self._found.values():
            service.node_stopped()

    def members(self, node: str, program: str, after: int) -> MemberPage:
        """A page of the members of all groups.

        Args:
            node: The node.
            program: The text for the program behind the names of its clients.
            after: How many members to skip.
        """
        _, file, pid = parts_of(program)
        facts: list[MemberFact] = []
        size = 0
        for scope, member in islice(self._all(), after, None):
            if len(facts) >= MOST_ITEMS or size >= LARGEST_PAGE:
                return MemberPage(tuple(facts), True)
            size += member.size
            facts.append(MemberFact(scope, member.group, member.name, node, file, pid))
        return MemberPage(tuple(facts), False)

    def _all(self) -> Iterable[tuple[str, Member]]:
        return (
            (name, member)
            for (_, name), service in self._found.items()
            for member in service.members_here()
        )
