"""A client's lock requests, their parts on each node, and the waits for them.

A client's request for one lock id is a `LockRequest`. It has a `NodeRequest` for each node where it
is requested. A lock request is *held* when as many node requests are granted as it requires. It is
*acknowledged* when the client was told so; only acknowledged locks count for `abort_on_deadlock`.
It is *lost* when it was acknowledged but is no longer granted as the client was told, because a
node is gone or the lock was surrendered. It stays lost until the client is told again that it holds
the lock, even if it is held again before: others may have held it in between.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from locks.errors import (
    CannotServe,
    DeadlockAborted,
    LockLost,
    LocksError,
    NotHeld,
    TransactionEnded,
    anew,
    assert_never,
)
from locks.model import (
    COVERING,
    AgentId,
    LockId,
    LockInfo,
    Mode,
    RequestRecord,
    Require,
    covers,
    majority,
    show,
    show_all,
)

__all__ = [
    "ClientWaits",
    "Confirmed",
    "LockRequest",
    "NodeRequest",
    "Undo",
    "cannot_serve",
    "has_ended",
    "locks_lost",
    "needed",
    "servable",
    "unlocked_meanwhile",
]


OF_THOSE_ALIVE = frozenset(("all_alive", "majority_alive"))  # only nodes that are up count


class NodeRequest:
    """The requests for one lock request on one node.

    Attributes:
        node: The node.
        asked: The mode in which it was requested; `None` if it was not, is withdrawn, or waits for
            the answer to a release.
        records: The known records of the requests there, by mode.
    """

    __slots__ = ("asked", "node", "records")

    def __init__(self, node: str) -> None:
        self.node = node
        self.asked: Mode | None = None
        self.records: dict[Mode, RequestRecord] = {}

    def grant(self, mode: Mode) -> RequestRecord | None:
        """The grant that satisfies a lock request in this mode; the strongest of several."""
        records = self.records
        if records:
            for each in COVERING[mode]:
                if each in records and records[each].state == "granted":
                    return records[each]
        return None

    def waits(self, mode: Mode) -> bool:
        """Whether it waits for the grant that would satisfy a lock request in this mode."""
        return self.grant(mode) is None and any(
            record.state == "waiting" for record in self.records.values()
        )


class Confirmed:
    """How far lock servers have confirmed a fencing token; see `locks.core.agent.fencing`.

    Attributes:
        token: The largest token that was established for this lock request; 0 if none was.
        asked: For each node, the version of the grant for which a confirmation was requested, and
            the version to confirm.
        reached: For each node, the version of the grant, and the version that was confirmed for it.
    """

    __slots__ = ("asked", "reached", "token")

    def __init__(self) -> None:
        self.token = 0
        self.asked: dict[str, tuple[int, int]] = {}
        self.reached: dict[str, tuple[int, int]] = {}

    def node_down(self, node: str) -> None:
        """Forget the confirmations of a node that is gone."""
        self.asked.pop(node, None)
        self.reached.pop(node, None)


class LockRequest:
    """A client's lock request for one lock id.

    Attributes:
        lock_id: The lock id.
        mode: The join of the requested modes.
        require: How many of the nodes are needed.
        seq: Its number in the order of the client's lock requests.
        node_requests: The node requests, by node.
        held: Whether enough of them are granted.
        acknowledged: The mode in which the client was told that it holds the lock, and still holds
            it; `None` if there is none. While an upgrade waits, this is `read`.
        acknowledged_on: The nodes for which the client was told so; others may have been added
            since, or come up.
        lost: If it is lost, the nodes that were lost with it, or no nodes if it was surrendered;
            `None` if it is not.
        postponed: Whether it was surrendered, and is requested again when all others are held.
        confirmed: The confirmations of its fencing token, if it is on several nodes.
    """

    __slots__ = (
        "acknowledged",
        "acknowledged_on",
        "confirmed",
        "held",
        "lock_id",
        "lost",
        "mode",
        "node_requests",
        "postponed",
        "require",
        "seq",
    )

    def __init__(self, lock_id: LockId, mode: Mode, require: Require, seq: int) -> None:
        self.lock_id = lock_id
        self.mode = mode
        self.require = require
        self.seq = seq
        self.node_requests: dict[str, NodeRequest] = {}
        self.held = False
        self.acknowledged: Mode | None = None
        self.acknowledged_on: tuple[str, ...] = ()
        self.lost: tuple[str, ...] | None = None
        self.postponed = False
        self.confirmed: Confirmed | None = None

    def acknowledge(self, alive: Collection[str]) -> None:
        """Note that the client was told that it holds the lock."""
        self.lost = None
        self.acknowledged = self.mode
        self.acknowledged_on = tuple(self.node_requests)
        if self.require in OF_THOSE_ALIVE:
            self.rely(alive)

    def rely(self, alive: Collection[str]) -> None:
        """Note that the client relies on the grants of all nodes that count now."""
        self.acknowledged_on = tuple(self.node_requests)
        if self.require in OF_THOSE_ALIVE:
            self.acknowledged_on = tuple(node for node in self.node_requests if node in alive)

    @property
    def fully_acknowledged(self) -> bool:
        """Whether the client was told that it holds the lock in the requested mode on all nodes."""
        return self.acknowledged == self.mode and len(self.acknowledged_on) == len(
            self.node_requests
        )

    def node_down(self, node: str) -> None:
        """Forget the grants of a node that is gone."""
        self.node_requests[node] = NodeRequest(node)
        if self.confirmed is not None:
            self.confirmed.node_down(node)
        if self.require in OF_THOSE_ALIVE:
            # The return of the node must not make the acknowledged lock count as lost.
            self.acknowledged_on = tuple(each for each in self.acknowledged_on if each != node)

    def lose(self, nodes: Iterable[str] = ()) -> None:
        """Note that the acknowledged lock is lost, and the nodes that were lost with it."""
        self.acknowledged = None
        self.lost = tuple(dict.fromkeys((*(self.lost or ()), *nodes)))

    def vouched_for(self, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether the acknowledged lock is still granted, even without the nodes in `given_up`.

        Either the grants that the client was told of suffice, or all present grants do.
        """
        return self.as_acknowledged(alive, given_up) or (
            self.acknowledged is not None
            and self._enough(self.node_requests, self.mode, alive, given_up)
        )

    def as_acknowledged(self, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether the grants that the client was told of suffice."""
        if self.acknowledged is None:
            return False
        acknowledging = {node: self.node_requests[node] for node in self.acknowledged_on}
        return self._enough(acknowledging, self.acknowledged, alive, given_up)

    def serves(self, mode: Mode, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether enough node requests are granted for a mode, without the nodes in `given_up`."""
        node_requests = self.node_requests
        if len(node_requests) == 1 and not given_up:
            (node_request,) = node_requests.values()
            return node_request.grant(mode) is not None
        return self._enough(node_requests, mode, alive, given_up)

    def has(self, record: RequestRecord) -> bool:
        """Whether this record is of a known request of it that was not released."""
        node_request = self.node_requests.get(record.node)
        latest = None if node_request is None else node_request.records.get(record.mode)
        return latest is not None and latest.number == record.number

    def grants(self) -> dict[str, int]:
        """The nodes where it is granted, each with the version of the grant."""
        grants = {}
        for node, node_request in self.node_requests.items():
            grant = node_request.grant(self.mode)
            if grant is not None:
                grants[node] = grant.since
        return grants

    def _enough(
        self,
        node_requests: dict[str, NodeRequest],
        mode: Mode,
        alive: Collection[str],
        given_up: Collection[str] = (),
    ) -> bool:
        """Whether enough of these node requests are granted in a mode."""
        missing = needed(self.require, node_requests, alive)
        for node, node_request in node_requests.items():
            if missing > 0 and node not in given_up and node_request.grant(mode) is not None:
                missing -= 1
        return missing <= 0

    def check_granted(self, nodes: Iterable[str], agent: AgentId, other: AgentId) -> None:
        """Raise `NotHeld` unless an agent has grants on these nodes to surrender to another one."""
        for node in nodes:
            node_request = self.node_requests.get(node)
            if node_request is None or node_request.grant(self.mode) is None:
                raise NotHeld(
                    f"can't surrender {show(self.lock_id)} on {node} to {other}: "
                    f"{agent} does not hold it",
                    lock_id=self.lock_id,
                )

    def info(self) -> LockInfo:
        """The lock request as users see it."""
        grants = self.grants()
        return LockInfo(
            self.lock_id,
            self.mode,
            tuple(self.node_requests),
            self.require,
            tuple(grants),
            self.held,
            self.acknowledged == self.mode,
            tuple(grants.values()),
        )


class Undo(NamedTuple):
    """How to withdraw a request that no wait needs any more.

    Without modes, the whole lock request is withdrawn. Otherwise its upgrade from `before` to
    `mode` is withdrawn. If the two are the same, there is nothing to withdraw, because the mode was
    requested before.
    """

    lock_id: LockId
    mode: Mode | None = None
    before: Mode | None = None


class ClientWait:
    """A client that waits for all lock requests up to `upto`.

    Attributes:
        upto: The number of the last one.
        asked: The requests that were made with this wait.
        undo: Those of them that only this wait needs.
    """

    __slots__ = ("asked", "undo", "upto")

    def __init__(self, upto: int, asked: Sequence[Undo]) -> None:
        self.upto = upto
        self.asked = asked
        self.undo = asked


class ClientWaits:
    """A client's waits for locks.

    The last answered wait is kept. Its caller may have been interrupted before it received the
    answer, and abandons the wait then.

    Attributes:
        pending: The unanswered waits.
    """

    __slots__ = ("_answered", "pending")

    def __init__(self) -> None:
        self.pending: dict[Hashable, ClientWait] = {}
        self._answered: tuple[Hashable, Sequence[Undo]] | None = None

    def begin_wait(self, wait: Hashable, upto: int, asked: Sequence[Undo] = ()) -> None:
        """Begin a wait for all lock requests up to `upto`."""
        self._answered = None
        self.pending[wait] = ClientWait(upto, asked)

    def answered(self, wait: Hashable, asked: Sequence[Undo]) -> None:
        """Note a wait whose locks were granted at once."""
        self._answered = (wait, asked)

    def keep(self, asked: Sequence[Undo]) -> None:
        """Note requests that were made without a wait: pending waits must not withdraw them."""
        self._answered = None
        own = (ClientWait(0, asked),)
        for waiting in self.pending.values():
            waiting.undo = [e for e in waiting.undo if not (_is_new(e) and _hand_on(e, own))]

    def abandon_wait(self, wait: Hashable) -> Sequence[Undo]:
        """Give up a wait; return the requests that only this wait was for.

        Several threads of an owner may wait for the same lock. Then the last of them that gives up
        withdraws the request, whichever thread made it.
        """
        if wait in self.pending:
            several = list(self.pending)
            later = [self.pending[each] for each in several[several.index(wait) + 1 :]]
            undo = self.pending.pop(wait).undo
            # The newest first: an upgrade before the request that it upgraded.
            return [e for e in reversed(undo) if _is_new(e) and not _hand_on(e, later)]
        if self._answered is None or self._answered[0] != wait:
            return ()
        _, undo = self._answered
        self._answered = None
        return [e for e in undo if _is_new(e)]

    def asking_for(self, lock_id: LockId) -> list[Hashable]:
        """The pending waits that were begun with a request for this id."""
        return [
            wait
            for wait, waiting in self.pending.items()
            if any(each.lock_id == lock_id for each in waiting.asked)
        ]

    def over(self, first_open: int) -> list[tuple[Hashable, int]]:
        """Remove and return the waits that are over, each with the number that it waited for.

        Args:
            first_open: The number of the first lock request that is not held.
        """
        if len(self.pending) == 1:  # the usual case
            ((wait, waiting),) = self.pending.items()
            if waiting.upto >= first_open:
                return []
            self.pending.clear()
            self._answered = (wait, waiting.undo)
            return [(wait, waiting.upto)]
        found = [(wait, each.upto) for wait, each in self.pending.items() if each.upto < first_open]
        for wait, _ in found:
            self._answered = (wait, self.pending.pop(wait).undo)
        return found

    @property
    def unanswered(self) -> list[Hashable]:
        """The unanswered waits."""
        return list(self.pending)

    def upto(self, wait: Hashable) -> int:
        """The number of the last lock request that a wait is for; 0 if it is not pending."""
        waiting = self.pending.get(wait)
        return 0 if waiting is None else waiting.upto

    def end_waits(self) -> list[Hashable]:
        """Forget and return all pending waits."""
        waits = list(self.pending)
        self.pending.clear()
        self._answered = None
        return waits


def _is_new(undo: Undo) -> bool:
    """Whether there is anything to withdraw."""
    return undo.mode is None or undo.mode != undo.before


def _hand_on(undo: Undo, later: Sequence[ClientWait]) -> bool:
    """Hand a withdrawal on to a later wait that requested the same; return whether there is one."""
    lock_id, _, before = undo
    for waiting in later:
        for place, other in enumerate(waiting.undo):
            if other.lock_id == lock_id and not (
                before is not None and other.mode is not None and covers(before, other.mode)
            ):
                if other.mode is not None:
                    waiting.undo = [*waiting.undo[:place], undo, *waiting.undo[place + 1 :]]
                return True
    return False


def needed(require: Require, nodes: Collection[str], alive: Collection[str]) -> int:
    """How many of the nodes must have granted the lock."""
    if require == "all":
        return len(nodes)
    if require == "any":
        return 1
    if require == "majority":
        return majority(len(nodes))
    up = sum(map(alive.__contains__, nodes))
    if require == "all_alive":
        return max(up, 1)
    if require == "majority_alive":
        return majority(up)
    return assert_never(require)


def servable(require: Require, nodes: Collection[str], alive: Collection[str]) -> bool:
    """Whether enough of the nodes are up for the requirement."""
    return needed(require, nodes, alive) <= sum(map(alive.__contains__, nodes))


def cannot_serve(lock_id: LockId, nodes: Collection[str], alive: Collection[str]) -> CannotServe:
    """The error for a lock request for which too few nodes are up."""
    down = [node for node in nodes if node not in alive]
    return CannotServe(
        f"can't lock {show(lock_id)}: {', '.join(down)} {'is' if len(down) == 1 else 'are'} not "
        f"running (running: {', '.join(sorted(alive)) or 'none'}); use other nodes, or "
        "await_nodes=True to wait for these",
        lock_id=lock_id,
        nodes=down,
    )


def has_ended(agent: AgentId, reason: Exception | None) -> LocksError:
    """The error for the use of a transaction that has ended: a copy of the reason, or `TransactionEnded`."""
    error: LocksError
    if isinstance(reason, (TransactionEnded, DeadlockAborted, LockLost)):
        error = anew(reason)
    else:
        why = "; begin a new one" if reason is None else f": {reason}"
        error = TransactionEnded(f"transaction {agent} has ended{why}", agent=agent)
    error.__cause__ = reason
    return error


def unlocked_meanwhile(lock_id: LockId) -> NotHeld:
    """The error for a wait whose lock another call of the same client has unlocked."""
    return NotHeld(
        f"{show(lock_id)} is not held: another call unlocked it in the same transaction while this call was waiting for it",
        lock_id=lock_id,
    )


def locks_lost(agent: AgentId, requests: Iterable[LockRequest], ended: bool = False) -> LockLost:
    """The error that says that an agent has lost locks.

    Args:
        agent: The agent.
        requests: The lost lock requests.
        ended: Whether its transaction ends for this reason.
    """
    found = list(requests)
    nodes = list(dict.fromkeys(node for request in found for node in request.lost or ()))
    names = show_all([request.lock_id for request in found])
    one = len(found) == 1
    it = "it" if one else "them"
    why = f"transaction {agent} surrendered {it} in a deadlock"
    if nodes:
        why = f"{'its' if one else 'their'} {'server' if len(nodes) == 1 else 'servers'} {', '.join(nodes)} went down"
    then = f"Undo what was done under {it}, and wait for {it} again"
    if ended:
        then = f"Transaction {agent} has ended; begin a new one"
    return LockLost(
        f"lost the {'lock' if one else 'locks'} {names}: {why}; others may hold {it} now. {then}",
        lock_ids=tuple(request.lock_id for request in found),
        nodes=tuple(nodes),
    )
