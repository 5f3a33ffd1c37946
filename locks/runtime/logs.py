"""What is logged: the loggers by part, and the events whose fields programs can rely on.

All loggers are below `locks`, so that one line of `logging` sets the level of all, or of one part. An event's record
has its fields as attributes (`extra=`): `event`, and those that are named here. Handlers are foreign code, and may
block: whoever logs does so outside of the turn.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

__all__ = [
    "EVENTS",
    "LOGGERS",
    "LoggedEvent",
    "Sparing",
    "describe_events",
    "describe_loggers",
    "log_event",
]

LOGGERS = {
    "locks": "the parent of all others; nothing is logged to it directly",
    "locks.deadlocks": "deadlocks that were resolved, with their reports",
    "locks.engines": "lock servers beside Dask and Ray: started, found and lost",
    "locks.engines.apscheduler": "which scheduler of APScheduler runs the jobs",
    "locks.engines.celery": "which beat of Celery sends tasks, and which ones it sends again",
    "locks.leader": "elections: instances that begin or cease to lead; callbacks and messages that fail",
    "locks.local": 'the lock server of a machine (`servers="local"`)',
    "locks.losses": "locks that a program held and has lost; transactions that an operator has ended",
    "locks.mvcc": "the lock table of `locks.mvcc`",
    "locks.nodes": "nodes that come and go; mistakes of other nodes, strangers, discovery, a changed set of servers",
    "locks.program": "how a program's node is started",
    "locks.runtime": "failures within the node: crashes, callbacks and traces that raise",
    "locks.testing": "exceptions of programs that `locks.testing` simulates, on Pythons without notes",
    "locks.waits": "long waits, and their ends",
    "locks.web": "pictures that the live page could not make",
}
"""The loggers, and what each is for."""


class LoggedEvent(NamedTuple):
    """An event that is logged.

    Attributes:
        logger: To which logger.
        level: At which level.
        fields: The fields of its record, besides `event`, and what each says.
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
    "seconds": "for how long it has waited",
}
_LEADER = {**_NODE, "election": "what the election is about", "instance": "the instance"}

EVENTS = {
    "wait": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {**_WAIT, "holders": "who is in the way: a list of texts; only the first ones of many"},
        "A wait takes longer than `log_waits_longer_than`; logged by the node whose lock it is.",
    ),
    "wait_over": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {**_WAIT, "granted": "whether it got the lock"},
        "Such a wait has ended.",
    ),
    "waits_left_out": LoggedEvent(
        "locks.waits",
        logging.WARNING,
        {**_NODE, "count": "how many lines were left out"},
        "There were more lines about waits than are logged in a minute.",
    ),
    "deadlock": LoggedEvent(
        "locks.deadlocks",
        logging.WARNING,
        {
            **_NODE,
            "agent": "the agent that yielded",
            "lock": "what it gave up, as text",
            "action": "`surrendered` or `aborted`",
            "report": "the whole report, as text",
            "compiled": "whether the node that logs it uses compiled modules",
            "left_out": "how many deadlocks were not logged before this one",
        },
        "A deadlock was resolved; logged by the node that broke it, and by that of the agent that yielded.",
    ),
    "lost": LoggedEvent(
        "locks.losses",
        logging.WARNING,
        {**_NODE, "agent": "the agent", "client": "its client", "locks": "the lock ids, as texts"},
        "A client has lost locks that it held.",
    ),
    "broken": LoggedEvent(
        "locks.losses",
        logging.WARNING,
        {
            **_NODE,
            "agent": "the agent",
            "by": "the name that the operator gives",
            "reason": "the reason that the operator gives",
        },
        "A transaction is ended from outside; logged by the lock server that was asked, and by the transaction's node.",
    ),
    "node_up": LoggedEvent(
        "locks.nodes",
        logging.INFO,
        {**_NODE, "peer": "the other node", "server": "whether locks are taken there"},
        "A node is connected: a server, a client, or any other one.",
    ),
    "node_down": LoggedEvent(
        "locks.nodes",
        logging.INFO,
        {
            **_NODE,
            "peer": "the other node",
            "server": "whether locks are taken there",
            "reason": "why, in words",
        },
        "The connection with a node is lost.",
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


def describe_loggers() -> str:
    """All loggers, as text."""
    width = max(map(len, LOGGERS))
    return "\n".join(f"{name:{width}}  {says}" for name, says in LOGGERS.items())


def describe_events() -> str:
    """All events, as text: each with its level, its logger, what has happened, and its fields."""
    lines = []
    for name, what in EVENTS.items():
        lines += [
            f"{name}  ({logging.getLevelName(what.level)}, {what.logger})",
            f"    {what.says}",
        ]
        lines += [f"      {field}: {says}" for field, says in what.fields.items()]
    return "\n".join(lines)


def log_event(event: str, text: str, *args: object, **fields: Any) -> None:
    """Log an event. Outside of the turn.

    Args:
        event: Which one of `EVENTS`.
        text: What a person reads.
        *args: A value for each `%s` in it.
        **fields: The event's fields.
    """
    what = EVENTS[event]
    logging.getLogger(what.logger).log(what.level, text, *args, extra={"event": event, **fields})


class Sparing:
    """Lets so many lines through in a period, and counts the others.

    Args:
        most: How many.
        period: In how many seconds.

    Attributes:
        left_out: How many were not let through, since this was last asked for by `take_left_out`.
    """

    def __init__(self, most: int, period: float = 60.0) -> None:
        self._most, self._period = most, period
        self._since = float("-inf")
        self._count = 0
        self.left_out = 0

    def admit(self, now: float) -> bool:
        """Whether a line may be logged now."""
        if now - self._since >= self._period:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > self._most:
            self.left_out += 1
            return False
        return True

    def take_left_out(self) -> int:
        """How many were not let through since this was last asked."""
        left, self.left_out = self.left_out, 0
        return left
