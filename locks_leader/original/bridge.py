"""Together with the original's candidates: what is said between one instance of ours and them.

`Originals` stands between our machine and the original's instances, candidates and workers. It is pure:
messages in, what is to be done out. Our machine need not know that they are others, but for one thing:
a follower of the original may be unsure at any time (`Resync`).

**When ours leads.** A follower of the original accepts `am_leader` if the election's reference in it has
the same vector of lock versions as it sees itself. It would have to be guessed at which moment it looks.
But there is another way: `affirm_leader` makes a follower remember the reference that it names, and ask for
`ensure_sync`; the `am_leader` that follows then needs no vector, as it has the very reference that is
remembered. So a new follower is always affirmed first, and what it is to be told is kept until it
asks. The reference is another one each time, since who remembers it already does not ask. It stays
the same afterwards: a follower takes nothing from a leader under a reference that it does not remember.
The original's own workers, which have no agent and so no vector, stop with an error when one of the
original's candidates announces itself; they get on with ours.

**When one of the original's leads.** It has no term, and no policy. But it asks for the lock on our node
as well, and our lock server's versions rise: the version of its grant here is larger than the
term of each leader of ours that had the lock here before, and smaller than that of the next. So
this is its term here (other nodes have other numbers for it). What it announces before it has the
lock here is kept until it has it.

Source: `locks_leader.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from locks import Atom, View
from locks.errors import assert_never
from locks_leader.core import messages as ours
from locks_leader.core.events import Resync
from locks_leader.core.messages import Kind
from locks_leader.errors import LeaderDied
from locks_leader.original.messages import (
    AffirmLeader,
    AmLeader,
    AmWorker,
    ElectionRef,
    EnsureSync,
    LeaderCall,
    LeaderGone,
    LeaderReply,
    LeaderUncertain,
    OriginalFromLeader,
    OriginalLeaderCast,
    PeerMessage,
    Process,
    Vector,
    is_process,
    pack,
)

__all__ = ["Command", "Hear", "Holder", "Meet", "Originals", "TellOriginal", "holder_in"]

FORWARDED = Atom("$locks_leader")  # marks a call that our machine has passed on


class TellOriginal(NamedTuple):
    """Send a term to a process of the original."""

    member: Process
    term: Any


class Hear(NamedTuple):
    """Give a message to our machine, as if one of ours had sent it."""

    sender: Process
    message: ours.Message


class Meet(NamedTuple):
    """Somebody takes part in the election."""

    member: Process
    kind: Kind


Command = TellOriginal | Hear | Meet | Resync

MOST_KEPT = 1000  # messages of a leader that has not got the lock here yet


class Holder(NamedTuple):
    """Who has the election's lock on this node.

    Attributes:
        client: The name of its agent's client.
        version: The version of its grant.
    """

    client: str
    version: int


def holder_in(view: View) -> Holder | None:
    """Who has the very lock that a view of this node's lock server is of, to write."""
    for each in view.requests:
        if each.granted and each.mode == "write" and each.lock_id == view.lock_id:
            return Holder(each.client, each.version)
    return None


class _Led:
    """A follower of the original.

    Attributes:
        ref: What it knows our election by.
        unsaid: What it is to be told once it has asked; nothing if it has.
    """

    __slots__ = ("ref", "unsaid")

    def __init__(self, ref: ElectionRef) -> None:
        self.ref = ref
        self.unsaid: list[AmLeader | OriginalFromLeader] | None = []


