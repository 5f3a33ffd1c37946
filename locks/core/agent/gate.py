"""The *gate*: the one node at which requests for a majority queue first.

Without a gate, simultaneous requests could queue in a different order at each node. Each pair of
them would then be a deadlock, to be resolved by a surrender. So one node decides first: of the
lock's nodes that are up, the first by name. A request for a majority still goes to all nodes at
once, because most locks are free. But

* The lock is not held before the gate has granted it. A lock that is already held stays held,
  whatever happens to the gate.
* A lock that its agent surrenders at the gate is given up at all nodes.
* Until the gate has answered, a wait at another node is reported neither to the client nor to other
  lock servers, because it may be withdrawn.
* A request that is queued at the gate is withdrawn from the other nodes, whether granted or waiting
  there. It is sent to them again when the gate has granted it.

So all requests but one stand in a single queue, and no two of them form a cycle. If the gate is
lost or silent (`locks.node.peers.silence`), the next node becomes the gate. Agents that see
different nodes up have different gates. Then cycles are possible, and are resolved like all others.

A read lock that waits for its upgrade keeps its grants on all nodes, because its client relies on
them. (Decisions 0014, 0015.)

An agent that holds a lock by majority also requests it at the remaining nodes, by *spare* requests.
The agent does not wait for them, and they are ahead of all waiting requests. So once no message is
in flight, a held lock has a request on every node that is up. If the grant of another agent blocks
a spare request, and that agent does not hold the lock, it gives way: it can't get the lock before
the holder releases it.

If an agent of a program already waits at the gate, the program's next requests go to the gate only
(`Lines`). (Decision 0014.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

from locks.core.agent.requests import LockRequest, NodeRequest, servable
from locks.model import RequestKey

__all__ = [
    "NOBODY",
    "Role",
    "answered",
    "gate",
    "is_held",
    "is_held_beside",
    "is_open",
    "role_changes",
    "waited_at",
]

NOBODY: frozenset[str] = frozenset()  # the usual case: no node is silent
Role = Literal["needed", "spare", "withdrawn"]
BY_MAJORITY: Final = frozenset(("majority", "majority_alive"))


def gate(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> NodeRequest | None:
    """The node request that must be granted first; `None` if there is no gate.

    The gate is the first node by name that is up and not silent. If all are silent, it is the first
    that is up.
    """
    if request.require != "majority" or len(request.node_requests) == 1:
        return None
    up = [node for node in request.node_requests if node in alive]
    if silent:
        up = [node for node in up if node not in silent] or up
    return request.node_requests[min(up)] if up else None


def is_open(request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY) -> bool:
    """Whether the gate has granted a lock request, or there is no gate."""
    first = gate(request, alive, silent)
    return first is None or first.grant(request.mode) is not None


def is_held(request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY) -> bool:
    """Whether enough nodes have granted a request, among them the gate unless it was held before."""
    granted = request.serves(request.mode, alive)
    return granted and (
        len(request.node_requests) == 1 or request.held or is_open(request, alive, silent)
    )


def is_held_beside(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> bool:
    """Whether a majority has granted a lock request: its requests at other nodes are spare then."""
    return request.held and request.require in BY_MAJORITY and is_held(request, alive, silent)


def role_changes(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> Iterator[tuple[NodeRequest, Role]]:
    """The node requests whose role changes.

    If a majority has granted the lock, requests at the other nodes are spare. If one node was
    enough (`any`), requests that still wait are withdrawn, so that other clients can get the lock
    there.

    Yields:
        Node requests, each with its new role.
    """
    mode = request.mode
    if request.held:
        spare: Role = "spare" if request.require in BY_MAJORITY else "withdrawn"
        for each in request.node_requests.values():
            if each.withdrawn:
                if spare == "spare":
                    yield each, spare
            elif each.waits(mode):
                yield each, spare
        return
    first = gate(request, alive, silent)
    granted = is_open(request, alive, silent)
    waits = first is not None and request.acknowledged is None and first.waits(mode)
    for each in request.node_requests.values():
        if each.withdrawn:
            if granted or each is first:
                yield each, "needed"
        elif waits and each is not first:
            yield each, "withdrawn"
        elif each.spare and each.grant(mode) is None:
            yield each, "needed"


def waited_at(
    waiting: Mapping[RequestKey, LockRequest],
    alive: Collection[str],
    silent: Collection[str] = NOBODY,
) -> Iterator[str]:
    """The nodes of waiting requests; a wait behind a gate does not count until the gate has granted."""
    for (node, _), request in waiting.items():
        first = gate(request, alive, silent)
        if first is None or first.node == node or is_open(request, alive, silent):
            yield node


def answered(request: LockRequest, alive: frozenset[str], silent: frozenset[str] = NOBODY) -> bool:
    """Whether it is known that a lock request is held or must wait, silent nodes apart.

    With a gate only the gate's answer counts. At the other nodes the request may wait for grants
    that are about to be withdrawn.
    """
    if request.held:
        return True
    speaking = alive - silent if silent else alive
    first = gate(request, alive, silent)
    can_be = servable(request.require, request.node_requests, speaking)
    if first is not None and can_be and request.acknowledged is None:
        return first.waits(request.mode)
    return request.is_answered(speaking)
