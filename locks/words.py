"""The words of the algorithm: ids, references, request records, reports, and what users see.

Everything here is an immutable value. A *request* is made by one agent to one lock server, for one
lock id in one mode. Its `key`, the pair of its node and its number there, identifies it everywhere. A
`RequestRecord` is the state of a request at some time; of two records with the same key, the one with
the larger `version` is newer. Only records travel: lock servers send them to agents, and agents forward
them to other agents. The rules are in `locks.model`.

This module is below the errors, which carry such values.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from math import inf
from sys import maxsize
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

from msgspec import Meta

from locks.ranges import (
    MOST_EDGES,
    MOST_RECORDS,
    Checked,
    Created,
    Name,
    Names,
    Number,
    Text,
    Value,
    Version,
    Versions,
    one_line,
)

if TYPE_CHECKING:
    LockId = tuple[Hashable, ...]
    """The name of a lock: key elements, from the root of the tree downwards."""
    KnownId = LockId
    """Likewise, in what servers and agents tell of: it may also stand for a client's wait (`HELD_UP`)."""
    Key = Hashable
    """An element of a lock id, or the name of a group."""
    Place = int | Fraction
    """Position of a request in its queue; each of its two numbers has at most `PLACE_BITS`."""
else:

    class LockId(metaclass=Checked):
        """The name of a lock, as above."""

        kinds = tuple

    class KnownId(metaclass=Checked):
        """Likewise, or the id of a client's wait."""

        kinds = tuple

    class Place(metaclass=Checked):
        """A position in a queue."""

        kinds = (int, Fraction)

    class Key(metaclass=Checked):
        """An element of a lock id, or the name of a group."""

        kinds = object


Mode = Literal["read", "write"]
"""How to lock: a write lock excludes all other clients; a read lock excludes only writers."""
EXCLUDED_BY: Final[Mapping[Mode, frozenset[Mode]]] = {
    "read": frozenset(("write",)),
    "write": frozenset(("read", "write")),
}
"""The table of modes: for each mode, the modes that no other agent can hold while one agent holds it.

Everything else about modes follows from it (`locks.model`). Two modes *conflict* when each excludes the other:
the table has an entry for both. A mode *covers* another mode when it excludes all that the other one excludes.
The *join* of several modes is the weakest mode that covers them all; an agent that needs several modes requests
their join.
"""
Require = Literal["all", "any", "majority", "all_alive", "majority_alive"]
"""How many of the requested nodes must grant the lock."""
State = Literal["granted", "waiting", "spare", "gone"]
Status = Literal["no_locks", "waiting", "have_all_locks", "cannot_serve"]
RequestKey = tuple[str, int]

LONG = 10**100  # Python does not write integers of more digits than it is allowed to
FEW_IDS = 20  # that a text names

HELD_UP = "$held up"
"""The first element of ids that stand for a client's wait (`locks.core.agent.hold_ups`); reserved."""

UNITS = "$units"
"""Begins the last element of a counted id, as in `("$units", 3)`; reserved elsewhere."""


def is_held_up_id(lock_id: LockId) -> bool:
    """Whether an id stands for a client's wait (`locks.core.agent.hold_ups`)."""
    return lock_id[0] == HELD_UP


def units_of(lock_id: LockId) -> int:
    """How many agents may hold a counted lock with this id at the same time; 0 for any other id."""
    last = lock_id[-1] if lock_id else None
    if type(last) is tuple and len(last) == 2 and last[0] == UNITS:
        units: int = last[1]
        return units
    return 0


