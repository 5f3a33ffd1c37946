"""The terms of lock requests (mode, nodes, requirement), and their check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from locks.core.agent.counted import check_counted
from locks.core.agent.requests import LockRequest, cannot_serve, servable
from locks.errors import ConflictingRequest
from locks.model import LockId, Mode, Require, covers, join, show

__all__ = ["Object", "check_terms"]

Object = tuple[LockId, Mode, tuple[str, ...], Require]
"""A requested lock: id, mode, nodes, and how many of the nodes are needed."""


def check_terms(
    requests: Mapping[LockId, LockRequest],
    alive: frozenset[str],
    objects: Sequence[Object],
    await_nodes: bool,
) -> None:
    """Raise unless lock requests can be taken in, one after the other.

    Args:
        requests: The earlier lock requests.
        alive: The nodes whose lock servers are up.
        objects: The new lock requests.
        await_nodes: Whether to wait for nodes that are down.

    Raises:
        ConflictingRequest: An id was requested before on other terms.
        InvalidOption: Counted locks do not support such a request.
        CannotServe: Too few of the nodes are up, and they are not awaited.
    """
    asked: dict[LockId, tuple[Mode, set[str], Require]] = {}
    for lock_id, mode, nodes, require in objects:
        if type(lock_id[-1]) is tuple:
            check_counted(lock_id, mode, nodes, require)
        request = requests.get(lock_id)
        if request is None and len(objects) == 1 and alive.issuperset(nodes):
            return  # the usual case
        if request is not None:
            terms = (request.mode, set(request.node_requests), request.require)
            asked.setdefault(lock_id, terms)
        before = asked.get(lock_id)
        if before is not None:
            upgrade = not covers(before[0], mode)
            if require != before[2] or (upgrade and not before[1] <= set(nodes)):
                raise ConflictingRequest(
                    f"{show(lock_id)} was requested before on {', '.join(sorted(before[1]))} "
                    f"with require={before[2]!r}, and now on {', '.join(nodes)} "
                    f"with require={require!r}. Unlock it first, or use the same nodes and requirement",
                    lock_id=lock_id,
                )
        all_up = alive.issuperset(nodes)  # a cheap test that is usually true
        if not (all_up or await_nodes or servable(require, nodes, alive)):
            raise cannot_serve(lock_id, nodes, alive)
        if before is not None:
            asked[lock_id] = (join(mode, before[0]), before[1] | set(nodes), require)
        else:
            asked[lock_id] = (mode, set(nodes), require)
