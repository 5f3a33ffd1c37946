"""The messages between lock servers and agents, as Erlang terms.

* `fields.py`: how the forms of messages are made from their fields.
* `forms.py`: the parts that they are made of.
* `messages.py`: the messages themselves.
* `pages.py`: what grows with the number of rows, by pages.
* `refusals.py`: errors, for clients of other nodes.
* `urgency.py`: which messages overtake others.
* `values.py`: what agents answer to clients, and lock servers to others, of other nodes.
"""

from __future__ import annotations

from locks.otp.bytes.fields import BadMessage
from locks.wire import pages
from locks.wire.forms import (
    LOCK_SERVER,
    OURS,
    agent_of,
    is_ours,
    pid_of,
    to_lock_id,
)
from locks.wire.messages import NOT_UNDERSTOOD, pack, unpack_to_agent, unpack_to_server
from locks.wire.refusals import pack_attributes, unpack_error
from locks.wire.urgency import kind_of
from locks.wire.values import (
    ABOUT,
    AGENTS,
    VIEW,
    About,
    pack_about,
    pack_notification,
    pack_result,
    pack_view,
    unpack_about,
    unpack_result,
    unpack_view,
)

__all__ = [
    "ABOUT",
    "AGENTS",
    "LOCK_SERVER",
    "NOT_UNDERSTOOD",
    "OURS",
    "VIEW",
    "About",
    "BadMessage",
    "agent_of",
    "is_ours",
    "kind_of",
    "pack",
    "pack_about",
    "pack_attributes",
    "pack_notification",
    "pack_result",
    "pack_view",
    "pages",
    "pid_of",
    "to_lock_id",
    "unpack_about",
    "unpack_error",
    "unpack_result",
    "unpack_to_agent",
    "unpack_to_server",
    "unpack_view",
]
