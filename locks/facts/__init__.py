"""Which transactions hold locks, which are waiting, since when and for whom, on all lock servers of a program.

* `look.py`: the answers of the lock servers at one time; pure.
* `gather.py`: asks the lock servers, and through them other nodes.
* `around.py`: elections and process groups; pure.
* `graph.py`: the wait-for graph of all answers; pure.
* `stories.py`: the graph in sentences; pure.
* `pictures.py`: the graph as a picture; pure.
* `live.py`: the frames of `locks top`; pure.
"""
