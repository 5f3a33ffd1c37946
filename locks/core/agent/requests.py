"""What a client wants, what was asked for it on each node, and who waits for it.

What a client wants of one lock id is a `LockRequest`; on each node that is asked it has a `NodeRequest`.
A lock request is *held* when enough of its node requests are granted for its requirement. It is
*acknowledged* once the client was told so; only acknowledged locks count for `abort_on_deadlock`. It is
*lost* when it was acknowledged, and what the client was told is not granted any more: because a node is
gone, or because it was surrendered. It stays so until the client is told again that it has the lock; for
others may have had it in between, even if it is held again.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from locks.core.messages import End
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
        asked: The mode that it was asked for; `None` while an earlier release is not answered.
        withdrawn: Whether it is given up there, as it is not needed now.
        spare: Whether it was requested, though it is not needed, and has not been granted since.
        records: What is known of the requests there, by mode.
        gave_way: For which edges it has given way to spare requests, with the grant that it has.
    """

    __slots__ = ("asked", "gave_way", "node", "records", "spare", "withdrawn")

    def __init__(self, node: str) -> None:
        self.node = node
        self.asked: Mode | None = None
        self.withdrawn = False
        self.spare = False
        self.gave_way: tuple[tuple[End, End], ...] = ()
        self.records: dict[Mode, RequestRecord] = {}

    def grant(self, mode: Mode) -> RequestRecord | None:
        """The grant that serves a lock request of this mode, the strongest if there are several."""
        records = self.records
        if records:
            for each in COVERING[mode]:
                if each in records and records[each].state == "granted":
                    return records[each]
        return None

    def as_wanted(self, record: RequestRecord) -> RequestRecord:
        """What a lock server says of a request, which may not know yet that it is spare."""
        return (
            record._replace(state="spare") if self.spare and record.state == "waiting" else record
        )

    def waits(self, mode: Mode) -> bool:
        """Whether it waits for the grant that would serve a lock request of this mode."""
        return self.grant(mode) is None and any(
            record.state == "waiting" for record in self.records.values()
        )


class Confirmed:
    """How far lock servers have confirmed a fencing token; see `locks.core.agent.fencing`.

    Attributes:
        token: The largest token that was established for this lock request; 0 if none was.
        asked: For each node, the grant (by its version) for which it was asked to confirm a
            version, and that version.
        reached: Likewise what it has confirmed.
    """

    __slots__ = ("asked", "reached", "token")

    def __init__(self) -> None:
        self.token = 0
        self.asked: dict[str, tuple[int, int]] = {}
        self.reached: dict[str, tuple[int, int]] = {}

    def node_down(self, node: str) -> None:
        """What it was asked is not answered any more."""
        self.asked.pop(node, None)
        self.reached.pop(node, None)


