"""The rules of the algorithm (which modes conflict, which request waits for which), and checks of arguments.

The wait-for graph is derived from records by the same rule as the lock table (`conflict` and `blocks` below).
All properties of modes follow from one table (`locks.words.EXCLUDED_BY`). The types are defined in `locks.words`,
and also importable from here.
"""

from __future__ import annotations

import sys
from typing import Any, Final, get_args

from locks.errors import InvalidOption
from locks.lock_ids import check_lock_id as check_lock_id
from locks.lock_ids import shown
from locks.words import EXCLUDED_BY as EXCLUDED_BY
from locks.words import FEW_IDS as FEW_IDS
from locks.words import HELD_UP as HELD_UP
from locks.words import UNITS as UNITS
from locks.words import AgentId as AgentId
from locks.words import Contender as Contender
from locks.words import Deadlock as Deadlock
from locks.words import Edge as Edge
from locks.words import KnownId as KnownId
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
NODE_NAME: Final = "node@localhost"  # of who needs no other one
SERIAL_BITS: Final = 12  # of an agent's `created`: its serial number; those above are microseconds
SERIAL_MASK: Final = (1 << SERIAL_BITS) - 1


def agent_numbered(number: int, node: str) -> AgentId:
    """The reference of the agent with this number, of a node."""
    # Made for each message. Functions of named tuples cost three times as much as `tuple.__new__`.
    return tuple.__new__(AgentId, (number, node, number & SERIAL_MASK))


# --- Modes --------------------------------------------------------------------------------------

# Strongest first, here and in each of these tuples.
MODES: tuple[Mode, ...] = tuple(
    sorted(get_args(Mode), key=lambda mode: len(EXCLUDED_BY[mode]), reverse=True)
)
RIVALS: dict[Mode, tuple[Mode, ...]] = {  # the modes that conflict with it
    mode: tuple([other for other in MODES if other in EXCLUDED_BY[mode]]) for mode in MODES
}
COVERING: dict[Mode, tuple[Mode, ...]] = {  # the modes that cover it, including itself
    mode: tuple([other for other in MODES if EXCLUDED_BY[other] >= EXCLUDED_BY[mode]])
    for mode in MODES
}


def covers(mode: Mode, other: Mode) -> bool:
    """Whether an agent that holds a lock in `mode` does not also need the `other` mode."""
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
    """The place of the holder of a unit (units count from 0); waiting requests have places from 1."""
    return unit - units


def unit_at(record: RequestRecord) -> int | None:
    """The unit of a counted lock that a granted request holds, counted from 0."""
    units = units_of(record.lock_id)
    return int(record.place) + units if units and record.state == "granted" else None


def blocks(holder: RequestRecord, waiter: RequestRecord) -> bool:
    """Whether `waiter` waits for `holder`: they conflict, and `holder` is granted or ahead.

    A spare request blocks the requests behind it, but its agent does not wait with it. For a unit of a
    counted lock, one such holder is not enough (`how_many_block`).
    """
    return (
        waiter.state == "waiting"
        and holder.state != "gone"
        and (holder.state == "granted" or holder.place < waiter.place)
        and conflict(holder, waiter)
    )


def how_many_block(holder: LockId, waiter: LockId) -> int:
    """How many requests like `holder` together block `waiter`.

    One is enough, except among requests for units of the same counted lock: they block when there are as many as
    the lock has units.
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
    raise InvalidOption(f"unknown mode {shown(value)}; use {known}", value=shown(value))


def majority(of: int) -> int:
    """The smallest number of nodes of which any two sets have one in common."""
    return of // 2 + 1


def check_require(value: Any) -> Require:
    """Return `value` if it is a requirement; raise `InvalidOption` otherwise."""
    require = plain_text(value)
    if require in REQUIREMENTS:
        return require
    raise InvalidOption(
        f"unknown requirement {shown(value)}; use one of {', '.join(REQUIREMENTS)}",
        value=shown(value),
    )


def check_nodes(value: Any) -> tuple[str, ...]:
    """Check a list of node names; a node that is named twice counts as one.

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
            f'nodes={shown(value)} is not a list of node names; write one, such as ["a@127.0.0.1"]',
            value=shown(value),
        )
    if not names:
        raise InvalidOption("nodes is empty; name at least one node", value=shown(value))
    known = dict.fromkeys(name for name in names if name is not None)
    for name in known:
        check_has_no_port(name)
    return tuple(known)


def check_node_name(given: Any) -> str:
    """Return a node's name; raise `InvalidOption` unless it is `name@host`."""
    name = plain_text(given)
    if (
        name is None
        or name.count("@") != 1
        or not all(name.split("@"))
        or len(name.encode("utf-8", "replace")) > 255
        or not name.isprintable()
        or any(character.isspace() for character in name)
    ):
        text = shown(given)
        raise InvalidOption(f'node name {text} is not of the form "name@host"', name=text)
    return name


def check_has_no_port(name: str) -> None:
    """Raise `InvalidOption` if the name of a node includes a port, as those of servers and peers do."""
    host, colon, port = name.partition("@")[2].partition(":")
    if host and colon and port.isdecimal():  # an IPv6 address has more than one colon
        raise InvalidOption(
            f"nodes={name} has a port; write only the name, {name.removesuffix(f':{port}')}. The address "
            "belongs in servers= or peers= of locks.start",
            value=shown(name),
        )


def check_own_name(name: str) -> None:
    """Raise `InvalidOption` if the name that a node is to have includes a port."""
    host, colon, port = name.partition("@")[2].partition(":")
    if host and colon and port.isdecimal():
        bare = name.removesuffix(f":{port}")
        raise InvalidOption(
            f"the node's name {name} has a port; the name is {bare}; the address is another option, --listen or listen=: {host}:{port}",
            value=shown(name),
        )


def is_seconds(value: Any) -> bool:
    """Whether a value is a number of seconds >= 0: not `True`, not NaN, and not an int larger than any float."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value >= 0
        and (isinstance(value, float) or value <= sys.float_info.max)
    )


def check_timeout(timeout: Any) -> None:
    """Raise `InvalidOption` unless it is a number of seconds >= 0 or `None`."""
    if timeout is not None and not is_seconds(timeout):
        raise InvalidOption(
            f"timeout={shown(timeout)} is not a number of seconds >= 0; use None to wait for ever",
            timeout=shown(timeout),
        )


def check_bool(value: Any, option: str) -> None:
    """Raise `InvalidOption` unless the value of an option is `True` or `False`."""
    if value is not True and value is not False:
        raise InvalidOption(
            f"{option}={shown(value)} is wrong; use True or False", value=shown(value)
        )


def check_text(value: Any) -> str:
    """Return a name as a plain `str`, without methods of a subclass; refuse other values."""
    text = plain_text(value)
    if text is None:
        raise InvalidOption(f"name={shown(value)} is not a string; pass one", name=shown(value))
    return text


def plain_text(value: object) -> str | None:
    """Return text as a plain `str`, without methods of a subclass; `None` if it is not text."""
    return str.__str__(value) if isinstance(value, str) else None
