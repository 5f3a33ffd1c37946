"""`with` blocks that are left for certain.

Python calls `__enter__` and `__exit__` of a class that is written in Python as it calls any function,
and an exception of a signal handler, say, may come up at the very first instruction of it. A
`threading.Lock` knows no such moment. So the `__exit__` of a `Block` is a descriptor. A `with` statement looks
`__exit__` up before it calls `__enter__`, and gets an object of its own, that nobody else has. It drops
that object when the block is left, however it is left. If it was not called by then, or its call was cut
short, the object lets go when it is dropped.

The function that the object calls does not know the object: the traceback of an exception, which keeps
each function's variables alive, does not keep it.

Windows that are left: a second exception, of another signal, within the instructions that are carried
out because of the first one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import ref

from locks.runtime.interrupts import whole, whole_itself
from locks.runtime.native import get_ident, insist

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Block", "Hold", "entering"]

# By native thread: between the look-up and the call of `__enter__` no other greenlet runs.
_looked_up: dict[int, Hold] = {}


class Hold:
    """What one `with` statement has.

    Attributes:
        subject: The context manager.
        held: What is to be let go; `None` while, or as soon as, there is nothing.
    """

    __slots__ = ("exit", "held", "subject")

    def __init__(self, subject: Block) -> None:
        self.subject = subject
        self.held: Any = None
        self.exit: Callable[[], Any] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether there is a `with` statement that drops what it has, as there is none in an `ExitStack`."""
        return self.exit is not None and self.exit() is not None

    def take(self, held: Any) -> None:
        """From now on something is to be let go when the block is left."""
        self.held = held
        exit = None if self.exit is None else self.exit()
        if exit is not None:
            exit.__class__ = _ArmedExit

    def drop(self) -> None:
        """There is nothing to be let go any more."""
        self.held = None
        exit = None if self.exit is None else self.exit()
        if exit is not None:
            exit.__class__ = _Exit


def entering(subject: Block) -> Hold:
    """In `__enter__`, first of all: the hold of this `with` statement, or one of its own without one."""
    hold = _looked_up.pop(get_ident(), None)
    return hold if hold is not None and hold.subject is subject else Hold(subject)


class _Exit(functools.partial[None]):
    """The `__exit__` of one `with` statement.

    It has no finaliser: what comes up in one is lost, and this one is dropped after each block.
    """

    __slots__ = ()


class _ArmedExit(_Exit):
    """The same while there is something to be let go."""

    __slots__ = ()

    @whole
    def __del__(self) -> None:
        (hold,) = self.args
        if hold.held is not None:
            try:
                insist(hold.subject._let_go, hold.held)
            except RecursionError:
                return  # it is posted, and somebody else does it


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
    subject._leave(None, error)


class _Leaving:
    """The descriptor that gives each `with` statement an `__exit__` of its own."""

    __slots__ = ()

    def __get__(self, subject: Any, owner: type[Any]) -> Callable[..., None]:
        if subject is None:
            return _leave_without_hold
        hold = Hold(subject)
        exit = _Exit(_leave, hold)
        hold.exit = ref(exit)
        _looked_up[get_ident()] = hold
        return exit


class Block:
    """A context manager whose `with` blocks are left for certain.

    Subclasses have an `__enter__` that begins with `entering(self)`, and tell that hold what it has taken.
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
        """The block is left, with an error or without.

        Args:
            held: What was put into the `Hold`; `None` if `__exit__` was called without a `with`.
            error: What the block has raised.
        """
        raise NotImplementedError

    def _let_go(self, held: Any) -> None:
        """The block was left, but `_leave` was not called, or was interrupted."""
        raise NotImplementedError
