"""The messages of the original's candidates, as values and as terms.

A process is represented as in the terms: by a pid, or a reference to an actor.
`locks_leader.original.bridge` describes what the messages mean for an instance of ours.

Source: `locks_leader.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from locks.errors import OperatingError, assert_never
from locks.otp.bytes.fields import brief
from locks.otp.bytes.terms import ImproperList, Reference, Term
from locks.values import Atom
from locks_leader.core.messages import Kind

__all__ = [
    "LOCKS_LEADER",
    "AffirmLeader",
    "AmLeader",
    "AmWorker",
    "BadOriginalMessage",
    "ElectionRef",
    "EnsureSync",
    "LeaderCall",
    "LeaderGone",
    "LeaderReply",
    "LeaderUncertain",
    "OriginalFromLeader",
    "OriginalLeaderCast",
    "PeerMessage",
    "Process",
    "Vector",
    "is_process",
    "pack",
    "parse",
]

Process = Hashable


class BadOriginalMessage(OperatingError):
    """A process has sent something that only looks like a message of the original's candidates."""


class Vector(NamedTuple):
    """The contest as a candidate of the original sees it.

    Attributes:
        leader: The agent that holds the lock on all nodes; `None` if there is none.
        versions: The version of the lock's queue on each node, in the order of their names.
    """

    leader: Process | None
    versions: tuple[tuple[str, int], ...]


class ElectionRef(NamedTuple):
    """The reference of an election of the original.

    Attributes:
        leader: The candidate that leads.
        time: When it was elected, in microseconds of its own clock.
        vector: The contest as it saw it.
    """

    leader: Process
    time: int
    vector: Vector


class AmLeader(NamedTuple):
    """A leader announces itself; `payload` is for the callback `surrendered`."""

    leader: Process
    ref: ElectionRef
    payload: Any


class OriginalFromLeader(NamedTuple):
    """A leader broadcasts something."""

    leader: Process
    ref: ElectionRef
    payload: Any


class AffirmLeader(NamedTuple):
    """A leader confirms that it leads, still or again. A receiver that did not know it sends `EnsureSync`."""

    leader: Process
    ref: ElectionRef


class EnsureSync(NamedTuple):
    """A request for `AmLeader`."""

    sender: Process
    kind: Kind
    ref: ElectionRef


class LeaderUncertain(NamedTuple):
    """An instance does not know its leader; a leader must announce itself to all these again."""

    sender: Process
    synced: tuple[Process, ...] = ()
    synced_workers: tuple[Process, ...] = ()


class AmWorker(NamedTuple):
    """A worker has found a candidate."""

    worker: Process


class LeaderCall(NamedTuple):
    """A call that is passed on to the leader. It is answered by `LeaderReply`, or by `LeaderGone`."""

    caller: Process
    tag: Any
    request: Any


class OriginalLeaderCast(NamedTuple):
    """A message for the leader, which nobody waits for."""

    request: Any


class LeaderReply(NamedTuple):
    """The leader's answer."""

    tag: Any
    value: Any


class LeaderGone(NamedTuple):
    """The answer to a call that was passed on to a leader which has died."""

    tag: Any


# Messages that only candidates and workers exchange; they begin with `LOCKS_LEADER`.
Told = AmLeader | OriginalFromLeader | AffirmLeader | EnsureSync | LeaderUncertain | AmWorker
# What an instance of the original tells us, and what we tell it.
PeerMessage = Told | LeaderReply | LeaderGone
ToOriginal = Told | LeaderCall | OriginalLeaderCast

LOCKS_LEADER = Atom("locks_leader")
AM_LEADER = Atom("am_leader")
FROM_LEADER = Atom("from_leader")
AFFIRM_LEADER = Atom("affirm_leader")
ENSURE_SYNC = Atom("ensure_sync")
LEADER_UNCERTAIN = Atom("leader_uncertain")
AM_WORKER = Atom("am_worker")
CALL = Atom("$gen_call")
CAST = Atom("$gen_cast")
LEADER_CALL = Atom("$locks_leader_call")
LEADER_CAST = Atom("$locks_leader_cast")
LEADER_REPLY = Atom("$locks_leader_reply")
LEADER_DIED = Atom("$leader_died")
LEADER = Atom("leader")
VECTOR = Atom("vector")
NONE = Atom("none")
KINDS: dict[Any, Kind] = {Atom("candidate"): "candidate", Atom("worker"): "worker"}


