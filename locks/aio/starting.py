"""The program's node, started by a coroutine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from locks.aio.tasks import call
from locks.model import Require
from locks.node.client.scope import Here
from locks.node.node import Node, Trace
from locks.program import default as program
from locks.runtime.first_use import Unloaded

if TYPE_CHECKING:
    from locks.program import meeting
else:
    meeting = Unloaded("locks.program.meeting")

__all__ = ["start"]


async def start(
    name: str | None = None,
    *,
    cookie: str | Path | Sequence[str] | None = None,
    listen: str | int | meeting.Address | bool | None = None,
    servers: Iterable[str] | meeting.Locator | Here | None = None,
    require: Require | None = None,
    copies: int | None = None,
    peers: Iterable[str] | None = None,
    tls: meeting.TLS | None = None,
    epmd: bool | None = None,
    net_ticktime: float | None = None,
    mesh: bool | None = None,
    allow_plaintext: bool | None = None,
    log_waits_longer_than: float | None = None,
    state: str | Path | None = None,
    limits: Mapping[str, int] | None = None,
    trace: Trace | None = None,
    register_agents: bool = False,
) -> Node:
    """Start this program's node, unless it is running, and wait until it is known whether its servers run.

    The first use of `locks.aio` does the same, with the settings of the environment. The options are those of `locks.start`.

    Returns:
        The node. `locks.stop` stops it.
    """
    return await call(program.start, **locals())
