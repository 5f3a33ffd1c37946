"""The cost of a step of a lock server, in seconds of virtual time.

The figures are rounded from measurements of interpreted nodes on one core: 20 to 80 microseconds
for a message at a lock server, 100 at a program (decision 0078).
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Protocol

from locks.core.messages import ServerEffect, ServerMessage
from locks.core.server.machine import ServerMachine

__all__ = ["CLIENT", "Calls", "Flat", "Growing", "Price"]

MESSAGE = 40e-6  # at a lock server, to read a message and take it in
EFFECT = 10e-6  # to send one
CLIENT = 100e-6  # at a program: a message, or a call of a client
ENTRY = 7e-6  # 4.6 ms with 600 waiters, where each step searched all of them
CALL = 0.1e-6  # a call of a function


class Price(Protocol):
    """Runs a step of a lock server, and returns its cost."""

    def step(
        self, server: ServerMachine, message: ServerMessage
    ) -> tuple[list[ServerEffect], float]:
        """Run a step; return its effects and its price in seconds."""
        ...


class Flat:
    """A fixed price for a message, and for each effect.

    Args:
        message: Seconds for a message.
        effect: Seconds for each effect.
    """

    def __init__(self, message: float = MESSAGE, effect: float = EFFECT) -> None:
        self.message = message
        self.effect = effect

    def step(
        self, server: ServerMachine, message: ServerMessage
    ) -> tuple[list[ServerEffect], float]:
        """As `Price` says."""
        effects = server.handle(message)
        return effects, self.message + self.effect * len(effects)


class Growing(Flat):
    """Each step examines all requests in the table. The machines once did this in a contended table."""

    def step(
        self, server: ServerMachine, message: ServerMessage
    ) -> tuple[list[ServerEffect], float]:
        """As `Price` says."""
        effects, price = super().step(server, message)
        return effects, price + ENTRY * server.table.size


class Calls(Flat):
    """A price for each function that the step calls. This makes simulations several times slower."""

    def step(
        self, server: ServerMachine, message: ServerMessage
    ) -> tuple[list[ServerEffect], float]:
        """As `Price` says."""
        calls = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            if event in ("call", "c_call"):
                calls += 1

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            effects = server.handle(message)
        finally:
            sys.setprofile(before)
        return effects, self.message + self.effect * len(effects) + CALL * calls
