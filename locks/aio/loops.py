"""What `locks.aio` needs of an event loop, and what is the same for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CodeType
from typing import Any, Protocol, TypeVar

from locks.errors import MisuseError
from locks.node.client.clients import plain_label
from locks.node.client.owner import Future, Owner
from locks.runtime.bridge import Parked, foreign_loop

__all__ = ["EventLoop", "Wait", "for_its_caller", "new_owner", "no_task"]

C = TypeVar("C", bound="Callable[..., Any]")

_for_its_caller: set[CodeType] = set()


class Wait(Parked, Protocol):
    """Where a task waits for its bridge."""

    async def wait(self, timeout: float | None) -> None:
        """Wait until released, for at most `timeout` seconds; called in the task."""


class EventLoop(Protocol):
    """A kind of event loop: `on_asyncio` or `on_trio`. All functions are called in a task.

    Attributes:
        before: Awaited before a call, if it is set; it raises if the task was cancelled.
        after: Awaited after a call that did not wait, if it is set; it does not raise.
    """

    before: Callable[[], Awaitable[None]] | None
    after: Callable[[], Awaitable[None]] | None

    @property
    def Parked(self) -> Callable[[Any], Wait]:
        """Makes a place to wait from what `here` returned; called in the bridge."""

    @property
    def here(self) -> Callable[[], object]:
        """Returns what identifies the loop or the task."""

    @property
    def sleep(self) -> Callable[[float], Awaitable[None]]:
        """Waits for some seconds."""

    def poster(self) -> Callable[..., object]:
        """A function, for any thread, that has a function called soon in this loop; `RuntimeError` if the loop has ended."""

    def task_owner(self) -> Owner:
        """The owner that stands for the running task, and ends with it.

        Raises:
            MisuseError: No task is running here.
        """


def for_its_caller(function: C) -> C:
    """Mark a coroutine function that acquires something for the task that awaits it; run as a separate task, it would be useless."""
    _for_its_caller.add(function.__code__)
    return function


def new_owner(name: str, coroutine: object, hint: str, tied_to: Future | None = None) -> Owner:
    """The owner for a task.

    Args:
        name: The task's name.
        coroutine: What the task runs.
        hint: What may have made a task of a coroutine function that is `for_its_caller`.
        tied_to: What the owner ends with.
    """
    if getattr(coroutine, "cr_code", None) in _for_its_caller:
        raise MisuseError(
            "acquire was run as a separate task, and the lock would be released as soon as that task "
            f"ends. Await it in the task that needs the lock. {hint}: `await lock.acquire(timeout=1)`"
        )
    return Owner(plain_label(f"task {name}"), tied_to=tied_to)


def no_task(how: str) -> MisuseError:
    """The error for a caller that is not a task.

    Args:
        how: The way to start one.
    """
    if (foreign := foreign_loop()) is not None:
        return MisuseError(f"locks.aio works in asyncio and trio, and this is {foreign}")
    return MisuseError(
        "no task is running (this is a callback of the event loop): make the call in a task, "
        f"{how}, or act for an owner, `with owner.acting()`"
    )
