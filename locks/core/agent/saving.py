"""The state of an agent's machine, to go back to.

The state of a new machine is what it was made with; any other is a copy of all that it has. Who waits is
known to a machine by identity only, and is not copied.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import deepcopy
from typing import Any

from locks.model import AgentId

__all__ = ["MadeAgent", "SavedAgent", "load_agent", "save_agent"]


MadeAgent = tuple[AgentId, str, Iterable[str], bool, bool, bool, bool]
"""What a machine is made with; see `AgentMachine`."""
SavedAgent = MadeAgent | dict[str, Any]


def save_agent(machine: Any) -> dict[str, Any]:
    """The state of an `AgentMachine`."""
    waits: list[Hashable] = [*machine._waits.opaque, *machine._tokens.waits]
    memo: dict[int, Any] = {id(wait): wait for wait in waits}
    return _copy({name: getattr(machine, name) for name in machine.__slots__}, memo)


def load_agent(machine: Any, saved: SavedAgent) -> None:
    """Have an `AgentMachine` go back to a state; the state can be used again."""
    if isinstance(saved, tuple):
        machine.__init__(*saved)
        return
    waits: list[Hashable] = [*saved["_waits"].opaque, *saved["_tokens"].waits]
    for name, value in _copy(saved, {id(wait): wait for wait in waits}).items():
        setattr(machine, name, value)


def _copy(state: dict[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = deepcopy(state, memo)
    return copied
