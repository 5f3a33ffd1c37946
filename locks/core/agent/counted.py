"""Rules for an agent's requests for counted locks."""

from __future__ import annotations

from locks.core.agent.requests import LockRequest
from locks.errors import ConflictingRequest, InvalidOption
from locks.model import LockId, Mode, Require, show, unit_at, units_of

__all__ = ["another_number", "check_counted", "unit_of"]


def check_counted(lock_id: LockId, mode: Mode, nodes: tuple[str, ...], require: Require) -> None:
    """Refuse requests that counted locks do not support.

    If each of several nodes has n units and a majority of the nodes is enough, more than n clients
    can hold the lock. With 3 units on each of 3 nodes there are 9 units, and 4 clients can hold 2
    each (decision 0008).

    Raises:
        InvalidOption: The mode is not write, or the lock is not required on all of several nodes.
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
    """The error for a request whose number of units differs from the number in use."""
    return ConflictingRequest(
        f"{show(lock_id[:-1])} was requested with {units_of(lock_id)} units, "
        f"but other programs use it with {units} units on {node}. Use the same number everywhere",
        lock_id=lock_id,
    )


def unit_of(request: LockRequest) -> int | None:
    """The number of the unit that a request holds, from 0; on several nodes, that at the first one."""
    grant = request.node_requests[min(request.node_requests)].grant(request.mode)
    return None if grant is None else unit_at(grant)