class LockRequest:
    """A client's lock request for one lock id.

    Attributes:
        lock_id: The lock id.
        mode: The join of the modes asked for.
        require: How many of the nodes are needed.
        seq: Its number in the order of the client's lock requests.
        node_requests: The node requests, by node.
        held: Whether enough of them are granted.
        acknowledged: In which mode the client was told that it holds it, if it was, and still does: a
            reader that waits for its upgrade has acknowledged it for reading.
        acknowledged_on: The nodes that it was told so of: more may have been asked, or come up, since.
        lost: If it is lost, the nodes whose loss took it; none of them if it was surrendered.
        confirmed: What was done for its fencing token, if it is wanted on several nodes.
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
        self.confirmed: Confirmed | None = None

    def acknowledge(self, alive: Collection[str]) -> None:
        """The client is told that it holds it."""
        self.lost = None
        self.acknowledged = self.mode
        self.acknowledged_on = tuple(self.node_requests)
        if self.require in OF_THOSE_ALIVE:
            self.rely(alive)

    def rely(self, alive: Collection[str]) -> None:
        """The client relies on what is granted on all nodes that count now."""
        self.acknowledged_on = tuple(self.node_requests)
        if self.require in OF_THOSE_ALIVE:
            self.acknowledged_on = tuple(node for node in self.node_requests if node in alive)

    @property
    def fully_acknowledged(self) -> bool:
        """Whether the client was told that it holds all that it has asked for."""
        return self.acknowledged == self.mode and len(self.acknowledged_on) == len(
            self.node_requests
        )

    def node_down(self, node: str) -> None:
        """Nothing is known any more of what was granted there."""
        self.node_requests[node] = NodeRequest(node)
        if self.confirmed is not None:
            self.confirmed.node_down(node)
        if self.require in OF_THOSE_ALIVE:
            # When it comes back, it does not take away what was acknowledged meanwhile.
            self.acknowledged_on = tuple(each for each in self.acknowledged_on if each != node)

    def lose(self, nodes: Iterable[str] = ()) -> None:
        """What the client was told is granted no more."""
        self.acknowledged = None
        self.lost = tuple(dict.fromkeys((*(self.lost or ()), *nodes)))

    def vouched_for(self, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether what the client was told is granted, also without what is given up.

        If not where it was told so, then perhaps by what was granted since.
        """
        return self.as_acknowledged(alive, given_up) or (
            self.acknowledged is not None
            and self._enough(self.node_requests, self.mode, alive, given_up)
        )

    def as_acknowledged(self, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether enough is granted of what the client was told."""
        if self.acknowledged is None:
            return False
        told = {node: self.node_requests[node] for node in self.acknowledged_on}
        return self._enough(told, self.acknowledged, alive, given_up)

    def is_answered(self, alive: Collection[str]) -> bool:
        """Whether all lock servers that are up have granted it, or have said that it must wait."""
        return all(
            each.grant(self.mode) is not None or each.withdrawn or each.waits(self.mode)
            for node, each in self.node_requests.items()
            if node in alive
        )

    def serves(self, mode: Mode, alive: Collection[str], given_up: Collection[str] = ()) -> bool:
        """Whether enough node requests are granted for a mode, given the nodes that are up; also without what is given up."""
        node_requests = self.node_requests
        if len(node_requests) == 1 and not given_up:
            (node_request,) = node_requests.values()
            return node_request.grant(mode) is not None
        return self._enough(node_requests, mode, alive, given_up)

    def has(self, record: RequestRecord) -> bool:
        """Whether this is what it has asked for, and not released."""
        there = self.node_requests.get(record.node)
        known = None if there is None else there.records.get(record.mode)
        return known is not None and known.number == record.number

    def grants(self) -> dict[str, int]:
        """The nodes where it is granted, each with the version of the grant."""
        grants = [
            (node, node_request.grant(self.mode))
            for node, node_request in self.node_requests.items()
        ]
        return {node: grant.since for node, grant in grants if grant is not None}

    def _enough(
        self,
        node_requests: dict[str, NodeRequest],
        mode: Mode,
        alive: Collection[str],
        given_up: Collection[str] = (),
    ) -> bool:
        """Whether enough of these node requests are granted."""
        missing = needed(self.require, node_requests, alive)
        for node, node_request in node_requests.items():
            if missing > 0 and node not in given_up and node_request.grant(mode) is not None:
                missing -= 1
        return missing <= 0

    def check_granted(self, nodes: Iterable[str], agent: AgentId, other: AgentId) -> None:
        """Raise `NotHeld` unless an agent has something on these nodes to surrender to another one."""
        for node in nodes:
            node_request = self.node_requests.get(node)
            if node_request is None or node_request.grant(self.mode) is None:
                raise NotHeld(
                    f"can't surrender {show(self.lock_id)} on {node} to {other}: "
                    f"{agent} does not hold it",
                    lock_id=self.lock_id,
                )

    def info(self) -> LockInfo:
        """What users see of it."""
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
    """What is to be withdrawn if nobody waits for it: a lock request, or its upgrade from `before` to `mode`.

    Nothing if the two are the same: then others had asked for it before in this mode.
    """

    lock_id: LockId
    mode: Mode | None = None
    before: Mode | None = None


class ClientWait:
    """A client that waits for all lock requests up to `upto`.

    Attributes:
        upto: The number of the last one.
        asked: What it has asked for itself.
        undo: What only it wanted of that.
    """

    __slots__ = ("asked", "undo", "upto")

    def __init__(self, upto: int, asked: Sequence[Undo]) -> None:
        self.upto = upto
        self.asked = asked
        self.undo = asked


class ClientWaits:
    """Who waits for locks.

    The wait that was answered last is kept: whoever waited may have been interrupted before it knew
    the answer, and then abandons the wait all the same.

    Attributes:
        pending: Those that are not answered.
    """

    __slots__ = ("_answered", "pending")

    def __init__(self) -> None:
        self.pending: dict[Hashable, ClientWait] = {}
        self._answered: tuple[Hashable, Sequence[Undo]] | None = None

    def begin(self, wait: Hashable, upto: int, asked: Sequence[Undo] = ()) -> None:
        """Somebody waits for all lock requests up to `upto`."""
        self._answered = None
        self.pending[wait] = ClientWait(upto, asked)

    def answered(self, wait: Hashable, asked: Sequence[Undo]) -> None:
        """Somebody has asked for locks, and has them: there is nothing to wait for."""
        self._answered = (wait, asked)

    def keep(self, asked: Sequence[Undo]) -> None:
        """Somebody has asked for locks, and does not wait: nobody's wait is the only one that they are for."""
        self._answered = None
        own = (ClientWait(0, asked),)
        for waiting in self.pending.values():
            waiting.undo = [e for e in waiting.undo if not (_is_new(e) and _hand_on(e, own))]

    def abandon(self, wait: Hashable) -> Sequence[Undo]:
        """A client gave up waiting; return what only this wait was for.

        An owner's threads may wait for the same lock. What one of them has asked for first is then withdrawn by the last
        one that gives up.
        """
        if wait in self.pending:
            several = list(self.pending)
            later = [self.pending[each] for each in several[several.index(wait) + 1 :]]
            undo = self.pending.pop(wait).undo
            # The newest first: an upgrade before what it has upgraded.
            return [e for e in reversed(undo) if _is_new(e) and not _hand_on(e, later)]
        if self._answered is None or self._answered[0] != wait:
            return ()
        _, undo = self._answered
        self._answered = None
        return [e for e in undo if _is_new(e)]

    def asking_for(self, lock_id: LockId) -> list[Hashable]:
        """Those who wait for what they have asked for, if this id is a part of that."""
        return [
            wait
            for wait, waiting in self.pending.items()
            if any(each.lock_id == lock_id for each in waiting.asked)
        ]

    def over(self, first_open: int) -> list[tuple[Hashable, int]]:
        """Those whose wait is over, each with the number of the last request that it waited for.

        Args:
            first_open: The number of the first lock request that is not held.
        """
        if len(self.pending) == 1:  # as mostly
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
        """Those who wait."""
        return list(self.pending)

    def upto(self, wait: Hashable) -> int:
        """The number of the last lock request that somebody waits for; 0 if it does not wait."""
        waiting = self.pending.get(wait)
        return 0 if waiting is None else waiting.upto

    def end(self) -> list[Hashable]:
        """There is nothing to wait for any more; return who waited."""
        waits = list(self.pending)
        self.pending.clear()
        self._answered = None
        return waits


def _is_new(undo: Undo) -> bool:
    """Whether there is anything to withdraw."""
    return undo.mode is None or undo.mode != undo.before


def _hand_on(undo: Undo, later: Sequence[ClientWait]) -> bool:
    """Whether somebody else has asked for the same since, and is to withdraw it now."""
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
        return len(nodes) // 2 + 1
    up = sum(node in alive for node in nodes)
    if require == "all_alive":
        return max(up, 1)
    if require == "majority_alive":
        return up // 2 + 1
    return assert_never(require)


def servable(require: Require, nodes: Collection[str], alive: Collection[str]) -> bool:
    """Whether enough of the nodes are up to meet the requirement."""
    return needed(require, nodes, alive) <= sum(node in alive for node in nodes)


def cannot_serve(lock_id: LockId, nodes: Collection[str], alive: Collection[str]) -> CannotServe:
    """The error that says so when they are not."""
    down = [node for node in nodes if node not in alive]
    return CannotServe(
        f"can't lock {show(lock_id)}: {', '.join(down)} {'is' if len(down) == 1 else 'are'} not "
        f"running (running: {', '.join(sorted(alive)) or 'none'}); use other nodes, or "
        "await_nodes=True to wait for these",
        lock_id=lock_id,
        nodes=down,
    )


def has_ended(agent: AgentId, reason: Exception | None) -> LocksError:
    """The error for who uses a transaction that has ended: the reason again, if there is one for it."""
    error: LocksError
    if isinstance(reason, (TransactionEnded, DeadlockAborted, LockLost)):
        error = anew(reason)
    else:
        why = "; begin a new one" if reason is None else f": {reason}"
        error = TransactionEnded(f"transaction {agent} has ended{why}", agent=agent)
    error.__cause__ = reason  # compiled code has no `from`
    return error


def unlocked_meanwhile(lock_id: LockId) -> NotHeld:
    """The error for who waits for a lock that somebody else who acts for the same client has released."""
    return NotHeld(
        f"{show(lock_id)} is not held: another call unlocked it in the same transaction while this call was waiting for it",
        lock_id=lock_id,
    )


def locks_lost(agent: AgentId, requests: Iterable[LockRequest], ended: bool = False) -> LockLost:
    """The error that says that an agent has lost locks.

    Args:
        agent: The agent.
        requests: Those that are lost.
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
