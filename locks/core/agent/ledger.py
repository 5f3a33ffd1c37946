"""What a client wants, and what was asked for it on which node.

What a client wants of one lock id is a `LockRequest`; on each node that is asked it has a `NodeRequest`
(`locks.core.agent.requests`). The `Ledger` keeps all lock requests of one agent: it asks lock servers,
takes in what they answer, and knows at any time which lock requests are held.

A lock server answers each `Release`. Until it has, what it tells of that id is taken in only if it
is about a request that is known and still wanted, because it may be about the one that was released;
and a new request for the id is held back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.gate import NOBODY, gate, is_held, is_held_beside, turns, waited_at
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

__all__ = ["Ledger", "Object"]

HIDDEN = 0  # the number of lock requests that are not the client's


class Ledger:
    """All lock requests of one agent.

    Args:
        agent: The agent.
        client: Name of its client.
        alive: The nodes whose lock servers are up.
        out: Where effects are put.
        resolver: What is to know what happens to the own requests.

    Attributes:
        alive: The nodes whose lock servers are up.
        requests: The lock requests, by lock id.
        open: Those that are not held.
        waiting: The own requests that wait, with what they are for.
        hidden: Requests that are not the client's, but stand for its waits (`locks.core.agent.hold_ups`).
        releasing: How many releases are not answered, by node and lock id.
        seq: Number of the last lock request.
        silent: The nodes that are up, and say nothing.
        standings: What lock servers were told last of what the agent has, and waits for, at others.
        used: The nodes that are asked for anything, by the number of node requests.
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
        # The node's own, not a copy, which compiled modules would make.
        self.alive = alive if isinstance(alive, frozenset) else frozenset(alive)
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

    def add(self, wanted: Object, queued: bool = False) -> Undo:
        """Take a lock request in; return what withdraws it, as far as there is anything new in it.

        Args:
            wanted: What is wanted.
            queued: Whether it is known that it has to wait at its gate: then only that is asked, if it is new.
        """
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
            if request.held:  # else those who wait for it would be told that they have it
                request.seq = self.seq
            before, request.mode = request.mode, join(request.mode, mode)
            undo = Undo(lock_id, request.mode, before)
            for node_request in request.node_requests.values():
                self._request(request, node_request)
        if queued and not request.node_requests:
            self._queue(request, nodes)
        for node in nodes:
            if node not in request.node_requests:
                node_request = request.node_requests[node] = NodeRequest(node)
                self._request(request, node_request, len(nodes) > 1)
        if undo.mode is None and len(nodes) == 1:  # nothing is known of it
            self.open[lock_id] = self._unacknowledged[lock_id] = request
        else:
            self._weigh(request)
        return undo

    def _queue(self, request: LockRequest, nodes: Iterable[str]) -> None:
        """Ask only the gate, if there is one that is up; the others when that has granted it."""
        for node in nodes:
            request.node_requests[node] = NodeRequest(node)
        first = gate(request, self.alive, self.silent)
        if first is None:
            request.node_requests.clear()
            return
        for each in request.node_requests.values():
            each.withdrawn = each is not first
        self._request(request, first)

    def add_told(self, wanted: Object, record: RequestRecord) -> Undo:
        """The same as `add` and `update`, of a new lock request on one node that was requested already."""
        lock_id, mode, _, require = wanted
        self.seq += 1
        request = self.requests[lock_id] = LockRequest(lock_id, mode, require, self.seq)
        node_request = request.node_requests[record.node] = NodeRequest(record.node)
        node_request.asked = mode
        self.used[record.node] = self.used.get(record.node, 0) + 1
        self._take_in(request, node_request, record)
        return Undo(lock_id)

    def hide(self, lock_id: LockId, mode: Mode) -> None:
        """Ask the own node for something that is hidden from the client."""
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

    def end(self) -> None:
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
        """Ask a lock server that is there (again) for what is wanted of it."""
        self.alive |= {node}
        for request in self.requests.values():
            if node in request.node_requests:
                if not request.node_requests[node].withdrawn:
                    spare = is_held_beside(request, self.alive, self.silent)
                    self._request(request, request.node_requests[node], spare=spare)
                self._weigh(request)

    def node_down(self, node: str) -> list[LockRequest]:
        """Forget what a lock server had granted that is gone; return what is lost by that."""
        given_up = {r.lock_id for r in self.requests.values() if self._is_given_up(r)}
        self.alive -= {node}
        self.silent -= {node}
        self.standings.pop(node, None)
        for slot in [slot for slot in self.releasing if slot[0] == node]:
            del self.releasing[slot]
        asked = [request for request in self.requests.values() if node in request.node_requests]
        return [each for each in asked if self._loses(each, node, each.lock_id in given_up)]

    def hear(self, silent: frozenset[str]) -> None:
        """These nodes say nothing; what waits for one of them as its gate waits for another one now."""
        changed = self.silent ^ silent
        self.silent = silent
        for request in list(self.requests.values()):
            if len(request.node_requests) > 1 and not changed.isdisjoint(request.node_requests):
                self._weigh(request)

    def _loses(self, request: LockRequest, node: str, given_up: bool) -> bool:
        """Forget what a lock request had on a node; whether its lock is lost by that.

        Args:
            request: The lock request.
            node: The node.
            given_up: Whether it was lost already by a surrender that is under way.
        """
        node_request = request.node_requests[node]
        self._forget_requests(request, node_request)
        self._unused(node_request)
        request.node_down(node)
        acknowledged = request.acknowledged
        self._weigh(request)
        if acknowledged is None:
            return False
        if request.acknowledged is not None and (given_up or not self._is_given_up(request)):
            return False
        request.lose((node,))
        self._unacknowledged[request.lock_id] = request
        return True

    # --- What lock servers answer ---------------------------------------------------------------

    def _own(self, lock_id: LockId) -> LockRequest | None:
        """The own request for a lock, the client's or a hidden one."""
        return self.requests.get(lock_id) or self.hidden.get(lock_id)

    def update(self, record: RequestRecord) -> bool:
        """Take in the present state of an own request; tell whether it is of interest to the client."""
        node, lock_id, mode = record.node, record.lock_id, record.mode
        request = self.requests.get(lock_id) or self._own(lock_id)
        node_request = request.node_requests.get(node) if request is not None else None
        if request is None or node_request is None:
            return False
        known = node_request.records.get(mode)
        if known is None or known.number != record.number:
            if self.releasing and (node, lock_id) in self.releasing:
                return False  # it may be the one that was released
        elif known.version > record.version:
            return False
        if self._unanswered:
            self._unanswered.pop((node, lock_id, mode), None)
        self._take_in(request, node_request, record)
        return request.seq != HIDDEN

    def _take_in(
        self, request: LockRequest, node_request: NodeRequest, record: RequestRecord
    ) -> None:
        """Take in what a lock server has told of an own request, whichever way."""
        if record.state == "granted":
            node_request.spare = False
        else:
            record = node_request.as_wanted(record)
        node_request.records[record.mode] = record
        if node_request.asked is None:  # or it is withdrawn, and the server can't release
            self._use(node_request, record.mode)
        if record.state == "waiting":
            self.waiting[record.node, record.number] = request
        elif self.waiting:
            self.waiting.pop((record.node, record.number), None)
        self._weigh(request)

    def may_be_released(self, record: RequestRecord) -> bool:
        """Whether a release is under way that may be of this own request."""
        own = self._own(record.lock_id)
        return (record.node, record.lock_id) in self.releasing and not (own and own.has(record))

    def released(self, message: Released) -> None:
        """A release was carried out; what is left there is as the message says."""
        slot = (message.node, message.lock_id)
        left = self.releasing.get(slot, 0) - 1
        if left > 0:
            self.releasing[slot] = left
            return
        self.releasing.pop(slot, None)
        request = self._own(message.lock_id)
        if request is not None and message.node in request.node_requests:
            node_request = request.node_requests[message.node]
            for record in message.records:
                self.update(record)
            if node_request.asked != request.mode and not node_request.withdrawn:
                self._request(request, node_request, spare=node_request.spare)

    def refused(self, node: str, lock_id: LockId) -> bool:
        """Drop a request that a lock server refuses; whether it is still wanted there."""
        request = self.requests.get(lock_id)
        asked = None if request is None else request.node_requests.get(node)
        if asked is None or asked.records or (node, lock_id) in self.releasing:
            return False
        self.drop(lock_id)
        return True

    def known(self, record: RequestRecord) -> RequestRecord:
        """What is to be known of an own request of which a lock server has told."""
        own = self._own(record.lock_id)
        asked = own.node_requests.get(record.node) if own is not None else None
        return record if asked is None else asked.as_wanted(record)

    def way_for(self, spare: RequestRecord) -> tuple[End, End] | None:
        """The edge for which to give way to a spare request, which an own grant keeps waiting.

        There is none if a lock is held by such a grant, or if it was given way for before: then the lock server has
        refused, and tells when there is another reason.
        """
        found: tuple[NodeRequest, RequestRecord] | None = None
        for request in self.requests.values():
            asked = request.node_requests.get(spare.node)
            if asked is not None and related(request.lock_id, spare.lock_id):
                for record in asked.records.values():
                    if record.state == "granted" and conflict(record, spare):
                        if request.held or request.acknowledged is not None:
                            return None
                        found = asked, record
        if found is None:
            return None
        there, grant = found
        ends = (spare.number, spare.since), (grant.number, grant.since)
        if ends in there.gave_way:
            return None
        there.gave_way = (*[each for each in there.gave_way if each[1] == ends[1]], ends)
        return ends

    def queues_for(self, lock_id: LockId) -> bool:
        """Whether a lock request waits at its gate."""
        request = self.open.get(lock_id)
        first = None if request is None else gate(request, self.alive, self.silent)
        if request is None or first is None:
            return False
        return first.waits(request.mode) or (first.node, lock_id, request.mode) in self._unanswered

    def postpone(self, answer: Surrendered) -> None:
        """Withdraw what was surrendered until all else is granted, if others wait for it: they would be blocked by it next."""
        node, lock_id = answer.node, answer.message.lock_id
        if any(r.agent != self._agent and r.state == "waiting" for r in answer.records) and any(
            not related(each.lock_id, lock_id) for each in self.waiting.values()
        ):
            for request in self.open.values():
                each = request.node_requests.get(node)
                if each is None or len(request.node_requests) > 1:
                    continue  # of several nodes the gate says when to ask
                if request.acknowledged is not None:
                    continue  # an upgrade: the client relies on what is granted of it
                if related(request.lock_id, lock_id) and each.waits(request.mode):
                    self._withdraw(request, each)

    def resume(self) -> None:
        """Nothing is waited for any more: request what was postponed."""
        for request in self.open.values():
            if len(request.node_requests) == 1:
                for each in request.node_requests.values():
                    if each.withdrawn:
                        self._request(request, each)

    def acknowledge(self, upto: int) -> None:
        """The client was told that it has all locks up to the lock request numbered `upto`."""
        for request in list(self._unacknowledged.values()):
            if request.held and request.seq <= upto:
                request.acknowledge(self.alive)
                del self._unacknowledged[request.lock_id]

    def tell_standing(self) -> None:
        """Tell each lock server what the agent does at the others, where that has changed."""
        if not self.standings and len(self.used) < 2:
            return
        several = len(self.used) > 1
        waits: Counter[str] | None = None
        if self.waiting:
            waits = Counter(waited_at(self.waiting, self.alive, self.silent))
        for node in self.used:
            standing = (several, waits is not None and waits.total() > waits[node])
            if self.standings.get(node, (False, False)) != standing:
                self.standings[node] = standing
                self._out.append(ToServer(node, StandingElsewhere(self._agent, *standing)))
        for node in self.standings.keys() - self.used.keys():
            del self.standings[node]

    # --- Questions ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request waits, or may turn out to wait."""
        return not (self.waiting or self._unanswered)

    def request(self, lock_id: LockId) -> LockRequest:
        """What was asked for on this id; raises `NotHeld` when nothing was."""
        try:
            return self.requests[lock_id]
        except KeyError:
            raise NotHeld(
                f"{self._agent} has neither locked nor requested {show(lock_id)}", lock_id=lock_id
            ) from None

    def unservable(self) -> LockRequest | None:
        """A lock request that the nodes that are up can't meet, if there is one; a lost one first."""
        found = None
        for request in self.open.values():
            if not servable(request.require, request.node_requests, self.alive):
                if request.lost is not None:
                    return request
                found = found or request
        return found

    def lost(self) -> list[LockRequest]:
        """What the client was told it has, and must not rely on any more."""
        return [request for request in self.requests.values() if self.is_lost(request)]

    def ending(self, missing: LockRequest) -> LocksError:
        """The reason for which the transaction ends when a lock request can't be granted any more."""
        if missing.lost is not None:
            missing.lose(node for node in missing.node_requests if node not in self.alive)
            return locks_lost(self._agent, self.lost(), ended=True)
        return cannot_serve(missing.lock_id, missing.node_requests, self.alive)

    def is_lost(self, request: LockRequest) -> bool:
        """Whether a lock request is lost, or may be: its surrender is under way."""
        return request.lost is not None or self._is_given_up(request)

    def is_sure(self, request: LockRequest) -> bool:
        """Whether what is granted is enough also without what is given up by surrenders that are under way."""
        given_up = self._resolver.given_up(request.lock_id)
        return request.serves(request.mode, self.alive, given_up)

    def _is_given_up(self, request: LockRequest) -> bool:
        if request.acknowledged is None or not self._resolver.giving_up:
            return False
        return not request.vouched_for(self.alive, self._resolver.given_up(request.lock_id))

    def is_acknowledged(self, edge: Edge) -> bool:
        """Whether yielding for this edge takes something that the client was told it has."""
        node, lock_id = edge.waiter.node, edge.waiter.lock_id
        return any(
            request.acknowledged is not None
            and related(request.lock_id, lock_id)
            and node in request.node_requests
            and not request.vouched_for(self.alive, (node,))
            for request in self.requests.values()
        )

    # --- Asking and releasing -------------------------------------------------------------------

    def _request(
        self,
        request: LockRequest,
        node_request: NodeRequest,
        several: bool = False,
        spare: bool = False,
    ) -> None:
        """Ask a node for what the lock request wants there, unless it is down or still releasing.

        Args:
            request: The lock request.
            node_request: What it wants of the node.
            several: Whether other nodes are asked at the same time.
            spare: Whether the agent does not wait for it.
        """
        node = node_request.node
        node_request.withdrawn = False
        node_request.spare = spare
        if spare:
            for mode, record in node_request.records.items():
                if record.state == "waiting":
                    node_request.records[mode] = record._replace(state="spare")
                    self._resolver.spare(node_request.records[mode])
                    self.waiting.pop(record.key, None)
        if node in self.alive and (node, request.lock_id) not in self.releasing:
            self._use(node_request, request.mode)
            self._unanswered[node, request.lock_id, request.mode] = None
            elsewhere = several or len(self.used) > 1
            waits = elsewhere and any(
                at != node for at in waited_at(self.waiting, self.alive, self.silent)
            )
            if elsewhere or node in self.standings:
                self.standings[node] = (elsewhere, waits)
            message = Request(
                self._agent, self._client, request.lock_id, request.mode, elsewhere, waits, spare
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
        """Requests on a node are no more: neither they nor answers to them are waited for."""
        gone = [record.key for mode, record in node_request.records.items() if mode in modes]
        for mode in modes:
            self._unanswered.pop((node_request.node, request.lock_id, mode), None)
        self._resolver.gone(gone)
        for key in gone:
            self.waiting.pop(key, None)

    def _use(self, node_request: NodeRequest, mode: Mode) -> None:
        """A node request is asked for in this mode."""
        if node_request.asked is None:
            self.used[node_request.node] = self.used.get(node_request.node, 0) + 1
        node_request.asked = mode

    def _unused(self, node_request: NodeRequest) -> None:
        """A node request is no more."""
        if node_request.asked is not None:
            self.used[node_request.node] -= 1
            if not self.used[node_request.node]:
                del self.used[node_request.node]

    def _withdraw(self, request: LockRequest, node_request: NodeRequest) -> None:
        """Give up what is not needed now, so that no agent yields for it; a held lock's grants stay."""
        node_request.withdrawn = True
        records = node_request.records.items() if request.held else ()
        granted = [mode for mode, record in records if record.state == "granted"]
        if granted:
            for mode in self._asked_modes(request, node_request):
                if mode not in granted:
                    self._release(request, node_request, mode)
        else:
            self._release(request, node_request)
        self._keep(node_request, granted)

    def downgrade(self, lock_id: LockId, mode: Mode, before: Mode) -> None:
        """Withdraw an upgrade to `mode`: what was asked for before is still wanted, and kept."""
        request = self.requests.get(lock_id)
        if request is not None and request.mode == mode:
            request.mode = before
            for node_request in request.node_requests.values():
                self._release(request, node_request, mode)
                kept = [m for m in self._asked_modes(request, node_request) if m != mode]
                self._keep(node_request, kept)
            self._weigh(request)

    def _asked_modes(self, request: LockRequest, node_request: NodeRequest) -> list[Mode]:
        """The modes in which there are requests on a node, as far as is known."""
        node, lock_id = node_request.node, request.lock_id
        return [
            mode
            for mode in MODES
            if mode in node_request.records or (node, lock_id, mode) in self._unanswered
        ]

    def _keep(self, node_request: NodeRequest, modes: list[Mode]) -> None:
        """The requests on a node are given up but for those in these modes."""
        node_request.records = {m: r for m, r in node_request.records.items() if m in modes}
        if node_request.asked is not None:
            if not modes:
                self._unused(node_request)
            node_request.asked = join(*modes) if modes else None

    def _weigh(self, request: LockRequest) -> None:
        """Find out whether a lock request is held, and keep account of it."""
        if len(request.node_requests) > 1:
            request.held = is_held(request, self.alive, self.silent)
        else:  # the same, and most are
            (only,) = request.node_requests.values()
            record = only.records.get(request.mode)
            granted = record is not None and record.state == "granted"
            request.held = granted or only.grant(request.mode) is not None
        if request.seq == HIDDEN:
            return
        if request.held:
            if self.open:
                self.open.pop(request.lock_id, None)
        else:
            self.open[request.lock_id] = request
        if request.acknowledged is not None and not request.as_acknowledged(self.alive):
            if request.held:
                request.rely(self.alive)  # on what was granted since
            else:
                request.lose()
        if request.acknowledged is None or not request.fully_acknowledged:
            self._unacknowledged[request.lock_id] = request
        if request.require != "all" and len(request.node_requests) > 1:
            self._take_turns(request)

    def _take_turns(self, request: LockRequest) -> None:
        """Request and withdraw what is to be from now on."""
        for each, turn in turns(request, self.alive, self.silent):
            if turn == "withdrawn":
                self._withdraw(request, each)
            else:
                self._request(request, each, spare=turn == "spare")
