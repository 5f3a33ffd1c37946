"""Calls and casts for the leader, wherever they are made.

The instance that receives a call passes it on to the leader, and keeps it while there is none. A
call is carried out at most once: it is passed on again only if the answer says that it was not
carried out. If the leader dies before it answers, the caller gets an error.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from locks_leader.core.events import Effect, Reply, SendToMember
from locks_leader.core.messages import Forward, LeaderCast, Member
from locks_leader.errors import LeaderDied, LeaderTimeout

__all__ = ["Calls", "Kept"]


class Kept(NamedTuple):
    """A call, or a cast if it needs no answer."""

    call: Hashable | None
    request: Any


class Calls:
    """The open calls of one instance.

    Args:
        out: The list to which effects are appended.

    Attributes:
        open: The calls that were made here and have no answer yet.
        kept: Those that wait for a leader, in order.
        forwarded: Those that were passed on, by number, each with the leader.
    """

    __slots__ = ("_last", "_out", "forwarded", "kept", "open")

    def __init__(self, out: list[Effect]) -> None:
        self._out = out
        self._last = 0
        self.open: dict[Hashable, None] = {}
        self.kept: list[Kept] = []
        self.forwarded: dict[int, tuple[Member, Kept]] = {}

    def take_in(self, call: Hashable, request: Any) -> None:
        """A call is made here."""
        self.open[call] = None
        self.kept.append(Kept(call, request))

    def reply(self, call: Hashable, value: Any) -> list[Effect]:
        """Answer a call that was made here, from any thread; the first answer counts."""
        try:
            del self.open[call]
        except KeyError:
            return []
        return [Reply(call, value)]

    def forward(self, leader: Member, kept: Kept) -> None:
        """Pass a call or a cast on."""
        if kept.call is None:
            self._out.append(SendToMember(leader, LeaderCast(kept.request)))
            return
        self._last = number = self._last + 1
        self.forwarded[number] = (leader, kept)
        self._out.append(SendToMember(leader, Forward(number, kept.request)))

    def answered(self, sender: Member, number: int, value: Any) -> None:
        """The leader's answer."""
        kept = self._take(sender, number)
        if kept is not None:
            self._out += self.reply(kept.call, value)

    def refused(self, sender: Member, number: int) -> None:
        """Keep a call for the next leader: it was not carried out, because its receiver does not lead."""
        kept = self._take(sender, number)
        if kept is not None:
            self.kept.append(kept)

    def not_sent(self, number: int, error: Exception) -> None:
        """It could not be passed on."""
        _, kept = self.forwarded.pop(number)
        self._out += self.reply(kept.call, error)

    def down(self, member: Member) -> None:
        """Answer the calls that were passed on to an instance that is gone with an error."""
        for number in [n for n, (leader, _) in self.forwarded.items() if leader == member]:
            _, kept = self.forwarded.pop(number)
            error = LeaderDied(
                f"leader {member} died or was cut off before it answered {kept.request!r}; it is unknown "
                "whether the request was carried out"
            )
            self._out += self.reply(kept.call, error)

    def cancel(self, call: Hashable) -> None:
        """Cancel a call whose caller no longer waits; if it is still kept here, it is not carried out."""
        self._out += self.reply(call, LeaderTimeout("the caller has stopped waiting"))
        self.kept = [kept for kept in self.kept if kept.call != call]
        self.forwarded = {n: each for n, each in self.forwarded.items() if each[1].call != call}

    def take_kept(self) -> list[Kept]:
        """All that wait for a leader: there is one."""
        kept, self.kept = self.kept, []
        return kept

    def _take(self, sender: Member, number: int) -> Kept | None:
        found = self.forwarded.get(number)
        if found is None or found[0] != sender:
            return None
        del self.forwarded[number]
        return found[1]
