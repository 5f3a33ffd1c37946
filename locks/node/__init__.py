"""The actors of a node: thin shells around the machines of `locks.core`.

* `ports.py`: the interfaces that agents and lock servers need from their node.
* `server.py`: the lock server. `dispatch.py`: the queue of messages between it and agents, and the
  execution of effects.
* `node.py`: puts everything together; this is the `locks.Node` that users see.

Its rooms:

* `client`: the side of the program: the agent's actor, owners, checks, and refusals.
* `peers`: other nodes: greetings, agreement on servers, relays, and clients on other nodes.
* `views`: watching lock ids of other nodes.
* `observing`: data for observers: times, counters, records, and answers to questions.
* `original`: nodes that run the Erlang original. It is loaded when the first of them appears.
"""
