"""Something happens at the n-th instruction: a tracer that counts bytecodes and strikes at one of them.

`sys.settrace` with `f_trace_opcodes` calls us before each instruction of each frame below the call under test.
All Python code that runs there counts: this library, and what it calls of Pykka, gevent and the standard
library. Only the tests' own frames do not. What a trace function raises is raised at that instruction, as
an asynchronous exception would be, but at every one and not only where Python looks for them. Left out is where only a tracer
can raise something: a `NOP`, for CPython 3.11 does not let the `try` that it belongs to catch it; and what generators have since
CPython 3.12 for their end, which is also run while one is freed, and then Python swallows what is raised.

Garbage is not collected meanwhile: that would call callbacks and finalisers of anybody, wherever it happens to begin.
They are no part of the call, and Python swallows what is raised in them.

**Outside** is one kind of position: the return of the outermost function itself. An exception raised there, like
one in the caller's own frame a moment later, finds the work done and no code of ours that could undo
it. These positions are counted and reported apart (`Strike.outside`).
"""

from __future__ import annotations

import dis
import gc
import pathlib
import sys
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import CodeType, FrameType
from typing import Any, ClassVar

from gevent import getcurrent

__all__ = ["Strike", "Tracer", "trace"]

TESTS = str(pathlib.Path(__file__).parents[1])
UNCOUNTED = (TESTS, "<frozen")
SWALLOWING = (
    "/_weakrefset.py",
    "/weakref.py",
)  # callbacks: Python itself swallows what is raised there
RETURNS = {"RETURN_VALUE", "RETURN_CONST"}
_counted: dict[str, bool] = {}  # by file
sys._getframe().f_trace_opcodes = (
    True  # Python 3.12 looks for it, on any frame, when a tracer is set
)


class Strike:
    """Where it happened.

    Attributes:
        where: The function, line and instruction.
        outside: Whether it is the return of the outermost function.
    """

    def __init__(self, frame: FrameType) -> None:
        code = frame.f_code
        name = _name(frame)
        path = code.co_filename.rpartition("site-packages/")[2]
        file = "/".join(pathlib.PurePath(path).parts[-2:])
        function = getattr(code, "co_qualname", code.co_name)
        self.where = f"{file}:{frame.f_lineno} {function} {name}"
        back = frame.f_back
        self.outside = name in RETURNS and back is not None and not counts(back.f_code)


class Tracer:
    """Counts instructions of the thread or greenlet that makes it, and strikes once.

    Args:
        at: Before which one; `None` only counts.
        strike: What happens there; what it raises is raised there.
        begin: If given, counting begins when this function, given the code, returns true; and `interlude` is
            called at that moment.
        interlude: See `begin`.

    Attributes:
        count: How many instructions there were so far.
        struck: Where it has happened, if it has.
        last: Where the last one of all tracers has.
    """

    last: ClassVar[Strike | None] = None

    def __init__(
        self,
        at: int | None = None,
        strike: Callable[[], object] | None = None,
        begin: Callable[[CodeType], bool] | None = None,
        interlude: Callable[[], object] | None = None,
    ) -> None:
        self.count = 0
        self.struck: Strike | None = None
        self._at = at
        self._strike = strike
        self._begin = begin
        self._interlude = interlude
        self._mine = getcurrent()

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The global trace function: a frame begins."""
        if not counts(frame.f_code):
            return None
        frame.f_trace = self.step  # from Python 3.13 on, the next line does nothing without
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self.step

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The local one: an instruction is next."""
        if event != "opcode" or getcurrent() is not self._mine:
            return self.step  # greenlets of one thread share its trace function
        if self._begin is not None:
            if not self._begin(frame.f_code):
                return self.step
            self._begin = None
            if self._interlude is not None:
                self._interlude()
        number = self.count
        self.count = number + 1
        if number == self._at:
            if _name(frame) == "NOP" or _is_end_of_generator(frame):
                self._at = number + 1
                return self.step
            self.struck = Tracer.last = Strike(frame)
            if self._strike is not None:
                self._strike()
        return self.step


def _name(frame: FrameType) -> str:
    """The name of the instruction that is next."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _is_end_of_generator(frame: FrameType) -> bool:
    """Whether a generator is being closed: in its `yield from`, or in the handler that each has, and that stands in no line."""
    return bool(frame.f_code.co_flags & CO_GENERATOR) and (
        frame.f_lineno is None or _name(frame) == "CLEANUP_THROW"
    )


def counts(code: CodeType) -> bool:
    """Whether the instructions of this code count: those of tests, and of frozen modules, do not."""
    file = code.co_filename
    known = _counted.get(file)
    if known is None:
        known = _counted[file] = not (file.startswith(UNCOUNTED) or file.endswith(SWALLOWING))
    return known


def trace(tracer: Tracer, act: Callable[[], object]) -> object:
    """Call `act` with the tracer on, in this thread or greenlet."""
    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(tracer.enter)
    try:
        return act()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
