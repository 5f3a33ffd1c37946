"""A slow, obvious lock table: lists, loops, and nothing kept that can be worked out.

`Oracle` takes the same operations as `locks.mvcc.table.LockStates`. It finds every deadlock by
looking at all paths; who the victims are it is told, and checks (`lose`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from locks.mvcc import (
    Aborted,
    Committed,
    Intent,
    LockState,
    Moved,
    Place,
    Request,
    Txn,
    TxnDeadlock,
)
from locks.mvcc.model import Update


@dataclass
class Ask:
    """A request."""

    number: int
    txn: Txn
    request: Request
    waits: tuple[Any, str] | None = None  # at which key, and as "reader" or "writer"
    skipped: tuple[Any, ...] = ()
    lost: bool = False


@dataclass
class Oracle:
    """The lock table."""

    holders: dict[Any, Txn] = field(default_factory=dict)
    strengths: dict[Any, str] = field(default_factory=dict)
    reserved: dict[Any, Ask] = field(default_factory=dict)
    queued: list[tuple[Any, Ask]] = field(default_factory=list)
    committed: dict[Any, int] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)
    ended: dict[Any, Any] = field(default_factory=dict)
    last: int = 0

    # --- Operations

    def scan(self, request: Request, txn: Txn, ask: Ask | None) -> tuple[bool, Ask] | None:
        """`scan_and_enqueue`; `None` if it is refused."""
        if request.wait != "block":
            return self.scan_without_wait(request, txn, ask)
        if ask is None:
            ask = self.ask(request, txn)
        ask.txn, ask.waits = txn, None
        for kind, key in self.meetings(request):
            if self.blocks(key, ask, kind):
                if kind == "writer" and (key, ask) not in self.queued:
                    self.queued.append((key, ask))
                ask.waits = (key, kind)
                return True, ask
            self.claim(key, ask, kind)
        return False, ask

    def scan_without_wait(
        self, request: Request, txn: Txn, ask: Ask | None
    ) -> tuple[bool, Ask] | None:
        """A scan with another policy than to block."""
        probe = Ask(self.last + 1 if ask is None else ask.number, txn, request)
        blocked = {key for kind, key in self.meetings(request) if self.blocks(key, probe, kind)}
        if blocked and request.wait == "error":
            return None
        if ask is None:
            ask = self.ask(request, txn)
        ask.txn, ask.skipped = txn, tuple(blocked)
        for kind, key in self.meetings(request):
            if not self.blocks(key, ask, kind):
                self.claim(key, ask, kind)
        return False, ask

    def ask(self, request: Request, txn: Txn) -> Ask:
        """A new request."""
        self.last += 1
        ask = Ask(self.last, txn, request)
        self.asks.append(ask)
        return ask

    def meetings(self, request: Request) -> list[tuple[str, Any]]:
        """At which keys in use a request is what, in the order of its scan."""
        return [
            (kind, key)
            for kind, spans in (("writer", request.writes), ("reader", request.reads))
            for span in spans
            for key in sorted({*self.holders, *self.reserved})
            if span.covers(key)
        ]

    def blocks(self, key: Any, ask: Ask, kind: str) -> bool:
        """Whether a request has to wait at a key."""
        me = ask.txn
        holder, reserver = self.holders.get(key), self.reserved.get(key)
        if holder is not None:
            if holder.id == me.id:
                return False
            seen = self.strengths[key] == "intent" and holder.timestamp <= me.timestamp
            return kind == "writer" or seen
        if reserver is None or kind == "reader" or reserver.txn.id == me.id:
            return False
        return reserver.number < ask.number

    def claim(self, key: Any, ask: Ask, kind: str) -> None:
        """A writer that need not wait takes a younger request's reservation."""
        reserver = self.reserved.get(key)
        if kind == "writer" and reserver is not None and reserver.txn.id != ask.txn.id:
            self.queued.append((key, reserver))
            self.reserve(key, ask)

    def discover(self, ask: Ask, intent: Intent) -> bool:
        """`add_discovered_lock`."""
        key, txn = intent
        if self.ended.get(txn.id) not in ("committed", "aborted"):
            self.hold(key, txn, "intent")
            writes = any(span.covers(key) for span in ask.request.writes)
            kind = "writer" if writes else "reader"
            if ask.request.wait == "block" and self.blocks(key, ask, kind):
                if writes and (key, ask) not in self.queued:
                    self.queued.append((key, ask))
                ask.waits = ask.waits or (key, kind)
        return ask.waits is not None

    def acquire(self, key: Any, txn: Txn, strength: str = "intent") -> None:
        """`acquire_lock`."""
        self.hold(key, txn, strength)

    def hold(self, key: Any, txn: Txn, strength: str) -> None:
        """Make a transaction the holder, or let its lock's timestamp and strength rise."""
        if key not in self.holders or strength == "intent":
            self.strengths[key] = strength
        if key in self.holders:
            if txn.timestamp > self.holders[key].timestamp:
                self.holders[key] = txn
                self.let_early_readers_go(key)
            return
        reserver = self.reserved.pop(key, None)
        if reserver is not None:
            self.queued.append((key, reserver))
        self.holders[key] = txn
        self.clear_way(key, txn)

    def dequeue(self, ask: Ask) -> None:
        """`dequeue`."""
        self.asks.remove(ask)
        ask.waits = None
        self.queued = [(k, a) for k, a in self.queued if a is not ask]
        for key in [k for k, a in self.reserved.items() if a is ask]:
            del self.reserved[key]
            self.free(key)

    def update(self, span: Any, update: Update) -> int:
        """`update_locks`."""
        me = update.txn
        mine = [k for k, h in self.holders.items() if h.id == me.id and span.covers(k)]
        if isinstance(update, Moved):
            mine = [k for k in mine if self.holders[k].timestamp < update.timestamp]
            for key in mine:
                self.holders[key] = self.holders[key]._replace(timestamp=update.timestamp)
                self.let_early_readers_go(key)
            return len(mine)
        self.end(me, "aborted" if isinstance(update, Aborted) else "committed")
        for key in mine:
            del self.holders[key]
            if isinstance(update, Committed) and self.strengths[key] == "intent":
                self.committed[key] = max(self.committed.get(key, 0), update.timestamp)
            self.free(key)
        return len(mine)

    # --- What follows

    def let_early_readers_go(self, key: Any) -> None:
        for ask in self.asks:
            if ask.waits == (key, "reader") and ask.txn.timestamp < self.holders[key].timestamp:
                ask.waits = None

    def free(self, key: Any) -> None:
        for ask in self.asks:
            if ask.waits == (key, "reader"):
                ask.waits = None
        queue = self.queue(key)
        if queue:
            self.reserve(key, queue[0])
        else:
            self.committed.pop(key, None)

    def reserve(self, key: Any, ask: Ask) -> None:
        self.reserved[key] = ask
        self.clear_way(key, ask.txn)

    def clear_way(self, key: Any, txn: Txn) -> None:
        """No request of this transaction has to wait here any more."""
        self.queued = [(k, a) for k, a in self.queued if k != key or a.txn.id != txn.id]
        for ask in self.asks:
            if ask.txn.id == txn.id and ask.waits == (key, "writer"):
                ask.waits = None

    def end(self, txn: Txn, how: Any) -> None:
        self.ended[txn.id] = how
        for ask in self.asks:
            if ask.txn.id == txn.id and ask.waits is not None:
                self.queued = [(k, a) for k, a in self.queued if a is not ask or k != ask.waits[0]]
                ask.waits, ask.lost = None, True

    def queue(self, key: Any) -> list[Ask]:
        return sorted((a for k, a in self.queued if k == key), key=lambda a: a.number)

    # --- Deadlocks

    def edges(self) -> set[tuple[Any, Any, Any]]:
        """Who waits for whom, and at which key."""
        found = set()
        for ask in self.asks:
            if ask.waits is None:
                continue
            key, kind = ask.waits
            others = [self.holders.get(key)]
            if kind == "writer":
                if key in self.reserved:
                    others.append(self.reserved[key].txn)
                queue = [a.txn for a in self.queue(key)]
                first = [txn.id for txn in queue].index(ask.txn.id)  # of its transaction
                others += queue[:first]
            found |= {(ask.txn.id, o.id, key) for o in others if o and o.id != ask.txn.id}
        return found

    def cycles(self) -> list[tuple[Any, ...]]:
        """All simple cycles of transactions, each beginning with its smallest id."""
        after: dict[Any, set[Any]] = {}
        for waiter, holder, _ in self.edges():
            after.setdefault(waiter, set()).add(holder)
        found = []
        paths: list[tuple[Any, ...]] = [(start,) for start in sorted(after)]
        for path in paths:
            for holder in sorted(after.get(path[-1], ())):
                if holder == path[0]:
                    found.append(path)
                elif holder > path[0] and holder not in path:
                    paths.append((*path, holder))
        return found

    def lose(self, report: TxnDeadlock, txns: dict[Any, Txn]) -> None:
        """Check what the table says about a deadlock, and carry it out.

        Args:
            report: The table's report.
            txns: All transactions.
        """
        for wait, following in zip(report.cycle, report.cycle[1:] + report.cycle[:1], strict=True):
            assert (wait.waiter.id, wait.holder.id, wait.key) in self.edges(), "no such edge"
            assert wait.holder.id == following.waiter.id, "no cycle"
        assert len(set(report.ids)) == len(report.cycle), "the same transaction twice"
        assert report.victim.id == report.ids[0]
        members = [txns[i] for i in report.ids]
        if all(txn.priority is not None for txn in members):
            lowest = min(txn.priority or 0 for txn in members)
            members = [txn for txn in members if txn.priority == lowest]
        ids: list[Any] = [txn.id for txn in members]
        assert report.victim.id == max(ids), "the wrong victim"
        self.end(report.victim, report)

    # --- What is seen

    def state(self, key: Any) -> LockState:
        def place(ask: Ask) -> Place:
            return Place(ask.number, ask.txn, ask.waits is not None and ask.waits[0] == key)

        reserver = self.reserved.get(key)
        readers = [a for a in self.asks if a.waits == (key, "reader")]
        return LockState(
            key,
            self.holders.get(key),
            None if reserver is None else place(reserver),
            tuple(place(a) for a in self.queue(key)),
            tuple(place(a) for a in sorted(readers, key=lambda a: a.number)),
            self.committed.get(key),
            self.strengths[key] if key in self.holders else None,  # type: ignore[arg-type]
        )