# An element that is written in a lock id as it is, would be read as something else, and is quoted.
_READ_AS_VALUE = re.compile(
    r"""-?(0|[1-9]\d*|\d+\.\d+(e[-+]?\d+)?|\d+e[-+]?\d+|0x[\da-f]+)|None|True|False"""
    r"""|['"(\[<-].*|b['"].*|.*\*\d+|election .*""",
    re.DOTALL,
)
ELECTION_ID, MERGE_ID = "$election", "$election merge"
"""The first elements of the ids of elections' locks: the leader's, and the one under which states are merged."""
ELECTIONS = frozenset((ELECTION_ID, MERGE_ID))
CANDIDATES, WORKERS = "$election", "$election workers"
"""The first elements of the names of their groups."""
ELECTION, MERGE = "election ", " merge"


def show(lock_id: LockId) -> str:
    """A lock id as a person writes it, in one line, and as all commands take it (`locks.cli.ids.parse_id`).

    Elements with slashes between them: `accounts/17` for `("accounts", 17)`. Text that would be read as something else is
    quoted: `accounts/'17'`. A counted id has the number of its units, as `a*3`; one of an election is `election "name"`.
    """
    units = units_of(lock_id)
    elements = lock_id[:-1] if units else lock_id
    first = elements[0] if elements else None
    if first in ELECTIONS and len(elements) == 2 and not units:
        return show_election(elements[1], merges=first == MERGE_ID)
    text = "/".join([_element(each) for each in elements])
    if text[:1] in ("(", "[", "-"):  # what begins like that is read as a whole, or as an option
        text = _literal(elements)
    text = one_line(text, maxsize)
    return f"{text}*{units}" if units else text


def quoted(text: str) -> str:
    """Printable text in double quotes, as JSON has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def show_election(resource: object, merges: bool = False) -> str:
    """The lock of an election, or the one under which states are merged."""
    plain = type(resource) is str and resource.isprintable()
    name = quoted(str(resource)) if plain else _literal(resource)
    return f"{ELECTION}{name}{MERGE if merges else ''}"


def _element(element: object) -> str:
    """An element between slashes."""
    if type(element) is str:
        is_bare = (
            element == element.strip() != ""
            and "/" not in element
            and element.isprintable()
            and not _READ_AS_VALUE.fullmatch(element)
        )
        return element if is_bare else repr(element)
    return _literal(element)


def _literal(element: object) -> str:
    """An element as Python writes it; one that Python can't read looks like its value."""
    if type(element) is tuple:
        inner = ", ".join([_literal(each) for each in element])
        return f"({inner},)" if len(element) == 1 else f"({inner})"
    if type(element) is int and abs(element) >= LONG:
        return hex(element)
    if type(element) is float and element in (inf, -inf):
        return "1e999" if element > 0 else "-1e999"
    if isinstance(element, (str, bytes, int, float, NoneType)):
        return repr(element)
    return str(element)


def show_all(ids: Sequence[LockId]) -> str:
    """Format lock ids; if there are many, only the first ones."""
    shown_ids = ", ".join([show(lock_id) for lock_id in ids[:FEW_IDS]])
    left = len(ids) - FEW_IDS
    return shown_ids if left <= 0 else f"{shown_ids} and {left:,} more"


class AgentId(NamedTuple):
    """An agent's reference. References are totally ordered, the same way on every node.

    A larger reference is younger: creation time is compared first, then the node.

    Attributes:
        created: Time of creation in 1/4096 of a microsecond since 1970, by the clock of its node;
            the last 12 bits are a serial number, so that no two agents of a node have the same.
        node: Name of the node on which the agent runs.
        serial: That serial number.
    """

    created: Created
    node: Name
    serial: Annotated[int, Meta(ge=0, le=(1 << 12) - 1)]

    def __str__(self) -> str:
        return f"agent-{self.serial}@{self.node}"


