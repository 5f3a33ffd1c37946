"""Ownership: workers agree once which of them owns which resources, and then work without locks.

There are many workers and many tasks. Each task is on one resource, and two tasks on the same
resource must not run at the same time. A lock around each task needs one agreement for each task,
and workers that pick tasks on the same resource wait for each other. With ownership, the workers
share out groups of resources, and each does the tasks of its own groups. They agree only when a
worker joins or leaves.

    messages                      the messages between coordinator, participants and workers
    spread, coordinator, session  decide which worker owns what; without threads, clock and actors
    member                        the groups and present tasks of one worker; likewise
    groups                        the group of a resource
    backlog                       tasks in memory, by group
    round_robin                     the order of turns among the groups of a worker
    part                          one part of a worker, from joining to leaving
    run                           a worker's run of a backlog
    worker                        the class that users use
    agreements                    one agreement: a lock that is held briefly
    process                       the workers of one process

`locks_leader.Ownership` is the same for workers on several nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.ownership.backlog import AtHand, Backlog, Done, SetAside, TaskState, Waiting
    from locks.ownership.errors import NotOwner, OwnershipEnded, StaleToken
    from locks.ownership.groups import stable_hash
    from locks.ownership.process import Ownership
    from locks.ownership.worker import Statistics

__all__ = [
    "AtHand",
    "Backlog",
    "Done",
    "NotOwner",
    "Ownership",
    "OwnershipEnded",
    "SetAside",
    "StaleToken",
    "Statistics",
    "TaskState",
    "Waiting",
    "stable_hash",
]

_get, __dir__ = at_first_use(
    "locks.ownership",
    __all__,
    together=(
        "locks.ownership.backlog",
        "locks.ownership.errors",
        "locks.ownership.groups",
        "locks.ownership.process",
        "locks.ownership.worker",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
