"""The messages between lock servers and agents, as Erlang terms.

* `forms.py`: the parts that they are made of.
* `messages.py`: the messages themselves.
* `values.py`: what agents answer to clients, and lock servers to watchers, of other nodes.
"""

from __future__ import annotations

from locks.wire.forms import (
    LOCK_SERVER,
    OURS,
    SERIAL_BITS,
    BadMessage,
    agent_numbered,
    agent_of,
    is_ours,
    pid_of,
    to_lock_id,
)
from locks.wire.messages import pack, unpack_to_agent, unpack_to_server
from locks.wire.values import (
    VIEW,
    pack_info,
    pack_notification,
    pack_result,
    pack_view,
    unpack_info,
    unpack_result,
    unpack_view,
)

__all__ = [
    "LOCK_SERVER",
    "OURS",
    "SERIAL_BITS",
    "VIEW",
    "BadMessage",
    "agent_numbered",
    "agent_of",
    "is_ours",
    "pack",
    "pack_info",
    "pack_notification",
    "pack_result",
    "pack_view",
    "pid_of",
    "to_lock_id",
    "unpack_info",
    "unpack_result",
    "unpack_to_agent",
    "unpack_to_server",
    "unpack_view",
]
