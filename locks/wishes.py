"""What a client wants, what was asked for it on each node, and who waits for it.

A client's wish for one lock id is a `Wish`; on each node that is asked it has a `Claim`, the
requests there. A wish is *held* when enough claims are granted for its requirement. It is
*claimed* once the client was told so; only claimed locks count for `abort_on_deadlock`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from locks.errors import CannotServe
from locks.model import LockId, LockInfo, Mode, RequestRecord, Require, show

__all__ = ["Claim", "Wait", "Wish", "cannot_serve", "needed", "servable"]


class Claim:
    """The requests for one wish on one node."""

    __slots__ = ("asked", "node", "read", "write")

    def __init__(self, node: str) -> None:
        self.node = node
        self.asked: Mode | None = None  # not asked while an earlier release is not answered
        self.read: RequestRecord | None = None
        self.write: RequestRecord | None = None

    def grant(self, mode: Mode) -> RequestRecord | None:
        """The grant that serves a wish of this mode, if there is one."""
        if self.write is not None and self.write.state == "granted":
            return self.write
        if mode == "read" and self.read is not None and self.read.state == "granted":
            return self.read
        return None

    @property
    def records(self) -> list[RequestRecord]:
        """What is known of the requests there."""
        return [record for record in (self.read, self.write) if record is not None]


class Wish:
    """A client's wish for one lock id.

    Attributes:
        lock_id: The lock id.
        mode: The strongest mode asked for.
        require: How many of the nodes are needed.
        seq: Its number in the order of the client's wishes.
        claims: The claims, by node.
        held: Whether enough of them are granted.
        claimed: In which mode the client was told that it holds it, if it was, and still does: a
            reader that waits for its upgrade has claimed it for reading.
        claimed_on: The nodes that it was told so of: more may have been asked, or come up, since.
    """

    __slots__ = ("claimed", "claimed_on", "claims", "held", "lock_id", "mode", "require", "seq")

    def __init__(self, lock_id: LockId, mode: Mode, require: Require, seq: int) -> None:
        self.lock_id = lock_id
        self.mode = mode
        self.require = require
        self.seq = seq
        self.claims: dict[str, Claim] = {}
        self.held = False
        self.claimed: Mode | None = None
        self.claimed_on: tuple[str, ...] = ()

    def claim(self, alive: Collection[str]) -> None:
        """The client is told that it holds it."""
        self.claimed = self.mode
        self.claimed_on = tuple(self.claims)
        if self.counts_alive:
            self.claimed_on = tuple(node for node in self.claims if node in alive)

    @property
    def counts_alive(self) -> bool:
        """Whether only nodes that are up count."""
        return self.require.endswith("_alive")

    @property
    def fully_claimed(self) -> bool:
        """Whether the client was told that it holds all that it has asked for."""
        return self.claimed == self.mode and len(self.claimed_on) == len(self.claims)

    def node_down(self, node: str) -> None:
        """Nothing is known any more of what was granted there."""
        self.claims[node] = Claim(node)
        if (
            self.counts_alive
        ):  # when it comes back, it does not take away what was claimed meanwhile
            self.claimed_on = tuple(each for each in self.claimed_on if each != node)

    def still_claimed(self, alive: Collection[str]) -> bool:
        """Whether what the client was told is still granted."""
        if self.claimed is None:
            return False
        return self._enough(
            {node: self.claims[node] for node in self.claimed_on}, self.claimed, alive
        )

    def serves(self, mode: Mode, alive: Collection[str]) -> bool:
        """Whether enough claims are granted for a mode, given the nodes that are up."""
        claims = self.claims
        if len(claims) == 1:
            (claim,) = claims.values()
            return claim.grant(mode) is not None
        return self._enough(claims, mode, alive)

    def _enough(self, claims: dict[str, Claim], mode: Mode, alive: Collection[str]) -> bool:
        """Whether enough of these claims are granted."""
        granted = sum(claim.grant(mode) is not None for claim in claims.values())
        return granted >= needed(self.require, claims, alive)

    def info(self) -> LockInfo:
        """What users see of it."""
        return LockInfo(
            self.lock_id,
            self.mode,
            tuple(self.claims),
            self.require,
            tuple(node for node, claim in self.claims.items() if claim.grant(self.mode)),
            self.held,
            self.claimed == self.mode,
        )


class Wait:
    """A client that waits for all wishes up to `upto`; `undo` withdraws what only it wanted."""

    __slots__ = ("undo", "upto")

    def __init__(self, upto: int, undo: list[Callable[[], None]]) -> None:
        self.upto = upto
        self.undo = undo


def needed(require: Require, nodes: Collection[str], alive: Collection[str]) -> int:
    """How many of the nodes must have granted the lock."""
    if require == "all":
        return len(nodes)
    if require == "any":
        return 1
    if require == "majority":
        return len(nodes) // 2 + 1
    up = sum(node in alive for node in nodes)
    return max(up, 1) if require == "all_alive" else up // 2 + 1


def servable(require: Require, nodes: Collection[str], alive: Collection[str]) -> bool:
    """Whether enough of the nodes are up to meet the requirement."""
    return needed(require, nodes, alive) <= sum(node in alive for node in nodes)


def cannot_serve(lock_id: LockId, nodes: Collection[str], alive: Collection[str]) -> CannotServe:
    """The error that says so when they are not."""
    down = [node for node in nodes if node not in alive]
    return CannotServe(
        f"can't lock {show(lock_id)}: {', '.join(down)} {'does' if len(down) == 1 else 'do'} not "
        f"run (running: {', '.join(sorted(alive)) or 'none'}); name other nodes, or use "
        "await_nodes=True to wait",
        lock_id=lock_id,
        nodes=down,
    )
