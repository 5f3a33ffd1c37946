"""The rules of the algorithm: which modes conflict, which request waits for which; and the checks of what users pass.

The wait-for graph is derived from records by the very rule of the lock table (`conflict` and `blocks` below).
What modes there are, and what follows from that, is said in one table (`excluded_by` below). What the
words are is said in `locks.words`; they are here, too.
"""

from __future__ import annotations

import sys
from typing import Any, get_args

from locks.errors import InvalidOption, assert_never
from locks.lock_ids import Key as Key
from locks.lock_ids import check_lock_id as check_lock_id
from locks.lock_ids import shown
from locks.words import FEW_IDS as FEW_IDS
from locks.words import HELD_UP as HELD_UP
from locks.words import UNITS as UNITS
from locks.words import AgentId as AgentId
from locks.words import Contender as Contender
from locks.words import Deadlock as Deadlock
from locks.words import Edge as Edge
from locks.words import LockId as LockId
from locks.words import LockInfo as LockInfo
from locks.words import LockResult as LockResult
from locks.words import Mode as Mode
from locks.words import Notification as Notification
from locks.words import Place as Place
from locks.words import RequestKey as RequestKey
from locks.words import RequestRecord as RequestRecord
from locks.words import Require as Require
from locks.words import State as State
from locks.words import Status as Status
from locks.words import View as View
from locks.words import is_held_up_id as is_held_up_id
from locks.words import show as show
from locks.words import show_all as show_all
from locks.words import units_of as units_of

REQUIREMENTS: tuple[Require, ...] = get_args(Require)


# --- Modes --------------------------------------------------------------------------------------


def excluded_by(mode: Mode) -> frozenset[Mode]:
    """The table of modes: what no other agent can have while one has a lock in this mode.

    All else about modes follows from it. Two modes *conflict* when each excludes the other: the table
    says it for both. A mode *covers* another one when it excludes all that the other one excludes.
    The *join* of several modes is the weakest that covers them all: an agent that wants them all
    asks for it.
    """
    match mode:
        case "read":
            return frozenset(("write",))
        case "write":
            return frozenset(("read", "write"))
        case _:
            return assert_never(mode)


# The strongest first, here and in each of these tuples.
MODES: tuple[Mode, ...] = tuple(
    sorted(get_args(Mode), key=lambda mode: len(excluded_by(mode)), reverse=True)
)
RIVALS: dict[Mode, tuple[Mode, ...]] = {  # the modes that conflict with it
    mode: tuple([other for other in MODES if other in excluded_by(mode)]) for mode in MODES
}
COVERING: dict[Mode, tuple[Mode, ...]] = {  # the modes that cover it, itself among them
    mode: tuple([other for other in MODES if excluded_by(other) >= excluded_by(mode)])
    for mode in MODES
}


def covers(mode: Mode, other: Mode) -> bool:
    """Whether an agent that has a lock in `mode` has no need of it in the `other` mode."""
    return mode in COVERING[other]


def join(*modes: Mode) -> Mode:
    """The weakest mode that covers all of these."""
    return next(mode for mode in reversed(MODES) if all(covers(mode, each) for each in modes))


# --- Rules --------------------------------------------------------------------------------------


def related(a: LockId, b: LockId) -> bool:
    """Whether one id is a prefix of the other (or both are the same)."""
    return a[: len(b)] == b[: len(a)]


def conflict(a: RequestRecord, b: RequestRecord) -> bool:
    """Whether two requests exclude each other: different agents, conflicting modes, related ids."""
    return (
        a.agent != b.agent
        and a.node == b.node
        and a.mode in RIVALS[b.mode]
        and related(a.lock_id, b.lock_id)
    )


def place_of_unit(unit: int, units: int) -> int:
    """The place at which the holder of a unit stands, counted from 0; requests stand at 1 or later."""
    return unit - units


def unit_at(record: RequestRecord) -> int | None:
    """Which unit of a counted lock a granted request has, counted from 0."""
    units = units_of(record.lock_id)
    return int(record.place) + units if units and record.state == "granted" else None


