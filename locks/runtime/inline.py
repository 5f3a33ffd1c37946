"""Inline actors, which have no greenlet, and the turn that they share.

An actor whose handlers never wait needs no greenlet: the sender of a message can run the handler at
once, if no other handler is running. All inline actors that work together share one `Turn`. It is a
native lock, so a turn may be taken in any thread. This makes a transaction cheap: starting an actor
with a greenlet, and switching to it and back, costs ten times as much as the actor's own work.

**What can happen within a turn?** The turn runs in the caller's thread. Python can interrupt it
between any two bytecodes: by an exception (of a signal handler, of `PyThreadState_SetAsyncExc`, of
a tracer, `RecursionError`, `MemoryError`), and by a call (of a finaliser, a signal handler, a
tracer). The rules are:

* *A turn is atomic.* It works on a `Journal`, which knows at any bytecode whether the turn has been
  committed. If an exception comes before the commit, the turn is undone, and the actors are
  unchanged. If it comes after the commit, the rest of the turn is still carried out. Then the
  exception propagates to the caller. The interrupted caller tries to repair at once. If it can't
  (there is no stack or no memory), the background does so, or the next caller that takes a turn,
  before anything else.
* *Work is done once.* Work that must be done in any case (a release, the end of a client) is posted
  as `Work`. It stays posted until a turn that did it was committed, however often this is
  interrupted.
* *No thread waits for itself.* A call from within a turn of the same thread is refused with
  `ReentrantCall`; work is done at the end of the turn.
* *The lock is always released.* It is a native re-entrant lock, which knows at any time whether the
  calling thread holds it.
* *A `try` block covers its whole body.* CPython 3.12 to 3.14 do not count the jump back of many
  loops as part of the block, and check for signals there. `while True` is safe if its last
  statement is not an `if` (`tests/repo/test_loops.py`).

Handlers must not block, switch greenlets, or call foreign code.

`locks.runtime.addressed` has the references to such actors.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from locks.errors import LocksError, ReentrantCall
from locks.runtime.interrupts import add_section, raise_noted, shield
from locks.runtime.native import native_rlock
from locks.runtime.waiter import get_hub_if_exists

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

T = TypeVar("T")

__all__ = ["EXHAUSTED", "Journal", "Turn", "Work", "raised_in"]

# Errors of an exhausted interpreter, which say nothing about the present work.
EXHAUSTED = (RecursionError, MemoryError)


def raised_in(error: BaseException, *packages: str) -> bool:
    """Whether an error of ours was raised directly by the code of one of these packages.

    A call is refused in this way. An exception from elsewhere, such as a signal handler, is raised
    by other code, or is no error of ours.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    origin = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    return isinstance(error, LocksError) and origin.startswith(packages)


class Work:
    """A piece of work that is done in a turn, once, despite all interruptions.

    Attributes:
        done: Whether a turn that did it was committed, or it was refused.
        tries: How often it has failed.
    """

    __slots__ = ("args", "done", "function", "tries")

    def __init__(self, function: Callable[[Unpack[Ts]], object], args: tuple[Unpack[Ts]]) -> None:
        self.function: Callable[..., object] = function
        self.args: tuple[Any, ...] = args
        self.done = False
        self.tries = 0


class Journal(Protocol):
    """The state that a turn works on, so that the turn can be undone or completed. Only for the turn."""

    torn: bool
    """Whether a turn began and is not over: the journal must be mended before the next one."""

    thin: bool
    """Whether something is thin, or was since the last turn (`Turn.thin`): it must be inflated before the next one."""

    @property
    def news(self) -> Sized:
        """News to be delivered outside of the turn."""

    def inflate(self) -> None:
        """Do what was left out for what is thin; a turn of its own."""

    def conclude(self, work: Work | None = None) -> None:
        """Do what follows from the turn's calls; commit it, together with the work that it has done."""

    def mend(self, error: BaseException | None = None) -> None:
        """Undo the turn if it was not committed, otherwise complete it; may be interrupted and repeated.

        Args:
            error: The exception in the turn, if known.
        """

    def refuses(self, error: BaseException) -> bool:
        """Whether an error is the refusal of the call of this turn, raised by a machine that changed nothing."""

    def is_refusal(self, error: BaseException) -> bool:
        """Whether it is the refusal of some call. This reads nothing that belongs to a turn, so it needs none."""

    def cannot_do(self, work: Work, error: BaseException) -> bool:
        """Handle work that even the background can't do; return whether to try it again."""

    def can_tell_past(self, question: Callable[..., object]) -> bool:
        """Whether it can be answered as of the beginning of the turn."""

    def tell_past(self, question: Callable[[Unpack[Ts]], T], args: tuple[Unpack[Ts]]) -> T:
        """The answer as of the beginning of the turn, from within it."""

    def tell(self) -> None:
        """Outside of the turn: deliver the news of the turn."""


