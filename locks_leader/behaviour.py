"""What users write: the callbacks of an election, under the original's names.

The class is a callback module, an instance of it the state. Callbacks run in the instance's actor, one
at a time; while one blocks, nothing else happens there. What they send to other nodes must be made of
numbers, text, bytes, tuples, lists, dictionaries, and references to actors. On the same node
objects are passed on as they are: do not change them afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pykka

from locks import MisuseError
from locks.runtime.callables import check_begun
from locks.runtime.port import world
from locks_leader.core.events import NOTHING, HandOver, Outcome, SurrenderLeadership
from locks_leader.state import Caller, ElectionState

__all__ = [
    "NO_REPLY",
    "Behaviour",
    "NewAndOld",
    "OnlyNew",
    "SurrenderTo",
    "outcome_of",
    "run_callback",
    "tell_end",
]

PLAIN = "write a plain method (def)"

NO_REPLY: Any = object()
"""What `handle_leader_call` and `handle_call` return to reply later, or never."""


class NewAndOld(NamedTuple):
    """An outcome of `elected`: one message for new followers, another for those who follow already.

    Attributes:
        new: They get it in `surrendered`.
        old: They get it in `from_leader`.
    """

    new: Any
    old: Any


class OnlyNew(NamedTuple):
    """An outcome of `elected`: a message for new followers only; they get it in `surrendered`."""

    message: Any


class SurrenderTo(NamedTuple):
    """An outcome of `elected`: another candidate is to lead.

    This instance stands for election again when that one, or somebody else, has led, has ended, or
    when nodes have come or gone.

    Attributes:
        candidate: The newcomer, or another candidate that this instance leads or is about to.
    """

    candidate: pykka.ActorRef[Any]


class Behaviour:
    """The callbacks of one instance; subclass it and write those that you need.

    `elected` and `surrendered` are what an election is about. In between the leader may lose its
    place: `stepped_down`. An exception in a callback ends the instance, and another candidate takes
    over; only that of a call (`handle_leader_call`, `handle_call`) goes to the caller.
    """

    def init(
        self, *args: Any, **_: Any
    ) -> None:  # so a type checker allows any arguments to subclasses
        """Begin; with the arguments of `start`. An exception is raised to the caller of `start`."""

    def elected(self, election: ElectionState, newcomer: pykka.ActorRef[Any] | None) -> Any:
        """This instance leads, or somebody else follows it from now on.

        It may ask the candidates for their state here (`election.ask_candidates`): no other leader
        that it could meet does so at the same time.

        Args:
            election: The election as this instance sees it.
            newcomer: The instance that is to follow; `None` when just elected: then all others are new.

        Returns:
            A message for all: new followers get it in `surrendered`, those who follow already in
            `from_leader`. Or `NewAndOld`, `OnlyNew`, `SurrenderTo`.
        """

    def surrendered(self, message: Any, election: ElectionState) -> None:
        """This instance follows a leader from now on, `election.leader`.

        Args:
            message: What the leader's `elected` has returned for new followers.
            election: The election as this instance sees it.
        """

    def stepped_down(self, election: ElectionState) -> None:
        """This instance does not lead any more. Another one may; `surrendered` will tell."""

    def handle_down(self, member: pykka.ActorRef[Any], election: ElectionState) -> None:
        """Another instance, candidate or worker, has ended or is cut off."""

    def handle_leader_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        """Somebody calls the leader, which is this instance.

        Returns:
            The reply; or `NO_REPLY`, then `locks_leader.leader_reply(caller, ...)` gives it
            later.
        """
        raise MisuseError(
            f"{type(self).__name__} accepts no leader calls: it has no method handle_leader_call"
        )

    def handle_leader_cast(self, message: Any, election: ElectionState) -> None:
        """Somebody sends the leader a message, which is this instance."""

    def from_leader(self, message: Any, election: ElectionState) -> None:
        """The leader has broadcast something."""

    def handle_call(self, request: Any, caller: Caller, election: ElectionState) -> Any:
        """Somebody calls this very instance, whatever its role; as `handle_leader_call`."""
        raise MisuseError(f"{type(self).__name__} accepts no calls: it has no method handle_call")

    def handle_cast(self, message: Any, election: ElectionState) -> None:
        """Somebody sends this very instance a message by `locks_leader.cast`."""

    def handle_info(self, message: Any, election: ElectionState) -> None:
        """Any other message to this instance."""

    def terminate(self, reason: object, election: ElectionState) -> None:
        """The instance ends: `"normal"`, or the exception that is the reason."""


def run_callback(callbacks: Behaviour, name: str, *args: Any) -> Any:
    """Run a callback and return what it returns.

    Raises:
        MisuseError: It returned a coroutine or a generator, whose body was not run.
        Exception: It raised it.
    """
    found = getattr(callbacks, name)(*args)
    return check_begun(found, f"{type(callbacks).__name__}.{name}", PLAIN)


def tell_end(callbacks: Behaviour, reason: object, election: ElectionState) -> None:
    """Tell the callbacks that the instance ends."""
    if type(callbacks).terminate is Behaviour.terminate:
        world().failed(reason)
    run_callback(callbacks, "terminate", reason, election)


def outcome_of(returned: Any) -> Outcome:
    """What the machine is to make of what `elected` has returned."""
    if isinstance(returned, SurrenderTo):
        return SurrenderLeadership(returned.candidate)
    if isinstance(returned, NewAndOld):
        return HandOver(returned.new, returned.old)
    if isinstance(returned, OnlyNew):
        return HandOver(returned.message, NOTHING)
    return HandOver(returned, returned)