class RequestRecord(Value, frozen=True):
    """The state of one request at some time.

    Attributes:
        node: The node whose lock server has the request.
        number: Number of the request on that node, never used twice.
        agent: The agent that makes the request.
        client: A readable name of the agent's client.
        lock_id: The requested lock.
        mode: The requested mode.
        state: `"granted"`, `"waiting"`, `"spare"` or `"gone"`. A spare request is granted before all
            that wait. Its agent does not wait for it: it holds the lock by its other nodes.
        place: Its position in the queue; of two related requests, the one with the smaller place is ahead. A
            holder of a unit of a counted lock is ahead of all requests that wait for one; its place also
            says which unit it holds (`unit_at`).
        since: Version at which it got its present state and place. For a granted request this
            is its fencing token.
        blocked: Whether the agent waits for this request or any other. A granted
            request of an agent that does not wait cannot be part of a deadlock.
        version: Version of its last change; of two records of a request, the larger version is newer.
    """

    node: Name
    number: Number
    agent: AgentId
    client: Text
    lock_id: KnownId
    mode: Mode
    state: State
    place: Place
    since: Version
    blocked: bool
    version: Version

    @property
    def wish(self) -> str:
        """The requested lock and mode, as text."""
        return f"{'a unit of' if units_of(self.lock_id) else self.mode} {show(self.lock_id)}"

    @property
    def key(self) -> RequestKey:
        """The identity of the request on all nodes."""
        return (self.node, self.number)


class Edge(NamedTuple):
    """One edge of the wait-for graph: the request `waiter` waits for the request `holder`."""

    waiter: RequestRecord
    holder: RequestRecord

    @property
    def is_hold_up(self) -> bool:
        """Whether both belong to one client, which cannot continue one transaction while it waits with the other."""
        return is_held_up_id(self.waiter.lock_id)

    def __str__(self) -> str:
        w, h = self.waiter, self.holder
        if self.is_hold_up:
            return f"{w.client} waits with {h.agent} and cannot continue with {w.agent} meanwhile"
        has = "holds" if h.state == "granted" else "is ahead in the queue with"
        return (
            f"{w.client} ({w.agent}) waits for {w.wish} on {w.node}, "
            f"where {h.client} ({h.agent}) {has} {h.wish}"
        )


class Deadlock(Value, frozen=True):
    """Report of one resolved deadlock.

    Attributes:
        agent: The agent that gave way.
        lock_id: The lock that it gave up, or whose queue it left.
        node: The node of that lock.
        action: `"surrendered"` (its request went to the end of the queue) or `"aborted"`.
        cycle: The edges of the deadlock, beginning with the one that was broken; of a large cycle, the
            first 50.
        rule: Why this agent had to give way, in words.
    """

    agent: AgentId
    lock_id: KnownId
    node: Name
    action: Literal["surrendered", "aborted"]
    cycle: Annotated[tuple[Edge, ...], Meta(max_length=MOST_EDGES)]
    rule: Text

    @property
    def lock(self) -> tuple[LockId, str]:
        """The lock that was given up, as a pair of lock id and node."""
        return (self.lock_id, self.node)

    @property
    def agents(self) -> tuple[AgentId, ...]:
        """The agents of the cycle, each waiting for the next."""
        return tuple(edge.waiter.agent for edge in self.cycle)

    @property
    def server(self) -> str:
        """The node whose lock server broke the cycle, at its first edge."""
        return self.cycle[0].waiter.node if self.cycle else self.node

    @property
    def run_again(self) -> AgentId:
        """The agent whose transaction must be run again after an abort.

        Usually it is the agent that was aborted. If it was aborted because its client could not continue with
        another transaction of its own, it is that other one: other clients wait for locks that it holds, and
        would wait for them again.
        """
        first = self.cycle[0] if self.cycle else None
        return first.waiter.agent if first is not None and first.is_hold_up else self.agent

    def __str__(self) -> str:
        held_up = bool(self.cycle) and self.cycle[0].is_hold_up
        done = f"{self.action} and stopped waiting for" if held_up else self.action
        lines = [f"{self.agent} {done} {show(self.lock_id)} on {self.node}: {self.rule}"]
        before = self.cycle[-1:]
        for edge in self.cycle:
            text = str(edge)
            follows = (
                bool(before) and before[0].holder.agent == edge.waiter.agent
            )  # none is left out
            if edge.is_hold_up and follows and not before[0].is_hold_up:
                has = before[0].holder
                holds = "holds" if has.state == "granted" else "is queued for"
                text = (
                    f"{has.client} waits with {edge.holder.agent}, while it {holds} {has.mode} "
                    f"{show(has.lock_id)} on {has.node} with {has.agent}"
                )
            lines.append(f"  {text}")
            before = (edge,)
        return "\n".join(lines)


