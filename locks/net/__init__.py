"""The wire: how nodes connect, and what they send each other. `docs/protocol.md` describes the bytes.

From the bytes upwards:

* `frames.py`: bytes in, frames out. `hello.py`: what two programs say until both know that the other one has the secret. Both are pure.
* `door.py`: strangers, who have proven nothing yet. `admission.py`: hellos over connections, and which connection is kept.
  `stream.py`: a connection until then. `secrets.py`, `tls.py`: what a node proves itself with.
* `link.py`: a connection after that: its output and its input.
* `book.py`: the known nodes, and when each is dialled. `addresses.py`: where they are.
* `network.py`: puts all of this together; heartbeats, and the loss of silent nodes.
* `messages.py`: the frames, a closed union, with their bytes. `exchange.py`: gives each to the part of the node that takes it in, and
  answers calls. `budgets.py`, `versions.py`: what one other node may keep here, and claim.
* `actors.py`: actors of other nodes. `values.py`, `raised.py`: what is sent to them, and the errors that they raise.
* `relay.py`: links between nodes that are not connected, through a lock server.
* `notices.py`: warnings about other nodes, few and short.

All is done in the node's turn, except what waits: accepting, dialling and hellos are greenlets. A fault of another node ends its
connection, and nothing else; the loss is told to whatever depends on it: agents, monitors, calls, readers of views.
"""
