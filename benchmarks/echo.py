"""A bare gevent TCP echo, the yardstick for what goes between nodes.

    python -m benchmarks.echo server ANSWER      # prints its port; answers each piece with so many bytes
    python -m benchmarks.echo client PORT SIZE   # for each number on its input so many echoes of a piece of
                                                 # so many bytes; prints the seconds each took, a JSON list

Each end is a greenlet that sends, and waits for what comes; nothing else.
"""

from __future__ import annotations

import json
import sys
import time

from gevent import socket

__all__ = ["client", "server"]

PIECE = 65536


def server(answer: int) -> None:
    """Answer one client until it closes."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        print(door.getsockname()[1], flush=True)
        connection, _ = door.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = bytes(answer)
    with connection:
        while connection.recv(PIECE):
            connection.sendall(data)


def client(port: int, size: int) -> None:
    """Do so many echoes as each line of the input says."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    data = bytes(size)
    now = time.perf_counter
    with connection:
        for line in sys.stdin:
            found = []
            for _ in range(int(line)):
                begun = now()
                connection.sendall(data)
                connection.recv(PIECE)
                found.append(now() - begun)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        server(int(sys.argv[2]))
    else:
        client(int(sys.argv[2]), int(sys.argv[3]))
