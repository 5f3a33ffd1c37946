"""The search for deadlocks, a part in each turn, and the choice of their victims.

`Deadlocks.look` notes that new edges lead from a transaction or to it; `go_on` searches. A search is
for a cycle through that one transaction: breadth first along the edges, from one that waits to those it
waits for (`Waits.reach`). It costs what can be reached from there, and of a queue only those members that
wait elsewhere, too.

**A turn takes so many steps, and no more.** What is left of a search goes on in later turns: of
operations that look for deadlocks themselves, and of callers who wait. So a search may see the table
at several moments. It is right nevertheless:

* *It finds each deadlock.* None goes away by itself: as long as it is not resolved each of its edges
  stays, though perhaps from a place ahead to a reservation to a lock. So all of them are there
  whenever the search comes by. A transaction that gets more edges while a search for it is under way
  is searched for once more, after that one.
* *It reports no cycle that is none.* When it is back at its transaction it looks once more at all
  edges of the path, in one turn. If one is gone the search begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from locks.mvcc.model import Deadlock, Txn, TxnId, Wait
from locks.mvcc.records import Guard, KeyLock
from locks.mvcc.waiting import Waits

__all__ = ["STEPS", "Deadlocks", "choose_victim"]

STEPS = 200
"""How many edges one turn looks at."""

Path = dict[TxnId, Guard]
"""Through which request each transaction was reached."""


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
        self, waits: Waits, give_up: Callable[[Deadlock], object], steps: int = STEPS
    ) -> None:
        self.found = 0
        self._waits = waits
        self._give_up = give_up
        self._steps = steps
        self.searches: dict[TxnId, Iterator[Path | None]] = {}
        self._once_more: set[TxnId] = set()

    def look(self, txn_id: TxnId) -> None:
        """There may be new edges from a transaction, or to it."""
        if txn_id in self.searches:
            self._once_more.add(txn_id)
        elif self._waits.both_ways(txn_id):
            self.searches[txn_id] = self._search(txn_id)

    def go_on(self) -> Deadlock | None:
        """Search, as far as one turn goes; return the last deadlock that was found."""
        report, left = None, self._steps
        while self.searches and left > 0:
            txn_id, search = next(iter(self.searches.items()))
            for path in search:
                left -= 1
                if path is not None:
                    cycle = self._cycle(txn_id, path)
                    left -= len(cycle)
                    if cycle:
                        report = self._resolve(cycle)
                    break
                if left <= 0:
                    return report
            else:
                del self.searches[txn_id]
                if txn_id not in self._once_more:
                    continue
                self._once_more.discard(txn_id)
            if self._waits.both_ways(txn_id):
                self.searches[txn_id] = self._search(txn_id)  # there may be another one
            else:
                self.searches.pop(txn_id, None)
        return report

    def _search(self, txn_id: TxnId) -> Iterator[Path | None]:
        """Yield `None` for each step, and then the path if the search has come back."""
        parties = self._waits.parties
        path: Path = {}
        told: dict[KeyLock, int] = {}
        todo = [party for party in (parties.get(txn_id),) if party is not None]
        for party in todo:
            for guard in tuple(party.waits):
                for other in self._waits.reach(guard, txn_id, told):
                    if other == txn_id:
                        path[other] = guard
                        yield path
                        return
                    if other not in path:
                        path[other] = guard
                        next_party = parties.get(other)
                        if next_party is not None and next_party.waits:
                            todo.append(next_party)
                    yield None

    def _cycle(self, txn_id: TxnId, path: Path) -> tuple[Wait, ...]:
        """The edges of a path as they are now; none if one of them is gone."""
        cycle: list[Wait] = []
        other = txn_id
        while not cycle or other != txn_id:
            guard = path[other]
            edge = self._waits.edge(guard, other)
            if edge is None:
                return ()
            cycle.append(edge)
            other = guard.txn.id
        return tuple(reversed(cycle))

    def _resolve(self, cycle: tuple[Wait, ...]) -> Deadlock:
        """Choose the victim of a cycle, and give it up."""
        txns = [self._waits.parties[wait.waiter.id].txn for wait in cycle]
        victim, rule = choose_victim(txns)
        begin = [wait.waiter.id for wait in cycle].index(victim.id)
        report = Deadlock(victim, cycle[begin:] + cycle[:begin], rule)
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
