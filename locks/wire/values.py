"""Terms beside the messages: views for watchers on other nodes, and what lock servers know about agents of the original."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from locks.core.messages import Records
from locks.model import (
    AgentId,
    View,
)
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, brief
from locks.otp.bytes.terms import Atom
from locks.ranges import MOST_RECORDS, Version
from locks.wire.forms import FORMS, OURS, Context
from locks.wire.messages import TO_AGENTS

__all__ = [
    "ABOUT",
    "AGENTS",
    "VIEW",
    "About",
    "pack_about",
    "pack_view",
    "unpack_about",
    "unpack_view",
]

Agents = Annotated[tuple[AgentId, ...], Meta(max_length=MOST_RECORDS)]
VIEW = constant("view")
ABOUT = Atom("about")
AGENTS = FORMS.of(Agents)


class About(NamedTuple):
    """What a lock server knows about agents of the original.

    Attributes:
        version: The version of its lock table.
        agents: The agents that it was asked about, and those that they wait for.
        records: All that is related to their requests.
    """

    version: Version
    agents: Agents
    records: Records


_ABOUT = TO_AGENTS.of(About)
_VIEW = FORMS.message(View, OURS, VIEW)


def pack_view(view: View) -> Any:
    """The term of a view, for a watcher of another node."""
    return _VIEW.pack(view)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    view: View = _VIEW.unpack(term)
    if term[:2] != (OURS, VIEW):
        raise BadMessage(f"{brief(term)} should be a view")
    return view


def pack_about(about: About, node: str) -> Any:
    """The term of what the lock server of a node knows about agents of the original."""
    return _ABOUT.pack(about, (node, None))


def unpack_about(term: Any, node: str) -> About:
    """What the lock server of a node knows about agents of the original."""
    about: About = _ABOUT.unpack(term, Context(node, None, ""))
    return about
