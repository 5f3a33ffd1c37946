"""Logging: the loggers by part, and the events whose fields programs can rely on.

All loggers are below `locks`, so one line of `logging` sets the level of all, or of one part. An
event's record has its fields as attributes (`extra=`): `event`, and those that are named here.
Handlers are foreign code and may block, so events are logged outside of the turn.

`locks.audit` is different: as long as it has no level of its own, it is off (`is_audited`). So nobody who logs all from INFO on pays
for a line of each lock.
"""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

__all__ = [
    "EVENTS",
    "LOGGERS",
    "LoggedEvent",
    "Sparing",
    "audit_event",
    "audit_logger",
    "is_audited",
    "log_event",
]

LOGGERS = {
    "locks": "the parent of all others",
    "locks.audit": "who held which lock, from when to when, and what operators and servers did; off unless this logger has a level of its own",
    "locks.deadlocks": "resolved deadlocks, with their reports",
    "locks.engines": "lock servers for Dask and Ray: started, found and lost",
    "locks.engines.apscheduler": "which APScheduler runs the jobs",
    "locks.engines.celery": "which Celery beat sends tasks, and which tasks it sends again",
    "locks.leader": "elections: instances that begin or stop to lead; failed callbacks and messages",
    "locks.local": 'the lock server of a machine (`servers="local"`)',
    "locks.losses": "locks that a program held and lost; transactions that an operator ended",
    "locks.mvcc": "the lock table of `locks.mvcc`",
    "locks.nodes": "connected and lost nodes; errors of other nodes, unknown peers, a changed set of servers",
    "locks.program": "how a program's node is started",
    "locks.runtime": "failures in the node: crashes, callbacks and traces that raise",
    "locks.testing": "exceptions of programs that `locks.testing` simulates, on Pythons without notes",
    "locks.waits": "long waits, and their ends",
    "locks.web": "graphs that the live page failed to draw",
}
"""The loggers, and their purposes."""


class LoggedEvent(NamedTuple):
    """An event that is logged.

    Attributes:
        logger: Its logger.
        level: Its level.
        fields: The fields of its record besides `event`, and their meanings.
        says: What has happened.
    """

    logger: str
    level: int
    fields: dict[str, str]
    says: str


_NODE = {"node": "the node that logs it"}
_WAIT = {
    **_NODE,
    "agent": "the agent that waits",
    "client": "its client",
    "lock": "the lock id, as text",
    "mode": "`read` or `write`",
    "seconds": "how long it has been waiting",
}
_HOLD = {
    **_NODE,
    "lock": "the lock id, as text",
    "mode": "`read` or `write`",
    "number": "the number of the request at this lock server",
    "agent": "the transaction's agent",
    "client": "its client",
    "address": "the address from which the client's node is connected; empty for the lock server's own node, and if it was lost",
    "since": "when it was granted, in UTC",
}
_LEADER = {**_NODE, "election": "what the election is about", "instance": "the instance"}

