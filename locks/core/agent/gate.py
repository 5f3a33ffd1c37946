"""Where those who want a majority of some nodes queue: at one of them first, the *gate*.

If all nodes were asked in the same way, those who ask at the same time would stand in another order at each
node. Each two of them would be a circle, and be told apart by a surrender. So one node comes first: of the
nodes of the lock that are up, the first by name. A request for a majority goes to all of them at once, as
most find nobody there. But

* it is not held before the gate has granted it (what is held already stays so, whatever becomes of the gate);
* until the gate has answered, a wait at another node is not told to anybody: it may be given up;
* who has to wait at the gate gives up what it has or waits for at the other nodes, and asks them again
  when the gate has granted it.

So all but one stand in one queue, and wait in no circle with each other. If the gate is lost, the next node is
the gate. Who sees other nodes up has another gate: then there may be circles, which are resolved like all others.

A reader that waits for its upgrade keeps what its client relies on, everywhere. (Decision 0040.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from locks.core.agent.requests import LockRequest, NodeRequest, servable
from locks.model import RequestKey

__all__ = ["answered", "gate", "is_held", "is_open", "turns", "waited_at"]


def gate(request: LockRequest, alive: Collection[str]) -> NodeRequest | None:
    """Where a lock request has to be granted first; nothing if that is nowhere."""
    if request.require != "majority" or len(request.node_requests) == 1:
        return None
    up = [node for node in request.node_requests if node in alive]
    return request.node_requests[min(up)] if up else None


def is_open(request: LockRequest, alive: Collection[str]) -> bool:
    """Whether the gate, if there is one, has granted a lock request."""
    first = gate(request, alive)
    return first is None or first.grant(request.mode) is not None


def is_held(request: LockRequest, alive: Collection[str]) -> bool:
    """Whether enough is granted for a lock request; the gate among it, unless it was held before."""
    granted = request.serves(request.mode, alive)
    return granted and (len(request.node_requests) == 1 or request.held or is_open(request, alive))


def turns(request: LockRequest, alive: Collection[str]) -> Iterator[tuple[NodeRequest, bool]]:
    """What to ask for again, and what to give up, if a lock request is not held.

    Yields:
        Node requests; with each, whether it is wanted again.
    """
    if request.held:
        return
    first = gate(request, alive)
    granted = is_open(request, alive)
    waits = first is not None and request.acknowledged is None and first.waits(request.mode)
    for each in request.node_requests.values():
        if each.withdrawn and (granted or each is first):
            yield each, True
        elif waits and not each.withdrawn and each is not first:
            yield each, False


def waited_at(waiting: Mapping[RequestKey, LockRequest], alive: Collection[str]) -> Iterator[str]:
    """The nodes of those requests that wait, but for waits that end when the gate says so."""
    for (node, _), request in waiting.items():
        first = gate(request, alive)
        if first is None or first.node == node or is_open(request, alive) or request.held:
            yield node


def answered(request: LockRequest, alive: Collection[str]) -> bool:
    """Whether lock servers have said that a lock request is held, or has to wait.

    At nodes behind the gate it may have to wait for those who are just about to give up what they have there: that is
    not the answer.
    """
    if request.held:
        return True
    first = gate(request, alive)
    can_be = servable(request.require, request.node_requests, alive)
    if first is not None and can_be and request.acknowledged is None:
        return first.waits(request.mode)
    return request.is_answered(alive)
