"""The plan which worker owns which groups: evenly, and with as few moves as possible.

With G groups and W workers, each worker owns G // W groups, and G % W of the workers one more.
Workers with most groups get the larger shares, so that none gives away a group without need. Then
workers with too many groups give some away. These, and the groups without an owner, go to workers
with too few. A group moves only if its owner is gone or has more than its share. With fewer moves,
a worker would keep more than its share.

Rejected: rendezvous hashing, with which workers need not know the owners. There, too, groups move
only to newcomers and from leavers. But 64 groups over 8 workers are spread as 4 to 12 for each
(`tests/unit/test_ownership.py` counts), instead of 8. And here the coordinator knows the owners
anyway.
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
        owners: The present owners. Owners that are not among the workers do not count.
        workers: The workers that can own groups, each once; in a tie, the first ones get more.

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
