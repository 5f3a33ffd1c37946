"""A crowd of strangers at a node's door, as a process of its own: `python -m tests.cluster.crowd PORT NAME ...`.

It opens connections and lets them idle, and goes on to begin handshakes as fast as it can and to leave them half
done. It prints how many it has begun, once a second.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import ssl
import time

from locks.otp.admission.handshake import Handshake, Send


def greeting(name: str) -> bytes:
    """The first words of a node that nobody knows."""
    shake = Handshake(name="crowd@127.0.0.1", creation=5, cookie="x" * 16, challenge=1, peer=name)
    (sent,) = shake.start()
    assert isinstance(sent, Send)
    return sent.data


def client_hello() -> bytes:
    """The first words of TLS."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


def main() -> None:
    """Do it until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("name")
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--half", type=int, default=200, help="half handshakes at one time")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--hasty", action="store_true", help="close each when it has spoken")
    given = parser.parse_args()
    words = client_hello() if given.tls else greeting(given.name)
    selector = selectors.DefaultSelector()
    begun = 0

    def begin(speaks: bool) -> None:
        nonlocal begun
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", given.port))
        begun += 1
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if speaks else 0)
        selector.register(sock, wanted, speaks)

    for speaks, number in ((False, given.idle), (True, given.half)):
        for _ in range(number):
            begin(speaks)
    told = time.monotonic()
    while True:
        for key, events in selector.select(1):
            sock: socket.socket = key.fileobj  # type: ignore[assignment]
            try:
                if events & selectors.EVENT_WRITE:
                    sock.send(words)
                    if not given.hasty:
                        selector.modify(sock, selectors.EVENT_READ, True)
                        continue
                elif sock.recv(4096):  # an answer, which gets none
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            selector.unregister(sock)
            sock.close()
            begin(key.data)
        if time.monotonic() > told + 1:
            print(begun, flush=True)
            told = time.monotonic()


if __name__ == "__main__":
    main()
