"""The pure core: the state machines of lock servers and agents, and what they say to each other.

It imports the ground (`locks.model`, `locks.errors`) and nothing else of the project: no clock, no
random numbers, no threads, no sockets, no actors. Events go in, effects come out, so everything here
can be run under any order of messages (the simulator does so).

* `messages.py`: all messages and effects, as closed unions.
* `server/`: a lock server. `machine.py` takes messages in; `table.py` decides which requests are granted,
  on the data in `tree.py`; `notifier.py` decides which agents are notified of what.
* `agent/`: a transaction's agent. `machine.py` takes events in; `ledger.py` keeps the lock requests
  (`requests.py`), `deadlocks.py` finds and resolves deadlocks in what `wait_graph.py` knows,
  `fencing.py` establishes fencing tokens.
"""
