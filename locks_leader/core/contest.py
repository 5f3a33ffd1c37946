"""The contest plane: the standing of one candidate in the contest for the election's lock.

The lock is needed on all nodes that count and are up. Each round has its own agent. It requests the
lock first on one of these nodes, the *gate*; usually this is the first by name. Only a candidate
that holds the lock there requests it on the others. So candidates that see the same nodes wait in
one queue, without deadlocks. After a split or a start they may see different nodes; then the agents
resolve deadlocks as usual. (The original requests the lock everywhere at once: with n candidates
there are n² requests, all in deadlocks with each other.)

**On a new node, the leader must come first.** Otherwise a candidate that waits for its lock
elsewhere would be ahead of it there: a deadlock, in which the leader might have to yield. So no
candidate requests the lock on a further node before it holds it on all nodes where it has requested
it. And a newcomer begins on a node where others were before, and may lead (`elders`), not on its
own node.

The contest has the grants by which the agent holds the lock, and the fencing token that lock
servers have confirmed for exactly these grants. The next holder of the lock on one of these nodes
gets a larger token.
"""

from __future__ import annotations

from collections.abc import Set

from locks_leader.core.events import (
    AskToken,
    BeginContest,
    ContestStanding,
    Effect,
    EndContest,
    Grants,
    IncludeNodes,
)
from locks_leader.policy import Policy

__all__ = ["NO_GRANTS", "Contest", "nodes_of"]

NO_GRANTS: Grants = frozenset()
NOWHERE = ContestStanding(NO_GRANTS, held=False)


def nodes_of(grants: Grants) -> frozenset[str]:
    """The nodes of some grants."""
    return frozenset(dict(grants))


class Contest:
    """The contest as one candidate takes part in it.

    Args:
        policy: Which nodes count, and how many are enough.
        alive: The nodes that are up.
        out: The list to which effects are appended.

    Attributes:
        round: The number of the last round; an answer with another number is stale.
        contending: Whether it takes part now.
        elders: The nodes on one of which the next round begins, if they are up; `None` before it
            takes part.
        standing: The present standing.
        token: The fencing token, if it is established.
    """

    __slots__ = (
        "_alive",
        "_asked",
        "_asked_for",
        "_due",
        "_out",
        "_passed",
        "_pending",
        "_policy",
        "_refused",
        "contending",
        "elders",
        "round",
        "standing",
        "token",
    )

    def __init__(self, policy: Policy, alive: frozenset[str], out: list[Effect]) -> None:
        self._policy = policy
        self._out = out
        self._alive = policy.asked(alive)
        self._asked: set[str] = set()  # where this round has requested it
        self._due: set[str] = set()  # where to request it when it holds the lock on all `_asked`
        self._passed = False
        self.round = 0
        self.contending = False
        self.elders: frozenset[str] | None = None
        self.standing = NOWHERE
        self._asked_for: Grants | None = None  # the grants for which the token was requested
        self.token: int | None = None
        self._pending = 0  # expected answers
        self._refused = False  # there is no token for the present standing

    def contend(self) -> None:
        """Begin a round."""
        self.contending = True
        self.round += 1
        self._pending = 0
        self._passed = False
        self._due.clear()
        self._asked = {min((self.elders or self._alive) & self._alive or self._alive)}
        self.elders = frozenset()
        self._out.append(BeginContest(self.round, frozenset(self._asked)))

    @property
    def may_contend(self) -> bool:
        """Whether it takes part, and the nodes that are up would be enough."""
        return self.elders is not None and self._policy.enough(self._alive)

    def withdraw(self) -> None:
        """End the round; `forget` was called before."""
        self.contending = False
        self._out.append(EndContest(self.round))

    def forget(self) -> None:
        """Rely on nothing that was granted."""
        self.standing = NOWHERE
        self.token = self._asked_for = None
        self._refused = False

    def nodes(self, alive: frozenset[str], bystanders: Set[str] = frozenset()) -> bool:
        """Take in which nodes are up and count now.

        Returns:
            Whether a new round must begin. This is so if the gate is gone: if this round used
            another gate, it would request the lock at the old gate as well when that comes back. It
            is also so if the candidate waits and has requested the lock on a node that no longer
            counts, because it may hold the lock there.
        """
        before, self._alive = self._alive, self._policy.asked(alive)
        grants, held = self.standing
        self.standing = ContestStanding(frozenset(g for g in grants if g[0] in self._alive), held)
        if self._passed:
            self._due |= self._alive - before  # also nodes where it was requested before
            self._include_due()
        if not (self.contending and self.may_contend):
            return False
        if self._passed:
            return not self.standing.held and bool(self._asked & bystanders)
        return not self._asked & self._alive

    def told(self, round: int, standing: ContestStanding) -> bool:
        """Take in the present standing; return whether it had to surrender something in a deadlock."""
        gave_way = False
        if round == self.round and self.contending:
            gave_way = not self.standing.grants <= standing.grants
            self.standing = standing
            self._refused = False
            if standing.held and not self._passed:
                self._passed = True
                self._due = {*self._alive - self._asked}
            self._include_due()
        return gave_way

    def told_token(self, round: int, token: int | None) -> None:
        """The answer to `AskToken`."""
        if round != self.round or not self._pending:
            return
        self._pending -= 1
        if not self._pending and self._asked_for is not None:  # an earlier answer may be too old
            self.token = token
            if token is None:
                self._asked_for = None
                self._refused = True  # the standing is taken in again before the next request

    def establish_token(self, grants: Grants) -> bool:
        """Whether a token is known for these grants; if not, request it."""
        if self._asked_for is None or not grants <= self._asked_for:
            self.token = None
            if not self._refused:
                self._asked_for = grants
                self._pending += 1
                self._out.append(AskToken(self.round))
        return self.token is not None

    def won(self) -> Grants | None:
        """The grants, if it has the lock on all nodes that are up and they are enough."""
        grants, held = self.standing
        if not held:
            return None
        nodes = nodes_of(grants)
        return grants if self._alive <= nodes and self._policy.enough(nodes) else None

    def _include_due(self) -> None:
        if self.contending and self._passed and self.standing.held:
            nodes = frozenset(self._due & self._alive)
            self._due.clear()
            if nodes:
                self._asked |= nodes
                self._out.append(IncludeNodes(self.round, nodes))
