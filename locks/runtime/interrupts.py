"""Ctrl-C must not interrupt work that can't be undone, and must not get lost.

Python runs signal handlers between two bytecodes of the main thread, and the default handler of
SIGINT raises `KeyboardInterrupt` right there. A turn is atomic whatever is raised into it
(`locks.runtime.inline`), but not all its effects can be undone, for example sent messages. So, like
`asyncio.Runner`, `install` sets a handler that checks where the main thread is. Inside a *section*
it only makes a note, and `KeyboardInterrupt` is raised when the outermost section ends.

A turn is a section (`add_section`): the handler asks it whether the main thread holds it, so
nothing has to be counted. Any other code can be made a section, in any thread::

    token = enter()
    try:
        ...  # never blocks, never switches greenlets
    finally:
        leave(token)

**Why is there no gap?** Only the main thread changes `depth`, and the handler, which also runs in
the main thread, only reads it. A signal before `enter` has stored the new depth raises in `enter`,
before the section. A later one is noted, even between `enter` and `try`. A signal before `leave`
has stored depth 0 is noted, and raised by `leave`. A later one raises at once and clears the note,
so that two signals never become two exceptions at different places.

In other threads, and while nothing is installed, `enter` and `leave` do nothing.

**Where would the exception be lost?** In three places it would not reach the program:

- In the hub, and in greenlets that work for it (`in_background`), it would interrupt work that
  others rely on. There the hub's loop throws it at the main greenlet. If a greenlet blocks the
  loop, or Ctrl-C is pressed again, it is raised wherever the main thread is.
- In functions that are marked as `whole`, it could prevent a notification. These functions report
  the end of clients, also from within a finaliser or a weak reference's callback. The signal is
  sent again shortly after. If such a function takes a second, which it never should, it is
  interrupted nevertheless.
- Python swallows exceptions in finalisers and callbacks of weak references, and calls
  `sys.unraisablehook`. An interrupt that arrives there is sent again.

**In a forked child**, the state is as after an import. The thread that has forked is its main
thread. Sections that it was in at the fork end without effect, because their token belongs to the
parent's state.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gevent import getcurrent, monkey
from gevent._hub_local import get_hub_if_exists

from locks.runtime.native import get_ident, is_main_thread, send_interrupt, start_new_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

__all__ = [
    "Section",
    "add_section",
    "enter",
    "in_background",
    "install",
    "leave",
    "raise_noted",
    "uninstall",
    "whole",
    "whole_itself",
]

F = TypeVar("F", bound="Callable[..., Any]")

_sleep = monkey.get_original("time", "sleep")

ONCE_MORE = 0.001
"""Seconds after which a signal is sent again if it came where it must not be raised."""

LATE = 0.05
"""Seconds within which the hub's loop must throw it at the main greenlet."""

OFTEN = 1000
"""How often it is sent again before it is raised wherever it comes."""


class Section(Protocol):
    """A section that knows by itself whether the calling thread is in it."""

    def is_here(self) -> bool:
        """Whether the calling thread is in the section."""


class _Shield:
    """The state of the one main thread.

    Attributes:
        noted: Whether Ctrl-C was pressed in a section; checked at the end of a section.
    """

    __slots__ = (
        "before",
        "depth",
        "generation",
        "installed",
        "late",
        "main",
        "noted",
        "sections",
        "sending",
        "sent",
        "thrown",
    )

    def __init__(self) -> None:
        self.generation = 1  # counts forks; the token of sections, invalid in a child
        self.sections: dict[weakref.ref[Section], None] = {}
        self.clear()

    def clear(self) -> None:
        """Be as after an import."""
        self.main = 0  # ident of the main thread while installed; no thread has ident 0
        self.depth = 0
        self.noted = False
        self.installed = 0
        self.sending = False  # it is about to be sent again
        self.sent = 0  # how often it was sent again
        self.late: Any = None  # the timer for a loop that is late
        self.thrown: Any = None  # the hub's callback that will throw it at the main greenlet
        self.before: Callable[[Any], object] | None = None  # the hook that ours replaces


shield = _shield = _Shield()
_whole: set[CodeType] = set()  # code that must not be torn
_whole_itself: set[CodeType] = set()  # code that must not, in its own frame


def add_section(section: Section) -> None:
    """Ask this section, too, for as long as it lives."""
    _shield.sections[weakref.ref(section, _forget)] = None


def _forget(section: weakref.ref[Section]) -> None:
    _shield.sections.pop(section, None)


def _is_shielded() -> bool:
    """Whether the main thread, which calls, is in a section."""
    # In a child, the first signal may come before `_forked`: then the depth is the parent's.
    if _shield.depth and get_ident() == _shield.main:
        return True
    for each in list(_shield.sections):  # others may come and go
        section = each()
        if section is not None and section.is_here():
            return True
    return False


def enter() -> int:
    """Begin a shielded section; pass the returned token to `leave`. Sections may be nested."""
    if get_ident() != _shield.main:
        return 0
    _shield.depth += 1
    return _shield.generation


