"""The wire: how nodes connect, and what they send each other.

* `relay.py`: links between nodes that are not connected, through a lock server.
"""
