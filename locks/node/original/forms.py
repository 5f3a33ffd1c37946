"""The original's messages as terms, and their content.

The original reports a lock by a `#locks_info{}`: the lock's id, its version, and its queue, a list
of groups. A group is one or more readers (`#r{}`) or writers (`#w{}`). The first group is the
*head*: its members hold the lock. There is one exception: if the head has several writers, none
holds the lock, because each of them has a request above or below the id. An entry of a group is
`direct` if it was requested on exactly this id, and otherwise *indirect*: its agent has a request
on a related id.

The agents of the original ignore the version of an entry, and pass it on unchanged. So in messages
of our lock servers to them, the version is a large number, whose bytes are the whole request record
(`pack_request`). In this way our agents get exact records of our lock servers from agents of the
original.

Source: `locks.hrl`, `locks_server.erl` and `locks_server_lib.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import astuple

from locks.core.messages import ServerMessage, ToAgent
from locks.errors import InvalidLockId, LocksError
from locks.model import (
    COVERING,
    AgentId,
    Contender,
    LockId,
    Mode,
    Place,
    RequestRecord,
    State,
    check_lock_id,
    show,
    units_of,
)
from locks.otp.bytes import etf
from locks.otp.bytes.fields import BadMessage, Form, brief, parts
from locks.otp.bytes.terms import Atom, Pid, Term
from locks.ranges import MOST_RECORDS, Number, Text, Version
from locks.wire.forms import FORMS, agent_of
from locks.wire.versions import check_version

__all__ = [
    "CastServer",
    "Command",
    "DemonitorPid",
    "MonitorPid",
    "OriginalEntry",
    "OriginalGroup",
    "OriginalInfo",
    "SendTerm",
    "ToLockServer",
    "info_term",
    "is_atom",
    "known_mode",
    "lock_id_of",
    "pack_request",
    "pid_in",
    "read_info",
    "read_lock",
    "unpack_request",
    "watcher_request",
]

# --- Commands -----------------------------------------------------------------------------------


class ToLockServer(NamedTuple):
    """Give a message to our own lock server."""

    message: ServerMessage


class CastServer(NamedTuple):
    """Cast a term to the original's lock server of a node, in the name of one of our agents."""

    node: str
    term: Any


class SendTerm(NamedTuple):
    """Send a term to a process of the original."""

    to: Pid
    term: Any


class MonitorPid(NamedTuple):
    """Monitor a process of the original; its end is reported to `OriginalAgents.down`."""

    pid: Pid


class DemonitorPid(NamedTuple):
    """Watch over a process no longer."""

    pid: Pid


Command = ToLockServer | CastServer | SendTerm | MonitorPid | DemonitorPid | ToAgent

# --- Words --------------------------------------------------------------------------------------

LOCKS_INFO = Atom("locks_info")
LOCK = Atom("lock")
GROUPS: dict[Mode, Atom] = {"read": Atom("r"), "write": Atom("w")}  # the modes that it knows
ENTRY = Atom("entry")
DIRECT = Atom("direct")
INDIRECT = Atom("indirect")
SURRENDER = Atom("surrender")


def is_atom(term: Any, name: str) -> bool:
    """Whether a term is this atom."""
    return type(term) is Atom and term.name == name


def pid_in(term: Any, node: str | None = None) -> Pid:
    """Check that a term is a pid, and one of this node.

    Raises:
        BadMessage: It is not.
    """
    if type(term) is not Pid or (node is not None and term.node != node):
        raise BadMessage(f"{brief(term)} should be a pid" + (f" of {node}" if node else ""))
    return term


def known_mode(mode: Mode) -> Mode:
    """The weakest mode of the original that covers this one."""
    return next(each for each in reversed(COVERING[mode]) if each in GROUPS)


def lock_id_of(term: Any) -> LockId:
    """Convert a lock id of the original, a list that is not empty.

    An element that can't be a key in Python (a list or a map) becomes a `Term`.

    Raises:
        BadMessage: It is no such list, or a counted lock.
    """
    if type(term) is not list or not term:
        raise BadMessage(f"lock id {brief(term)} should be a list that is not empty")
    try:
        lock_id = check_lock_id(tuple([_key(element) for element in term]))
    except InvalidLockId as error:
        raise BadMessage(str(error)) from None
    if units_of(lock_id):
        raise BadMessage(
            f"{show(lock_id)} is a counted lock, which the Erlang original does not support"
        )
    return lock_id