def blocks(holder: RequestRecord, waiter: RequestRecord) -> bool:
    """Whether `waiter` waits for `holder`: they conflict, and `holder` is granted or ahead.

    A spare request is in the way of those behind it, but its agent waits for nobody with it. For a unit of a
    counted lock one such holder is not enough (`how_many_block`).
    """
    return (
        waiter.state == "waiting"
        and holder.state != "gone"
        and (holder.state == "granted" or holder.place < waiter.place)
        and conflict(holder, waiter)
    )


def how_many_block(holder: LockId, waiter: LockId) -> int:
    """How many requests like `holder`, which `waiter` waits for, it takes to let that one wait.

    One is enough, except of those who want or have a unit of the same counted lock: there have to be as many as
    it has units.
    """
    return units_of(waiter) or 1 if holder == waiter else 1


# --- Checks of what users pass ------------------------------------------------------------------


def check_mode(value: Any) -> Mode:
    """Return `value` if it is a mode; raise `InvalidOption` otherwise."""
    if type(value) is str and value in MODES:
        return value
    mode = plain_text(value)
    if mode in MODES:
        return mode
    known = " or ".join(f'"{each}"' for each in reversed(MODES))
    raise InvalidOption(f"mode {shown(value)} is unknown; use {known}", value=shown(value))


def check_require(value: Any) -> Require:
    """Return `value` if it is a requirement; raise `InvalidOption` otherwise."""
    require = plain_text(value)
    if require in REQUIREMENTS:
        return require
    raise InvalidOption(
        f"requirement {shown(value)} is unknown; use one of {', '.join(REQUIREMENTS)}",
        value=shown(value),
    )


def check_nodes(value: Any) -> tuple[str, ...]:
    """Check a list of node names; a node that is named twice counts once.

    Raises:
        InvalidOption: It is empty, a plain string, or holds something that is not a name.
    """
    if (
        type(value) in (list, tuple)
        and len(value) == 1
        and type(value[0]) is str
        and ":" not in value[0]
    ):
        return (value[0],)
    names = [plain_text(each) for each in value] if isinstance(value, (list, tuple)) else [None]
    if None in names:
        raise InvalidOption(
            f'nodes {shown(value)} is not a list of node names, such as ["a@127.0.0.1"]',
            value=shown(value),
        )
    if not names:
        raise InvalidOption("the list of nodes is empty; name at least one", value=shown(value))
    known = dict.fromkeys(name for name in names if name is not None)
    for name in known:
        check_has_no_port(name)
    return tuple(known)


def check_has_no_port(name: str) -> None:
    """Raise `InvalidOption` if a node is named with its port, as servers and peers are."""
    host, colon, port = name.partition("@")[2].partition(":")
    if host and colon and port.isdecimal():  # an address of IPv6 has more than one colon
        raise InvalidOption(
            f"nodes names {name} with a port; name the node alone, {name.removesuffix(f':{port}')}. Its address "
            "belongs in servers= or peers= of locks.start",
            value=shown(name),
        )


# `Any`, or what is compiled takes each of them for a float, and fails if an int is too large for one.
_NUMBERS: Any = (int, float)


def is_seconds(value: Any) -> bool:
    """Whether a value is a number of seconds, not less than 0; `True` and NaN are none, nor is an int that is larger than any float."""
    return (
        isinstance(value, _NUMBERS)
        and not isinstance(value, bool)
        and value >= 0
        and (isinstance(value, float) or value <= sys.float_info.max)
    )


def check_timeout(timeout: Any) -> None:
    """Raise `InvalidOption` unless it is a time to wait."""
    if timeout is not None and not is_seconds(timeout):
        raise InvalidOption(
            f"timeout {shown(timeout)} is not a number of seconds >= 0; use None to wait for ever",
            timeout=shown(timeout),
        )


def check_text(value: Any) -> str:
    """Return a name without the methods that a subclass of `str` may have; refuse what is no text."""
    text = plain_text(value)
    if text is None:
        raise InvalidOption(f"name {shown(value)} is no text", name=shown(value))
    return text


def plain_text(value: object) -> str | None:
    """Text without the methods that a subclass of `str` may have; `None` of what is no text."""
    return str.__str__(value) if isinstance(value, str) else None
