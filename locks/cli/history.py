"""`locks history`: who held a lock, from the audit logs of lock servers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from locks.cli.ids import ID_HELP, parse_id
from locks.cli.observing import NOTHING, add_looking, answer, print_json, refused, table
from locks.errors import InvalidOption, LocksError, OperatingError
from locks.facts import gather
from locks.facts.stories import duration
from locks.model import related
from locks.program.audit_log import files_of
from locks.words import LockId

__all__ = ["add_command"]

EXAMPLES = """\
  locks history backup/disk1
  locks history --audit /var/log/locks/audit.log backup/disk1
  locks history --audit a.log --audit b.log --at 03:12 accounts
"""
SAYS = """Who held a lock, and anything above or below it, from when to when; from the audit logs that lock servers write
(`locks node --audit FILE`), and those that were rotated. It asks the servers, each of which tells the newest 100; or it reads the
files that --audit names, and asks no server. What happened to these transactions is below: who broke them, which deadlocks they gave
way in; and when servers started, stopped and lost each other."""
SEARCH = 70.0  # seconds for an answer: a server may search 500 MiB
HEADS = ("FROM", "TO", "FOR", "MODE", "ID", "WHO", "ADDRESS", "SERVER", "AGENT", "ENDED")
FUTURE = "9"  # after all times
OF_SERVERS = ("started", "stopped", "server_down", "server_back", "refused", "left_out")


class _Read(NamedTuple):
    """What the logs say of a lock.

    Attributes:
        holds: Who held it: lines of the log. One whose end is not in the log has the last time at which it was known (`known`), and the
            time before which it ended, if the server stopped (`before`).
        events: The other lines that concern these.
        left_out: How many older ones are left out.
    """

    holds: list[dict[str, Any]]
    events: list[dict[str, Any]]
    left_out: int


def add_command(commands: Any, about: str) -> None:
    """Add the command to the command line."""
    parser = add_looking(
        commands,
        "history",
        _ask,
        what=about,
        says=SAYS,
        nothing="nobody held it",
        examples=EXAMPLES,
    )
    asks = parser.get_default("run")
    parser.add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument(
        "--audit",
        type=Path,
        action="append",
        metavar="FILE",
        help="read the audit log of a server, and ask none; may be repeated",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="only who held it then: HH:MM or HH:MM:SS of the last 24 hours, or a date and a time, such as 2026-11-25T03:12",
    )
    parser.add_argument("--limit", type=int, metavar="NUMBER", help="only so many, the newest")
    parser.set_defaults(timeout=SEARCH, run=lambda given: (_run if given.audit else asks)(given))


def _wanted(options: argparse.Namespace) -> tuple[LockId, datetime | None]:
    at = None if options.at is None else _moment(options.at, datetime.now().astimezone())
    return parse_id(options.id), at


def _run(options: argparse.Namespace) -> int:
    """Read files."""
    try:
        lock_id, at = _wanted(options)
        found = _read((line for path in options.audit for line in _lines(path)), lock_id, at)
    except LocksError as error:
        return refused("history", error, options)
    found = _newest(found, options.limit)
    text, nobody = _shown(found, options)
    if options.json:
        print_json(found._asdict() | ({"error": text} if nobody else {}))
    else:
        print(text)
    return NOTHING if nobody else 0


def _ask(options: argparse.Namespace) -> int:
    """Ask the servers."""
    lock_id, at = _wanted(options)
    moment = 0 if at is None else int(at.timestamp() * 1e6)
    told = gather.history(lock_id, moment, timeout=options.timeout)
    holds: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    left_out = 0
    for document in map(json.loads, told.facts):
        holds += document["holds"]
        events += document["events"]
        left_out += document["left_out"]
    holds.sort(key=itemgetter("since"))
    found = _newest(_Read(holds, sorted(events, key=itemgetter("time")), left_out), options.limit)
    text, nobody = _shown(found, options)
    return answer(options, found._asdict(), text, told.silent, NOTHING if nobody else 0)


def _newest(found: _Read, most: int | None) -> _Read:
    """The newest of them."""
    if most is None:
        return found
    holds, events = (each[max(0, len(each) - most) :] for each in found[:2])
    return _Read(holds, events, found.left_out + len(found.holds) - len(holds))


def _shown(found: _Read, options: argparse.Namespace) -> tuple[str, bool]:
    """What is printed, and whether nobody held it."""
    if not found.holds:
        return f"The audit logs have nobody who held {options.id}.", True
    lines = [table(HEADS, map(_as_row, found.holds)), *map(_told, found.events)]
    if found.left_out:
        lines.append(
            f"{found.left_out} older ones are left out: use --at, or --audit FILE at the server."
        )
    return "\n".join(lines), False


def _moment(text: str, now: datetime) -> datetime:
    """The time that a person means.

    Raises:
        InvalidOption: It is none.
    """
    try:
        if "-" in text:
            return datetime.fromisoformat(text).astimezone()
        hours, minutes, seconds = map(int, f"{text}:00".split(":")[:3])
        then = now.replace(hour=hours, minute=minutes, second=seconds, microsecond=0)
        return then if then <= now else then - timedelta(days=1)
    except ValueError:
        raise InvalidOption(
            f"--at {text} is not a time; write 03:12, 03:12:30 or 2026-11-25T03:12"
        ) from None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of an audit log, the oldest first.

    Raises:
        OperatingError: It can't be read.
    """
    there = [each for each in files_of(path) if each.exists()] or [path]
    unread = 0
    try:
        for each in there:
            with each.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        yield json.loads(line)
                    except ValueError:  # the server was killed while it wrote it
                        unread += line.endswith("\n")  # else it is just being written
    except OSError as error:
        raise OperatingError(f"can't read {path}: {error.strerror}") from error
    if unread:
        print(f"{path}: {unread} lines can't be read", file=sys.stderr)


