"""The program's node, started by a coroutine."""

from __future__ import annotations

from typing import Any

from locks import program
from locks.aio.tasks import call
from locks.node.node import Node

__all__ = ["start"]


async def start(name: str | None = None, **options: Any) -> Node:
    """Start this program's node, unless it runs already, and wait until its servers are known to be there, or not.

    The first use of `locks.aio` does the same, with what the environment says; see `locks.start`.

    Args:
        name: As for `locks.start`.
        **options: The same.

    Returns:
        The node. `locks.stop` stops it.
    """
    return await call(program.start, name, **options)
