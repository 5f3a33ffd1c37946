"""Who holds, who waits, since when and behind whom, on all lock servers of a program.

* `gather.py`: asks the lock servers.
* `graph.py`: the wait-for graph of all that they say; pure.
* `stories.py`: the same in sentences; pure.
"""
