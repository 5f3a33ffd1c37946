"""The bridge between one instance of ours and the original's instances.

`Originals` translates between our machine and the original's candidates and workers. It is pure:
messages in, commands out. For our machine they are ordinary instances, with one exception: a
follower of the original may become unsure at any time (`Resync`).

**When our instance leads.** A follower of the original accepts `am_leader` if the election's
reference in it contains the same vector of lock versions as it sees itself. We would have to guess
when it looks. But there is another way: `affirm_leader` makes a follower remember the reference in
it, and request `ensure_sync`. The following `am_leader` then needs no vector, because it contains
the remembered reference. So a new follower is always affirmed first, and messages for it are kept
until it requests `ensure_sync`. Each time the reference is a new one, because a follower that
remembers it already makes no request. Afterwards it stays the same, because a follower takes
nothing from a leader under a reference that it does not remember. The original's own workers have
no agent and so no vector. They stop with an error when one of the original's candidates announces
itself, but they work with ours.

**When an instance of the original leads.** It has no term and no policy. But it requests the lock
on our node as well, and our lock server's versions rise. So the version of its grant here is larger
than the term of each earlier leader of ours that held the lock here, and smaller than that of the
next. This version is its term here (other nodes have other numbers). Announcements that come before
it holds the lock here are kept until then.

Source: `locks_leader.erl` of the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from locks.errors import assert_never
from locks.values import Atom, View
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
    """An instance of the original takes part in the election."""

    member: Process
    kind: Kind


Command = TellOriginal | Hear | Meet | Resync

MOST_KEPT = 1000  # messages of a leader that has not got the lock here yet


class Holder(NamedTuple):
    """The holder of the election's lock on this node.

    Attributes:
        client: The name of its agent's client.
        version: The version of its grant.
    """

    client: str
    version: int


def holder_in(view: View) -> Holder | None:
    """The holder of the write lock on exactly the id of a view of this node's lock server."""
    for each in view.requests:
        if each.granted and each.mode == "write" and each.lock_id == view.lock_id:
            return Holder(each.client, each.version)
    return None


class _Led:
    """A follower of the original.

    Attributes:
        ref: The reference by which it knows our election.
        unsaid: The messages for it after its request; `None` after it.
    """

    __slots__ = ("ref", "unsaid")

    def __init__(self, ref: ElectionRef) -> None:
        self.ref = ref
        self.unsaid: list[AmLeader | OriginalFromLeader] | None = []


class Originals:
    """The relations of one instance of ours with the original's instances.

    Args:
        me: The member by which the others know our instance.
        kind: Candidate or worker.

    Every method returns commands, to be carried out in order.
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

    # --- Messages of ours -----------------------------------------------------------------------

    def send(self, member: Process, message: ours.Message) -> list[Command]:
        """Translate a message of our machine for an instance of the original.

        Messages without a meaning there are left out: `Affirm` and `YieldTo`, and also
        `ForwardAnswer` and `NotTheLeader`, because calls from there are taken in like calls that
        are made here.
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
        """Introduce our worker, as a worker, to a candidate of the original."""
        return [TellOriginal(member, pack(AmWorker(self._me)))] if self._kind == "worker" else []

    # --- Messages of theirs ---------------------------------------------------------------------

    def receive(self, message: PeerMessage) -> list[Command]:
        """Take in a message of an instance of the original."""
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
        """Take in the holder of the lock on this node; call it at the beginning and at each change."""
        self._holder = holder
        if self._followed is not None and not self._has_lock(self._followed[0]):
            self._followed = None
        return self._take_kept()

    def down(self, member: Process) -> None:
        """Forget an instance of the original that has ended, or is cut off; the caller notifies the machine."""
        self._led.pop(member, None)
        self._kept.pop(member, None)
        if self._followed is not None and self._followed[0] == member:
            self._followed = None

    def _from_leader(self, message: OriginalFromLeader) -> list[Command]:
        kept = self._kept.get(message.leader)
        if kept is not None:
            kept.append(message)
            if len(kept) > MOST_KEPT:
                del self._kept[message.leader]  # the next one makes it begin again
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
        """Answer a follower that requests our announcement."""
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
        """Pass on the kept announcements of the holder of the lock here."""
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
