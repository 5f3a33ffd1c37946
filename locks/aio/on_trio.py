"""`locks.aio` in trio; an `EventLoop`. trio is imported before this module is.

A call is a checkpoint, as trio's own functions are: it raises `Cancelled` before anything is requested, or while it waits.
A task's owner ends with the task, which an instrument of the run notices, and at the latest with the run.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio
from trio.lowlevel import (
    Abort,
    RunVar,
    Task,
    TrioToken,
    add_instrument,
    cancel_shielded_checkpoint,
    checkpoint_if_cancelled,
    current_task,
    current_trio_token,
    reschedule,
    wait_task_rescheduled,
)

from locks.aio.loops import new_owner, no_task
from locks.node.client.leaks import TIED
from locks.node.client.owner import Owner
from locks.runtime.interrupts import whole
from locks.runtime.native import insist

__all__ = ["Parked", "after", "before", "here", "poster", "sleep", "task_owner"]

logger = logging.getLogger("locks.runtime")

Here: TypeAlias = tuple[Task, TrioToken]

sleep = trio.sleep
before: Callable[[], Awaitable[None]] | None = checkpoint_if_cancelled
after: Callable[[], Awaitable[None]] | None = cancel_shielded_checkpoint


def here() -> Here:
    """See `EventLoop`."""
    return current_task(), current_trio_token()


class Parked:
    """The wait of a task for the event that its bridge waits for.

    trio raises `Cancelled` at each checkpoint of a cancelled scope. The function in the bridge may have to wait on its way out
    (an election that waits until its part is over): such a wait is shielded, as it is with asyncio, which raises only once.
    """

    __slots__ = ("_is_shielded", "_sleeps", "_task", "_token")

    def __init__(self, here: Here) -> None:
        self._task, self._token = here
        self._sleeps = False
        self._is_shielded = _has_cancelled(sys.exc_info()[1])  # what the bridge's code handles now

    def release(self) -> None:
        """End the wait; see `Parked`."""
        _post(self._token, self._resume)

    def _resume(self) -> None:
        if self._sleeps:
            self._sleeps = False
            reschedule(self._task)

    async def wait(self, timeout: float | None) -> None:
        """Wait, for at most `timeout` seconds."""
        if timeout is None and not self._is_shielded:
            await self._sleep()
            return
        until = math.inf if timeout is None else trio.current_time() + timeout
        with trio.CancelScope(deadline=until, shield=self._is_shielded):
            await self._sleep()

    async def _sleep(self) -> None:
        self._sleeps = True
        await wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> Abort:
        self._sleeps = False
        return Abort.SUCCEEDED


def _has_cancelled(error: BaseException | None) -> bool:
    """Whether an exception is `Cancelled`, contains it, or was raised while it was handled."""
    while error is not None:
        if isinstance(error, trio.Cancelled):
            return True
        if any(map(_has_cancelled, getattr(error, "exceptions", ()))):
            return True
        error = error.__context__
    return False


def poster() -> Callable[..., object]:
    """See `EventLoop`."""
    token = current_trio_token()
    return lambda function, *args: _post(token, partial(_call_back, function, *args))


def _post(token: TrioToken, function: Callable[[], object]) -> None:
    try:
        token.run_sync_soon(function)
    except OSError as error:  # the run was interrupted, and has closed its socket
        raise trio.RunFinishedError("the run has ended") from error


def _call_back(function: Callable[..., object], *args: object) -> None:
    try:
        function(*args)
    except Exception:  # it would end trio's run
        logger.exception("a callback failed: %r", function)


class _Run(trio.abc.Instrument):
    """Ends the owners of a run's tasks.

    Attributes:
        owners: The owner of each task that has one.
    """

    def __init__(self) -> None:
        self.owners: dict[Task, Owner] = {}

    @whole
    def task_exited(self, task: Task) -> None:
        """A task has ended; called by trio, which would not call an instrument again that has raised."""
        try:
            self._end_owner(task)
        except BaseException as error:
            insist(self._end_owner, task)
            logger.error("the end of task %s was interrupted", task.name, exc_info=error)

    def _end_owner(self, task: Task) -> None:
        owner = self.owners.get(task)
        if owner is not None:
            owner.end(TIED)
            del self.owners[task]  # last: after an interruption the call is repeated

    def after_run(self) -> None:
        """The run has ended, in whatever way; called by trio."""
        for owner in self.owners.values():
            owner.end("its event loop was closed")


_runs: RunVar[_Run | None] = RunVar("locks", None)


def task_owner() -> Owner:
    """See `EventLoop`."""
    try:
        task = current_task()
    except RuntimeError:
        raise no_task("nursery.start_soon(...)") from None
    run = _runs.get()
    if run is None:
        run = _Run()
        add_instrument(run)
        _runs.set(run)
    found = run.owners.get(task)
    if found is None:
        found = run.owners[task] = new_owner(
            task.name, task.coro, "To limit its time, pass the limit to acquire"
        )
    return found