EVENTS = {
    "started": LoggedEvent("locks.audit", logging.INFO, _NODE, "`locks node` was started."),
    "stopped": LoggedEvent("locks.audit", logging.INFO, _NODE, "`locks node` is about to end."),
    "holds": LoggedEvent(
        "locks.audit",
        logging.INFO,
        _HOLD,
        "A client has held a lock for up to ten seconds, and still holds it; or it leads from now on, if the lock is that of an election.",
    ),
    "held": LoggedEvent(
        "locks.audit",
        logging.INFO,
        {
            **_HOLD,
            "until": "when it ended",
            "seconds": "how long it was held",
            "ended": "`released`, `surrendered` in a deadlock, or `client lost` if the connection with the program was lost",
        },
        "A client held a lock, and holds it no more.",
    ),
    "audit_left_out": LoggedEvent(
        "locks.audit",
        logging.INFO,
        {**_NODE, "count": "how many lines were left out"},
        "Lines of the audit log came faster than they could be written.",
    ),
    "wait": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {
            **_WAIT,
            "holders": "the requests that block it: a list of texts; only the first ones of many",
        },
        "A wait takes longer than `log_waits_longer_than`. The node of the lock logs it.",
    ),
    "wait_over": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {**_WAIT, "granted": "whether it got the lock"},
        "A wait that was logged has ended.",
    ),
    "waits_left_out": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {**_NODE, "count": "how many lines were left out"},
        "Lines about waits exceeded the limit of a minute.",
    ),
    "deadlock": LoggedEvent(
        "locks.deadlocks",
        logging.INFO,
        {
            **_NODE,
            "agent": "the agent that gave way",
            "lock": "the lock that it gave up, as text",
            "action": "`surrendered` or `aborted`",
            "report": "the whole report, as text",
            "left_out": "how many deadlocks were not logged before this one",
        },
        "A deadlock was resolved. The node that broke it and the node of the agent that gave way log it. At DEBUG, the line has the steps of the cycle. `locks.audit` has all that the node broke.",
    ),
    "many_deadlocks": LoggedEvent(
        "locks.deadlocks",
        logging.WARNING,
        {**_NODE, "count": "how many", "seconds": "in how many seconds"},
        "Many deadlocks were resolved. It is logged once a minute at most.",
    ),
    "lost": LoggedEvent(
        "locks.losses",
        logging.WARNING,
        {**_NODE, "agent": "the agent", "client": "its client", "locks": "the lock ids, as texts"},
        "A client lost locks that it held.",
    ),
    "broken": LoggedEvent(
        "locks.losses",
        logging.WARNING,
        {
            **_NODE,
            "agent": "the agent",
            "by": "the name that the operator gives",
            "address": "the address from which the operator's node is connected; empty if unknown",
            "reason": "the reason that the operator gives",
        },
        "An operator ends a transaction. The lock server that was called and the transaction's node log it; `locks.audit` has it, too.",
    ),
    "node_up": LoggedEvent(
        "locks.nodes",
        logging.INFO,
        {**_NODE, "peer": "the other node", "server": "whether this program takes locks there"},
        "A node is connected: a server, a client or another node.",
    ),
    "node_down": LoggedEvent(
        "locks.nodes",
        logging.INFO,
        {
            **_NODE,
            "peer": "the other node",
            "server": "whether this program takes locks there",
            "reason": "why, in words",
        },
        "The connection with a node was lost.",
    ),
    "server_down": LoggedEvent(
        "locks.nodes",
        logging.WARNING,
        {**_NODE, "peer": "the server", "server": "`True`", "reason": "why, in words"},
        "A lock server has lost the connection with another one of the servers. `locks.audit` has it, too.",
    ),
    "server_back": LoggedEvent(
        "locks.nodes",
        logging.WARNING,
        {**_NODE, "peer": "the server", "server": "`True`"},
        "A lock server is connected again with a server that it had lost. `locks.audit` has it, too.",
    ),
    "elected": LoggedEvent(
        "locks.leader", logging.INFO, {**_LEADER, "term": "its term"}, "An instance leads."
    ),
    "stepped_down": LoggedEvent(
        "locks.leader",
        logging.INFO,
        {**_LEADER, "reason": "why, in words"},
        "An instance no longer leads.",
    ),
}
"""The events, by the value of `event`."""

AUDITED: Final = ("broken", "server_down", "server_back")
"""Events of other loggers that `locks.audit` has, too."""

audit_logger: Final = logging.getLogger("locks.audit")


def log_event(event: str, text: str, *args: object, **fields: Any) -> None:
    """Log an event. Outside of the turn.

    Args:
        event: One of `EVENTS`.
        text: The text for people.
        *args: A value for each `%s` in it.
        **fields: The event's fields.
    """
    what = EVENTS[event]
    logging.getLogger(what.logger).log(what.level, text, *args, extra={"event": event, **fields})
    if event in AUDITED:
        audit_event(event, text, *args, **fields)


def is_audited() -> bool:
    """Whether `locks.audit` is on."""
    return 0 < audit_logger.level <= logging.INFO


def audit_event(event: str, text: str, *args: object, **fields: Any) -> None:
    """Log an event by `locks.audit`, if that is on. Outside of the turn; see `log_event`."""
    if is_audited():
        audit_logger.info(text, *args, extra={"event": event, **fields})


class Sparing:
    """Lets a limited number of lines through in a period, and counts the others.

    Args:
        most: The most lines.
        period: The period, in seconds.

    Attributes:
        period: The same.
        seen: How many lines there were in this period, let through or not.
        left_out: How many lines were left out since the last call of `take_left_out`.
    """

    def __init__(self, most: int, period: float = 60.0) -> None:
        self._most, self.period = most, period
        self._since = float("-inf")
        self.seen = 0
        self.left_out = 0

    def admit(self, now: float) -> bool:
        """Whether a line may be logged now."""
        if now - self._since >= self.period:
            self._since, self.seen = now, 0
        self.seen += 1
        if self.seen > self._most:
            self.left_out += 1
            return False
        return True

    def take_left_out(self) -> int:
        """Return how many lines were left out since the last call."""
        left, self.left_out = self.left_out, 0
        return left
