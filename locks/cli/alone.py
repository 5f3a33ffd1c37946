"""What the demos have in common: a node that is theirs alone, and a Ctrl-C that ends them without a word."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import gevent

from locks import Node
from locks.program import stand_in

__all__ = ["alone"]


@contextmanager
def alone(name: str, trace: Callable[[Any, Any, Any], object] | None = None) -> Iterator[None]:
    """Have a node for a block, whatever is said elsewhere of this program's servers: a demo has no business with those.

    Ctrl-C ends the block. Without this, gevent would tell it to the greenlet that happens to run, and print how that ended.

    Args:
        name: The node's name.
        trace: As for `locks.start`.
    """
    here = gevent.getcurrent()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if gevent.getcurrent() is here:
            raise KeyboardInterrupt
        gevent.kill(here, KeyboardInterrupt)

    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, interrupted)
    node = Node(name, trace)
    try:
        with stand_in(node):
            yield
    finally:
        node.stop()
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