def leave(token: int) -> None:
    """End a shielded section.

    Raises:
        KeyboardInterrupt: if it was the outermost section and Ctrl-C was pressed meanwhile.
    """
    if token == _shield.generation:
        _shield.depth -= 1
        raise_noted()


def raise_noted() -> None:
    """Raise `KeyboardInterrupt` if Ctrl-C was pressed in a section, and the caller is in none now."""
    if _shield.noted and get_ident() == _shield.main and not _is_shielded():
        _shield.noted = False
        if not _pass_on(_shield):
            raise KeyboardInterrupt


def whole(function: F) -> F:
    """Mark a function that Ctrl-C must not interrupt, nor its calls: Ctrl-C waits until it returns."""
    _whole.add(function.__code__)
    return function


def whole_itself(function: F) -> F:
    """Mark a function that Ctrl-C must not interrupt in its own steps; calls, such as waits, may be."""
    _whole_itself.add(function.__code__)
    return function


def in_background() -> None:
    """Have Ctrl-C go to the main greenlet while the calling one is at work."""
    getcurrent().__dict__[_BACKGROUND] = True


_BACKGROUND = "_locks_in_background"
HAS_ITS_OWN = "uwsgi"
"""The module of a program that Python is a part of, and that ends its processes by SIGINT. Its handler is in C: Python shows
its own default there, and to take over would be for good, so that such a process would never end."""


def install() -> bool:
    """Take over SIGINT, if the program left it at Python's default. Call it in the main thread.

    Returns:
        Whether sections are shielded now. If so, `uninstall` is due once for this call. False in
        any other thread, and in a program that has a SIGINT handler of its own.
    """
    if HAS_ITS_OWN in sys.modules:
        return False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, _on_sigint)
        except ValueError:  # not the main thread
            return False
        _shield.main = get_ident()
        if _shield.before is None:
            _shield.before, sys.unraisablehook = sys.unraisablehook, _on_unraisable
    elif signal.getsignal(signal.SIGINT) is not _on_sigint or get_ident() != _shield.main:
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
        _unhook()
        if not _shield.depth:
            _shield.main = 0


def _on_sigint(signum: int, frame: FrameType | None) -> None:
    shield = _shield
    late, shield.late = shield.late, None
    if late is not None and late is not shield.thrown:
        return  # sent by ourselves, and thrown at the last moment
    if _is_shielded():
        shield.noted = True
        return
    shield.noted = False
    if shield.sent < OFTEN and _is_within_whole(frame):
        _send_again(shield)
        return
    shield.sent = 0
    if not _pass_on(shield):
        signal.default_int_handler(signum, frame)


def _pass_on(shield: _Shield) -> bool:
    """If the hub is at work, have its loop throw the interrupt at the main greenlet."""
    thrown, shield.thrown = shield.thrown, None
    if thrown is not None:
        thrown.stop()
        return False  # the second one; the loop may be held up
    hub: Any = get_hub_if_exists()
    if hub is None or hub.loop is None:
        return False
    current: Any = getcurrent()
    if current is not hub and _BACKGROUND not in current.__dict__:
        return False
    shield.thrown = hub.loop.run_callback(_throw, shield, hub)
    start_new_thread(_send_if_late, (get_ident(), shield, shield.thrown))
    return True


def _throw(shield: _Shield, hub: Any) -> None:
    shield.thrown = None
    hub.handle_system_error(KeyboardInterrupt, KeyboardInterrupt())


def _is_within_whole(frame: FrameType | None) -> bool:
    if frame is not None and frame.f_code in _whole_itself:
        return True
    while frame is not None:
        if frame.f_code in _whole:
            return True
        frame = frame.f_back
    return False


def _send_again(shield: _Shield) -> None:
    if not shield.sending:
        shield.sending = True
        shield.sent += 1
        try:
            start_new_thread(_send_once_more, (get_ident(), shield))
        except RuntimeError:  # no thread can be started
            shield.sending = False
            raise KeyboardInterrupt from None


def _send_once_more(main: int, shield: _Shield) -> None:
    _sleep(ONCE_MORE)
    shield.sending = False
    send_interrupt(main)


def _send_if_late(main: int, shield: _Shield, thrown: object) -> None:
    _sleep(LATE)
    if shield.thrown is thrown:
        shield.late = thrown
        send_interrupt(main)


def _on_unraisable(unraisable: Any, shield: _Shield = _shield) -> None:
    # `shield` is bound: at the interpreter's end this module is empty before the last `__del__`.
    if issubclass(unraisable.exc_type, KeyboardInterrupt) and is_main_thread():
        if not sys.is_finalizing():
            _send_again(shield)
    elif shield.before is not None:
        shield.before(unraisable)


def _unhook() -> None:
    # Otherwise another hook was set over ours, and may still call it.
    if sys.unraisablehook is _on_unraisable and _shield.before is not None:
        sys.unraisablehook, _shield.before = _shield.before, None


def _forked() -> None:
    """In a child all is as after an import."""
    _unhook()
    if signal.getsignal(signal.SIGINT) is _on_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _shield.generation += 1
    _shield.clear()


os.register_at_fork(after_in_child=_forked)
