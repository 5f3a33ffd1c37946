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
            f"can't request {show(lock_id)} "
            f'in mode {mode!r}: it is a counted lock. Use mode "write", which takes one unit',
            mode=mode,
        )
    if len(nodes) > 1 and require != "all":
        raise InvalidOption(
            f"can't request {show(lock_id)} on {len(nodes)} nodes with "
            f"require={require!r}: more clients than the counted lock has units could then hold one. "
            'Use require="all", or one node',
            require=require,
        )


def another_number(lock_id: LockId, units: int, node: str) -> ConflictingRequest:
    """The error for who asks for a counted lock that others use with another number of units.

    There are none at a lock server that knows no counted locks.
    """
    if not units:
        return ConflictingRequest(
            f"can't request the counted lock {show(lock_id)} on {node}: that node runs the Erlang original, which has no counted locks. "
            "Use other nodes",
            lock_id=lock_id,
        )
    return ConflictingRequest(
        f"{show(lock_id[:-1])} was requested with {units_of(lock_id)} units, "
        f"but other programs use it with {units} units on {node}. Use the same number everywhere",
        lock_id=lock_id,
    )


def unit_of(request: LockRequest) -> int | None:
    """Which unit an agent has by a lock request that is held, counted from 0; on several nodes, at the first."""
    grant = request.node_requests[min(request.node_requests)].grant(request.mode)
    return None if grant is None else unit_at(grant)
