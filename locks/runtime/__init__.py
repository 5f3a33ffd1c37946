"""The runtime: actors on gevent, monitors and links, waits across threads, an executor for the node.

It depends on Pykka and gevent, and contains nothing about locks. Importing it patches nothing, and
makes no hub and no thread.
"""

from locks.runtime.actor import GeventActor, GeventFuture, ask, end_all, kill, tell
from locks.runtime.executor import Executor
from locks.runtime.exits import exit_client
from locks.runtime.identity import Listener, Own, client_key
from locks.runtime.monitor import (
    CannotMonitor,
    Client,
    Down,
    Ending,
    Killed,
    Monitor,
    acting,
    current_client,
    monitor,
    watch_end,
)
from locks.runtime.waiter import Channel, Event, Waiter

__all__ = [
    "CannotMonitor",
    "Channel",
    "Client",
    "Down",
    "Ending",
    "Event",
    "Executor",
    "GeventActor",
    "GeventFuture",
    "Killed",
    "Listener",
    "Monitor",
    "Own",
    "Waiter",
    "acting",
    "ask",
    "client_key",
    "current_client",
    "end_all",
    "exit_client",
    "kill",
    "monitor",
    "tell",
    "watch_end",
]
