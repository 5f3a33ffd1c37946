"""Together with the original: its messages and ours, translated into each other.

Python nodes and Erlang nodes with the original (Ulf Wiger's `locks`) talk over the distribution
protocol. Their lock servers and agents follow other rules and say other things. Two classes stand
between them. Both are pure: terms and messages in, what is to be done out.

* `OriginalAgents`: the original's agents at our lock server.
* `OriginalServers`: our agents at the original's lock servers, and among its agents.

The references of agents are their pids, and so their order is the same on both sides: the number first,
then the node. Ours are always larger than those of the original. So whenever there is a deadlock with
agents of both kinds, one of ours must yield, and the original need not understand how.

What lock servers guarantee is each their own affair: at the original's, its faults remain.
"""

from locks.node.original.agents import OriginalAgents, OriginalWatcher, around
from locks.node.original.forms import (
    CastServer,
    Command,
    DemonitorPid,
    MonitorPid,
    SendTerm,
    ToLockServer,
    watcher_request,
)
from locks.node.original.servers import OriginalServers, cannot_unlock, is_election

__all__ = [
    "CastServer",
    "Command",
    "DemonitorPid",
    "MonitorPid",
    "OriginalAgents",
    "OriginalServers",
    "OriginalWatcher",
    "SendTerm",
    "ToLockServer",
    "around",
    "cannot_unlock",
    "is_election",
    "watcher_request",
]