class Turn:
    """A mutual exclusion of calls, in any thread.

    Args:
        journal: The journal of the turn.
        background: Calls a function soon, in a thread that is not interrupted.
    """

    __slots__ = ("__weakref__", "_background", "_journal", "_lock", "_posted")

    def __init__(
        self, journal: Journal, background: Callable[[Callable[[], object]], object]
    ) -> None:
        self._lock = native_rlock()
        self._posted: deque[Work] = deque()
        self._journal = journal
        self._background = background
        add_section(self)

    def reset(self) -> None:
        """In a forked child: free the turn, whose thread does not exist here."""
        self._lock = native_rlock()
        self._posted.clear()

    def is_here(self) -> bool:
        """Whether the calling thread has the turn."""
        return self._lock._is_owned()  # type: ignore[no-any-return]

    def run(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        """Take the turn, call `function(*args)`, and do what follows from it; return the result.

        Everything is done; or nothing, if it was interrupted before the commit.

        Raises:
            ReentrantCall: From within a turn of this thread.
        """
        lock = self._lock
        if lock._is_owned():
            self._refuse(function)
        # Nothing but calls in the block: an exception that a tracer raises at the beginning of a
        # `try` there would not be caught (CPython 3.11), and the lock be kept.
        journal = self._journal
        try:
            with lock:
                if journal.torn:
                    journal.mend()
                if journal.thin:
                    journal.inflate()
                journal.torn = True
                answer = function(*args)
                journal.conclude()
            if self._posted or journal.news or shield.noted:
                self._afterwards()
            return answer
        except BaseException as error:
            self._interrupted(error)
            raise

    def ask(self, question: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T:
        """Take the turn and return the answer to a question, which changes nothing.

        From within a turn of this thread, it is answered as of the beginning of that turn; from
        within another question, or between two turns, as things are.

        Raises:
            ReentrantCall: From within a turn of this thread, if it can't be.
        """
        lock = self._lock
        journal = self._journal
        if lock._is_owned():
            is_open = journal.torn or journal.thin
            self._refuse(question, not is_open or journal.can_tell_past(question))
            if lock._is_owned():
                return journal.tell_past(question, args) if is_open else question(*args)
        try:
            with lock:
                if journal.torn:
                    journal.mend()
                if journal.thin:
                    journal.inflate()
                answer = question(*args)
            if self._posted or shield.noted:
                self._afterwards()
            return answer
        except BaseException as error:
            self._interrupted(error)
            raise

    def thin(self, function: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]) -> T | None:
        """Take the turn for a function that changes nothing but what is thin, which stays so. Each change must be a single assignment.

        From within a turn of this thread it is not called, and the answer is `None`.
        """
        lock = self._lock
        if lock._is_owned():
            return None
        try:
            with lock:
                if self._journal.torn:
                    self._journal.mend()
                answer = function(*args)
            if self._posted or shield.noted:
                self._afterwards()
            return answer
        except BaseException as error:
            self._interrupted(error)
            raise

    def run_surely(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Call `function(*args)` in a turn, even if this call is interrupted.

        When this returns, the function was called; from within a turn of this thread, it is called
        at its end. The function may be called twice, if an interruption comes at the end, so
        repeating it must be harmless.

        Raises:
            LocksError: The function has refused it.
        """
        lock = self._lock
        if lock._is_owned():
            self._posted.append(Work(function, args))
            return
        due = True
        journal = self._journal
        try:
            with lock:
                if journal.torn:
                    journal.mend()
                if journal.thin:
                    journal.inflate()
                journal.torn = True
                function(*args)
                journal.conclude()
                due = False
            if self._posted or journal.news or shield.noted:
                self._afterwards()
        except BaseException as error:
            # The turn may be another thread's by now.
            if due and not journal.is_refusal(error):
                self._posted.append(Work(function, args))
            self._interrupted(error)
            raise

    def post(self, function: Callable[[Unpack[Ts]], object], *args: Unpack[Ts]) -> None:
        """Have `function(*args)` called in a turn, once: now, or by the thread that has the turn.

        From anywhere, also from within a turn, a finaliser or a signal handler. Never blocks.
        """
        if self._lock._is_owned():
            self._posted.append(Work(function, args))
            return
        try:
            self._posted.append(Work(function, args))
            self._afterwards()
        except BaseException as error:
            self._interrupted(error)
            raise

    def catch_up(self) -> None:
        """Repair an interrupted turn, and do posted work; in the background."""
        with self._lock:
            self._drain(last=True)
        self._afterwards()

    def _afterwards(self) -> None:
        """After a turn: do work that was posted meanwhile, and deliver news."""
        # A thread that fails to get the lock leaves its work to the thread that has it, which
        # checks again after releasing it. So no work is left behind.
        try:
            while True:
                if not (self._posted and self._lock.acquire(blocking=False)):
                    break
                done = self._drain()
                self._lock.release()
                if done:
                    continue
                break
            if self._journal.news:
                self._journal.tell()
            if shield.noted:
                raise_noted()
        except BaseException as error:
            self._interrupted(error)
            raise

    def _drain(self, last: bool = False) -> bool:
        """Do posted work, with the lock held; return whether nothing was left to the background.

        An exception that interrupts another caller's work is raised here, after that work was done
        nevertheless. Work that fails again is left to the background, where nothing interrupts it.
        """
        journal = self._journal
        posted = self._posted
        interruption: BaseException | None = None
        left = False
        if journal.torn:
            journal.mend()
        while posted:
            work = posted[0]
            if not work.done:
                error = self._do(work)
                if error is not None and not work.done:
                    if last:
                        if journal.cannot_do(work, error):
                            continue
                    else:
                        work.tries += 1
                        if work.tries == 1:
                            interruption = error
                            continue
                        if type(error) is type(interruption):
                            interruption = None  # it is the work that fails, not the caller
                        left = True
                        self._hand_over()
                        break
                elif error is not None and not journal.refuses(error):
                    interruption = error
            posted.popleft()
        if interruption is not None:
            raise interruption
        return not left

    def _do(self, work: Work) -> BaseException | None:
        """Do one piece of work, with the lock held; return an exception if there was one."""
        journal = self._journal
        try:
            if journal.thin:
                journal.inflate()
            journal.torn = True
            work.function(*work.args)
            journal.conclude(work)
        except BaseException as error:
            if journal.refuses(error):
                work.done = True
            journal.mend(error)
            return error
        return None

    def _interrupted(self, error: BaseException) -> None:
        """Restore a consistent state after an exception in a turn, or at its edge."""
        lock = self._lock
        journal = self._journal
        try:
            if (journal.torn or self._posted) and (
                lock._is_owned() or lock.acquire(blocking=False)
            ):
                if journal.torn:
                    journal.mend(error)
                self._drain()
        except EXHAUSTED:
            pass  # another caller does it
        finally:
            while lock._is_owned():
                lock.release()
            if journal.torn or self._posted:
                self._hand_over()
            if shield.noted:
                raise_noted()

    def _hand_over(self) -> None:
        """Let the background catch up; if it can't be reached now, the next caller does it."""
        with suppress(RuntimeError, *EXHAUSTED):
            self._background(self.catch_up)

    def _refuse(self, function: Callable[..., object], unless: bool = False) -> None:
        """A call from within a turn of this thread, as it seems."""
        frame = sys._getframe(1)
        while frame is not None and not (
            frame.f_code in _TURNS and frame.f_locals.get("self") is self
        ):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None or get_hub_if_exists() is not None:
            if unless:
                return
            raise ReentrantCall(
                f"{_foreign_caller()} interrupted a step of locks (as finalisers, "
                "signal handlers, tracing and logging hooks do) and called locks, which is impossible "
                f"there ({getattr(function, '__qualname__', function)}). Only calls that release or end something work there; "
                "do the rest later"
            )
        # It was interrupted so often that it could not release the lock.
        self._interrupted(KeyboardInterrupt())


_TURNS = {
    function.__code__
    for function in (
        Turn.run,
        Turn.ask,
        Turn.thin,
        Turn.run_surely,
        Turn.post,
        Turn.catch_up,
        Turn._interrupted,
    )
}


def _foreign_caller() -> str:
    """The function outside of this package that has called."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("locks"):
        frame = frame.f_back
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
