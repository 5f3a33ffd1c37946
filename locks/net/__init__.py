"""The wire: how nodes connect, and what they send each other.

* `frames.py`: bytes in, frames out. Pure.
* `link.py`: one connection: its output, its input, its heartbeats.
* `budgets.py`: what one other node may keep here.
"""
