"""What users see, as terms and back: results, lock infos, views, notifications.

Agents answer clients of other nodes with them, and lock servers tell them to watchers there.
"""

from __future__ import annotations

from typing import Any

from locks.model import Contender, LockInfo, LockResult, Notification, View
from locks.otp.etf_decode import constant
from locks.otp.terms import Atom
from locks.wire.forms import (
    ATOMS,
    OURS,
    BadMessage,
    check,
    one_of,
    parts,
    pid_of,
    place_term,
    record_term,
    report_term,
    to_agent,
    to_lock_id,
    to_mode,
    to_place,
    to_report,
)

__all__ = [
    "VIEW",
    "pack_info",
    "pack_notification",
    "pack_result",
    "pack_view",
    "unpack_info",
    "unpack_result",
    "unpack_view",
]

VIEW = constant("view")
LOCKS_AGENT = Atom("locks_agent")


def pack_result(result: LockResult) -> tuple[Any, ...]:
    """The term of a result."""
    return (ATOMS[result.status], [report_term(report) for report in result.deadlocks])


def unpack_result(term: Any) -> LockResult:
    """The result that a term stands for."""
    status, reports = parts(term, 2)
    found = [to_report(report) for report in check(reports, list)]
    return LockResult(
        one_of(status, "no_locks", "waiting", "have_all_locks", "cannot_serve"),
        tuple(report for report in found if report is not None),
    )


def pack_info(info: LockInfo) -> tuple[Any, ...]:
    """The term of what an agent knows of one lock."""
    lock_id, mode, nodes, require, granted, held, acknowledged, versions = info
    granted_by = [list(granted), list(versions)]
    return (list(lock_id), mode, list(nodes), require, granted_by, held, acknowledged)


def unpack_info(term: Any) -> LockInfo:
    """What an agent knows of one lock."""
    lock_id, mode, nodes, require, granted_by, held, acknowledged = parts(term, 7)
    granted, versions = check(granted_by, list)
    return LockInfo(
        to_lock_id(lock_id),
        check(mode, str),
        tuple(check(nodes, list)),
        check(require, str),
        tuple(check(granted, list)),
        check(held, bool),
        check(acknowledged, bool),
        tuple(check(versions, list)),
    )


def pack_notification(news: Notification, agent: Any) -> tuple[Any, ...]:
    """What an agent tells its client: the atom `locks_agent`, the agent, a kind, and a value."""
    value = news.value
    if news.kind == "have_all_locks":
        value = [report_term(report) for report in value]
    elif news.kind == "lock_info":
        value = record_term(value, None, None)
    elif news.kind == "lost":
        value = [list(lock_id) for lock_id in value]
    return (LOCKS_AGENT, agent, news.kind, value)


def pack_view(view: View) -> tuple[Any, ...]:
    """The term of a view, for a watcher of another node."""
    requests = [
        (pid_of(c.agent), c.client, list(c.lock_id), ATOMS[c.mode], *c[4:7], place_term(c.place))
        for c in view.requests
    ]
    return (OURS, VIEW, list(view.lock_id), view.node, requests, view.version)


def unpack_view(term: Any) -> View:
    """The view that a term stands for."""
    ours, tag, lock_id, node, requests, version = parts(term, 6)
    if ours != OURS or tag != VIEW:
        raise BadMessage(f"{term!r} should be a view")
    contenders = []
    for each in check(requests, list):
        agent, client, its_id, mode, granted, since, number, place = parts(each, 8)
        contenders.append(
            Contender(
                to_agent(agent),
                check(client, str),
                to_lock_id(its_id),
                to_mode(mode),
                check(granted, bool),
                check(since, int),
                check(number, int),
                to_place(place),
            )
        )
    return View(to_lock_id(lock_id), check(node, str), tuple(contenders), check(version, int))
