"""Ctrl-C must not tear what can't be undone.

Python runs signal handlers between two bytecodes of the main thread, and the default handler of
SIGINT raises `KeyboardInterrupt` right there. A turn is atomic whatever is raised into it
(`locks.runtime.inline`), but not all that is done in a turn can be undone: what a cluster has sent,
for one. So, as `asyncio.Runner` does, `install` puts in a handler that looks where the main thread
is: inside a *section* it only takes a note, and `KeyboardInterrupt` is raised when the outermost
section ends; anywhere else it is raised at once, as always.

A turn is a section (`add_section`): the handler asks it whether the main thread has it, so there is
nothing to count and nothing to forget. Any other code can be made one, in any thread::

    token = enter()
    try:
        ...  # never blocks, never switches greenlets
    finally:
        leave(token)

**Why there is no gap.** Only the main thread changes `depth`, and the handler, which runs in the
main thread too, only reads it. A signal before `enter` has stored the new depth raises in `enter`,
before the section; one after that is noted, also between `enter` and `try`. A signal before `leave`
has stored depth 0 is noted and raised by `leave`; one after that raises at once and takes the
note with it, so that two signals never become two exceptions at different places.

In other threads, and while nothing is installed, `enter` and `leave` do nothing.
"""

from __future__ import annotations

import signal
import weakref
from typing import TYPE_CHECKING, Protocol

from gevent import monkey

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Section", "add_section", "enter", "install", "leave", "raise_noted", "uninstall"]

# Native, also in a monkey-patched program: signals know threads, not greenlets.
_get_ident = monkey.get_original("_thread", "get_ident")


class Section(Protocol):
    """What knows by itself whether the calling thread is in it."""

    def is_here(self) -> bool:
        """Whether the calling thread is in the section."""


class _Shield:
    """The state of the one main thread.

    Attributes:
        noted: Whether Ctrl-C was pressed in a section; who ends one looks here.
    """

    __slots__ = ("depth", "installed", "main", "noted", "sections")

    def __init__(self) -> None:
        self.main = 0  # ident of the main thread while installed; no thread has ident 0
        self.depth = 0
        self.noted = False
        self.installed = 0
        self.sections: dict[weakref.ref[Section], None] = {}


shield = _shield = _Shield()


def add_section(section: Section) -> None:
    """Ask this section, too, for as long as it lives."""
    _shield.sections[weakref.ref(section, _forget)] = None


def _forget(section: weakref.ref[Section]) -> None:
    _shield.sections.pop(section, None)


def _is_shielded() -> bool:
    """Whether the main thread, which calls, is in a section."""
    if _shield.depth:
        return True
    for each in list(_shield.sections):  # others may come and go
        section = each()
        if section is not None and section.is_here():
            return True
    return False


def enter() -> bool:
    """Begin a shielded section; give what it returns to `leave`. Sections may be nested."""
    if _get_ident() != _shield.main:
        return False
    _shield.depth += 1
    return True


def leave(token: bool) -> None:
    """End a shielded section.

    Raises:
        KeyboardInterrupt: if it was the outermost section and Ctrl-C was pressed meanwhile.
    """
    if token:
        _shield.depth -= 1
        raise_noted()


def raise_noted() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed in a section, and the caller is in none now."""
    if _shield.noted and _get_ident() == _shield.main and not _is_shielded():
        _shield.noted = False
        raise KeyboardInterrupt


def install() -> bool:
    """Take over SIGINT, if the program left it at Python's default. Call it in the main thread.

    Returns:
        Whether sections are shielded now. If so, `uninstall` is due once for this call. False in
        any other thread, and in a program that has a SIGINT handler of its own.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, _on_sigint)
        except ValueError:  # not the main thread
            return False
        _shield.main = _get_ident()
    elif signal.getsignal(signal.SIGINT) is not _on_sigint or _get_ident() != _shield.main:
        return False
    _shield.installed += 1
    return True


def uninstall() -> None:
    """Undo one successful `install`; the last one restores Python's default handler."""
    if _shield.installed:
        _shield.installed -= 1
    if not _shield.installed and signal.getsignal(signal.SIGINT) is _on_sigint:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        except ValueError:
            return  # Not the main thread. Our handler stays: outside sections it is the default.
        if not _shield.depth:
            _shield.main = 0


def _on_sigint(signum: int, frame: FrameType | None) -> None:
    if _is_shielded():
        _shield.noted = True
    else:
        _shield.noted = False
        signal.default_int_handler(signum, frame)
