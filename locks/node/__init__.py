"""The actors of a node: thin shells around the machines of `locks.core`.

* `ports.py`: what agents and lock servers need of their node.
* `dispatch.py`: the queue of messages between them, and how effects are carried out.
* `server.py`, `agent.py`: the lock server and the agents.
* `cluster.py`: other nodes; `remote_clients.py`: agents and clients on different nodes;
  `original_peers.py`: nodes that run the original.
* `node.py`: puts them together; this is the `locks.Node` that users see.
"""
