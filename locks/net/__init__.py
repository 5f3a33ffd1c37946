"""The wire: how nodes connect, and what they send each other.

* `frames.py`: bytes in, frames out. Pure.
* `hello.py`: what two programs say until both know that the other one has the secret. Pure.
* `door.py`: strangers, who have proven nothing yet; `admission.py`: hellos over connections, and which connection is kept.
* `book.py`: the known nodes, and when each is dialled; `addresses.py`: where they are.
* `relay.py`: links between nodes that are not connected, through a lock server.
* `stream.py`: a connection until then; `secrets.py`, `tls.py`: what a node proves itself with.
* `link.py`: a connection after that: its output, its input, its heartbeats.
* `budgets.py`: what one other node may keep here.
"""