class Originals:
    """What one instance of ours has to do with the original's.

    Args:
        me: The instance, as the others know it.
        kind: As what it takes part.

    Every method returns what is to be done, in this order.
    """

    __slots__ = ("_elections", "_followed", "_holder", "_kept", "_kind", "_led", "_me")

    def __init__(self, me: Process, kind: Kind) -> None:
        self._me = me
        self._kind: Kind = kind
        self._elections = 0
        self._led: dict[Process, _Led] = {}
        self._holder: Holder | None = None
        self._kept: dict[Process, list[AmLeader | OriginalFromLeader]] = {}  # announcement first
        self._followed: tuple[Process, ElectionRef, int] | None = None  # with its term here

    # --- What ours says -------------------------------------------------------------------------

    def send(self, member: Process, message: ours.Message) -> list[Command]:
        """Our machine has a message for an instance of the original.

        Those that have no meaning there are left out: `Affirm` and `YieldTo`; and `ForwardAnswer` and
        `NotTheLeader`, since calls from there are taken in like those that are made here.
        """
        led = self._led.get(member)
        match message:
            case ours.Announce():
                self._elections += 1
                ref = ElectionRef(self._me, self._elections, Vector(None, ()))
                led = self._led[member] = _Led(ref)
                led.unsaid = [AmLeader(self._me, ref, message.payload)]
                return [TellOriginal(member, pack(AffirmLeader(self._me, ref)))]
            case ours.FromLeader():
                if led is None:
                    return []
                told = OriginalFromLeader(self._me, led.ref, message.payload)
                if led.unsaid is None:
                    return [TellOriginal(member, pack(told))]
                led.unsaid.append(told)
                return []
            case ours.Resign():
                self._led.pop(member, None)
                return [TellOriginal(member, pack(LeaderUncertain(self._me)))]
            case ours.Forward():
                tag = (FORWARDED, message.number, member)
                return [TellOriginal(member, pack(LeaderCall(self._me, tag, message.request)))]
            case ours.LeaderCast():
                return [TellOriginal(member, pack(OriginalLeaderCast(message.request)))]
            case ours.Affirm() | ours.YieldTo() | ours.ForwardAnswer() | ours.NotTheLeader():
                return []
            case _:
                return assert_never(message)

    def met(self, member: Process) -> list[Command]:
        """A candidate of the original is met: a worker of ours says that it is one."""
        return [TellOriginal(member, pack(AmWorker(self._me)))] if self._kind == "worker" else []

    # --- What theirs say ------------------------------------------------------------------------

    def receive(self, message: PeerMessage) -> list[Command]:
        """An instance of the original has said something."""
        match message:
            case AmLeader():
                self._kept[message.leader] = [message]
                return self._take_kept()
            case OriginalFromLeader():
                return self._from_leader(message)
            case AffirmLeader():
                kept = self._kept.get(message.leader)
                known = kept[0].ref if kept else self._ref_of(message.leader)
                return [] if known == message.ref else self._ensure_sync(message)
            case EnsureSync():
                return self._asked(message)
            case LeaderUncertain():
                return self._uncertain(message)
            case AmWorker():
                return [Meet(message.worker, "worker")]
            case LeaderReply():
                return self._answered(message.tag, message.value)
            case LeaderGone():
                died = LeaderDied(
                    "a leader died before it answered a call that a candidate of the Erlang original "
                    "had forwarded to it; it is unknown whether the call was carried out"
                )
                return self._answered(message.tag, died)
            case _:
                return assert_never(message)

    def granted(self, holder: Holder | None) -> list[Command]:
        """Who has the lock on this node now; to be told each change, and who has it at first."""
        self._holder = holder
        if self._followed is not None and not self._has_lock(self._followed[0]):
            self._followed = None
        return self._take_kept()

    def down(self, member: Process) -> None:
        """An instance of the original has ended, or is cut off; the machine is told as well."""
        self._led.pop(member, None)
        self._kept.pop(member, None)
        if self._followed is not None and self._followed[0] == member:
            self._followed = None

    def _from_leader(self, message: OriginalFromLeader) -> list[Command]:
        kept = self._kept.get(message.leader)
        if kept is not None:
            kept.append(message)
            if len(kept) > MOST_KEPT:
                del self._kept[message.leader]  # with the next one it is asked to begin anew
            return []
        if self._followed is None or self._followed[0] != message.leader:
            return self._ensure_sync(message)
        term = self._followed[2]
        self._followed = (message.leader, message.ref, term)
        return [Hear(message.leader, ours.FromLeader(term, message.payload))]

    def _ensure_sync(self, message: OriginalFromLeader | AffirmLeader) -> list[Command]:
        asked = EnsureSync(self._me, self._kind, message.ref)
        return [TellOriginal(message.leader, pack(asked))]

    def _asked(self, message: EnsureSync) -> list[Command]:
        """A follower wants to be told that we lead."""
        led = self._led.get(message.sender)
        if led is None:
            return []
        if led.unsaid is None:
            return self._resync([message.sender])
        if led.ref != message.ref:
            return []  # it will ask again, with the reference that it was sent last
        unsaid, led.unsaid = led.unsaid, None
        return [TellOriginal(message.sender, pack(each)) for each in unsaid]

    def _uncertain(self, message: LeaderUncertain) -> list[Command]:
        sender, synced, workers = message
        self._kept.pop(sender, None)
        if self._followed is not None and self._followed[0] == sender:
            self._followed = None
        again = [m for m in (*synced, *workers) if m in self._led and self._led[m].unsaid is None]
        # It means nothing to the machine unless it follows the sender.
        return [Hear(sender, ours.Resign(0)), *self._resync((sender, *again))]

    @staticmethod
    def _answered(tag: Any, value: Any) -> list[Command]:
        own = type(tag) is tuple and len(tag) == 3 and tag[0] == FORWARDED and type(tag[1]) is int
        if not own or not is_process(tag[2]):
            return []  # it is of a client's call
        return [Hear(tag[2], ours.ForwardAnswer(tag[1], value))]

    def _resync(self, members: Iterable[Process]) -> list[Command]:
        return [Resync(member) for member in members if self._led.pop(member, None) is not None]

    def _take_kept(self) -> list[Command]:
        """Pass on what was announced by one who has the lock here."""
        for leader, kept in list(self._kept.items()):
            if self._holder is not None and self._has_lock(leader):
                del self._kept[leader]
                term = self._holder.version
                self._followed = (leader, kept[-1].ref, term)
                return [
                    Hear(
                        leader,
                        ours.Announce(term, each.payload)
                        if isinstance(each, AmLeader)
                        else ours.FromLeader(term, each.payload),
                    )
                    for each in kept
                ]
        return []

    def _has_lock(self, member: Process) -> bool:
        return self._holder is not None and self._holder.client == str(member)

    def _ref_of(self, leader: Process) -> ElectionRef | None:
        known = self._followed
        return known[1] if known is not None and known[0] == leader else None
