"""The program's node, started by a coroutine."""

from __future__ import annotations

from typing import Any

from locks import program
from locks.aio.tasks import call
from locks.node.node import Node

__all__ = ["start"]


async def start(name: str | None = None, **options: Any) -> Node:
    """Start this program's node, unless it is running, and wait until it is known whether its servers run.

    The first use of `locks.aio` does the same, with the settings of the environment; see `locks.start`.

    Args:
        name: As for `locks.start`.
        **options: As for `locks.start`.

    Returns:
        The node. `locks.stop` stops it.
    """
    return await call(program.start, name, **options)
