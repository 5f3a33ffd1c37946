"""The pure core: the state machines of lock servers and agents, and the messages between them.

The core imports only the ground (`locks.model`, `locks.errors`). It has no clock, random numbers,
threads, sockets or actors. Events go in and effects come out, so the simulator can run this code
under any order of messages.

* `messages.py`: all messages and effects, as closed unions.
* `server/`: a lock server. `machine.py` takes messages in; `table.py` decides which requests are
  granted, on the data in `tree.py`; `notifier.py` decides which agents are notified of what.
* `agent/`: a transaction's agent. `machine.py` takes events in; `ledger.py` keeps the lock requests
  (`requests.py`); `deadlocks.py` finds and resolves deadlocks in the graph that `wait_graph.py`
  keeps; `fencing.py` establishes fencing tokens.
"""
