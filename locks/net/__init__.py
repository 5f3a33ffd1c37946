"""How nodes talk with each other.

* `frames.py`: bytes in, frames out (pure).
* `link.py`: one connection: its output, its input, its heartbeats.
* `budgets.py`: what one other node may keep here.
"""
