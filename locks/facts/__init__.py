"""Who holds, who waits, since when and behind whom, on all lock servers of a program.

* `look.py`: what the lock servers have told at one time; pure.
* `gather.py`: asks the lock servers, and by way of them other nodes.
* `around.py`: elections and process groups; pure.
* `graph.py`: the wait-for graph of all that they say; pure.
* `stories.py`: the same in sentences; pure.
* `pictures.py`: the same as a picture; pure.
* `live.py`: what is shown of it again and again; pure.
"""
