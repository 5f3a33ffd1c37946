"""Where those who want a majority of some nodes queue: at one of them first, the *gate*.

If all nodes were asked in the same way, those who ask at the same time would stand in another order at each
node. Each two of them would be a circle, and be told apart by a surrender. So one node comes first: of the
nodes of the lock that are up, the first by name. A request for a majority goes to all of them at once, as
most find nobody there. But

* it is not held before the gate has granted it (what is held already stays so, whatever becomes of the gate);
* until the gate has answered, a wait at another node is not told to anybody: it may be given up;
* who has to wait at the gate gives up what it has or waits for at the other nodes, and asks them again
  when the gate has granted it.

So all but one stand in one queue, and wait in no circle with each other. If the gate is lost, or says nothing
(`locks.otp.links.silence`), the next node is the gate. Who sees other nodes up has another gate: then there may be circles, which
are resolved like all others.

A reader that waits for its upgrade keeps what its client relies on, everywhere. (Decisions 0040, 0076.)

What is held is requested at the other nodes, too, by *spare* requests: nobody waits for these, and they stand ahead of all that
wait. So a lock that is held stands on all nodes that are up, as soon as nothing is in flight. Where a grant keeps a spare
request waiting, its agent gives way if it does not hold the lock: it can't hold it before the other one releases it.

A program whose agents already wait at the gate has its next ones request there alone (`Lines`). (Decision 0073.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

from locks.core.agent.requests import LockRequest, NodeRequest, servable
from locks.model import RequestKey

__all__ = [
    "NOBODY",
    "Turn",
    "answered",
    "gate",
    "is_held",
    "is_held_beside",
    "is_open",
    "turns",
    "waited_at",
]

NOBODY: frozenset[str] = frozenset()  # no node is silent, as mostly
Turn = Literal["needed", "spare", "withdrawn"]
BY_MAJORITY: Final = frozenset(("majority", "majority_alive"))


def gate(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> NodeRequest | None:
    """Where a lock request has to be granted first; nothing if that is nowhere.

    Of the nodes that are up, it is the first by name that is not silent; if all are silent, the first one.
    """
    if request.require != "majority" or len(request.node_requests) == 1:
        return None
    up = [node for node in request.node_requests if node in alive]
    if silent:
        up = [node for node in up if node not in silent] or up
    return request.node_requests[min(up)] if up else None


def is_open(request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY) -> bool:
    """Whether the gate, if there is one, has granted a lock request."""
    first = gate(request, alive, silent)
    return first is None or first.grant(request.mode) is not None


def is_held(request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY) -> bool:
    """Whether enough is granted for a lock request; the gate among it, unless it was held before."""
    granted = request.serves(request.mode, alive)
    return granted and (
        len(request.node_requests) == 1 or request.held or is_open(request, alive, silent)
    )


def is_held_beside(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> bool:
    """Whether a majority has granted a lock request, so that it is spare at all other nodes."""
    return request.held and request.require in BY_MAJORITY and is_held(request, alive, silent)


def turns(
    request: LockRequest, alive: Collection[str], silent: Collection[str] = NOBODY
) -> Iterator[tuple[NodeRequest, Turn]]:
    """What is to become of node requests, as far as that changes.

    A lock that a majority has granted is requested at the other nodes, but its agent does not wait for it there. Of one that
    any node may grant, what still waits is withdrawn: another client may get it there.

    Yields:
        Node requests; with each, what it is to be.
    """
    mode = request.mode
    if request.held:
        spare: Turn = "spare" if request.require in BY_MAJORITY else "withdrawn"
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
    """The nodes of those requests that wait, but for waits that end when the gate says so."""
    for (node, _), request in waiting.items():
        first = gate(request, alive, silent)
        if first is None or first.node == node or is_open(request, alive, silent):
            yield node


def answered(request: LockRequest, alive: frozenset[str], silent: frozenset[str] = NOBODY) -> bool:
    """Whether lock servers have said that a lock request is held, or has to wait; silent ones are not waited for.

    At nodes behind the gate it may have to wait for those who are just about to give up what they have there: that is
    not the answer.
    """
    if request.held:
        return True
    speaking = alive - silent if silent else alive
    first = gate(request, alive, silent)
    can_be = servable(request.require, request.node_requests, speaking)
    if first is not None and can_be and request.acknowledged is None:
        return first.waits(request.mode)
    return request.is_answered(speaking)
