"""What a client wants, and what was asked for it on which node.

A client's wish for one lock id is a `Wish`; on each node that is asked it has a `Claim`
(`locks.core.agent.requests`). `Claims` are all wishes of one agent: it asks lock servers, takes in what they
answer, and knows at any time which wishes are held.

A lock server answers each `Release`. Until it has, what it tells of that id is taken in only if it
is about a request that is known and still wanted, because it may be about the one that was released;
and a new request for the id is held back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.requests import Claim, Wish, cannot_serve, servable
from locks.core.messages import AgentEffect, Release, Released, Remove, Request, Standing, ToServer
from locks.errors import ConflictingRequest, NotHeld
from locks.model import (
    MODES,
    AgentId,
    Edge,
    LockId,
    Mode,
    RequestKey,
    RequestRecord,
    Require,
    related,
    show,
)

__all__ = ["Claims", "Object"]

Object = tuple[LockId, Mode, tuple[str, ...], Require]


class Claims:
    """All wishes of one agent.

    Args:
        agent: The agent.
        client: Name of its client.
        alive: The nodes whose lock servers are up.
        out: Where effects are put.
        resolver: Who is to know what happens to the own requests.

    Attributes:
        alive: The nodes whose lock servers are up.
        wishes: The wishes, by lock id.
        open: Those that are not held.
        waiting: The own requests that wait.
        needless: The wishes that are held, and for which requests still wait elsewhere.
        seq: Number of the last wish.
    """

    __slots__ = (
        "_agent",
        "_client",
        "_out",
        "_releasing",
        "_resolver",
        "_standings",
        "_unanswered",
        "_unclaimed",
        "_used",
        "alive",
        "needless",
        "open",
        "seq",
        "waiting",
        "wishes",
    )

    def __init__(
        self,
        agent: AgentId,
        client: str,
        alive: Iterable[str],
        out: list[AgentEffect],
        resolver: Resolver,
    ) -> None:
        self.alive = set(alive)
        self.wishes: dict[LockId, Wish] = {}
        self.open: dict[LockId, Wish] = {}
        self.waiting: dict[RequestKey, None] = {}
        self.needless: dict[LockId, Wish] = {}
        self.seq = 0
        self._agent = agent
        self._client = client
        self._out = out
        self._resolver = resolver
        self._unclaimed: dict[LockId, Wish] = {}
        self._unanswered: dict[tuple[str, LockId, Mode], None] = {}
        self._releasing: dict[tuple[str, LockId], int] = {}
        self._used: dict[str, int] = {}  # the nodes that were asked, by the number of claims
        self._standings: dict[str, tuple[bool, bool]] = {}  # what they were told last

    def check(self, objects: Iterable[Object], await_nodes: bool) -> None:
        """Whether wishes can be taken in, one after the other.

        Raises:
            ConflictingRequest: An id was asked for before on other terms.
            CannotServe: Too few of the nodes are up, and they are not to be awaited.
        """
        asked: dict[LockId, tuple[Mode, set[str], Require]] = {}
        for lock_id, mode, nodes, require in objects:
            wish = self.wishes.get(lock_id)
            if wish is not None:
                asked.setdefault(lock_id, (wish.mode, set(wish.claims), wish.require))
            before = asked.get(lock_id)
            if before is not None:
                upgrade = mode == "write" and before[0] == "read"
                if require != before[2] or (upgrade and not before[1] <= set(nodes)):
                    raise ConflictingRequest(
                        f"{show(lock_id)} was asked for before on {', '.join(sorted(before[1]))} "
                        f"with require={before[2]!r}; now it is asked for on {', '.join(nodes)} "
                        f"with require={require!r}. Unlock it first, or ask on the same terms",
                        lock_id=lock_id,
                    )
            if not await_nodes and not servable(require, nodes, self.alive):
                raise cannot_serve(lock_id, nodes, self.alive)
            if before is not None:
                asked[lock_id] = (max(mode, before[0]), before[1] | set(nodes), require)
            else:
                asked[lock_id] = (mode, set(nodes), require)

    def add(self, wanted: Object) -> Callable[[], None] | None:
        """Take a wish in; return what withdraws it, if there is anything new in it."""
        lock_id, mode, nodes, require = wanted
        wish = self.wishes.get(lock_id)
        undo = None
        several = len(nodes) > 1
        if wish is None:
            self.seq += 1
            wish = self.wishes[lock_id] = Wish(lock_id, mode, require, self.seq)
            undo = partial(self.drop, lock_id)
        elif mode == "write" and wish.mode == "read":
            self.seq += 1
            wish.seq = self.seq
            wish.mode = mode
            undo = partial(self._downgrade, lock_id)
            for claim in wish.claims.values():
                self._request(wish, claim)
        for node in nodes:
            if node not in wish.claims:
                claim = wish.claims[node] = Claim(node)
                self._request(wish, claim, several)
        self._weigh(wish)
        return undo

    def drop(self, lock_id: LockId) -> None:
        """Forget a wish and release all its claims."""
        wish = self.wishes.pop(lock_id, None)
        if wish is not None:
            for kept in (self.open, self.needless, self._unclaimed):
                kept.pop(lock_id, None)
            for claim in wish.claims.values():
                self._release(wish, claim)
                self._unused(claim)

    def end(self) -> None:
        """Forget and release everything."""
        self._resolver.gone(self.waiting)
        self._out += [ToServer(node, Remove(self._agent)) for node in self._used]
        for wishes in (self.wishes, self.open, self.needless, self._unclaimed):
            wishes.clear()
        self.waiting.clear()
        self._unanswered.clear()

    def node_up(self, node: str) -> None:
        """Ask a lock server that is there (again) for what is wanted of it."""
        self.alive.add(node)
        for wish in self.wishes.values():
            if node in wish.claims:
                self._request(wish, wish.claims[node])
                self._weigh(wish)

    def node_down(self, node: str) -> list[Wish]:
        """Forget what a lock server had granted that is gone; return what is lost by that."""
        lost: list[Wish] = []
        given_up = {wish.lock_id for wish in self.wishes.values() if self._is_given_up(wish)}
        self.alive.discard(node)
        self._standings.pop(node, None)
        for slot in [slot for slot in self._releasing if slot[0] == node]:
            del self._releasing[slot]
        for wish in list(self.wishes.values()):
            claim = wish.claims.get(node)
            if claim is not None:
                taken = [record.key for record in claim.records]
                self._resolver.gone(taken)
                for key in taken:
                    self.waiting.pop(key, None)
                for mode in MODES:
                    self._unanswered.pop((node, wish.lock_id, mode), None)
                self._unused(claim)
                wish.node_down(node)
                claimed = wish.claimed
                self._weigh(wish)
                more = wish.lock_id not in given_up and self._is_given_up(wish)
                if claimed is not None and (wish.claimed is None or more):
                    lost.append(wish)
                    wish.lose((node,))
                    self._unclaimed[wish.lock_id] = wish
        return lost

    # --- What lock servers answer ---------------------------------------------------------------

    def told(self, record: RequestRecord) -> bool:
        """Take in the present state of an own request; tell whether it was of interest."""
        node, lock_id = record.node, record.lock_id
        wish = self.wishes.get(lock_id)
        claim = wish.claims.get(node) if wish is not None else None
        if wish is None or claim is None:
            return False
        known = claim.write if record.mode == "write" else claim.read
        if known is None or known.number != record.number:
            if (node, lock_id) in self._releasing:
                return False  # it may be the one that was released
        elif known.version > record.version:
            return False
        self._unanswered.pop((node, lock_id, record.mode), None)
        if claim.asked is None:  # a server that can't release has withdrawn nothing
            self._use(claim, record.mode)
        if record.mode == "write":
            claim.write = record
        else:
            claim.read = record
        if record.state == "waiting":
            self.waiting[record.key] = None
        else:
            self.waiting.pop(record.key, None)
        self._weigh(wish)
        return True

    def released(self, message: Released) -> None:
        """A release was carried out; what is left there is as the message says."""
        slot = (message.node, message.lock_id)
        left = self._releasing.get(slot, 0) - 1
        if left > 0:
            self._releasing[slot] = left
            return
        self._releasing.pop(slot, None)
        wish = self.wishes.get(message.lock_id)
        if wish is not None and message.node in wish.claims:
            claim = wish.claims[message.node]
            for record in message.records:
                self.told(record)
            if claim.asked != wish.mode and not claim.withdrawn:
                self._request(wish, claim)

    def withdraw(self) -> None:
        """Do not wait where that is not needed for somebody who waits: one of them might yield."""
        for wish in self.needless.values():
            for claim in wish.claims.values():
                waits = not claim.withdrawn and claim.waits(wish.mode)
                if waits and any(map(self._resolver.waits_for_waiters, claim.records)):
                    self._withdraw(wish, claim)

    def claim(self, upto: int) -> None:
        """The client was told that it has all locks up to the wish numbered `upto`."""
        for wish in [w for w in self._unclaimed.values() if w.held and w.seq <= upto]:
            wish.claim(self.alive)
            del self._unclaimed[wish.lock_id]

    def tell_standing(self) -> None:
        """Tell each lock server what the agent does at the others, where that has changed."""
        if not self._standings and len(self._used) < 2:
            return
        waits = Counter(node for node, _ in self.waiting)
        for node in self._used:
            standing = (len(self._used) > 1, len(self.waiting) > waits[node])
            if self._standings.get(node, (False, False)) != standing:
                self._standings[node] = standing
                self._out.append(ToServer(node, Standing(self._agent, *standing)))
        for node in self._standings.keys() - self._used.keys():
            del self._standings[node]

    # --- Questions ------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        """The nodes that are asked for anything."""
        return list(self._used)

    @property
    def idle(self) -> bool:
        """Whether no request waits, or may turn out to wait."""
        return not (self.waiting or self._unanswered)

    def wish(self, lock_id: LockId) -> Wish:
        """What was asked for on this id; raises `NotHeld` when nothing was."""
        try:
            return self.wishes[lock_id]
        except KeyError:
            raise NotHeld(
                f"{show(lock_id)} is neither held nor asked for by {self._agent}", lock_id=lock_id
            ) from None

    def unservable(self) -> Wish | None:
        """A wish that can't be met by the nodes that are up, if there is one: rather a lost one."""
        found = None
        for wish in self.open.values():
            if not servable(wish.require, wish.claims, self.alive):
                if wish.lost is not None:
                    return wish
                found = found or wish
        return found

    def lost(self) -> list[Wish]:
        """What the client was told it has, and must not rely on any more."""
        return [wish for wish in self.wishes.values() if self.is_lost(wish)]

    def is_lost(self, wish: Wish) -> bool:
        """Whether a wish is lost, or may be: its surrender is under way."""
        return wish.lost is not None or self._is_given_up(wish)

    def _is_given_up(self, wish: Wish) -> bool:
        if wish.claimed is None or not self._resolver.surrendering:
            return False
        nodes = self._resolver.given_up(wish.lock_id)
        return not wish.vouched_for(self.alive, nodes)

    def claimed(self, edge: Edge) -> bool:
        """Whether yielding for this edge takes something that the client was told it has."""
        node, lock_id = edge.waiter.node, edge.waiter.lock_id
        return any(
            wish.claimed is not None
            and related(wish.lock_id, lock_id)
            and node in wish.claims
            and not wish.vouched_for(self.alive, (node,))
            for wish in self.wishes.values()
        )

    # --- Asking and releasing -------------------------------------------------------------------

    def _request(self, wish: Wish, claim: Claim, several: bool = False) -> None:
        """Ask a node for what the wish wants there, unless it is down or still releasing.

        With `several`, other nodes are asked at the same time.
        """
        node = claim.node
        claim.withdrawn = False
        if node in self.alive and (node, wish.lock_id) not in self._releasing:
            self._use(claim, wish.mode)
            self._unanswered[node, wish.lock_id, wish.mode] = None
            requests = several or len(self._used) > 1
            waits = requests and any(key[0] != node for key in self.waiting)
            if requests or node in self._standings:
                self._standings[node] = (requests, waits)
            request = Request(self._agent, self._client, wish.lock_id, wish.mode, requests, waits)
            self._out.append(ToServer(node, request))

    def _release(self, wish: Wish, claim: Claim, mode: Mode | None = None) -> None:
        for each in MODES if mode is None else (mode,):
            self._unanswered.pop((claim.node, wish.lock_id, each), None)
        given_up = [r.key for r in claim.records if mode is None or r.mode == mode]
        self._resolver.gone(given_up)
        for key in given_up:
            self.waiting.pop(key, None)
        if claim.asked is not None:
            slot = (claim.node, wish.lock_id)
            self._releasing[slot] = self._releasing.get(slot, 0) + 1
            self._out.append(ToServer(claim.node, Release(self._agent, wish.lock_id, mode)))

    def _use(self, claim: Claim, mode: Mode) -> None:
        """A claim is asked for in this mode."""
        if claim.asked is None:
            self._used[claim.node] = self._used.get(claim.node, 0) + 1
        claim.asked = mode

    def _unused(self, claim: Claim) -> None:
        """A claim is no more."""
        if claim.asked is not None:
            self._used[claim.node] -= 1
            if not self._used[claim.node]:
                del self._used[claim.node]

    def _withdraw(self, wish: Wish, claim: Claim) -> None:
        """Give up waiting for what is not needed: nobody should yield for it.

        What is granted there is kept, such as a read lock that was to become a write lock.
        """
        claim.withdrawn = True
        if any(record.state == "granted" for record in claim.records):
            self._release(wish, claim, "write")
            claim.asked = "read"
        else:
            self._release(wish, claim)
            self._unused(claim)
            claim.asked = claim.read = None
        claim.write = None

    def _downgrade(self, lock_id: LockId) -> None:
        """Withdraw an upgrade: what was read before is still wanted, and kept where granted."""
        wish = self.wishes.get(lock_id)
        if wish is not None and wish.mode == "write":
            wish.mode = "read"
            for claim in wish.claims.values():
                self._release(wish, claim, "write")
                unread = (
                    claim.read is None and (claim.node, lock_id, "read") not in self._unanswered
                )
                if claim.asked is not None and unread:  # only the write lock was asked for there
                    self._unused(claim)
                    claim.asked = None
                elif claim.asked is not None:
                    claim.asked = "read"
                claim.write = None
            self._weigh(wish)

    def _weigh(self, wish: Wish) -> None:
        """Find out whether a wish is held, and keep account of it."""
        wish.held = wish.serves(wish.mode, self.alive)
        if wish.held:
            self.open.pop(wish.lock_id, None)
        else:
            self.open[wish.lock_id] = wish
        if len(wish.claims) > 1 and wish.require != "all":
            self.needless.pop(wish.lock_id, None)
            for claim in wish.claims.values():
                if wish.held and claim.waits(wish.mode):
                    self.needless[wish.lock_id] = wish
                elif claim.withdrawn and not wish.held:
                    self._request(wish, claim)
        if wish.claimed is not None and not wish.as_claimed(self.alive):
            if wish.held:
                wish.rely(self.alive)  # on what was granted since
            else:
                wish.lose()
        if not wish.fully_claimed:
            self._unclaimed[wish.lock_id] = wish