class LockResult(NamedTuple):
    """What a successful wait for locks returns.

    Attributes:
        status: `"have_all_locks"`, or `"no_locks"` when the transaction has no requests.
        deadlocks: The resolved deadlocks of this transaction, in the order in
            which its agent was informed of them; the newest 100.
    """

    status: Status
    deadlocks: Annotated[tuple[Deadlock, ...], Meta(max_length=100)]


class Notification(NamedTuple):
    """An event that an agent reports to its client (options `notify`, `monitor_nodes`).

    Attributes:
        agent: The agent.
        kind: A `Status`, `"lost"`, `"lock_info"`, `"nodeup"`, `"nodedown"`, `"token"`, `"aborted"` or `"ended"`.
            The last two are final.
        value: The deadlocks so far with `"have_all_locks"`, the lock ids with `"lost"`, a
            `RequestRecord` with `"lock_info"`, the node's name with `"nodeup"` and `"nodedown"`,
            the lock id and its fencing token, or an exception, with `"token"`; the `Deadlock` with
            `"aborted"`; the exception with the reason with `"ended"`, which reports an end that the client did not
            ask for; otherwise `None`.
    """

    agent: AgentId
    kind: Literal[
        "waiting",
        "have_all_locks",
        "no_locks",
        "cannot_serve",
        "lost",
        "lock_info",
        "nodeup",
        "nodedown",
        "token",
        "aborted",
        "ended",
    ]
    value: Any = None


class LockInfo(NamedTuple):
    """One lock of a transaction, as its agent sees it.

    Attributes:
        lock_id: The lock id.
        mode: The weakest mode that covers all requested modes.
        nodes: The requested nodes.
        require: How many of them must grant it.
        granted: The nodes where it is granted.
        held: Whether the requirement is met.
        acknowledged: Whether the client has been told that it holds the lock.
        versions: The versions of the grants, in the order of `granted`.
    """

    lock_id: KnownId
    mode: Mode
    nodes: Names
    require: Require
    granted: Names
    held: bool
    acknowledged: bool
    versions: Versions


class Contender(Value, frozen=True):
    """One request in a view, as users and watchers see it.

    Attributes:
        agent: The agent that made the request.
        client: A readable name of the agent's client.
        lock_id: The requested lock.
        mode: The requested mode.
        granted: Whether it is granted; otherwise it is waiting.
        version: Version at which it got its present state and place.
        number: Number of the request on its node; 0 in views from other nodes.
        place: Its position in the queue there; 0 in views from other nodes.
    """

    agent: AgentId
    client: Text
    lock_id: KnownId
    mode: Mode
    granted: bool
    version: Version
    number: Number = 0
    place: Place = 0


class View(Value, frozen=True):
    """The requests related to a lock id at one moment, in queue order.

    Attributes:
        lock_id: The lock id that the view is of.
        node: The node whose lock table was read.
        requests: All requests on the id itself, its ancestors and its descendants.
        version: The lock table's version at that moment.
    """

    lock_id: KnownId
    node: Name
    requests: Annotated[tuple[Contender, ...], Meta(max_length=MOST_RECORDS)]
    version: Version

    @property
    def holders(self) -> tuple[Contender, ...]:
        """The requests that hold a lock."""
        return tuple(c for c in self.requests if c.granted)

    @property
    def waiting(self) -> tuple[Contender, ...]:
        """The requests that are waiting, in queue order."""
        return tuple(c for c in self.requests if not c.granted)