def _key(element: Any) -> Any:
    try:
        hash(element)
    except TypeError:
        return Term(etf.encode(element)[1:])
    return element


# --- A request record within the version of an entry --------------------------------------------

LONGEST = 1000  # bytes; an integer of more than 1,024 is not sent
UNKNOWN = 0  # stands for a record that is too long; versions of the original are larger


class Carried(NamedTuple):
    """A request record without its agent, its node, and whether it blocks."""

    number: Number
    client: Text
    lock_id: LockId
    mode: Mode
    granted: bool
    place: Place
    since: Version


_CARRIED = FORMS.but({LockId: Form(list, lock_id_of)}).of(Carried)


def pack_request(contender: Contender) -> int:
    """A request record without its agent and node, as one number."""
    _, client, lock_id, mode, granted, since, number, place = astuple(contender)
    carried = Carried(number, client, lock_id, mode, granted, place, since)
    packed = etf.encode(_CARRIED.pack(carried))
    return int.from_bytes(packed, "big") if len(packed) <= LONGEST else UNKNOWN


def unpack_request(number: int, agent: AgentId, node: str, version: int) -> RequestRecord | None:
    """The record that was packed; `None` if there is none in this number.

    Args:
        number: The version of an entry.
        agent: The entry's agent.
        node: The node of its lock server.
        version: The version of the lock.
    """
    try:
        packed = etf.decode(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        own, client, lock_id, mode, granted, place, since = _CARRIED.unpack(packed)
    except LocksError:
        return None
    state: State = "granted" if granted else "waiting"
    return RequestRecord(
        node, own, agent, client, lock_id, mode, state, place, since, True, version
    )


# --- A lock's queue -----------------------------------------------------------------------------


class OriginalEntry(NamedTuple):
    """One entry of a queue: `#entry{}`."""

    pid: Pid
    client: Pid
    version: int
    direct: bool

    @property
    def agent(self) -> AgentId:
        """Its agent's reference."""
        return agent_of(self.pid)


class OriginalGroup(NamedTuple):
    """A group of readers or writers: `#r{}` or `#w{}`."""

    mode: Mode
    entries: tuple[OriginalEntry, ...]


class OriginalInfo(NamedTuple):
    """The report of a lock: `#locks_info{}`.

    Attributes:
        node: The node of its lock server.
        lock_id: The lock id.
        version: The version of its queue.
        queue: The groups; the first one is the head.
        surrender: The agent that has just surrendered it, and the version for which that was done.
    """

    node: str
    lock_id: LockId
    version: int
    queue: tuple[OriginalGroup, ...]
    surrender: tuple[Pid, int] | None = None

    @property
    def is_carried(self) -> bool:
        """Whether its lock server is one of ours: the entries carry request records."""
        entries = [entry for group in self.queue for entry in group.entries]
        return any(entry.version.bit_length() > 64 for entry in entries)

    def has(self, agent: AgentId) -> bool:
        """Whether an agent is in the queue."""
        return any(entry.agent == agent for group in self.queue for entry in group.entries)


def info_term(
    lock: Any,
    version: int,
    server: Pid,
    queue: list[OriginalGroup],
    watchers: Iterable[Pid],
    note: Any,
) -> tuple[Any, ...]:
    """A `#locks_info{}`.

    Args:
        lock: The lock id as the receiver writes it.
        version: The version of the queue.
        server: The pid of our lock server.
        queue: The groups.
        watchers: The processes that watch it.
        note: `[]`, or which agent has surrendered it.
    """
    groups = [
        (
            GROUPS[group.mode],
            [
                (ENTRY, e.pid, e.client, e.version, DIRECT if e.direct else INDIRECT)
                for e in group.entries
            ],
        )
        for group in queue
    ]
    row = (LOCK, lock, version, server, groups, list(watchers))
    return (LOCKS_INFO, row, Atom(server.node), note)


def read_info(term: Any) -> OriginalInfo | None:
    """Parse a `#locks_info{}`; `None` if it only reports that the lock is held.

    Raises:
        BadMessage: It is another term.
    """
    _, lock, where, note = _fields(term, LOCKS_INFO, 4)
    if type(where) is not Atom:
        raise BadMessage(f"{brief(where)} should be the name of a node")
    if type(lock) is list:
        return None
    info = _read_row(lock, lock_id_of(_fields(lock, LOCK, 6)[1]), where.name)
    if type(note) is tuple and len(note) == 3 and note[0] == SURRENDER:
        return info._replace(surrender=(pid_in(note[1]), check_version(note[2])))
    return info


def read_lock(term: Any) -> OriginalInfo:
    """Parse an agent's knowledge of a lock, from its answer to a query.

    Raises:
        BadMessage: It is no such answer.
    """
    key = _fields(term, LOCK, 6)[1]
    if type(key) is not tuple or len(key) != 2 or type(key[1]) is not Atom:
        raise BadMessage(f"{brief(key)} should be a lock id and a node")
    return _read_row(term, lock_id_of(key[0]), key[1].name)


def _read_row(term: Any, lock_id: LockId, node: str) -> OriginalInfo:
    _, _, version, _, queue, _ = term
    if type(queue) is not list or len(queue) > MOST_RECORDS:
        raise BadMessage(f"queue {brief(queue)} should be a list of at most {MOST_RECORDS:,}")
    return OriginalInfo(
        node, lock_id, check_version(version), tuple([_read_group(group) for group in queue])
    )


def _read_group(term: Any) -> OriginalGroup:
    tag, entries = parts(term, 2)
    for mode, atom in GROUPS.items():
        if tag == atom and type(entries) is list and entries:
            return OriginalGroup(mode, tuple([_read_entry(each) for each in entries]))
    raise BadMessage(f"{brief(term)} should be a group of readers or writers")


def _read_entry(term: Any) -> OriginalEntry:
    _, pid, client, version, kind = _fields(term, ENTRY, 5)
    if kind not in (DIRECT, INDIRECT):
        raise BadMessage(f"{brief(kind)} should be the atom direct or indirect")
    # The version of an entry may carry a record; then it is as large as that.
    carries = type(version) is int and 64 < version.bit_length() <= 8 * LONGEST and version > 0
    checked = version if carries else check_version(version)
    return OriginalEntry(pid_in(pid), pid_in(client), checked, kind == DIRECT)


def _fields(term: Any, record: Atom, size: int) -> tuple[Any, ...]:
    if type(term) is not tuple or len(term) != size or term[0] != record:
        raise BadMessage(f"{brief(term)} should be a record #{record.name}{{}}")
    return term


# --- Requests for a notification when a lock server is up ---------------------------------------


def watcher_request(module: Any, function: Any, arguments: Any) -> Pid | None:
    """The agent of the original that requests a notification when this node has a lock server.

    The original requests this by code to be evaluated on a node whose lock server it misses. The
    code looks for a lock server and sends `{locks_running, Node}`. It is recognised, and never
    evaluated.

    Args:
        module: The module to call.
        function: Its function.
        arguments: The arguments.

    Returns:
        The agent; `None` if the request is for anything else.

    Source: `locks_watcher.erl` of the original, which makes the request; `locks_agent.erl`,
    `watch_node`.
    """
    if not (is_atom(module, "erl_eval") and is_atom(function, "exprs")):
        return None
    if type(arguments) is not list or len(arguments) != 2:
        return None
    code, bindings = arguments
    if type(bindings) is not list or len(bindings) != 1 or type(bindings[0]) is not tuple:
        return None
    binding = bindings[0]
    if len(binding) != 2 or not is_atom(binding[0], "Agent") or type(binding[1]) is not Pid:
        return None
    names = _atoms(code)
    found: Pid = binding[1]
    return found if {"whereis", "locks_server", "locks_running"} <= names else None


def _atoms(term: Any) -> set[str]:
    """The names of all atoms in a term."""
    found: set[str] = set()
    todo = [term]
    while todo:
        each = todo.pop()
        if type(each) is Atom:
            found.add(each.name)
        elif type(each) is tuple or type(each) is list:
            todo += each
    return found
