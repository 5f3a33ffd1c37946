"""What the demos share: a node of their own, and a Ctrl-C that ends them silently."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import gevent

from locks.node import Node
from locks.program.default import stand_in

__all__ = ["alone"]


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Provide a node for a block, without the servers that this program is configured for.

    Ctrl-C ends the block. Without this handler, gevent would raise it in whichever greenlet runs, and print a traceback.

    Args:
        name: The node's name.
    """
    here = gevent.getcurrent()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if gevent.getcurrent() is here:
            raise KeyboardInterrupt
        gevent.kill(here, KeyboardInterrupt)

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, interrupted)
    node = Node(name)
    try:
        with stand_in(node):
            yield
    finally:
        node.stop()
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
