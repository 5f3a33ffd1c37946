"""What a node stands on, threads and clocks, and what else can live on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from locks.model import check_node_name
from locks.node.client.agent import Agent
from locks.node.dispatch import Dispatch
from locks.node.observing.statistics import Counters
from locks.node.ports import Background, PendingCall
from locks.runtime import Executor, interrupts
from locks.runtime.inline import Journal, Turn

__all__ = ["Surroundings"]


class Surroundings:
    """What a node stands on: threads and clocks as they are.

    Attributes:
        agent_class: What its agents are.
        dispatch_class: What carries messages between its actors.
        new_call: Makes what a client waits with that calls.
        is_registered: Whether its lock server is in Pykka's registry.
    """

    agent_class: ClassVar[type[Agent]] = Agent
    dispatch_class: ClassVar[type[Dispatch]] = Dispatch
    is_registered: ClassVar[bool] = True
    new_call: Callable[[], PendingCall] = PendingCall

    def checked_name(self, name: str) -> str:
        """A node's name; raise `InvalidOption` unless it is `name@host`."""
        return check_node_name(name)

    def counters(self) -> Counters:
        """What counts as the node runs, and is told who leads elections."""
        return Counters()

    def executor(self) -> Background:
        """Where the node calls foreign code."""
        return Executor.choose()

    def turn(self, journal: Journal, background: Background) -> Turn:
        """The turn that the node's actors take."""
        return Turn(journal, background.run_soon)

    def clocks(self) -> tuple[Callable[[], int], Callable[[], float]]:
        """What says the time, in nanoseconds since 1970; and in seconds from somewhere on, never set back.

        The second one measures; the first one says what that is to people.
        """
        return time.time_ns, time.monotonic

    def first_version(self) -> int:
        """Where the versions of the lock table start; they go on rising across restarts."""
        return self.clocks()[0]() // 1000  # nothing makes a million changes a second

    def shield(self) -> bool:
        """See to it that Ctrl-C tears no turn; returns whether that is to be undone."""
        return interrupts.install()
