"""What lives in a hub, and ends with it: greenlets, timers, and the mailbox.

A hub that is destroyed leaves its greenlets where they wait, and those who wait for them. It also leaves the watchers that are active, and
an active watcher keeps itself, its function and the hub in memory. So whatever is started in a hub that may be destroyed before the program ends is
started by this module, and `end` ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import gevent

if TYPE_CHECKING:
    from gevent.hub import Hub
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["Timer", "at_end", "end", "new_greenlet"]

PATIENCE = 1.0  # seconds to wait until the greenlets have ended
_GREENLETS, _ENDS = "_locks_greenlets", "_locks_ends"  # attributes of a hub


def new_greenlet(function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> Any:
    """Make a greenlet in the caller's hub, which is not started yet."""
    greenlet = gevent.Greenlet(function, *args)
    hub: Any = greenlet.parent
    hub.__dict__.setdefault(_GREENLETS, WeakSet()).add(greenlet)
    return greenlet


def at_end(hub: Hub, function: Callable[[], object]) -> Callable[[], object]:
    """Call a function before the hub is destroyed; returns a function that takes this back. In the hub's thread."""
    ends: dict[object, Callable[[], object]] = hub.__dict__.setdefault(_ENDS, {})
    key = object()
    ends[key] = function
    return lambda: ends.pop(key, None)


class Timer:
    """Calls a function in a hub after some time; in the hub's thread. It keeps no loop running.

    Args:
        hub: The hub.
        seconds: When it is called.
        function: The function.
        repeat: Seconds between calls after the first one; 0 for no more.
    """

    __slots__ = ("__weakref__", "_forget", "_watcher")

    def __init__(
        self, hub: Hub, seconds: float, function: Callable[[], object], repeat: float = 0.0
    ) -> None:
        self._watcher: Any = hub.loop.timer(seconds, repeat, ref=False)
        self._forget = at_end(hub, self.close)
        self._watcher.start(function)

    def close(self) -> None:
        """Don't call it any more. Calling this again has no effect."""
        watcher, self._watcher = self._watcher, None
        self._forget()
        if watcher is not None:
            watcher.stop()
            watcher.close()


def _end_all(greenlets: WeakSet[Any]) -> None:
    while left := [each for each in greenlets if not each.ready()]:
        gevent.killall(left)  # one that ends may begin another one


def end(hub: Hub) -> None:
    """End all that lives in a hub, and the hub; in its thread's main greenlet."""
    greenlets: WeakSet[Any] = hub.__dict__.get(_GREENLETS, WeakSet())
    with (
        suppress(gevent.Timeout),
        gevent.Timeout(PATIENCE),
    ):  # one of the program's may refuse to end
        _end_all(greenlets)
        gevent.sleep(0)  # their links are called in the loop
    ends: dict[object, Callable[[], object]] = hub.__dict__.get(_ENDS, {})
    for each in list(ends.values()):
        each()
    hub.destroy()
