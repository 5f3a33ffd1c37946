"""`with` blocks that always release what they hold.

Python calls `__enter__` and `__exit__` of a Python class like any function, so an exception, of a
signal handler for example, may be raised at the first instruction of `__exit__`. A `threading.Lock`
does not have this problem. So the `__exit__` of a `Block` is a descriptor. A `with` statement looks
up `__exit__` before it calls `__enter__`, and gets its own object, to which no one else has a
reference. It drops that object when the block is left, in any way. If the object was not called by
then, or its call was interrupted, it releases when it is dropped.

The function that the object calls has no reference to the object. So the traceback of an exception,
which keeps each function's variables alive, does not keep the object alive.

One gap remains: a second exception, of another signal, within the instructions that are carried out
because of the first one.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any
from weakref import ref

from locks.runtime.interrupts import whole, whole_itself
from locks.runtime.native import get_ident, insist, start_new_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from typing_extensions import Self

__all__ = [
    "CONTEXTLIB",
    "IN_GENERATOR",
    "Block",
    "ClientBlock",
    "Exit",
    "Hold",
    "entering",
    "generator_of",
    "stacked_hold",
]

IN_GENERATOR = 0x20 | 0x200  # CO_GENERATOR, CO_ASYNC_GENERATOR: `inspect` takes long to import
CONTEXTLIB = vars(contextlib)  # the globals of the code of an `ExitStack`
_STACKED = "_locks_stacked"  # the attribute of a subject with the holds of blocks that an `ExitStack` has entered

# By native thread: between the look-up and the call of `__enter__` no other greenlet runs.
_looked_up: dict[int, Hold] = {}


class Hold:
    """The hold of one `with` statement.

    Attributes:
        subject: The context manager.
        held: What must be released; `None` if there is nothing.
        within: The `id` of the frame that has to run for the client to be in the block, if one has to (`locks.node.client.blocks`).
    """

    __slots__ = ("exit", "held", "subject", "within")

    def __init__(self, subject: Block) -> None:
        self.subject = subject
        self.held: Any = None
        self.within: int | None = None
        self.exit: Callable[[], Any] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether a `with` statement will drop its `__exit__`, unlike an `ExitStack`."""
        return self.exit is not None and self.exit() is not None

    def take(self, held: Any) -> None:
        """Set what must be released when the block is left."""
        self.held = held
        exit = None if self.exit is None else self.exit()
        if exit is not None:
            exit.__class__ = _ArmedExit

    def drop(self) -> None:
        """Note that there is nothing left to release."""
        self.held = None
        exit = None if self.exit is None else self.exit()
        if exit is not None:
            exit.__class__ = Exit


def entering(subject: Block) -> Hold:
    """In `__enter__`, first of all: the hold of this `with` statement, or one of its own without one."""
    hold = _looked_up.pop(get_ident(), None)
    return hold if hold is not None and hold.subject is subject else Hold(subject)


def generator_of(hold: Hold, frame: FrameType) -> FrameType | None:
    """The generator's frame in which the block stands that this frame enters, if it stands in one.

    If an `ExitStack` has entered it, that looks `__exit__` up in the class: so the hold is kept for it (`stacked_hold`).
    """
    if frame.f_code.co_flags & IN_GENERATOR:
        return frame
    above = _caller_of_stack(frame)
    if above is None or not above.f_code.co_flags & IN_GENERATOR:
        return None
    subject = hold.subject
    known = [each for each in getattr(subject, _STACKED, ()) if each[1].held is not None]
    setattr(subject, _STACKED, (*known, (id(above), hold)))
    return above


def stacked_hold(subject: object, frame: FrameType) -> Hold | None:
    """Take out the hold of the block that an `ExitStack` leaves in this frame, if one is kept."""
    holds = getattr(subject, _STACKED, ())
    above = _caller_of_stack(frame) if holds else None
    found = [each for frame_id, each in holds if frame_id == id(above) and each.held is not None]
    if not found:
        return None
    rest = tuple(each for each in holds if each[1] is not found[-1])
    if rest:
        setattr(subject, _STACKED, rest)
    else:
        delattr(subject, _STACKED)
    return found[-1]  # type: ignore[no-any-return]


def _caller_of_stack(frame: FrameType) -> FrameType | None:
    above: FrameType | None = frame
    while above is not None and above.f_globals is CONTEXTLIB:
        above = above.f_back
    return above


class Exit(functools.partial[Any]):
    """The `__exit__` of one `with` statement, or the `__aexit__` of one `async with`.

    It has no finaliser: exceptions in a finaliser are lost, and this object is dropped after each
    block.
    """

    __slots__ = ()


class _ArmedExit(Exit):
    """The same while there is something to release."""

    __slots__ = ()

    @whole
    def __del__(self) -> None:
        (hold,) = self.args
        if hold.held is not None:
            try:
                insist(hold.subject._let_go, hold.held)
                hold.held = None
            except RecursionError:  # this call needs no frame of the stack that has ended
                start_new_thread(_let_go, (hold,))


def _let_go(hold: Hold) -> None:
    insist(hold.subject._let_go, hold.held)
    hold.held = None


@whole_itself
def _leave(
    hold: Hold,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> None:
    hold.subject._leave(hold.held, error)
    if hold.held is not None:
        hold.drop()


def _leave_without_hold(
    subject: Block,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    traceback: TracebackType | None = None,
) -> None:
    hold = stacked_hold(subject, sys._getframe(1))
    if hold is None:
        subject._leave(None, error)
    else:
        _leave(hold, kind, error, traceback)


class _Leaving:
    """The descriptor that gives each `with` statement its own `__exit__`."""

    __slots__ = ()

    def __get__(self, subject: Any, owner: type[Any]) -> Callable[..., None]:
        if subject is None:
            return _leave_without_hold
        hold = Hold(subject)
        exit = Exit(_leave, hold)
        hold.exit = ref(exit)
        _looked_up[get_ident()] = hold
        return exit


class Block:
    """A context manager whose `with` blocks always release what they hold.

    Subclasses have an `__enter__` that begins with `entering(self)`, and store in that hold what
    they have taken.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None: ...

    else:
        __exit__ = _Leaving()

    def _leave(self, held: Any, error: BaseException | None) -> None:
        """Leave the block, with an error or without.

        Args:
            held: The value in the `Hold`; `None` if `__exit__` was called without a `with`.
            error: The exception of the block.
        """
        raise NotImplementedError

    def _let_go(self, held: Any) -> None:
        """The block was left, but `_leave` was not called, or was interrupted."""
        raise NotImplementedError


class ClientBlock(Block):
    """A block of the client that enters it, unless it stands in a generator (`locks.node.client.blocks`)."""

    __slots__ = ()

    def __enter__(self) -> Self:
        hold = entering(self)
        self._enter(hold)
        frame = sys._getframe(1)
        # What `generator_of` looks at first: nearly all blocks are spared the call.
        if frame.f_code.co_flags & IN_GENERATOR or frame.f_globals is CONTEXTLIB:
            generator = generator_of(hold, frame)
            if generator is not None:
                return self._of_generator(hold, generator)
        return self

    def _enter(self, hold: Hold) -> None:
        """Take what the block holds, and store it in its hold."""
        raise NotImplementedError

    def _of_generator(self, hold: Hold, frame: FrameType | None = None) -> Self:
        """A block of a generator was entered; returns what its code has, wherever that runs.

        Args:
            hold: What the block has.
            frame: The generator's; `None` in a task, where it does not matter.
        """
        raise NotImplementedError
