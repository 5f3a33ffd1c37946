"""What is said beside the messages, as terms and back: results, lock infos, views, notifications.

Agents answer clients of other nodes with results and lock infos, and notify them. Lock servers tell
views to watchers on other nodes, and answer them what they know about agents of the original.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from locks.core.messages import Records
from locks.errors import assert_never
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    LockInfo,
    LockResult,
    Notification,
    RequestRecord,
    View,
)
from locks.otp.etf_decode import constant
from locks.otp.terms import Atom
from locks.ranges import MOST_RECORDS, Size, Version
from locks.wire.fields import BadMessage, brief
from locks.wire.forms import FORMS, OURS, Context
from locks.wire.messages import TO_AGENTS

__all__ = [
    "AGENTS",
    "VIEW",
    "About",
    "pack_about",
    "pack_info",
    "pack_notification",
    "pack_result",
    "pack_view",
    "unpack_about",
    "unpack_info",
    "unpack_result",
    "unpack_view",
]

Agents = Annotated[tuple[AgentId, ...], Size(MOST_RECORDS)]
VIEW = constant("view")
AGENTS = FORMS.of(Agents)
LOCKS_AGENT = Atom("locks_agent")


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
_RESULT = FORMS.of(LockResult)
_INFO = FORMS.of(LockInfo)
_VIEW = FORMS.message(View, OURS, VIEW)


def pack_result(result: LockResult) -> Any:
    """The term of a result."""
    return _RESULT.pack(result)


def unpack_result(term: Any) -> LockResult:
    """The result that a term stands for."""
    result: LockResult = _RESULT.unpack(term)
    return result


def pack_info(info: LockInfo) -> Any:
    """The term of what an agent knows of one lock."""
    return _INFO.pack(info)


def unpack_info(term: Any) -> LockInfo:
    """What an agent knows of one lock."""
    info: LockInfo = _INFO.unpack(term)
    return info


def pack_view(view: View) -> Any:
    """The term of a view, for a watcher of another node."""
    return _VIEW.pack(view)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    view: View = _VIEW.unpack(term)
    if term[:2] != (OURS, VIEW):
        raise BadMessage(f"{brief(term)} should be a view")
    return view


def pack_notification(news: Notification, agent: Any) -> tuple[Any, ...]:
    """What an agent tells its client: the atom `locks_agent`, the agent, a kind, and a value."""
    kind, value = news.kind, news.value
    match kind:
        case "have_all_locks":
            value = FORMS.of(Annotated[tuple[Deadlock, ...], Size(100)]).pack(value)
        case "lock_info":
            value = FORMS.of(RequestRecord).pack(value)
        case "lost":
            value = FORMS.of(Annotated[tuple[LockId, ...], Size(MOST_RECORDS)]).pack(value)
        case "waiting" | "no_locks" | "cannot_serve" | "nodeup" | "nodedown" | "token":
            pass
        case _:
            assert_never(kind)
    return (LOCKS_AGENT, agent, kind, value)


def pack_about(about: About, node: str) -> Any:
    """The term of what the lock server of a node knows about agents of the original."""
    return _ABOUT.pack(about, (node, None))


def unpack_about(term: Any, node: str) -> About:
    """What the lock server of a node knows about agents of the original."""
    about: About = _ABOUT.unpack(term, Context(node, None, ""))
    return about