def _read(lines: Iterable[dict[str, Any]], lock_id: LockId, at: datetime | None) -> _Read:
    """What the lines of some servers say of a lock, and of those above and below it."""
    holds: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    lasting: dict[tuple[str, int], dict[str, Any]] = {}
    last: dict[str, str] = {}  # the time of the last line, by server
    concerns = cache(lambda text: related(parse_id(text), lock_id))

    def over(node: str, ended: str, before: str | None) -> None:
        for key in [key for key in lasting if key[0] == node]:
            holds.append(lasting.pop(key) | {"known": last[node], "before": before, "ended": ended})

    for line in lines:
        event, node = line["event"], line["node"]
        if event in OF_SERVERS:
            if event in ("started", "stopped"):
                over(node, "with the server", line["time"])
            events.append(line)
        elif event in ("held", "holds"):
            if concerns(line["lock"]):
                lasting[node, line["number"]] = line
                if event == "held":
                    holds.append(lasting.pop((node, line["number"])))
        else:
            events.append(line)
        last[node] = line["time"]
    for node in last:
        over(node, "", None)
    if at is not None:
        moment = at.astimezone(timezone.utc).isoformat(timespec="microseconds")
        holds = [each for each in holds if each["since"] <= moment <= _end(each)]
    holds.sort(key=itemgetter("since"))
    agents = {each["agent"] for each in holds}
    first = min((each["since"] for each in holds), default="")
    end = max(map(_end, holds), default=FUTURE)
    wanted = [
        each
        for each in events
        if (
            first <= each["time"] <= end if each["event"] in OF_SERVERS else each["agent"] in agents
        )
    ]
    return _Read(holds, sorted(wanted, key=itemgetter("time")), 0)


def _end(hold: dict[str, Any]) -> str:
    """The time up to which a lock may have been held."""
    return str(hold.get("until") or hold["before"] or FUTURE)


def _local(time: str) -> str:
    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _as_row(hold: dict[str, Any]) -> tuple[str, ...]:
    is_over = "until" in hold
    end = hold["until"] if is_over else hold["known"]
    begun, ended = datetime.fromisoformat(hold["since"]), datetime.fromisoformat(end)
    return (
        _local(hold["since"]),
        f"{_local(end)}{'' if is_over else ' or later'}",
        duration((ended - begun).total_seconds()),
        hold["mode"],
        hold["lock"],
        hold["client"],
        hold["address"] or "-",
        hold["node"],
        hold["agent"],
        hold["ended"] or "-",
    )


def _told(event: dict[str, Any]) -> str:
    text = f"{_local(event['time'])} {event['node']}: "
    match event["event"]:
        case "broken":
            where = f" from {event['address']}" if event["address"] else ""
            return f"{text}{event['by']}{where} ended {event['agent']}: {event['reason']}"
        case "deadlock":
            return f"{text}{event['agent']} {event['action']} {event['lock']} to resolve a deadlock"
        case "left_out":
            return f"{text}{event['lines']} lines are missing before this one"
        case "refused":
            where = f" from {event['address']}" if event["address"] else ""
            return f"{text}refused {event['what']} of {event['peer']}{where}, which may only {event['right']}"
        case "server_down":
            return f"{text}lost the connection with {event['peer']}: {event['reason']}"
        case "server_back":
            return f"{text}connected with {event['peer']} again"
        case other:
            return f"{text}the server {other}"
