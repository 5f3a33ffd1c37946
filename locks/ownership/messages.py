"""What a coordinator, its participants and their workers say to each other: closed unions.

    a worker's threads  --FromWorker-->    its participant  --ToSession-->  the coordinator's session
                                           its participant  <--ToParticipant--

A *participant* stands between a worker's threads and the *session* of the coordinator. What a
session says names the participant that it is for, so these messages are effects as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from locks.ranges import Number, Size, Version

__all__ = [
    "Agree",
    "AgreementFailed",
    "AnyWorker",
    "Closed",
    "Effect",
    "FromWorker",
    "Gone",
    "Grant",
    "Group",
    "GroupsReleased",
    "Idle",
    "Leaving",
    "Owned",
    "Renew",
    "Report",
    "Revoke",
    "SessionEffect",
    "ToParticipant",
    "ToSession",
    "Welcome",
]


MOST_GROUPS = 1 << 15  # of workers on several nodes: what one owns must fit into one message
AnyWorker = Annotated[Any, "worker"]  # told apart for the wire, which knows what they are
Group = Annotated[int, "group"]
Groups = Annotated[tuple[Group, ...], Size(MOST_GROUPS)]
Owned = Annotated[Mapping[int, int], "the token of each group"]


# --- From the worker's threads to its participant -------------------------------------------------


class Gone(NamedTuple):
    """The worker has ended, or has done its last task."""


class Leaving(NamedTuple):
    """The worker will be gone after the tasks at hand. The participant passes it on."""


class Idle(NamedTuple):
    """The last task of a group that was asked back is over; see `Part.settle`."""


FromWorker = Gone | Leaving | Idle


# --- From a participant to the session ------------------------------------------------------------


class Report(NamedTuple):
    """The participant takes part from now on.

    Attributes:
        owned: The token of each group that its worker has not let go.
        agreements: How many agreements it was told of.
    """

    owned: Owned
    agreements: Number


class GroupsReleased(NamedTuple):
    """Groups that were asked back are let go."""

    groups: Groups


ToSession = Report | GroupsReleased | Leaving


# --- From the session to a participant, which is `worker` -----------------------------------------


class Welcome(NamedTuple):
    """Go on with what you have reported."""

    worker: AnyWorker


class Grant(NamedTuple):
    """These groups are your own from now on."""

    worker: AnyWorker
    groups: Groups
    token: Version


class Revoke(NamedTuple):
    """Release these groups, after the tasks at hand."""

    worker: AnyWorker
    groups: Groups


class Renew(NamedTuple):
    """These groups stay your own; their token is larger from now on."""

    worker: AnyWorker
    groups: Groups
    token: Version


class Closed(NamedTuple):
    """The session is over: begin nothing until another one welcomes you."""

    worker: AnyWorker


ToParticipant = Welcome | Grant | Revoke | Renew | Closed


# --- Agreements -----------------------------------------------------------------------------------


class Agree(NamedTuple):
    """Come to an agreement, and tell its number."""


class AgreementFailed(NamedTuple):
    """To a participant: there can't be an agreement."""

    error: Exception


Effect = Agree | Grant | Revoke | Renew
"""What a `Coordinator` wants done."""

SessionEffect = Agree | ToParticipant
"""What a `CoordinatorSession` wants done."""
