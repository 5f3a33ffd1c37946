"""Policies: which candidate may lead when the network is split.

A candidate leads a set of nodes, its *ground*: those on which it holds the election's lock. A
policy says which sets are enough. If there must be at most one leader, any two such sets must have
a node in common. The lock table of that node then decides between two candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import check_has_no_port, majority

__all__ = ["Policy", "named_nodes", "policy_of", "quorum"]


class Policy(NamedTuple):
    """How many nodes a candidate needs to lead.

    Attributes:
        quorum: The least number of nodes.
        electorate: The nodes that count, and on which the lock is requested; `None` for all known
            nodes.
    """

    quorum: int = 1
    electorate: frozenset[str] | None = None

    @property
    def has_bystanders(self) -> bool:
        """Whether nodes without instances don't matter: neither do they count, nor do they have a name."""
        return self.quorum == 1 and self.electorate is None

    def asked(self, nodes: Iterable[str]) -> frozenset[str]:
        """The nodes among these on which the lock is requested."""
        return frozenset(nodes) if self.electorate is None else self.electorate.intersection(nodes)

    def enough(self, nodes: Set[str]) -> bool:
        """Whether these nodes are enough to lead."""
        return len(nodes) >= self.quorum

    def sees(self, alive: frozenset[str], silent: frozenset[str]) -> frozenset[str]:
        """The nodes, of those that are up, on which an instance relies if some are silent.

        If leading takes more than half of the nodes that count, any two such sets have a node in
        common. Then a silent node is left out as if it were lost. Otherwise the leader may be on
        it, and the instance waits for it.
        """
        if self.electorate is None or 2 * self.quorum <= len(self.electorate):
            return alive
        return alive - (silent & self.electorate)

    def announced_on(self, node: str, ground: Set[str]) -> bool:
        """Whether a leader with this ground announces itself to the instances on a node.

        On a node that counts, it waits until it holds the lock there, because another one may lead
        before.
        """
        return node in ground or self.is_outside(node)

    def is_outside(self, node: str) -> bool:
        """Whether a node does not count, such as a client node."""
        return self.electorate is not None and node not in self.electorate

    def may_ask(self, node: str, merged: Set[str]) -> bool:
        """Whether a leader that has the merge lock on some nodes may wait for an instance on a node.

        No two may wait for each other. For a node that counts it needs the lock there; for another
        one it needs it on as many as it takes to lead, and any two such sets have a node in common.
        """
        return node in merged or (self.is_outside(node) and self.enough(merged))


def quorum(nodes: int) -> Policy:
    """Lead only on `nodes` nodes or more, whichever they are.

    Two leaders at once are impossible only if this is more than half of all nodes there will ever
    be.

    Raises:
        InvalidOption: That is no positive number.
    """
    if type(nodes) is not int or nodes < 1:
        raise InvalidOption(f"a quorum must be a number of nodes, 1 or more, not {shown(nodes)}")
    return Policy(nodes)


def named_nodes(nodes: Iterable[str] | None) -> tuple[str, ...] | None:
    """The nodes that count, as a user names them; `None` if he names none.

    Raises:
        InvalidOption: They are no names of nodes.
    """
    if nodes is None:
        return None
    named = tuple(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, str) else ()
    if not named or not all(isinstance(each, str) and each.count("@") == 1 for each in named):
        raise InvalidOption(
            f"nodes={shown(nodes)} is wrong; pass a list with the names of the nodes that count, name@host"
        )
    for each in named:
        check_has_no_port(each)
    return named


def policy_of(
    policy: str | Policy | None, nodes: Iterable[str] | None, servers: Iterable[str] = ()
) -> Policy:
    """The policy that a user requests.

    Args:
        policy: `"island"`, `"majority"`, or a result of `quorum`; by default a majority of the
            given nodes, or else of the servers, or else `"island"`.
        nodes: The nodes that count; needed for a majority. If they are given, leading takes more
            than half of them, because instances on other nodes might see two leaders.
        servers: The servers on which the program takes its locks, if it has any.

    Raises:
        InvalidOption: There is no such policy, or the nodes do not fit it.
    """
    if policy is None:
        nodes = tuple(servers) or None if nodes is None else nodes
        policy = "island" if nodes is None else "majority"
    electorate = None if nodes is None else frozenset(nodes)
    if policy == "majority":
        if electorate is None:
            raise InvalidOption(
                'policy="majority" needs nodes=[...], the nodes of which it is a majority: list all of them, '
                "also those that are down now"
            )
        return Policy(majority(len(electorate)), electorate)
    if policy == "island":
        if electorate is not None:
            raise InvalidOption(
                'policy="island" cannot be combined with nodes=[...], which is for "majority" and quorum(n)'
            )
        policy = Policy()
    if not isinstance(policy, Policy):
        raise InvalidOption(
            f'unknown policy {shown(policy)}; use "island", "majority" with nodes=[...], or quorum(n)'
        )
    if electorate is not None and not len(electorate) // 2 < policy.quorum <= len(electorate):
        raise InvalidOption(
            f"{policy.quorum} of {len(electorate)} nodes is not a quorum: with nodes=[...], it must be more "
            "than half of them, so that there are never two leaders, and at most all of them"
        )
    return policy._replace(electorate=electorate)
