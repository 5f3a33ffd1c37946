"""The election as the callbacks of one instance see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import pykka

from locks_leader.core.machine import Machine
from locks_leader.core.messages import Role

__all__ = ["Answers", "Caller", "ElectionPort", "ElectionState"]

Ref = pykka.ActorRef[Any]


class Caller(NamedTuple):
    """The caller that waits for the answer to a call; pass it to `locks_leader.reply`.

    Attributes:
        answer: Gives the answer, from any thread; the first one counts.
    """

    answer: Callable[[Any], None]


class Answers(NamedTuple):
    """What candidates answer.

    Attributes:
        replies: Those that have answered, and what.
        errors: Those that have not, and why.
    """

    replies: list[tuple[Ref, Any]]
    errors: list[tuple[Ref, Exception]]


class ElectionPort(Protocol):
    """What `ElectionState` needs of its instance."""

    @property
    def actor_ref(self) -> Ref:
        """The instance."""

    @property
    def machine(self) -> Machine:
        """What it knows of the election."""

    def node_of(self, member: Ref) -> str:
        """The node of an instance."""

    def broadcast(self, message: Any, to: Iterable[Ref] | None) -> None:
        """Tell followers something."""

    def ask_candidates(
        self, request: Any, of: Iterable[Ref] | None, timeout: float | None
    ) -> Answers:
        """Ask candidates something, and wait for their answers."""

    def ensure_leading(self) -> None:
        """Make sure that it leads."""

    def stop(self) -> None:
        """End."""


class ElectionState:
    """The election as one instance sees it now; each callback gets it.

    It changes with the election: what is to be kept must be copied.
    """

    __slots__ = ("_instance",)

    def __init__(self, instance: ElectionPort) -> None:
        self._instance = instance

    def __repr__(self) -> str:
        return f"<ElectionState {self.role}, led by {self.leader}, term {self.term}>"

    @property
    def me(self) -> Ref:
        """This instance."""
        return self._instance.actor_ref

    @property
    def role(self) -> Role:
        """`"candidate"`, `"following"`, `"syncing"` (has won, and is not elected yet) or `"leader"`."""
        return self._instance.machine.role

    @property
    def leader(self) -> Ref | None:
        """The leader; `None` if none is known."""
        leader: Any = self._instance.machine.leader
        return leader  # type: ignore[no-any-return]

    @property
    def leader_node(self) -> str | None:
        """The leader's node."""
        leader = self.leader
        return None if leader is None else self._instance.node_of(leader)

    @property
    def term(self) -> int:
        """The leader's term: larger than that of each leader before it on the same nodes, unless a clock was set back (`locks_leader.Leadership`).

        It rises while an instance leads, when that takes over further nodes; `locks_leader.Leadership.term` does not.

        While nobody leads, that of the last leader that was known; 0 if there was none.
        """
        return self._instance.machine.term

    @property
    def candidates(self) -> list[Ref]:
        """The other candidates."""
        return self._known(self._instance.machine.membership.those("candidate"))

    @property
    def new_candidates(self) -> list[Ref]:
        """The candidates that this instance is about to lead, and has not told so yet."""
        unsynced = self._instance.machine.unsynced()
        entries = self._instance.machine.membership.entries
        return self._known([m for m in unsynced if entries[m].kind == "candidate"])

    @property
    def workers(self) -> list[Ref]:
        """The workers: they follow, and do not stand for election."""
        return self._known(self._instance.machine.membership.those("worker"))

    @property
    def alive(self) -> list[Ref]:
        """Those whom this instance leads: candidates and workers."""
        return self._known(self._instance.machine.membership.synced)

    def broadcast(self, message: Any, to: Iterable[Ref] | None = None) -> None:
        """Tell all followers something, or some of them; they get it in `from_leader`.

        Raises:
            NotLeader: This instance does not lead.
        """
        self._instance.broadcast(message, to)

    def broadcast_to_candidates(self, message: Any) -> None:
        """Tell all candidates that follow something; as `broadcast`."""
        self.broadcast(message, self.candidates)

    def ask_candidates(
        self, request: Any, of: Iterable[Ref] | None = None, timeout: float | None = 5
    ) -> Answers:
        """Ask candidates something, and wait for their answers, given by their `handle_call`.

        Only within `elected`: nobody asks this instance there, so nobody waits for it.

        Args:
            request: The request.
            of: Whom to ask: some of the candidates that it is about to lead or leads; all of them
                by default. Others are left out.
            timeout: Seconds to wait at most for all of them; `None` waits for ever. One that ends, or
                is cut off, is not waited for.

        Raises:
            MisuseError: It is called outside of `elected`.
        """
        return self._instance.ask_candidates(request, of, timeout)

    def ensure_leading(self) -> None:
        """Make sure, as far as this node knows, that this instance leads. From any thread.

        Raises:
            LeadershipLost: It does not.
        """
        self._instance.ensure_leading()

    def stop(self) -> None:
        """End this instance, after the callback at hand."""
        self._instance.stop()

    @staticmethod
    def _known(members: Iterable[Any]) -> list[Ref]:
        return list(members)
