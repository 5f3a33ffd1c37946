"""The actors of a node: thin shells around the machines of `locks.core`.

* `ports.py`: what agents and lock servers need of their node.
* `server.py`: the lock server. `dispatch.py`: the queue of messages between it and agents, and how effects are carried out.
* `node.py`: puts all of it together; this is the `locks.Node` that users see.

Its rooms:

* `client`: what programs hold and wait with: the agent's actor, owners, checks, and refusals.
* `peers`: other nodes: greetings, agreement on servers, relays, and clients on other nodes.
* `views`: watching lock ids of other nodes.
* `observing`: what observers are told: times, counters, records, and answers to questions.
* `original`: nodes that run the Erlang original. It is loaded when the first of them shows up.
"""
