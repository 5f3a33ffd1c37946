"""What is said beside the messages, as terms and back: results, lock infos, views, notifications.

Agents answer clients of other nodes with results and lock infos, and notify them. Lock servers tell
views to watchers on other nodes, and answer them what they know about agents of the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from locks.core.messages import Records
from locks.core.parts import newest
from locks.errors import assert_never
from locks.lock_ids import shown, size_of
from locks.model import (
    AgentId,
    Deadlock,
    LockId,
    LockResult,
    Notification,
    RequestRecord,
    View,
)
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, brief
from locks.otp.bytes.terms import Atom
from locks.ranges import MOST_RECORDS, Size, Version
from locks.wire.forms import FORMS, OURS, Context
from locks.wire.messages import TO_AGENTS
from locks.wire.pages import LARGEST_PAGE, MOST_ITEMS

__all__ = [
    "ABOUT",
    "AGENTS",
    "VIEW",
    "About",
    "pack_about",
    "pack_notification",
    "pack_result",
    "pack_view",
    "unpack_about",
    "unpack_result",
    "unpack_view",
]

Reports = Annotated[tuple[Deadlock, ...], Size(100)]
Agents = Annotated[tuple[AgentId, ...], Size(MOST_RECORDS)]
VIEW = constant("view")
ABOUT = Atom("about")
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
_VIEW = FORMS.message(View, OURS, VIEW)


def pack_result(result: LockResult) -> Any:
    """The term of a result, with as many of the newest deadlocks as fit."""
    return _RESULT.pack(result._replace(deadlocks=newest(result.deadlocks)))


def unpack_result(term: Any) -> LockResult:
    """The result that a term stands for."""
    result: LockResult = _RESULT.unpack(term)
    return result


def pack_view(view: View) -> Any:
    """The term of a view, for a watcher of another node."""
    return _VIEW.pack(view)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    view: View = _VIEW.unpack(term)
    if term[:2] != (OURS, VIEW):
        raise BadMessage(f"{brief(term)} should be a view")
    return view


def pack_notification(news: Notification, agent: Any) -> list[tuple[Any, ...]]:
    """What an agent tells its client: the atom `locks_agent`, the agent, a kind, and a value.

    Many locks that are lost are told in several notifications.
    """
    kind, value = news.kind, news.value
    values = [value]
    match kind:
        case "have_all_locks":
            values = [FORMS.of(Reports).pack(newest(value))]
        case "lock_info":
            values = [FORMS.of(RequestRecord).pack(value)]
        case "lost":
            values = [[list(lock_id) for lock_id in page] for page in _id_pages(value)]
        case "aborted":
            values = [FORMS.of(Reports).pack(newest((value,)))]
        case "ended":
            values = [(type(value).__name__, shown(str(value)))]
        case "waiting" | "no_locks" | "cannot_serve" | "nodeup" | "nodedown" | "token":
            pass
        case _:
            assert_never(kind)
    return [(LOCKS_AGENT, agent, kind, each) for each in values]


def _id_pages(ids: Iterable[LockId]) -> Iterator[list[LockId]]:
    """Lock ids by pages of bounded size."""
    page: list[LockId] = []
    size = 0
    for lock_id in ids:
        page.append(lock_id)
        size += size_of(lock_id)
        if len(page) >= MOST_ITEMS or size >= LARGEST_PAGE:
            yield page
            page, size = [], 0
    if page:
        yield page


def pack_about(about: About, node: str) -> Any:
    """The term of what the lock server of a node knows about agents of the original."""
    return _ABOUT.pack(about, (node, None))


def unpack_about(term: Any, node: str) -> About:
    """What the lock server of a node knows about agents of the original."""
    about: About = _ABOUT.unpack(term, Context(node, None, ""))
    return about
