"""What is different for an agent that asks for a unit of a counted lock."""

from __future__ import annotations

from locks.core.agent.requests import LockRequest
from locks.errors import ConflictingRequest, InvalidOption
from locks.model import LockId, Mode, Require, show, unit_at, units_of

__all__ = ["another_number", "check_counted", "unit_of"]


def check_counted(lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require) -> None:
    """Refuse what there is not of counted locks.

    With n units at each of several nodes, and a majority needed, more than n could have a majority: of 9
    units on 3 nodes 4 clients could have 2 each (decision 0038).

    Raises:
        InvalidOption: It is to be read, or is needed on some of several nodes.
    """
    if not units_of(lock_id):
        return
    if mode != "write":
        raise InvalidOption(
            f"{show(lock_id)} is a counted lock, of which one can have a unit; it can't be asked for "
            f'as mode {mode!r}. Ask for it as "write"',
            mode=mode,
        )
    if len(nodes) > 1 and require != "all":
        raise InvalidOption(
            f"{show(lock_id)} is a counted lock, and asked for on {len(nodes)} nodes with "
            f"require={require!r}: more clients could have a unit on enough of them than there are units. "
            'Ask for it with require="all", or on one node',
            require=require,
        )


def another_number(lock_id: LockId, units: int, node: str) -> ConflictingRequest:
    """The error for who asks for a counted lock that others use with another number of units.

    There are none at a lock server that knows no counted locks.
    """
    if not units:
        return ConflictingRequest(
            f"{show(lock_id)} is a counted lock, and {node} runs the original, which has none of these. "
            "Ask for it on other nodes",
            lock_id=lock_id,
        )
    return ConflictingRequest(
        f"{show(lock_id[:-1])} has {units} units on {node}, as others use it; it was asked for as "
        f"one of {units_of(lock_id)}. Let all who use it name the same number",
        lock_id=lock_id,
    )


def unit_of(request: LockRequest) -> int | None:
    """Which unit an agent has by a lock request that is held, counted from 0; on several nodes, at the first."""
    grant = request.node_requests[min(request.node_requests)].grant(request.mode)
    return None if grant is None else unit_at(grant)