def pack(message: ToOriginal) -> Any:
    """A message as the original writes it."""
    match message:
        case AmLeader(leader, ref, payload):
            return (LOCKS_LEADER, AM_LEADER, leader, _ref_term(ref), payload)
        case OriginalFromLeader(leader, ref, payload):
            return (LOCKS_LEADER, FROM_LEADER, leader, _ref_term(ref), payload)
        case AffirmLeader(leader, ref):
            return (LOCKS_LEADER, AFFIRM_LEADER, leader, _ref_term(ref))
        case EnsureSync(sender, kind, ref):
            return (LOCKS_LEADER, ENSURE_SYNC, sender, Atom(kind), _ref_term(ref))
        case LeaderUncertain(sender, synced, workers):
            return (LOCKS_LEADER, LEADER_UNCERTAIN, sender, [*synced], [*workers])
        case AmWorker(worker):
            return (LOCKS_LEADER, AM_WORKER, worker)
        case LeaderCall(caller, tag, request):
            return (CALL, (caller, tag), (LEADER_CALL, request))
        case OriginalLeaderCast(request):
            return (CAST, (LEADER_CAST, request))
        case _:
            return assert_never(message)


def _ref_term(ref: ElectionRef) -> Any:
    seen = ref.vector
    return (
        ref.leader,
        ref.time,
        {
            LEADER: NONE if seen.leader is None else seen.leader,
            VECTOR: [(Atom(node), version) for node, version in seen.versions],
        },
    )


def parse(term: Any) -> PeerMessage | None:
    """Parse a message of an instance of the original to one of ours; `None` for any other term.

    Raises:
        BadOriginalMessage: It looks like a message of a candidate, but is malformed.
    """
    if type(term) is not tuple or not term:
        return None
    if term[0] == LOCKS_LEADER:
        return _parse_told(term)
    if len(term) != 2:
        return None
    tag, answer = term
    if answer == LEADER_DIED:
        return LeaderGone(tag)
    is_reply = type(answer) is tuple and len(answer) == 2 and answer[0] == LEADER_REPLY
    return LeaderReply(tag, answer[1]) if is_reply else None


def _parse_told(term: tuple[Any, ...]) -> Told:
    tag = term[1] if len(term) > 1 else None
    if tag in (AM_LEADER, FROM_LEADER) and len(term) == 5:
        leader, ref = _process(term[2]), _parse_ref(term[3])
        return (AmLeader if tag == AM_LEADER else OriginalFromLeader)(leader, ref, term[4])
    if tag == AFFIRM_LEADER and len(term) == 4:
        return AffirmLeader(_process(term[2]), _parse_ref(term[3]))
    if tag == ENSURE_SYNC and len(term) == 5:
        kind = KINDS.get(term[3]) if type(term[3]) is Atom else None
        if kind is None:
            raise BadOriginalMessage(f"{brief(term[3])} should be the atom candidate or worker")
        return EnsureSync(_process(term[2]), kind, _parse_ref(term[4]))
    if tag == LEADER_UNCERTAIN and len(term) == 5:
        return LeaderUncertain(_process(term[2]), _processes(term[3]), _processes(term[4]))
    if tag == AM_WORKER and len(term) == 3:
        return AmWorker(_process(term[2]))
    raise BadOriginalMessage(f"{brief(term)} is nothing that a candidate of the original says")


def _parse_ref(term: Any) -> ElectionRef:
    if type(term) is not tuple or len(term) != 3 or type(term[1]) is not int:
        raise BadOriginalMessage(
            f"{brief(term)} should be an election: a leader, a time and a vector"
        )
    leader, time, seen = term
    if type(seen) is not dict or set(seen) != {LEADER, VECTOR} or type(seen[VECTOR]) is not list:
        raise BadOriginalMessage(f"{brief(seen)} should be a vector: a map of leader and vector")
    versions = []
    for each in seen[VECTOR]:
        if type(each) is not tuple or [type(part) for part in each] != [Atom, int]:
            raise BadOriginalMessage(f"{brief(each)} should be a node and a version")
        versions.append((each[0].name, each[1]))
    holder = None if seen[LEADER] == NONE else _process(seen[LEADER])
    return ElectionRef(_process(leader), time, Vector(holder, tuple(versions)))


_OTHER_TERMS = (
    *(int, float, str, bytes, list, dict, type(None)),
    *(Atom, Reference, ImproperList, Term),
)


def is_process(term: Any) -> bool:
    """Whether a term represents a process: a pid, which is a named tuple, or a reference to an actor."""
    return not (type(term) is tuple or isinstance(term, _OTHER_TERMS))


def _process(term: Any) -> Process:
    if not is_process(term):
        raise BadOriginalMessage(f"{brief(term)} should be a process")
    process: Process = term
    return process


def _processes(term: Any) -> tuple[Process, ...]:
    if type(term) is not list:
        raise BadOriginalMessage(f"{brief(term)} should be a list of processes")
    return tuple([_process(each) for each in term])
