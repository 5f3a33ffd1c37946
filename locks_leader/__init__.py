"""Leader election with state hand-over, on the locks of `locks`.

A Python port of the behaviour `locks_leader` of Ulf Wiger's Erlang application `locks`. Candidates ask
for one write lock on all nodes; the one that gets it leads, brings the others' state together and hands it
over. There are no time-outs and no back-off.

    import locks_leader

    class Counter(locks_leader.Behaviour):
        ...

    counter = locks_leader.start(Counter)
"""

# isort: off
from locks_leader import whose  # noqa: F401  # before anything imports `locks`: it refuses somebody else's

# isort: on
from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks_leader.api import (
        Info,
        call,
        cast,
        info,
        leader_call,
        leader_cast,
        leader_reply,
        reply,
        start,
    )
    from locks_leader.behaviour import NO_REPLY, Behaviour, NewAndOld, OnlyNew, SurrenderTo
    from locks_leader.election import Election, Leadership
    from locks_leader.errors import LeaderDied, LeadershipLost, LeaderTimeout, NotLeader
    from locks_leader.ownership import Ownership
    from locks_leader.policy import Policy, quorum
    from locks_leader.state import Answers, Caller, ElectionState

__all__ = [
    "NO_REPLY",
    "Answers",
    "Behaviour",
    "Caller",
    "Election",
    "ElectionState",
    "Info",
    "LeaderDied",
    "LeaderTimeout",
    "Leadership",
    "LeadershipLost",
    "NewAndOld",
    "NotLeader",
    "OnlyNew",
    "Ownership",
    "Policy",
    "SurrenderTo",
    "call",
    "cast",
    "info",
    "leader_call",
    "leader_cast",
    "leader_reply",
    "quorum",
    "reply",
    "start",
]

_get, __dir__ = at_first_use(
    "locks_leader",
    __all__,
    together=(
        "locks_leader.errors",
        "locks_leader.policy",
        "locks_leader.behaviour",
        "locks_leader.state",
        "locks_leader.api",
        "locks_leader.election",
        "locks_leader.ownership",
    ),
)

if not TYPE_CHECKING:
    __getattr__ = _get
