"""Machines of the original's model that can be saved, compared, and continued."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["Saved"]


class Saved:
    """A machine whose mutable state is a tuple.

    Attributes:
        STATE: The names of the attributes that change.
    """

    STATE: ClassVar[tuple[str, ...]]

    @property
    def state(self) -> tuple[Any, ...]:
        """All that changes in it."""
        return tuple(getattr(self, name) for name in self.STATE)

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(self.STATE, state, strict=True):
            setattr(self, name, value)
