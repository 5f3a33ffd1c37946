"""An agent's account of its lock requests.

A client's request for one lock id is a `LockRequest`. It has a `NodeRequest` for each node where it
is requested (`locks.core.agent.requests`). The `Ledger` keeps all lock requests of one agent. It
sends requests to lock servers, takes in their answers, and knows at any time which lock requests
are held.

A lock server answers each `Release`. Until the answer arrives, a record of that id may still be
about the released request. So the ledger takes in only records of requests that it knows and still
wants, and holds back new requests for the id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.gate import NOBODY, gate, is_wanted
from locks.core.agent.requests import (
    LockRequest,
    NodeRequest,
    Undo,
    cannot_serve,
    locks_lost,
    servable,
)
from locks.core.agent.terms import Object
from locks.core.messages import (
    AgentEffect,
    End,
    Release,
    Released,
    Remove,
    Request,
    StandingElsewhere,
    Surrendered,
    ToServer,
)
from locks.errors import LocksError, NotHeld
from locks.model import (
    MODES,
    AgentId,
    Edge,
    LockId,
    Mode,
    RequestKey,
    RequestRecord,
    conflict,
    covers,
    join,
    related,
    show,
)
from locks.ranges import replace

__all__ = ["Ledger", "Object"]

HIDDEN = 0  # the number of lock requests that are not the client's


class Ledger:
    """All lock requests of one agent.

    Args:
        agent: The agent.
        client: Name of its client.
        alive: The nodes whose lock servers are up.
        out: The list to which effects are appended.
        resolver: It is notified of what happens to the agent's requests.

    Attributes:
        alive: The nodes whose lock servers are up.
        requests: The client's lock requests, by lock id.
        open: Those that are not held.
        waiting: The lock requests of the agent's waiting request records.
        hidden: Lock requests that stand for the client's waits, and that it does not see
            (`locks.core.agent.hold_ups`).
        releasing: The number of unanswered releases, by node and lock id.
        seq: The number of the last lock request.
        silent: The nodes that are connected but do not answer.
        standings: The last standing that was sent to each lock server: whether the agent has
            requests elsewhere, and whether it waits elsewhere.
        used: The number of node requests sent to each node, for nodes that have any.
    """

    __slots__ = (
        *("_agent", "_client", "_out", "_resolver", "_unacknowledged", "_unanswered"),
        *("alive", "hidden", "open", "requests", "seq", "silent", "standings", "used"),
        *("releasing", "waiting"),
    )

    def __init__(
        self,
        agent: AgentId,
        client: str,
        alive: Iterable[str],
        out: list[AgentEffect],
        resolver: Resolver,
    ) -> None:
        self.alive = frozenset(alive)  # the node's own set, if it is one
        self.silent: frozenset[str] = NOBODY
        self.requests: dict[LockId, LockRequest] = {}
        self.open: dict[LockId, LockRequest] = {}
        self.waiting: dict[RequestKey, LockRequest] = {}
        self.hidden: dict[LockId, LockRequest] = {}
        self.seq = 0
        self._agent = agent
        self._client = client
        self._out = out
        self._resolver = resolver
        self._unacknowledged: dict[LockId, LockRequest] = {}
        self._unanswered: dict[tuple[str, LockId, Mode], None] = {}
        self.releasing: dict[tuple[str, LockId], int] = {}
        self.used: dict[str, int] = {}
        self.standings: dict[str, tuple[bool, bool]] = {}

    def add(self, wanted: Object) -> Undo:
        """Take a lock request in, and return how to withdraw the part of it that is new."""
        lock_id, mode, nodes, require = wanted
        request = self.requests.get(lock_id)
        if request is None:
            self.seq += 1
            request = self.requests[lock_id] = LockRequest(lock_id, mode, require, self.seq)
            undo = Undo(lock_id)
        elif covers(request.mode, mode):
            undo = Undo(lock_id, mode, mode)
        else:
            self.seq += 1
            if request.held:  # an open one keeps its number: earlier waits include it
                request.seq = self.seq
            before, request.mode = request.mode, join(request.mode, mode)
            undo = Undo(lock_id, request.mode, before)
        for node in nodes:
            if node not in request.node_requests:
                request.node_requests[node] = NodeRequest(node)
        if undo.mode is None and len(nodes) == 1:  # new, so nothing can be granted yet
            self.open[lock_id] = self._unacknowledged[lock_id] = request
            self._request(request, request.node_requests[nodes[0]])
        else:
            self._recompute_held(request)
        return undo

    def add_told(self, wanted: Object, record: RequestRecord) -> Undo:
        """Do the same as `add` and `update` for a new request on one node that is answered already."""
        lock_id, mode, _, require = wanted
        self.seq += 1
        request = self.requests[lock_id] = LockRequest(lock_id, mode, require, self.seq)
        node_request = request.node_requests[record.node] = NodeRequest(record.node)
        node_request.asked = mode
        self.used[record.node] = self.used.get(record.node, 0) + 1
        self._take_in(request, node_request, record)
        return Undo(lock_id)

    def hide(self, lock_id: LockId, mode: Mode) -> None:
        """Request something on the agent's own node that the client does not see."""
        request = self.hidden[lock_id] = LockRequest(lock_id, mode, "all", HIDDEN)
        node = self._agent.node
        request.node_requests[node] = NodeRequest(node)
        self._request(request, request.node_requests[node])

    def drop(self, lock_id: LockId) -> None:
        """Forget a lock request and release all its node requests."""
        request = self.requests.pop(lock_id, None) or self.hidden.pop(lock_id, None)
        if request is not None:
            for kept in (self.open, self._unacknowledged):
                kept.pop(lock_id, None)
            for node_request in request.node_requests.values():
                self._release(request, node_request)
                self._unused(node_request)

    def release_all(self) -> None:
        """Forget and release everything."""
        for node in self.used:
            self._out.append(ToServer(node, Remove(self._agent)))
        self.requests.clear()
        if self.open or self.hidden or self._unacknowledged:
            for kept in (self.open, self.hidden, self._unacknowledged):
                kept.clear()
        self.waiting.clear()
        self._unanswered.clear()

    def node_up(self, node: str) -> None:
        """Send the requests for a node to its lock server, which has come up."""
        self.alive |= {node}
        for request in self.requests.values():
            if node in request.node_requests:
                self._recompute_held(request)

    def node_down(self, node: str) -> list[LockRequest]:
        """Forget the grants of a node that is down; return the lock requests that are lost by that."""
        given_up = {r.lock_id for r in self.requests.values() if self._is_given_up(r)}
        self.alive -= {node}
        self.silent -= {node}
        self.standings.pop(node, None)
        for slot in [slot for slot in self.releasing if slot[0] == node]:
            del self.releasing[slot]
        asked = [request for request in self.requests.values() if node in request.node_requests]
        return [each for each in asked if self._loses(each, node, each.lock_id in given_up)]

    def hear(self, silent: frozenset[str]) -> None:
        """Note which nodes are silent; requests whose gate becomes silent get another gate."""
        changed = self.silent ^ silent
        self.silent = silent
        for request in list(self.requests.values()):
            if len(request.node_requests) > 1 and not changed.isdisjoint(request.node_requests):
                self._recompute_held(request)

    def _loses(self, request: LockRequest, node: str, given_up: bool) -> bool:
        """Forget a lock request's grants on a node; return whether its lock is lost by that.

        Args:
            request: The lock request.
            node: The node.
            given_up: Whether it was lost before, by a surrender that is under way.
        """
        node_request = request.node_requests[node]
        self._forget_requests(request, node_request)
        self._unused(node_request)
        request.node_down(node)
        acknowledged = request.acknowledged
        self._recompute_held(request)
        if acknowledged is None:
            return False
        if request.acknowledged is not None and (given_up or not self._is_given_up(request)):
            return False
        request.lose((node,))
        self._unacknowledged[request.lock_id] = request
        return True

    # --- Answers of lock servers ----------------------------------------------------------------

    def _own(self, lock_id: LockId) -> LockRequest | None:
        """The lock request for an id, the client's or a hidden one."""
        return self.requests.get(lock_id) or self.hidden.get(lock_id)

    def update(self, record: RequestRecord) -> bool:
        """Take in a record of the agent's own request; return whether it is news for the client."""
        node, lock_id, mode = record.node, record.lock_id, record.mode
        request = self.requests.get(lock_id) or self._own(lock_id)
        node_request = request.node_requests.get(node) if request is not None else None
        if request is None or node_request is None:
            return False
        latest = node_request.records.get(mode)
        if latest is None or latest.number != record.number:
            if self.releasing and (node, lock_id) in self.releasing:
                return False  # it may be about the released request
        elif latest.version > record.version:
            return False
        if self._unanswered:
            self._unanswered.pop((node, lock_id, mode), None)
        self._take_in(request, node_request, record)
        return request.seq != HIDDEN

    def _take_in(
        self, request: LockRequest, node_request: NodeRequest, record: RequestRecord
    ) -> None:
        """Take in a record of one of the agent's requests that is known to be current."""
        node_request.records[record.mode] = record
        if record.state == "waiting":
            self.waiting[record.node, record.number] = request
        elif self.waiting:
            self.waiting.pop((record.node, record.number), None)
        self._recompute_held(request)

    def may_be_released(self, record: RequestRecord) -> bool:
        """Whether an unanswered release may be of this request of the agent."""
        own = self._own(record.lock_id)
        return (record.node, record.lock_id) in self.releasing and not (own and own.has(record))

    def released(self, message: Released) -> None:
        """Take in the answer to a release, with the requests that are left on the id."""
        slot = (message.node, message.lock_id)
        left = self.releasing.get(slot, 0) - 1
        if left > 0:
            self.releasing[slot] = left
            return
        self.releasing.pop(slot, None)
        request = self._own(message.lock_id)
        if request is not None and message.node in request.node_requests:
            for record in message.records:
                self.update(record)
            self._recompute_held(request)

    def refused(self, node: str, lock_id: LockId, mode: Mode) -> bool:
        """Note that a lock server refuses a request; return whether the lock can't be had because of that.

        A lock that other nodes grant stays held. Its request there is repeated when it is needed.
        """
        slot = (node, lock_id, mode)
        if slot not in self._unanswered or (node, lock_id) in self.releasing:
            return False
        del self._unanswered[slot]
        request = self.requests.get(lock_id)
        return request is not None and request.mode == mode and not request.held

    def withdraw_refused(self, lock_id: LockId, mode: Mode) -> None:
        """Withdraw a refused request, unless that was done; what the client holds in a weaker mode stays."""
        request = self.requests.get(lock_id)
        if request is None or request.mode != mode:
            return
        if request.acknowledged is None:
            self.drop(lock_id)
        else:
            self.downgrade(lock_id, mode, request.acknowledged)

    def blocking(self, spare: RequestRecord) -> tuple[End, End] | None:
        """The edge from another agent's spare request to a grant by which this agent holds no lock."""
        blocking: RequestRecord | None = None
        for request in self.requests.values():
            asked = request.node_requests.get(spare.node)
            if asked is not None and related(request.lock_id, spare.lock_id):
                for record in asked.records.values():
                    if record.state == "granted" and conflict(record, spare):
                        if request.held or request.acknowledged is not None:
                            return None
                        blocking = record
        if blocking is None:
            return None
        return (spare.number, spare.since), (blocking.number, blocking.since)

    def surrendered(self, node: str, lock_id: LockId, done: bool, postpone: bool) -> None:
        """Take in a lock server's answer to a surrender of an id.

        A majority lock that is given up at one node is given up everywhere. Otherwise the agent
        would still hold it, and would have to give it up at one node after the other.

        Args:
            node: The node.
            lock_id: The id.
            done: Whether the requests there that are related to it were surrendered in a deadlock.
            postpone: Whether a majority lock is requested again only when all others are granted.
        """
        postpone = postpone and any(
            not related(each.lock_id, lock_id) for each in self.waiting.values()
        )
        for request in list(self.requests.values()):
            if not (related(request.lock_id, lock_id) and node in request.node_requests):
                continue
            if done and self._is_given_up_by(request, (node,)):
                request.held = False
                request.postponed = postpone
                if request.acknowledged is not None:
                    request.lose()
                for each in request.node_requests.values():
                    if each.node != node:
                        self._withdraw(request, each)
                records = request.node_requests[node].records
                for mode, record in records.items():
                    if record.state == "granted":
                        records[mode] = replace(record, state="waiting")
            self._recompute_held(request)

    def _is_given_up_by(self, request: LockRequest, nodes: Iterable[str]) -> bool:
        """Whether surrenders at these nodes give a majority lock up."""
        asked = request.node_requests
        return gate(request, self.alive, self.silent) is not None and any(
            record.state != "spare"
            for node in nodes
            if node in asked and node not in self.silent
            for record in asked[node].records.values()
        )

    def postpone(self, answer: Surrendered) -> None:
        """Withdraw surrendered requests of one node until all other requests are granted.

        This is done only if other agents wait for the surrendered id: the requests would be the
        next to block them.
        """
        node, lock_id = answer.node, answer.message.lock_id
        if any(r.agent != self._agent and r.state == "waiting" for r in answer.records) and any(
            not related(each.lock_id, lock_id) for each in self.waiting.values()
        ):
            for request in list(self.open.values()):
                if (
                    related(request.lock_id, lock_id)
                    and request.node_requests.keys() == {node}
                    and request.acknowledged is None  # an upgrade relies on its read lock
                    and request.node_requests[node].waits(request.mode)
                ):
                    request.postponed = True
                    self._adjust_node_requests(request)

    def resume(self) -> None:
        """Request what was postponed, if all else is held, and the agent is not held up."""
        if not all(request.postponed for request in self.open.values()):
            return
        if not any(request.seq == HIDDEN for request in self.waiting.values()):
            for request in self.open.values():
                request.postponed = False
                self._adjust_node_requests(request)

    def acknowledge(self, upto: int) -> None:
        """Note that the client was told that it holds all locks up to the number `upto`."""
        for request in list(self._unacknowledged.values()):
            if request.held and request.seq <= upto:
                request.acknowledge(self.alive)
                del self._unacknowledged[request.lock_id]

    def tell_standing(self) -> None:
        """Notify each lock server of the agent's standing at the others, if that has changed.

        As long as the agent waits for nothing, it makes no difference where it has requests.
        """
        if not self.standings and len(self.used) < 2:
            return
        several = len(self.used) > 1
        waits = Counter(node for node, _ in self.waiting) if self.waiting else None
        for node in self.used:
            standing = (several, waits is not None and waits.total() > waits[node])
            told = self.standings.get(node, (False, False))
            if told != standing and (self.waiting or told[1]):
                self.standings[node] = standing
                self._out.append(ToServer(node, StandingElsewhere(self._agent, *standing)))
        for node in self.standings.keys() - self.used.keys():
            del self.standings[node]

    # --- Questions ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request waits, and none is unanswered."""
        return not (self.waiting or self._unanswered)

    def request(self, lock_id: LockId) -> LockRequest:
        """The client's request for this id; raises `NotHeld` if there is none."""
        try:
            return self.requests[lock_id]
        except KeyError:
            raise NotHeld(
                f"{self._agent} has neither locked nor requested {show(lock_id)}", lock_id=lock_id
            ) from None

    def unservable(self) -> LockRequest | None:
        """An open lock request for which too few nodes are up, if there is any; a lost one first."""
        short = None
        for request in self.open.values():
            if not servable(request.require, request.node_requests, self.alive):
                if request.lost is not None:
                    return request
                short = short or request
        return short

    @property
    def waits_at(self) -> set[str]:
        """The nodes at which requests wait, or were not answered."""
        return {node for node, _ in self.waiting} | {node for node, _, _ in self._unanswered}

    def lost(self) -> list[LockRequest]:
        """The lock requests on which the client was told to rely, and must not rely any more."""
        return [request for request in self.requests.values() if self.is_lost(request)]

    def ending(self, missing: LockRequest) -> LocksError:
        """The error that ends the transaction when a lock request can't be granted any more."""
        if missing.lost is not None:
            missing.lose(node for node in missing.node_requests if node not in self.alive)
            return locks_lost(self._agent, self.lost(), ended=True)
        return cannot_serve(missing.lock_id, missing.node_requests, self.alive)

    def is_lost(self, request: LockRequest) -> bool:
        """Whether a lock request is lost, or may be lost because its surrender is under way."""
        return request.lost is not None or self._is_given_up(request)

    def is_sure(self, request: LockRequest) -> bool:
        """Whether enough is granted even without the grants that unanswered surrenders give up."""
        return request.serves(request.mode, self.alive, self._given_up(request))

    def _is_given_up(self, request: LockRequest) -> bool:
        if request.acknowledged is None or not self._resolver.giving_up:
            return False
        return not request.vouched_for(self.alive, self._given_up(request))

    def _given_up(self, request: LockRequest) -> Collection[str]:
        """The nodes whose grants unanswered surrenders give up."""
        return self._without(request, self._resolver.given_up(request.lock_id))

    def _without(self, request: LockRequest, nodes: Collection[str]) -> Collection[str]:
        """The nodes whose grants are given up by surrenders at these: of a majority lock, all of them.

        A silent node does not answer a surrender, so only its own grants count as gone.
        """
        return request.node_requests if self._is_given_up_by(request, nodes) else nodes

    def is_acknowledged(self, edge: Edge) -> bool:
        """Whether yielding for this edge gives up a lock that the client was told it holds."""
        node, lock_id = edge.waiter.node, edge.waiter.lock_id
        return any(
            request.acknowledged is not None
            and related(request.lock_id, lock_id)
            and node in request.node_requests
            and not request.vouched_for(self.alive, self._without(request, (node,)))
            for request in self.requests.values()
        )

    # --- Requesting and releasing ---------------------------------------------------------------

    def _request(self, request: LockRequest, node_request: NodeRequest) -> None:
        """Send a node request, unless its node is down or an earlier release there is unanswered."""
        node = node_request.node
        if node in self.alive and (node, request.lock_id) not in self.releasing:
            self._use(node_request, request.mode)
            self._unanswered[node, request.lock_id, request.mode] = None
            elsewhere = len(self.used) > 1
            waits = elsewhere and any(at != node for at, _ in self.waiting)
            if elsewhere or node in self.standings:
                self.standings[node] = (elsewhere, waits)
            message = Request(
                self._agent,
                self._client,
                request.lock_id,
                request.mode,
                elsewhere,
                waits,
                request.held,
            )
            self._out.append(ToServer(node, message))

    def _release(
        self, request: LockRequest, node_request: NodeRequest, mode: Mode | None = None
    ) -> None:
        self._forget_requests(request, node_request, MODES if mode is None else (mode,))
        if node_request.asked is not None:
            slot = (node_request.node, request.lock_id)
            self.releasing[slot] = self.releasing.get(slot, 0) + 1
            release = Release(self._agent, request.lock_id, mode)
            self._out.append(ToServer(node_request.node, release))

    def _forget_requests(
        self, request: LockRequest, node_request: NodeRequest, modes: Iterable[Mode] = MODES
    ) -> None:
        """Forget requests on a node that are gone, and the answers that were expected for them."""
        gone = [record.key for mode, record in node_request.records.items() if mode in modes]
        for mode in modes:
            self._unanswered.pop((node_request.node, request.lock_id, mode), None)
        self._resolver.gone(gone)
        for key in gone:
            self.waiting.pop(key, None)

    def _use(self, node_request: NodeRequest, mode: Mode) -> None:
        """Note that a node request was sent in this mode."""
        if node_request.asked is None:
            self.used[node_request.node] = self.used.get(node_request.node, 0) + 1
        node_request.asked = mode

    def _unused(self, node_request: NodeRequest) -> None:
        """Note that a node request is gone."""
        if node_request.asked is not None:
            self.used[node_request.node] -= 1
            if not self.used[node_request.node]:
                del self.used[node_request.node]

    def _withdraw(self, request: LockRequest, node_request: NodeRequest) -> None:
        """Withdraw a node request; a held lock keeps its grants, and an upgrade also what it upgrades."""
        asked = self._asked_modes(request, node_request)
        kept: list[Mode] = []
        if request.held or request.acknowledged is not None:
            records = node_request.records
            kept = [
                mode
                for mode in asked
                if (mode in records and records[mode].state == "granted")
                or (mode != request.mode and not request.held)
            ]
        if len(kept) == len(asked):
            return
        if kept:
            for mode in asked:
                if mode not in kept:
                    self._release(request, node_request, mode)
        else:
            self._release(request, node_request)
        self._keep(node_request, kept)

    def downgrade(self, lock_id: LockId, mode: Mode, before: Mode) -> None:
        """Withdraw an upgrade to `mode`, but keep the request in the mode `before`."""
        request = self.requests.get(lock_id)
        if request is not None and request.mode == mode:
            request.mode = before
            if request.acknowledged == mode:
                request.acknowledged = before
            for node_request in request.node_requests.values():
                self._release(request, node_request, mode)
                kept = [m for m in self._asked_modes(request, node_request) if m != mode]
                self._keep(node_request, kept)
            self._recompute_held(request)

    def _asked_modes(self, request: LockRequest, node_request: NodeRequest) -> list[Mode]:
        """The modes in which there are requests on a node, as far as known."""
        node, lock_id = node_request.node, request.lock_id
        return [
            mode
            for mode in MODES
            if mode in node_request.records or (node, lock_id, mode) in self._unanswered
        ]

    def _keep(self, node_request: NodeRequest, modes: list[Mode]) -> None:
        """Forget the requests on a node, except those in these modes."""
        node_request.records = {m: r for m, r in node_request.records.items() if m in modes}
        if node_request.asked is not None:
            if not modes:
                self._unused(node_request)
            node_request.asked = join(*modes) if modes else None

    def _recompute_held(self, request: LockRequest) -> None:
        """Recompute whether a lock request is held, and what follows from it."""
        request.held = request.serves(request.mode, self.alive)
        if request.seq != HIDDEN:
            self._note_held(request)
        if not (request.held and len(request.node_requests) == 1):
            self._adjust_node_requests(request)

    def _note_held(self, request: LockRequest) -> None:
        """Note whether a lock request is held, and whether the client may still rely on it."""
        if request.held:
            if self.open:
                self.open.pop(request.lock_id, None)
        else:
            self.open[request.lock_id] = request
        if request.acknowledged is not None and not request.as_acknowledged(self.alive):
            if request.held:
                request.rely(self.alive)  # on nodes that have granted it since
            else:
                request.lose()
        if request.acknowledged is None or not request.fully_acknowledged:
            self._unacknowledged[request.lock_id] = request

    def _adjust_node_requests(self, request: LockRequest) -> None:
        """Send the node requests that are wanted now, and withdraw those that are not.

        Nothing is changed on a node that has not answered a surrender of the lock.
        """
        mode = request.mode
        first = gate(request, self.alive, self.silent)
        in_doubt = self._resolver.given_up(request.lock_id)
        for node, each in request.node_requests.items():
            record = each.records.get(mode)
            if node in in_doubt:
                pass
            elif not is_wanted(request, each, first):
                self._withdraw(request, each)
            elif each.grant(mode) is not None:
                pass
            elif record is None:
                refused = not request.held and (node, request.lock_id, mode) not in self._unanswered
                if each.asked != mode or refused:
                    self._request(request, each)
            elif record.state == ("waiting" if request.held else "spare"):
                self._withdraw(request, each)
                self._request(request, each)
