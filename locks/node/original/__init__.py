"""Translation between the original's messages and ours.

Python nodes and Erlang nodes with the original (Ulf Wiger's `locks`) communicate over the
distribution protocol. The original's lock servers and agents follow other rules and send other
messages. Two classes translate between them. Both are pure: terms and messages in, commands out.

* `OriginalAgents`: the original's agents at our lock server.
* `OriginalServers`: our agents at the original's lock servers, and among its agents.

The references of agents are their pids, so their order is the same on both sides: first the number,
then the node. Ours are always larger than those of the original. So in each deadlock with agents of
both kinds, one of ours must yield, and the original need not understand how.

Each lock server keeps its own guarantees: at the original's, its faults remain.
"""
