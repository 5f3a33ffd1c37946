"""The client of an agent: its name, whether it is the caller, and where its notifications go."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any

import gevent
import pykka
from gevent import monkey

from locks.errors import InvalidOption
from locks.lock_ids import shown
from locks.model import Notification, plain_text
from locks.ranges import LONGEST_TEXT, one_line
from locks.runtime.actor import tell
from locks.runtime.callables import check_callable
from locks.runtime.identity import Own
from locks.runtime.monitor import Client

__all__ = [
    "Inbox",
    "NotifyTarget",
    "can_be_linked",
    "checked_label",
    "inbox_of",
    "is_patched_thread",
    "label_of",
    "labelled",
    "name_of",
    "parts_of",
    "plain_label",
    "this_program",
]

LONGEST_LABEL = 200  # characters
MOST_SITES = 1000  # that are remembered
# The attribute of a greenlet with its generated name.
_NAME = "_locks_name"
_NOT_THE_PROGRAM = ("locks", "locks_leader", "contextlib")
_sites: dict[tuple[CodeType, int], str] = {}

NotifyTarget = bool | Callable[[Notification], object]
"""A client's option for notifications: whether, or the function to call."""
Inbox = Callable[[Notification], object]
"""Delivers a notification to a client."""


def name_of(client: Client) -> str:
    """A name of a client that a person can read; never longer than a message has room for."""
    return _sendable(_name_of(client))


def checked_label(label: Any) -> str:
    """Check the label that a program gives a client.

    Raises:
        InvalidOption: It is not text for one line.
    """
    text = plain_text(label)
    if not text or not text.isprintable() or len(text) > LONGEST_LABEL:
        raise InvalidOption(
            f"label={shown(label)} is not one line of 1 to {LONGEST_LABEL} characters; pass a shorter text",
            label=shown(label),
        )
    return text


def label_of(client: Client) -> str:
    """The name of a client as a label, which has no characters that can't be shown in a line."""
    return plain_label(name_of(client))


def plain_label(text: str) -> str:
    """Make a label from a text: cut, and in one line."""
    return one_line(text, LONGEST_LABEL) or "?"


def labelled(client: Client, label: str | None, program: str, is_caller: bool) -> str:
    """The text that others see for a client: its label or name, and the program if there may be others.

    Args:
        client: The client.
        label: The label that the program has given.
        program: The text for the program, if there may be other programs.
        is_caller: Whether the client is the caller: then its name contains the place of the call.
    """
    if label is not None:
        return _sendable(f"{label}{program}")
    name = _name_of(client)
    if program:
        at = call_site() if is_caller else ""
        name = f"{name}{at}{program}"
    plain = name.isascii() and name.isprintable() and len(name) <= LONGEST_TEXT
    return name if plain else _sendable(name)


def call_site() -> str:
    """The file and line of the program's call, as the end of a name; empty if that is no file."""
    frame = sys._getframe(1)
    while _package(frame) in _NOT_THE_PROGRAM:
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    key = (frame.f_code, frame.f_lasti)
    site = _sites.get(key)
    if site is None:  # to find the line takes longer than to look it up
        name = PurePath(frame.f_code.co_filename).name
        site = "" if name.startswith("<") else f" at {name}:{frame.f_lineno}"[:LONGEST_LABEL]
        if len(_sites) >= MOST_SITES:
            _sites.clear()
        _sites[key] = site
    return site


def this_program() -> str:
    """The text for this program behind the names of its clients, for people on other machines."""
    return f" ({PurePath(sys.argv[0]).name or 'python'}, pid {os.getpid()})"[:LONGEST_LABEL]


_PARTS = re.compile(r"(?P<label>.*) \((?P<program>.*), pid (?P<pid>\d{1,18})\)", re.DOTALL)


def parts_of(text: str) -> tuple[str, str, int]:
    """The parts of a client's text: label or name, program, and process; `this_program` made the last two.

    For a client of another kind: the whole text, no program, and 0.
    """
    found = _PARTS.fullmatch(text)
    if found is None:
        return text, "", 0
    return found["label"], found["program"], int(found["pid"])


def _package(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if type(name) is str else ""


def _sendable(text: str) -> str:
    """A text as others see it: in one line, as long as a message has room for."""
    text = one_line(text)
    if text.isascii():
        return text
    return text.encode(errors="replace").decode()  # it is sent, and text with surrogates can't be


def _name_of(client: Client) -> str:
    if isinstance(client, gevent.Greenlet):
        own = client.__dict__
        is_named = type(client) is not gevent.Greenlet or "name" in own
        kept: str | None = own.get(_NAME)
        if kept is not None and not is_named:
            return kept
        name = f"Greenlet-{client.minimal_ident}"  # gevent's default name
        if is_named:
            given = str(client.name)
            if given != name:
                return given
        run = getattr(client, "_run", None)  # a default name is not informative
        found = f"{getattr(run, '__qualname__', type(client).__name__)} ({name})"
        if run is not None:  # otherwise it has ended, or gevent has dropped the function
            own[_NAME] = found
        return found
    if isinstance(client, pykka.ActorRef):
        label = getattr(client, "label", None)  # set by an election for its instances
        if label is not None:
            return str(label)
        return f"{client.actor_class.__name__}-{client.actor_urn[-8:]}"
    return str(getattr(client, "name", client))


def can_be_linked(client: Client) -> bool:
    """Whether a client can be stopped from outside: all but threads."""
    return isinstance(client, pykka.ActorRef) or not hasattr(client, "is_alive")


def is_patched_thread(client: Client) -> bool:
    """Whether a client is a thread that is a greenlet, and the caller is this greenlet."""
    return (
        isinstance(client, threading.Thread)
        and monkey.is_module_patched("threading")
        and threading.current_thread() is client
    )


def inbox_of(client: Client, notify: NotifyTarget, before: Inbox | None) -> Inbox:
    """Return how an agent delivers notifications to its client.

    Args:
        client: The client.
        notify: The client's option.
        before: How notifications were delivered before.

    Raises:
        InvalidOption: The client can't be notified, or the option is wrong.
    """
    if callable(notify):
        if type(notify) is not Own:
            check_callable(notify, "notify")
        return notify
    if not isinstance(notify, bool):
        raise InvalidOption(
            f"notify={notify!r} is neither True, False nor a callable", notify=repr(notify)
        )
    if isinstance(client, pykka.ActorRef):
        return Own(partial(tell, client))
    if before is None:
        raise InvalidOption(
            f"can't notify client {name_of(client)}: it is not an actor and has no inbox; pass notify=function",
            notify=notify,
        )
    return before
