"""The program's node and other nodes. Below, the actors of a node: thin shells around the machines of `locks.core`.

* `ports.py`: the interfaces that agents and lock servers need from their node.
* `server.py`: the lock server. `dispatch.py`: the queue of messages between it and agents, and the
  execution of effects.
* `node.py`: puts everything together; this is the `locks.node.Node` that users see.

Its rooms:

* `client`: the side of the program: the agent's actor, owners, checks, and refusals.
* `peers`: other nodes: greetings, agreement on servers, relays.
* `views`: watching lock ids of other nodes.
* `observing`: data for observers: times, counters, records, and answers to questions.
"""

from typing import TYPE_CHECKING

from locks.runtime.first_use import at_first_use

if TYPE_CHECKING:
    from locks.net.actors import RemoteError, RemoteRef
    from locks.node.node import Node
    from locks.node.peers.cluster import NodeDown, NodeUp

__all__ = ["Node", "NodeDown", "NodeUp", "RemoteError", "RemoteRef"]

_get, __dir__ = at_first_use(
    "locks.node",
    __all__,
    apart={
        "Node": "locks.node.node",
        "NodeDown": "locks.node.peers.cluster",
        "NodeUp": "locks.node.peers.cluster",
        "RemoteError": "locks.net.actors",
        "RemoteRef": "locks.net.actors",
    },
)

if not TYPE_CHECKING:
    __getattr__ = _get
