"""The transport: connections between nodes, and what is sent over them.

* `addresses`: where nodes are, and what knows the addresses of servers that may move.
* `book`: the known nodes, and when each is dialled.
"""
