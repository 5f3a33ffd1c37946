"""A view that is kept up to date from its changes.

A view of a lock id contains a request for each row below it. To make a whole view after each change
would take time in the number of rows. So a lock server sends only the changes, and the part that
notifies the watcher makes the view from them. Each view made in this way is one that the lock table
really had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter

from locks.core.messages import ViewChange
from locks.model import Contender, LockId, Place, View

__all__ = ["FollowedView"]

FEW = 32  # up to so many changes are put in one by one; with more, the view is sorted again


class FollowedView:
    """The view of one lock id, as far as known.

    Args:
        lock_id: The lock id.
        node: The node whose lock table it is.
    """

    __slots__ = ("_change", "_in_order", "_keys", "_known", "_requests", "_view", "lock_id", "node")

    def __init__(self, lock_id: LockId, node: str) -> None:
        self.lock_id = lock_id
        self.node = node
        self._known: dict[int, Contender] = {}
        self._keys: list[tuple[Place, int]] = []  # of the requests in their order
        self._requests: list[Contender] = []
        self._in_order = True  # whether these two agree with `_known`
        self._change: ViewChange | None = None  # the last one taken in
        self._view = View(lock_id, node, (), 0)

    @classmethod
    def of(cls, view: View) -> FollowedView:
        """Begin with a whole view."""
        made = cls(view.lock_id, view.node)
        made.take_changes((), view.requests)
        made._view = view
        return made

    def clear(self) -> None:
        """Forget all requests."""
        self._in_order = False
        self._known.clear()

    def changed(self, change: ViewChange) -> View:
        """Take in the change of one step of the lock table; return the view after it."""
        if change is not self._change:
            self.take_changes(change.gone, change.requests)
            self.view(change.version)
            self._change = change
        return self._view

    def take_changes(self, gone: Iterable[int], requests: Iterable[Contender]) -> None:
        """Take in the numbers of requests that are gone, and the new states of others."""
        gone, requests = list(gone), list(requests)
        ordered = self._in_order and len(gone) + len(requests) <= FEW
        self._in_order = False
        requests_by_number = self._known
        if ordered:
            for number in gone:
                self._take_out(number)
            for request in requests:
                self._take_out(request.number)
                requests_by_number[request.number] = request
                key = _key(request)
                at = bisect_left(self._keys, key)
                self._keys.insert(at, key)
                self._requests.insert(at, request)
            self._in_order = True
        else:
            for number in gone:
                requests_by_number.pop(number, None)
            requests_by_number.update([(request.number, request) for request in requests])

    def view(self, version: int) -> View:
        """The present view.

        Args:
            version: The lock table's version to which it belongs.
        """
        if not self._in_order:
            pairs = sorted([(_key(each), each) for each in self._known.values()], key=itemgetter(0))
            self._keys = [key for key, _ in pairs]
            self._requests = [request for _, request in pairs]
            self._in_order = True
        self._view = View(self.lock_id, self.node, tuple(self._requests), version)
        return self._view

    def _take_out(self, number: int) -> None:
        before = self._known.pop(number, None)
        if before is not None:
            at = bisect_left(self._keys, _key(before))
            del self._keys[at]
            del self._requests[at]


def _key(request: Contender) -> tuple[Place, int]:
    """Sort key of requests; see `locks.core.server.tree.order_of`."""
    return (request.place, request.number)
