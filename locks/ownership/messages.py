"""The messages between a coordinator, its participants and their workers, as closed unions.

    a worker's threads  --FromWorker-->    its participant  --ToSession-->  the coordinator's session
                                           its participant  <--ToParticipant--

A *participant* mediates between a worker's threads and the *session* of the coordinator. A
session's messages contain their receiver, so they are effects as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from locks.ranges import Message, Number, Version

__all__ = [
    "Agree",
    "AgreementFailed",
    "AnyWorker",
    "Closed",
    "Effect",
    "FromWorker",
    "Gone",
    "Grant",
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


MOST_GROUPS = 1 << 15  # for workers on several nodes: all groups of one must fit into a message
AnyWorker = Any
Groups = Annotated[tuple[Number, ...], Meta(max_length=MOST_GROUPS)]
Owned = Annotated[Mapping[Number, Version], Meta(max_length=MOST_GROUPS)]
"""The token of each group."""


# --- From the worker's threads to its participant -------------------------------------------------


class Gone(NamedTuple):
    """The worker has ended, or has done its last task."""


class Leaving(Message, frozen=True):
    """The worker will leave after its present tasks. The participant passes this on."""


class Idle(NamedTuple):
    """The last task of a revoked group has ended; see `Part.settle`."""


FromWorker = Gone | Leaving | Idle


# --- From a participant to the session ------------------------------------------------------------


class Report(Message, frozen=True):
    """The participant takes part from now on.

    Attributes:
        owned: The tokens of the groups that its worker has not released.
        agreements: The number of agreements that it knows of.
    """

    owned: Owned
    agreements: Number


class GroupsReleased(Message, frozen=True):
    """Revoked groups were released."""

    groups: Groups


ToSession = Report | GroupsReleased | Leaving


# --- From the session to a participant, which is `worker` -----------------------------------------


class Welcome(Message, frozen=True):
    """Continue with the reported groups."""

    worker: AnyWorker


class Grant(Message, frozen=True):
    """These groups are your own from now on."""

    worker: AnyWorker
    groups: Groups
    token: Version


class Revoke(Message, frozen=True):
    """Release these groups, after their present tasks."""

    worker: AnyWorker
    groups: Groups


class Renew(Message, frozen=True):
    """These groups stay your own; their token is larger from now on."""

    worker: AnyWorker
    groups: Groups
    token: Version


class Closed(Message, frozen=True):
    """The session is over: begin nothing until another one welcomes you."""

    worker: AnyWorker


ToParticipant = Welcome | Grant | Revoke | Renew | Closed


# --- Agreements -----------------------------------------------------------------------------------


class Agree(NamedTuple):
    """Make an agreement, and return its number."""


class AgreementFailed(NamedTuple):
    """To a participant: there can't be an agreement."""

    error: Exception


Effect = Agree | Grant | Revoke | Renew
"""The effects of a `Coordinator`."""

SessionEffect = Agree | ToParticipant
"""The effects of a `CoordinatorSession`."""
