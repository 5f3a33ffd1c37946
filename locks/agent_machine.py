"""The transaction's agent as a pure state machine: events in, effects out.

An agent asks lock servers for the locks that its client wants, tells the client when it has them,
and finds and resolves deadlocks together with the agents that it meets. Each method is an event
and returns what is to be done; a call that is refused raises before anything is changed. It knows
no clock, no actor and no network; the actor around it is `locks.agent`.

What the client wants is kept as `locks.wishes`. What it does about deadlocks is in `locks.resolver`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Literal

from locks.errors import (
    AgentEnded,
    ConflictingRequest,
    DeadlockAborted,
    InvalidOption,
    LocksError,
    NotHeld,
)
from locks.messages import (
    AgentEffect,
    AgentMessage,
    Answer,
    Ended,
    Knowledge,
    Notify,
    Release,
    Released,
    Remove,
    Request,
    Resolved,
    Standing,
    Surrender,
    Surrendered,
    Told,
    ToServer,
)
from locks.model import (
    MODES,
    AgentId,
    Deadlock,
    Edge,
    LockId,
    LockInfo,
    LockResult,
    Mode,
    Notification,
    RequestKey,
    RequestRecord,
    Require,
    Status,
    related,
    show,
)
from locks.resolver import Resolver
from locks.wishes import Claim, Wait, Wish, cannot_serve, servable

__all__ = ["AgentMachine", "Flag", "Object"]

Flag = Literal["abort_on_deadlock", "await_nodes", "monitor_nodes", "notify"]
Object = tuple[LockId, Mode, tuple[str, ...], Require]
FLAGS: tuple[Flag, ...] = ("abort_on_deadlock", "await_nodes", "monitor_nodes", "notify")


class AgentMachine:
    """One transaction's agent.

    Args:
        agent: Its reference.
        client: Name of its client, for people.
        alive: The nodes whose lock servers are up; kept up to date by `node_up`, `node_down`.
        abort_on_deadlock: Abort instead of surrendering a lock that the client was told it has.
        await_nodes: Wait for nodes that are needed and down, instead of aborting.
        monitor_nodes: Notify the client of lock servers that come and go.
        notify: Notify the client of lock infos and changes of status.
    """

    def __init__(
        self,
        agent: AgentId,
        client: str,
        alive: Iterable[str],
        *,
        abort_on_deadlock: bool = False,
        await_nodes: bool = False,
        monitor_nodes: bool = False,
        notify: bool = False,
    ) -> None:
        self.id = agent
        self.client = client
        self.alive = set(alive)
        self.abort_on_deadlock = abort_on_deadlock
        self.await_nodes = await_nodes
        self.monitor_nodes = monitor_nodes
        self.notify = notify
        self.deadlocks: list[Deadlock] = []
        self.ended: Ended | None = None
        self._out: list[AgentEffect] = []
        self._seq = 0
        self._wishes: dict[LockId, Wish] = {}
        self._open: dict[LockId, Wish] = {}  # wishes that are not held
        self._unclaimed: dict[LockId, Wish] = {}
        self._waits: dict[Hashable, Wait] = {}
        self._last_status: Status = "no_locks"
        self._releasing: dict[tuple[str, LockId], int] = {}
        self._waiting: dict[RequestKey, None] = {}  # own requests that wait
        self._unanswered: dict[tuple[str, LockId, Mode], None] = {}  # and those that may
        self._used: dict[str, int] = {}  # the nodes that are asked, and how many claims are there
        self._standings: dict[str, tuple[bool, bool]] = {}  # what they were told last
        self._resolver = Resolver(agent, self._out)

    # --- The client's calls ---------------------------------------------------------------------

    def ask(
        self,
        lock_id: LockId,
        mode: Mode,
        nodes: tuple[str, ...],
        require: Require,
        wait: Hashable | None = None,
    ) -> list[AgentEffect]:
        """Ask for a lock; the same as `ask_all` for one."""
        return self.ask_all(((lock_id, mode, nodes, require),), wait)

    def ask_all(self, objects: Iterable[Object], wait: Hashable | None = None) -> list[AgentEffect]:
        """Ask for locks; with `wait`, answer when these and all earlier wishes are held.

        Raises:
            ConflictingRequest: An id was asked for before with another requirement, or an
                upgrade names other nodes.
            CannotServe: Too few of the nodes are up, and `await_nodes` is off.
        """
        self.check_alive()
        objects = list(objects)
        for lock_id, mode, nodes, require in objects:
            self._check(lock_id, mode, nodes, require)
        undo = [self._add(*wanted) for wanted in objects]
        if wait is not None:
            self._waits[wait] = Wait(self._seq, [each for each in undo if each is not None])
        return self._conclude()

    def _add(
        self, lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require
    ) -> Callable[[], None] | None:
        """Take a wish in; return what withdraws it, if it is new."""
        wish = self._wishes.get(lock_id)
        undo = None
        if wish is None:
            self._seq += 1
            wish = self._wishes[lock_id] = Wish(lock_id, mode, require, self._seq)
            undo = partial(self._drop, lock_id)
        elif mode == "write" and wish.mode == "read":
            self._seq += 1
            wish.seq = self._seq
            wish.mode = mode
            undo = partial(self._downgrade, lock_id)
            for claim in wish.claims.values():
                self._request(wish, claim)
        for node in nodes:
            if node not in wish.claims:
                claim = wish.claims[node] = Claim(node)
                self._used[node] = self._used.get(node, 0) + 1
                self._request(wish, claim)
        self._weigh(wish)
        if not wish.claimed:
            self._unclaimed[lock_id] = wish
        return undo

    def await_all(self, wait: Hashable) -> list[AgentEffect]:
        """Answer `wait` when everything asked for so far is held; at once if nothing was."""
        self.check_alive()
        self._waits[wait] = Wait(self._seq, [])
        return self._conclude()

    def abandon(self, wait: Hashable) -> list[AgentEffect]:
        """A client gave up waiting: withdraw what only this wait was for."""
        waiting = self._waits.pop(wait, None)
        if waiting is not None:
            for undo in waiting.undo:
                undo()
        return self._conclude()

    def unlock(self, lock_id: LockId) -> list[AgentEffect]:
        """Release a lock, or cancel the request for it, before the transaction ends.

        Raises:
            NotHeld: The transaction has not asked for this id.
        """
        self.check_alive()
        self.wish(lock_id)
        self._drop(lock_id)
        return self._conclude()

    def surrender(
        self, lock_id: LockId, other: AgentId, nodes: tuple[str, ...]
    ) -> list[AgentEffect]:
        """Give up a lock on the client's own wish, and stand last behind all who wait for it.

        Raises:
            NotHeld: The transaction doesn't hold it on all of these nodes.
        """
        self.check_alive()
        wish = self.wish(lock_id)
        for node in nodes:
            claim = wish.claims.get(node)
            if claim is None or claim.granted is None:
                raise NotHeld(
                    f"{show(lock_id)} on {node} is not held by {self.id}: there is nothing to "
                    f"surrender to {other}",
                    lock_id=lock_id,
                    node=node,
                )
        for node in nodes:
            self._resolver.surrender(node, Surrender(self.id, lock_id))
        return self._conclude()

    def set_flag(self, flag: Flag, value: bool) -> list[AgentEffect]:
        """Change an option; switching `notify` on tells the present status at once.

        Raises:
            InvalidOption: There is no such flag, or the value is not a bool.
        """
        self.check_alive()
        if flag not in FLAGS or not isinstance(value, bool):
            raise InvalidOption(
                f"can't set flag {flag!r} to {value!r}; flags are {', '.join(FLAGS)}, "
                "and their values True or False",
                flag=repr(flag),
            )
        setattr(self, flag, value)
        if flag == "notify" and value:
            self._notify_status()
        return self._conclude()

    def end(self, reason: LocksError | None = None) -> list[AgentEffect]:
        """End the transaction; everything is released, and whoever waits is told the reason."""
        if self.ended is None:
            error = reason or AgentEnded(f"transaction {self.id} was ended", agent=self.id)
            for wait in self._waits:
                self._out.append(Answer(wait, error))
            self._waits.clear()
            self._resolver.gone(self._waiting)
            self._resolver.cease()
            self._out += [ToServer(node, Remove(self.id)) for node in self._used]
            self.ended = Ended(reason)
            self._out.append(self.ended)
            self._wishes.clear()
            self._open.clear()
            self._unclaimed.clear()
            self._waiting.clear()
            self._unanswered.clear()
        return self._flush()

    # --- What comes from others -----------------------------------------------------------------

    def receive(self, message: AgentMessage) -> list[AgentEffect]:
        """Take in a message from a lock server or an agent; `settle` is to follow."""
        if self.ended is None:
            if type(message) is Told:
                self._told(message)
            elif type(message) is Knowledge:
                self._resolver.learn_from(message, self._waiting, len(self._wishes) == 1)
            elif type(message) is Surrendered:
                self._surrendered(message)
            elif type(message) is Resolved:
                self.deadlocks.append(message.report)
            elif type(message) is Released:
                self._released(message)
        return self._conclude()

    def node_up(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is there (again)."""
        if self.ended is None and node not in self.alive:
            self.alive.add(node)
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodeup", node)))
            for wish in self._wishes.values():
                if node in wish.claims:
                    self._request(wish, wish.claims[node])
                    self._weigh(wish)
        return self._conclude()

    def node_down(self, node: str) -> list[AgentEffect]:
        """The lock server of a node is gone, and with it all that it had granted."""
        if self.ended is None and node in self.alive:
            self.alive.discard(node)
            self._standings.pop(node, None)
            self._resolver.node_down(node)
            for key in [key for key in self._releasing if key[0] == node]:
                del self._releasing[key]
            if self.monitor_nodes:
                self._out.append(Notify(Notification(self.id, "nodedown", node)))
            for wish in list(self._wishes.values()):
                claim = wish.claims.get(node)
                if claim is not None:
                    for record in claim.records:
                        self._waiting.pop(record.key, None)
                    for mode in MODES:
                        self._unanswered.pop((node, wish.lock_id, mode), None)
                    wish.claims[node] = Claim(node)
                    self._weigh(wish)
            if not (self.await_nodes or self._all_servable()):
                lost = next(w for w in self._open.values() if not self._servable(w))
                return self.end(cannot_serve(lost.lock_id, lost.claims, self.alive))
        return self._conclude()

    def settle(self) -> list[AgentEffect]:
        """All that had arrived is taken in: look for deadlocks, yield or pass on."""
        if self.ended is None:
            self._resolver.settle(self._claimed, self.abort_on_deadlock)
        return self._flush()

    # --- Questions ------------------------------------------------------------------------------

    @property
    def unsettled(self) -> bool:
        """Whether `settle` has something to do."""
        return self._resolver.unsettled

    def status(self) -> Status:
        """The status of the transaction."""
        if not self._wishes:
            return "no_locks"
        if self._resolver.surrendering:  # what is held is known when that is answered
            return "waiting"
        if not self._open:
            return "have_all_locks"
        return "waiting" if self._all_servable() else "cannot_serve"

    def tell_status(self) -> LockResult:
        """Status and deadlocks so far; a client that is told that it has all locks claims them."""
        status = self.status()
        if status == "have_all_locks":
            self._claim(self._seq)
        return LockResult(status, self._reports())

    def lock_info(self) -> list[LockInfo]:
        """All locks asked for."""
        return [wish.info() for wish in self._wishes.values()]

    def token(self, lock_id: LockId) -> int:
        """The fencing token of a lock that is held.

        Raises:
            NotHeld: It is not held.
            InvalidOption: It was asked for on several nodes.
        """
        self.check_alive()
        wish = self.wish(lock_id)
        if len(wish.claims) > 1:
            raise InvalidOption(
                f"{show(lock_id)} was asked for on {len(wish.claims)} nodes; "
                "a fencing token exists for a lock on one node",
                lock_id=lock_id,
            )
        (claim,) = wish.claims.values()
        if not wish.held or claim.granted is None:
            raise NotHeld(
                f"{show(lock_id)} is asked for but not held: it has no fencing token yet",
                lock_id=lock_id,
            )
        return claim.granted.since

    def wish(self, lock_id: LockId) -> Wish:
        """What was asked for on this id; raises `NotHeld` when nothing was."""
        try:
            return self._wishes[lock_id]
        except KeyError:
            raise NotHeld(
                f"{show(lock_id)} is neither held nor asked for by {self.id}", lock_id=lock_id
            ) from None

    def holds(self, lock_id: LockId) -> bool:
        """Whether this very id was asked for and is held."""
        wish = self._wishes.get(lock_id)
        return wish is not None and wish.held

    def check_alive(self) -> None:
        """Raise the reason for which the transaction ended, if it has."""
        if self.ended is not None:
            reason = self.ended.reason
            if isinstance(reason, DeadlockAborted):
                raise DeadlockAborted(str(reason), deadlock=reason.deadlock) from reason
            raise AgentEnded(
                f"transaction {self.id} has ended"
                + (f": {reason}" if reason is not None else "; begin a new one"),
                agent=self.id,
            ) from reason

    # --- Wishes and claims ----------------------------------------------------------------------

    def _check(self, lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require) -> None:
        wish = self._wishes.get(lock_id)
        if wish is not None:
            upgrade = mode == "write" and wish.mode == "read"
            if require != wish.require or (upgrade and not wish.claims.keys() <= set(nodes)):
                raise ConflictingRequest(
                    f"{show(lock_id)} was asked for before on {', '.join(wish.claims)} with "
                    f"require={wish.require!r}; now it is asked for on {', '.join(nodes)} with "
                    f"require={require!r}. Unlock it first, or ask on the same terms",
                    lock_id=lock_id,
                )
        if not self.await_nodes and not servable(require, nodes, self.alive):
            raise cannot_serve(lock_id, nodes, self.alive)

    def _request(self, wish: Wish, claim: Claim) -> None:
        """Ask a node for what the wish wants there, unless it is down or still releasing."""
        node = claim.node
        if node in self.alive and (node, wish.lock_id) not in self._releasing:
            claim.asked = wish.mode
            self._unanswered[node, wish.lock_id, wish.mode] = None
            request = Request(self.id, self.client, wish.lock_id, wish.mode)
            self._out.append(ToServer(node, request))

    def _release(self, wish: Wish, claim: Claim, mode: Mode | None = None) -> None:
        for each in MODES if mode is None else (mode,):
            self._unanswered.pop((claim.node, wish.lock_id, each), None)
        given_up = [r.key for r in claim.records if mode is None or r.mode == mode]
        self._resolver.gone(given_up)
        for key in given_up:
            self._waiting.pop(key, None)
        if claim.asked is not None:
            slot = (claim.node, wish.lock_id)
            self._releasing[slot] = self._releasing.get(slot, 0) + 1
            self._out.append(ToServer(claim.node, Release(self.id, wish.lock_id, mode)))

    def _drop(self, lock_id: LockId) -> None:
        """Forget a wish and release all its claims."""
        wish = self._wishes.pop(lock_id, None)
        if wish is not None:
            self._open.pop(lock_id, None)
            self._unclaimed.pop(lock_id, None)
            for node, claim in wish.claims.items():
                self._release(wish, claim)
                self._used[node] -= 1
                if not self._used[node]:
                    del self._used[node]

    def _downgrade(self, lock_id: LockId) -> None:
        """Withdraw an upgrade: what was read before is still wanted, and kept where granted."""
        wish = self._wishes.get(lock_id)
        if wish is not None and wish.mode == "write":
            wish.mode = "read"
            for claim in wish.claims.values():
                self._release(wish, claim, "write")
                if claim.asked is not None:
                    claim.asked = "read"
                claim.write = None
            self._weigh(wish)

    def _weigh(self, wish: Wish) -> None:
        """Find out whether a wish is held, and keep account of it."""
        if wish.weigh(self.alive):
            self._open.pop(wish.lock_id, None)
        else:
            self._open[wish.lock_id] = wish
            if wish.claimed:
                wish.claimed = False
                self._unclaimed[wish.lock_id] = wish

    # --- Taking in ------------------------------------------------------------------------------

    def _told(self, message: Told) -> None:
        me = self.id
        others = []
        if any(record.agent == me and record.state == "waiting" for record in message.records):
            self._resolver.begin()
        for record in message.records:
            if record.agent == me:
                self._own(record)
            else:
                others.append(record)
        if others and not self._idle():
            for record in others:
                self._resolver.learn(record)

    def _own(self, record: RequestRecord) -> None:
        """Take in the present state of an own request."""
        node, lock_id = record.node, record.lock_id
        wish = self._wishes.get(lock_id)
        claim = wish.claims.get(node) if wish is not None else None
        if wish is None or claim is None or (node, lock_id) in self._releasing:
            return
        self._unanswered.pop((node, lock_id, record.mode), None)
        known = claim.write if record.mode == "write" else claim.read
        if known is not None and known.version > record.version:
            return
        if record.mode == "write":
            claim.write = record
        else:
            claim.read = record
        if record.state == "waiting":
            self._waiting[record.key] = None
        else:
            self._waiting.pop(record.key, None)
        self._resolver.learn(record)
        self._weigh(wish)
        if self.notify:
            self._out.append(Notify(Notification(self.id, "lock_info", record)))

    def _released(self, message: Released) -> None:
        key = (message.node, message.lock_id)
        left = self._releasing.get(key, 0) - 1
        if left > 0:
            self._releasing[key] = left
            return
        self._releasing.pop(key, None)
        wish = self._wishes.get(message.lock_id)
        if wish is not None and message.node in wish.claims:
            claim = wish.claims[message.node]
            for record in message.records:
                self._own(record)
            if claim.asked != wish.mode:
                self._request(wish, claim)

    def _surrendered(self, message: Surrendered) -> None:
        self._resolver.surrendered(message)
        report = message.message.report
        if message.done and report is not None and report.action == "aborted":
            text = (
                f"transaction {self.id} was aborted to resolve a deadlock; run it again.\n{report}"
            )
            self._out += self.end(DeadlockAborted(text, deadlock=report))

    def _claimed(self, edge: Edge) -> bool:
        """Whether yielding for this edge takes something that the client was told it has."""
        node, lock_id = edge.waiter.node, edge.waiter.lock_id
        return any(
            wish.claimed and node in wish.claims and related(wish.lock_id, lock_id)
            for wish in self._wishes.values()
        )

    # --- Telling the client ---------------------------------------------------------------------

    def _idle(self) -> bool:
        """Whether no request waits, or may be found to wait."""
        return not (self._waiting or self._unanswered or self._resolver.surrendering)

    def _servable(self, wish: Wish) -> bool:
        return servable(wish.require, wish.claims, self.alive)

    def _all_servable(self) -> bool:
        return all(self._servable(wish) for wish in self._open.values())

    def _conclude(self) -> list[AgentEffect]:
        """After each event: answer those whose wait is over, and say what has changed."""
        if self.ended is None:
            if self._idle():
                self._resolver.cease()
            if self._waits and not self._resolver.surrendering:
                self._answer()
            if self.notify and self.status() != self._last_status:
                self._notify_status()
            if self._standings or len(self._used) > 1:
                self._tell_standing()
        return self._flush()

    def _answer(self) -> None:
        upto = min((wish.seq - 1 for wish in self._open.values()), default=self._seq)
        done = [wait for wait, waiting in self._waits.items() if waiting.upto <= upto]
        if done:
            result = LockResult("have_all_locks" if self._wishes else "no_locks", self._reports())
            for wait in done:
                del self._waits[wait]
                self._out.append(Answer(wait, result))
            self._claim(upto)

    def _claim(self, upto: int) -> None:
        """The client was told that it has all locks up to `upto`."""
        for wish in [w for w in self._unclaimed.values() if w.held and w.seq <= upto]:
            wish.claimed = True
            del self._unclaimed[wish.lock_id]

    def _reports(self) -> tuple[Deadlock, ...]:
        return tuple(self.deadlocks)

    def _notify_status(self) -> None:
        status = self._last_status = self.status()
        value = None
        if status == "have_all_locks":
            value = self._reports()
            self._claim(self._seq)
        self._out.append(Notify(Notification(self.id, status, value)))

    def _tell_standing(self) -> None:
        """Tell each lock server what this agent does at the others, where that has changed."""
        waits = Counter(node for node, _ in self._waiting)
        for node in self._used:
            standing = (len(self._used) > 1, len(self._waiting) > waits[node])
            if self._standings.get(node, (False, False)) != standing:
                self._standings[node] = standing
                self._out.append(ToServer(node, Standing(self.id, *standing)))
        for node in self._standings.keys() - self._used.keys():
            del self._standings[node]

    def _flush(self) -> list[AgentEffect]:
        out = self._out[:]
        self._out.clear()
        return out
