"""The search for deadlocks, a part in each turn, and the choice of their victims.

`Deadlocks.search_from` notes that a transaction has new edges; `go_on` searches. A search looks for a
cycle through that transaction. It is a breadth-first search along the edges, from waiting
transactions to those that they wait for. Its cost depends on the transactions that can be reached;
of a queue, only members that also wait elsewhere count.

**The number of steps in a turn is bounded.** A search continues in later turns: of operations that
look for deadlocks themselves, and of callers that wait. So a search may see the table in several
states. It is correct nevertheless:

* *It finds each deadlock.* No deadlock disappears by itself. Until it is resolved each of its edges
  remains, although its reason may change: from a place ahead in the queue to a reservation, or to a
  lock. So all edges exist whenever the search looks at them. If a transaction gets more edges
  during a search for it, another search follows.
* *It reports no false cycle.* When it is back at its transaction, it looks again at all edges of
  the path, in one turn. If one is gone, the search begins again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from locks.mvcc.model import Txn, TxnDeadlock, TxnId, TxnWait
from locks.mvcc.records import Guard, KeyLock, by_number
from locks.mvcc.waiting import ActiveTxn, Waits

__all__ = ["STEPS", "Deadlocks", "choose_victim"]

STEPS = 120
"""How many edges one turn looks at."""


class Search:
    """The state of a search for a cycle through one transaction.

    Attributes:
        path: The request through which each transaction was reached.
        told: For each lock, the number of the last roaming request that was looked at.
        todo: The requests to look at, in order.
        done: How many of them were looked at.
    """

    __slots__ = ("done", "path", "todo", "told")

    def __init__(self, txn_state: ActiveTxn) -> None:
        self.path: dict[TxnId, Guard] = {}
        self.told: dict[KeyLock, int] = {}
        self.todo = list(txn_state.waits)
        self.done = 0


class Deadlocks:
    """The searches that are under way.

    Args:
        waits: The wait-for graph.
        give_up: Called with each deadlock: its victim has to abort.
        steps: How many edges one turn looks at.

    Attributes:
        found: How many deadlocks were found so far.
        searches: The searches that are not over, by their transactions.
    """

    def __init__(
        self, waits: Waits, give_up: Callable[[TxnDeadlock], object], steps: int = STEPS
    ) -> None:
        self.found = 0
        self.searches: dict[TxnId, Search] = {}
        self._waits = waits
        self._give_up = give_up
        self._steps = steps
        self._left = 0  # how many edges this turn may still look at
        self._once_more: set[TxnId] = set()

    def search_from(self, txn_id: TxnId) -> None:
        """There may be new edges from a transaction, or to it."""
        if self._waits.both_ways(txn_id):
            if txn_id in self.searches:
                self._once_more.add(txn_id)
            else:
                self.searches[txn_id] = Search(self._waits.active[txn_id])

    def go_on(self) -> TxnDeadlock | None:
        """Search, as far as one turn goes; return the last deadlock that was found."""
        report, self._left = None, self._steps
        while self.searches and self._left > 0:
            txn_id, search = next(iter(self.searches.items()))
            again = True  # if there is a cycle there may be another one
            if self._comes_back(txn_id, search):
                cycle = self._cycle(txn_id, search.path)
                if cycle:
                    self._left -= len(cycle)
                    report = self._resolve(cycle)
                    again = report.victim.id != txn_id
            elif search.done < len(search.todo):
                break
            else:
                again = txn_id in self._once_more
            del self.searches[txn_id]
            if self._once_more:
                self._once_more.discard(txn_id)
            if again:
                self.search_from(txn_id)
        return report

    def _comes_back(self, txn_id: TxnId, search: Search) -> bool:
        """Go on with a search; return whether it has come back to its transaction."""
        active, path, todo = self._waits.active, search.path, search.todo
        target = active.get(txn_id)
        if target is None or not target.waits:  # it stopped waiting meanwhile
            todo.clear()
            search.done = 0
            return False
        while search.done < len(todo) and self._left > 0:
            guard = todo[search.done]
            lock = guard.waits_at
            if lock is None:
                search.done += 1
                self._left -= 1
                continue
            holder = lock.holder
            reached = [self._waits.front(lock).id if holder is None else holder.id]
            if not (lock.roaming or lock in target.places) or self._look_ahead(
                guard, lock, target, search.told, reached
            ):
                search.done += 1
            self._left -= len(reached)
            for other in reached:
                if other not in path:
                    path[other] = guard
                    if other == txn_id:
                        return True
                    txn_state = active.get(other)
                    if txn_state is not None:
                        todo += txn_state.waits
        return False

    def _look_ahead(
        self,
        guard: Guard,
        lock: KeyLock,
        target: ActiveTxn,
        told: dict[KeyLock, int],
        reached: list[TxnId],
    ) -> bool:
        """Add the requests ahead in the queue that matter to a search.

        These are the requests of the transaction that is searched for, and the roaming ones, as
        many as this turn may look at.

        Returns:
            Whether these are all.
        """
        if lock not in guard.places:
            return True  # it reads
        first = self._waits.active[guard.txn.id].places[lock][0].number
        theirs = target.places.get(lock)
        if theirs is not None and theirs[0].number < first:
            reached.append(target.txn.id)
        begin = bisect_left(lock.roaming, told.get(lock, 0), key=by_number)
        end = bisect_left(lock.roaming, first, key=by_number)
        some = lock.roaming[begin : min(end, begin + self._left)]
        if some:
            told[lock] = some[-1].number + 1
            reached += [other.txn.id for other in some]
        return begin + len(some) >= end

    def _cycle(self, txn_id: TxnId, path: dict[TxnId, Guard]) -> tuple[TxnWait, ...]:
        """The edges of a path as they are now; none if one of them is gone."""
        cycle: list[TxnWait] = []
        other = txn_id
        while not cycle or other != txn_id:
            guard = path[other]
            edge = self._waits.edge(guard, other)
            if edge is None:
                return ()
            cycle.append(edge)
            other = guard.txn.id
        return tuple(reversed(cycle))

    def _resolve(self, cycle: tuple[TxnWait, ...]) -> TxnDeadlock:
        """Choose the victim of a cycle, and end its waits."""
        txns = [self._waits.active[wait.waiter.id].txn for wait in cycle]
        victim, rule = choose_victim(txns)
        begin = [wait.waiter.id for wait in cycle].index(victim.id)
        report = TxnDeadlock(victim, cycle[begin:] + cycle[:begin], rule)
        self.found += 1
        self._give_up(report)
        return report


def choose_victim(txns: list[Txn]) -> tuple[Txn, str]:
    """Choose the victim: the lowest priority if all have one, otherwise the largest id.

    Returns:
        The victim, and the rule in words.
    """
    priorities = [txn.priority for txn in txns if txn.priority is not None]
    rule = "it has the largest reference of the cycle"
    if len(priorities) == len(txns):
        lowest = min(priorities)
        txns = [txn for txn in txns if txn.priority == lowest]
        if len(txns) == 1:
            return txns[0], "it has the lowest priority of the cycle"
        rule = "it has the largest reference of those with the lowest priority"
    victim = txns[0]
    for txn in txns:
        if txn.id > victim.id:  # type: ignore[operator]
            victim = txn
    return victim, rule
