"""Which worker is to own which groups: evenly, and so that as few groups move as can be.

With G groups and W workers each is to own G // W groups, and G % W of them one more. Those that have
most get the larger shares, so that none gives away a group without need. Then workers with too many
give some away, and these, with the groups that have no owner, go to workers with too few. A group
moves only because its owner is gone, or because its owner has more than its share: fewer moves
would leave a worker with more than that.

Rejected: rendezvous hashing, with which workers need not know the owners. Groups move only to
newcomers and from leavers there, too, but 64 groups over 8 workers come out as 4 to 12 for each
(`tests/unit/test_ownership.py` counts), where here it is 8. Here the coordinator knows the owners anyway.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

__all__ = ["spread"]

W = TypeVar("W", bound=Hashable)


def spread(groups: int, owners: Mapping[int, W], workers: Sequence[W]) -> dict[int, W]:
    """Choose an owner for each group.

    Args:
        groups: How many there are; they are numbered from 0.
        owners: The present owners. Those that are not among the workers do not count.
        workers: Those that can own groups, each once; the first get more if all else is equal.

    Returns:
        An owner for each group; none if there are no workers.
    """
    has: dict[W, list[int]] = {worker: [] for worker in workers}
    if not has:
        return {}
    free = []
    for group in range(groups):
        owner = owners.get(group)
        if owner is not None and owner in has:
            has[owner].append(group)
        else:
            free.append(group)
    share, more = divmod(groups, len(has))
    ranked = sorted(has, key=lambda worker: -len(has[worker]))
    shares = {worker: share + (place < more) for place, worker in enumerate(ranked)}
    for worker, owned in has.items():
        free += owned[shares[worker] :]
        del owned[shares[worker] :]
    free.sort(reverse=True)
    for worker, owned in has.items():
        while len(owned) < shares[worker]:
            owned.append(free.pop())
    return {group: worker for worker, owned in has.items() for group in owned}
