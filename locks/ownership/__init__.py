"""Which worker owns which resources: agree on that once, and then work without asking.

Many workers, many tasks, each task on one resource, never two on the same one at a time. A lock around
each task is one agreement for each task, and workers that happen to pick tasks on the same resource
wait for each other. Here the workers share out groups of resources instead, and each one does the
tasks that are its own. They agree only when a worker comes or goes.

    messages                      what coordinator, participants and workers say to each other
    spread, coordinator, session  decide who owns what; they know no threads, no clock, no actors
    member                        what one worker owns and has at hand; the same
    groups                        which group a resource belongs to
    backlog                       tasks in memory, by group
    turns                         whose turn it is among the groups of a worker
    part                          one part of a worker, from joining to leaving
    run                           a worker's run of a backlog
    worker                        what users hold in their hands
    agreements                    one agreement: a lock that is taken for a moment
    process                       the workers of one process

`locks_leader.Ownership` is the same for workers on several nodes.
"""

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
