"""One session of a coordinator, for any transport of messages: a pure state machine.

Participants *report* to a session the groups that they have not released. It *opens* when all
participants that may own a group have reported. Then it welcomes them, they continue with their
groups, and the first agreement is taken. Until then no group is granted, because a participant that
has not reported may own it. And no worker continues, because two may have reported the same group,
if one of them was cut off for a while.

A session counts all agreements that any participant knows of, those under earlier sessions
included. If an agreement is smaller than a token that was reported meanwhile, it is taken again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from locks.errors import assert_never
from locks.ownership.coordinator import Coordinator
from locks.ownership.messages import (
    Agree,
    Closed,
    GroupsReleased,
    Leaving,
    Report,
    SessionEffect,
    ToSession,
    Welcome,
)

__all__ = ["CoordinatorSession"]

W = TypeVar("W", bound=Hashable)


class CoordinatorSession(Generic[W]):
    """Runs a `Coordinator`. Each method returns effects, in order.

    Args:
        groups: How many groups there are.

    Attributes:
        coordinator: The coordinator.
        is_open: Whether all participants have reported.
    """

    def __init__(self, groups: int) -> None:
        self.coordinator: Coordinator[W] = Coordinator(groups)
        self.is_open = False
        self._wanted = False  # whether to take an agreement when it opens
        self._before = 0  # agreements under earlier sessions

    @property
    def agreements(self) -> int:
        """The number of agreements, as far as any participant knows."""
        return self._before + self.coordinator.agreements

    @property
    def newest(self) -> int:
        """The largest known token, to be passed with the next agreement."""
        return self.coordinator.newest

    def received(
        self, worker: W, message: ToSession, expected: Iterable[W] = ()
    ) -> Sequence[SessionEffect]:
        """Take in a message of a participant.

        Args:
            worker: The participant.
            message: The message.
            expected: The participants that must report before a worker continues, as far as known.
        """
        effects: Sequence[SessionEffect]
        match message:
            case GroupsReleased():
                effects = self.coordinator.released(worker, message.groups)
            case Report():
                self._before = max(self._before, message.agreements)
                effects = self._joined(worker, message.owned)
            case Leaving():
                effects = self.coordinator.leaving(worker)
            case _:
                assert_never(message)
        return self._go_on(effects, expected)

    def gone(self, worker: W, expected: Iterable[W] = ()) -> Sequence[SessionEffect]:
        """A participant has ended, or is cut off."""
        return self._go_on(self.coordinator.gone(worker), expected)

    def agreed(self, token: int, newest: int) -> Sequence[SessionEffect]:
        """Take in an agreement.

        Args:
            token: Its number.
            newest: The largest token that the session knew when it requested the agreement.

        Raises:
            OperatingError: The number is not larger than all tokens that the session knew then.
        """
        if token <= self.newest and self.newest > newest:  # reported meanwhile
            return [Agree()]
        return self.coordinator.agreed(token)

    def close(self) -> Sequence[SessionEffect]:
        """Another session may begin: all that have reported to this one are on their own."""
        return [Closed(worker) for worker in self.coordinator.workers]

    def _joined(self, worker: W, owned: Mapping[int, int]) -> Sequence[SessionEffect]:
        effects: list[SessionEffect] = []
        if worker in self.coordinator.workers:  # it reports again: only the new report counts
            effects += self.coordinator.gone(worker)
        effects += self.coordinator.joined(worker, owned)
        if self.is_open:
            effects.append(Welcome(worker))
        return effects

    def _go_on(
        self, effects: Sequence[SessionEffect], expected: Iterable[W]
    ) -> Sequence[SessionEffect]:
        """Open if all have reported; until then, request no agreement."""
        if self.is_open:
            return effects
        found: list[SessionEffect] = [each for each in effects if not isinstance(each, Agree)]
        self._wanted = self._wanted or len(found) < len(effects)
        workers = self.coordinator.workers
        if all(worker in workers for worker in expected):
            self.is_open = True
            found += [Welcome(worker) for worker in workers]
            found += [Agree()] * self._wanted
        return found
