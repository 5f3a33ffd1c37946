"""Who can be starved: queues that are ordered by several rules, of which the original's README speaks.

Clients come again and again. Each requests its objects one after the other, holds all of them, and ends. A
client need not come back, but who holds all that it wants ends sooner or later, and who has been granted
a lock requests the next one. There are no messages: everybody sees all queues, and a circle is resolved
before anything else happens. What is left is what a rule does to those who wait:

* `joins`: where a new request is put: at the end (`"last"`), or behind the holder by reference
  (`"sorted"`), the smallest first.
* `yields`: where the one with the largest reference in a circle is put: at the end (`"last"`), by
  reference (`"sorted"`), behind the next one (`"swap"`), or at the first place at which it waits for nobody
  behind it (`"computed"`), which it can compute if it knows all queues in which it stands.
* `numbers`: how many references there are. They are assigned in turn, and again when their holders have
  ended. 0 stands for as many as are needed: then a reference says how old its client is.
* `patience`: how many others may be served before a client that waits requests all again, with a new
  reference. 0 stands for any number.

The rule `ours` has its queues from our own lock table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from locks.core.server.table import LockTable
from locks.model import AgentId
from locks_lab.explorer.starving import Starved, explored, starved

__all__ = ["RULES", "SMALL", "Judged", "QueueRule", "Turns", "judge", "tell"]

Kind = Literal["comes", "asks", "ends", "yields", "restarts"]
Move = tuple[Kind, int]
Queues = tuple[tuple[int, ...], ...]


class QueueRule(NamedTuple):
    """A rule for queues; see the head of this module."""

    name: str
    about: str
    joins: Literal["last", "sorted"] = "last"
    yields: Literal["last", "sorted", "swap", "computed"] = "last"
    numbers: int = 0
    patience: int = 0
    ours: bool = False


class State(NamedTuple):
    """A state of all clients.

    Attributes:
        refs: The reference of each client; -1 of one that is away.
        asked: How many of its objects each client has requested.
        queues: The clients in the queue of each object; the first one holds it.
        missed: How many others were served while the client waited.
        next: The reference that is assigned next.
    """

    refs: tuple[int, ...]
    asked: tuple[int, ...]
    queues: Queues
    missed: tuple[int, ...]
    next: int


class Turns:
    """The model of a rule, with clients that want the objects of `claims`, each in this order."""

    def __init__(self, rule: QueueRule, claims: Sequence[str]) -> None:
        self.rule = rule
        self.objects = sorted(set("".join(claims)))
        self.claims = [[self.objects.index(each) for each in wanted] for wanted in claims]

    def start(self) -> State:
        """All are away."""
        none = (0,) * len(self.claims)
        return State((-1,) * len(none), none, ((),) * len(self.objects), none, 0)

    def moves(self, state: State) -> Sequence[Move]:
        """A circle is resolved first, and who has lost patience starts again."""
        if circle := self._yields(state):
            return [("yields", circle[0])]
        clients = range(len(self.claims))
        if self.rule.patience:
            for client in clients:
                if state.missed[client] >= self.rule.patience:
                    return [("restarts", client)]
        found: list[Move] = []
        for client in clients:
            if state.refs[client] < 0:
                found.append(("comes", client))
            elif client in self.obliged(state):
                all_ = state.asked[client] == len(self.claims[client])
                found.append(("ends" if all_ else "asks", client))
        return found

    def after(self, state: State, move: Move) -> State:
        """The state after a move."""
        kind, client = move
        if kind == "comes":
            state = self._asks(self._numbered(state, client), client)
        elif kind == "asks":
            state = self._asks(state, client)
        elif kind == "yields":
            _, wanted = self._yields(state) or (client, -1)
            state = self._moved(state, client, wanted)
        else:
            queues = tuple(tuple(c for c in queue if c != client) for queue in state.queues)
            missed = state.missed
            if kind == "ends":
                missed = tuple(n + (bool(self.rule.patience) and self._waits(state, c))
                               for c, n in enumerate(missed))  # fmt: skip
            state = State(
                _put(state.refs, client, -1), _put(state.asked, client, 0), queues,
                _put(missed, client, 0), state.next,
            )  # fmt: skip
            if kind == "restarts":
                state = self._asks(self._numbered(state, client), client)
        return self._ranked(state)

    # --- For `starved`

    def who(self, move: Move) -> int:
        """The client of a move."""
        return move[1]

    def waiting(self, state: State) -> list[int]:
        """Those who have come, and have not ended."""
        return [client for client, ref in enumerate(state.refs) if ref >= 0]

    def obliged(self, state: State) -> list[int]:
        """Those who hold all that they have requested."""
        return [c for c in self.waiting(state) if not self._waits(state, c)]

    # --- Inside

    def _waits(self, state: State, client: int) -> bool:
        return any(client in queue[1:] for queue in state.queues)

    def _numbered(self, state: State, client: int) -> State:
        """It gets the next reference that nobody has."""
        number = state.next
        while number in state.refs:
            number = self._following(number)
        return state._replace(refs=_put(state.refs, client, number), next=self._following(number))

    def _following(self, number: int) -> int:
        return (number + 1) % self.rule.numbers if self.rule.numbers else number + 1

    def _ranked(self, state: State) -> State:
        """If references only grow, nothing but their order counts."""
        if self.rule.numbers:
            return state
        order = sorted(ref for ref in state.refs if ref >= 0)
        ranks = tuple(order.index(ref) if ref >= 0 else -1 for ref in state.refs)
        return state._replace(refs=ranks, next=len(order))

    def _asks(self, state: State, client: int) -> State:
        wanted = self.claims[client][state.asked[client]]
        queue = state.queues[wanted]
        if self.rule.ours:
            queue = self._ours(state, wanted, client)
        else:
            queue = self._placed(state, queue, client, self.rule.joins)
        return state._replace(
            asked=_put(state.asked, client, state.asked[client] + 1),
            queues=_put(state.queues, wanted, queue),
        )

    def _placed(
        self, state: State, queue: tuple[int, ...], client: int, where: Literal["last", "sorted"]
    ) -> tuple[int, ...]:
        if where == "last" or not queue:
            return (*queue, client)
        return (queue[0], *sorted((*queue[1:], client), key=state.refs.__getitem__))

    def _ours(self, state: State, wanted: int, client: int) -> tuple[int, ...]:
        """The queue of our own lock table after a request, or a surrender by one that is in it."""
        agents = [AgentId(ref + 1, "n1", c) for c, ref in enumerate(state.refs)]
        table, lock_id = LockTable(), (self.objects[wanted],)
        for each in state.queues[wanted]:
            table.request(agents[each], "", lock_id, "write")
        if client in state.queues[wanted]:
            table.surrender(agents[client], lock_id)
        else:
            table.request(agents[client], "", lock_id, "write")
        return tuple(entry.owner.id.serial for entry in table.view(lock_id))

    def _edges(self, queues: Queues) -> dict[int, set[int]]:
        """Who waits for which holder."""
        edges: dict[int, set[int]] = {client: set() for client in range(len(self.claims))}
        for queue in queues:
            for client in queue[1:]:
                edges[client].add(queue[0])
        return edges

    def _yields(self, state: State) -> tuple[int, int] | None:
        """Who yields which object, if there is a circle: of its holders the one with the largest reference."""
        edges = self._edges(state.queues)
        found = []
        for wanted, queue in enumerate(state.queues):
            for client in queue[1:]:
                if client in _reached(edges, queue[0]):
                    found.append((state.refs[queue[0]], queue[0], -wanted))
        return (max(found)[1], -max(found)[2]) if found else None

    def _moved(self, state: State, client: int, wanted: int) -> State:
        """Where a client is put that yields an object."""
        queue = state.queues[wanted]
        others = queue[1:]
        if self.rule.ours:
            new = self._ours(state, wanted, client)
        elif self.rule.yields == "swap":
            new = (others[0], client, *others[1:])
        elif self.rule.yields == "computed":
            new = next(
                put for place in range(1, len(queue))
                if (put := (*others[:place], client, *others[place:]))
                and self._is_free(_put(state.queues, wanted, put), client, put[place + 1 :])
            )  # fmt: skip
        else:
            new = self._placed(state, others, client, self.rule.yields)
        return state._replace(queues=_put(state.queues, wanted, new))

    def _is_free(self, queues: Queues, client: int, behind: Sequence[int]) -> bool:
        """Whether a client waits for none of those behind it, if each waits for all ahead of it."""
        edges: dict[int, set[int]] = {each: set() for each in range(len(self.claims))}
        for queue in queues:
            for place, each in enumerate(queue):
                edges[each] |= set(queue[:place])
        return not any(each in _reached(edges, client) for each in behind)


def _put(values: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:place], value, *values[place + 1 :])


def _reached(edges: dict[int, set[int]], start: int) -> set[int]:
    found, left = {start}, [start]
    while left:
        new = edges[left.pop()] - found
        found |= new
        left += new
    return found


RULES = {
    rule.name: rule
    for rule in (
        QueueRule("ours", "our own lock table", ours=True),
        QueueRule("last", "new requests and surrendered ones stand last"),
        QueueRule("swap", "who surrenders swaps with the next", yields="swap"),
        QueueRule("computed", "who surrenders computes its place", yields="computed"),
        QueueRule("sorted", "all but the first are sorted by reference", "sorted", "sorted"),
        QueueRule("sorted, 4", "the same, with 4 references", "sorted", "sorted", 4),
        QueueRule("sorted, 16", "the same, with 16 references", "sorted", "sorted", 16),
        QueueRule("sorted, 4, limit", "and who waits too long starts again", "sorted", "sorted", 4, 4),
        QueueRule("sorted, 16, limit", "and who waits too long starts again", "sorted", "sorted", 16, 4),
    )
}  # fmt: skip
SMALL = {
    "one object, three clients": ("a", "a", "a"),
    "two in opposite order, and one": ("ab", "ba", "a"),
    "three objects each": ("abc", "bca", "cab"),
}
"""Small worlds, by the objects that their clients want."""


class Judged(NamedTuple):
    """Whether a rule starves anybody.

    Attributes:
        states: The number of states.
        starved: How; None if nobody is starved.
    """

    states: int
    starved: Starved[Move] | None


def judge(rule: QueueRule, claims: Sequence[str]) -> Judged:
    """Look at all that can happen."""
    turns = Turns(rule, claims)
    graph = explored(turns)
    return Judged(len(graph), starved(graph, turns))


def tell(found: Starved[Move]) -> str:
    """How somebody is starved, in a sentence."""
    moves = [
        ", ".join(f"{client + 1} {kind}" for kind, client in part)
        for part in (found.before, found.cycle)
    ]
    return f"{moves[0]}; and then for ever: {moves[1]}. So client {found.party + 1} is never served"
