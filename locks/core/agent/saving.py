"""Saving and loading the state of an agent's machine.

The state of a new machine is the arguments that it was made with. Any other state is a copy of all
its parts. Waits are not copied: a machine knows them by identity only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from locks.core.agent.deadlocks import Resolver
from locks.core.agent.fencing import Tokens
from locks.core.agent.hold_ups import HoldUps
from locks.core.agent.ledger import Ledger
from locks.core.agent.requests import ClientWait, ClientWaits, Confirmed, LockRequest, NodeRequest
from locks.core.agent.wait_graph import WaitGraph
from locks.model import AgentId

__all__ = ["MadeAgent", "SavedAgent", "load_agent", "save_agent"]


MadeAgent = tuple[AgentId, str, Iterable[str], bool, bool, bool, bool, frozenset[str]]
"""The arguments that a machine is made with; see `AgentMachine`."""
SavedAgent = MadeAgent | dict[str, Any]

PARTS = (
    *(ClientWait, ClientWaits, Confirmed, HoldUps, Ledger, LockRequest, NodeRequest),
    *(Resolver, Tokens, WaitGraph),
)
"""The classes of a machine's parts. Apart from these and containers, a machine consists of values that never change."""


def save_agent(machine: Any) -> dict[str, Any]:
    """The state of an `AgentMachine`."""
    memo: dict[int, Any] = {}
    return {name: _copy(getattr(machine, name), memo) for name in fields_of(machine)}


def load_agent(machine: Any, saved: SavedAgent) -> None:
    """Return an `AgentMachine` to a state; the state can be used again."""
    if isinstance(saved, tuple):
        machine.__init__(*saved)
        return
    memo: dict[int, Any] = {}
    for name, value in saved.items():
        setattr(machine, name, _copy(value, memo))


def fields_of(part: Any) -> list[str]:
    """The names of all attributes of an object of the core."""
    named: list[str] = [*getattr(part, "__dict__", ())]
    for kind in type(part).__mro__:
        named += getattr(kind, "__slots__", ())
    return list(dict.fromkeys(named))


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy of a value; a part that occurs twice is copied once."""
    kind: Any = type(value)
    if not (kind in _CONTAINERS or isinstance(value, PARTS)):
        return value  # a value that never changes, or a wait
    if kind is tuple:  # its identity means nothing
        return tuple([_copy(each, memo) for each in value])
    if id(value) in memo:
        return memo[id(value)]
    copied: Any
    if kind is list:
        copied = memo[id(value)] = []
        copied += [_copy(each, memo) for each in value]
    elif kind is dict:
        copied = memo[id(value)] = {}
        copied.update([(key, _copy(each, memo)) for key, each in value.items()])
    elif kind is set:
        copied = memo[id(value)] = set(value)
    else:
        copied = memo[id(value)] = kind.__new__(kind)
        for name in fields_of(value):
            setattr(copied, name, _copy(getattr(value, name), memo))
    return copied


_CONTAINERS = {tuple, list, set, dict}
