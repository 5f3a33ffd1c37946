"""Elections for asyncio and trio.

from locks_leader import aio

async with aio.Election("nightly-report").lead() as leadership:
    ...
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from locks.aio import Lost
from locks.aio.tasks import Awaiting, Suspended, call
from locks.node import Node
from locks.runtime.callables import check_awaitable, check_awaited, check_can_be_called
from locks_leader import election as blocking
from locks_leader.errors import LeadershipLost
from locks_leader.policy import Policy

if sys.version_info >= (3, 11):
    from typing import TypeVarTuple, Unpack
else:
    from typing_extensions import TypeVarTuple, Unpack

__all__ = ["Election", "Leadership"]

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Leadership:
    """What a leader has in hand; see `locks_leader.Leadership`."""

    def __init__(self, leadership: blocking.Leadership) -> None:
        self._blocking = leadership

    def __repr__(self) -> str:
        return f"<aio.{repr(self._blocking)[1:]}"

    @property
    def lost(self) -> Lost:
        """Opens when the leadership is lost, or is to be given back: `await leadership.lost`."""
        return Lost(self._blocking.lost)

    @property
    def term(self) -> int:
        """The leader's term; see `locks_leader.Leadership`."""
        return self._blocking.term

    def ensure_leading(self) -> None:
        """Make sure, as far as this node knows, that nobody else leads.

        Raises:
            LeadershipLost: The leadership is lost, or is to be given back.
        """
        self._blocking.ensure_leading()


class Election:
    """One program's part in an election, of which all that is wanted is to lead at times.

    Args:
        name: What the election is about; all with the same name take part in the same one, also those that use
            `locks_leader.Election`.
        policy: See `locks_leader.start`.
        nodes: Likewise.
        node: The node on which it takes part; this program's node by default.
        label: What this program's part is called where the election's lock is shown; `candidate` by default.
    """

    def __init__(
        self,
        name: Any,
        *,
        policy: Literal["island", "majority"] | Policy | None = None,
        nodes: Iterable[str] | None = None,
        node: Node | None = None,
        label: str | None = None,
    ) -> None:
        self._blocking = blocking.Election(name, policy=policy, nodes=nodes, node=node, label=label)

    def __repr__(self) -> str:
        return f"<aio.{repr(self._blocking)[1:]}"

    @property
    def name(self) -> Any:
        """What the election is about."""
        return self._blocking.name

    @property
    def leadership(self) -> Leadership | None:
        """What this program leads by now; `None` if it does not lead."""
        found = self._blocking.leadership
        return None if found is None else Leadership(found)

    def stop(self) -> None:
        """Stop taking part. The leading code is asked to end by `lost`, and keeps the leadership until it has."""
        self._blocking.stop()

    async def run(
        self,
        function: Callable[[Leadership, Unpack[Ts]], Awaitable[R]],
        *args: Unpack[Ts],
        timeout: float | None = None,
    ) -> R | None:
        """Wait until this program leads, run a coroutine function, and give the leadership back.

        It runs in the calling task. If the leadership is lost meanwhile, it should end; see
        `locks_leader.Election.run`.

        Args:
            function: Called with the `Leadership`, and `args`.
            *args: More arguments for it.
            timeout: Seconds to wait for the leadership at most; `None` waits for ever.

        Returns:
            What the function returns; `None` if the election was stopped before it began.

        Raises:
            LeaderTimeout: Time ran out; this program does not take part any more.
            MisuseError: It takes part already; or what the function returned can't be awaited: it is no coroutine function.
            OperatingError: The node was stopped meanwhile.
            Exception: What the function raises; the leadership is given up.
        """
        check_can_be_called(function, "function")

        results: list[R] = []  # a task is a result here, unlike in a program without an event loop

        def led(leadership: blocking.Leadership) -> None:
            made = function(Leadership(leadership), *args)
            results.append(check_awaited(Awaiting(check_awaitable(made, "the function")).result()))

        await call(self._blocking.run, led, timeout=timeout)
        return results[0] if results else None

    @contextlib.asynccontextmanager
    async def lead(self, *, timeout: float | None = None) -> AsyncIterator[Leadership]:
        """Wait until this program leads, and lead within a block: `async with election.lead() as leadership`.

        Args:
            timeout: Seconds to wait for the leadership at most; `None` waits for ever.

        Raises:
            LeaderTimeout: Time ran out; this program does not take part any more.
            LeadershipLost: The election was stopped before this program was elected.
            MisuseError: It takes part already.
            OperatingError: The node was stopped meanwhile.
        """
        block: Suspended[Leadership] = Suspended()

        def led(leadership: blocking.Leadership) -> bool:
            block.suspend(Leadership(leadership))
            return True

        async with block.during(partial(self._blocking.run, led, timeout=timeout)):
            if block.value is None:
                raise LeadershipLost(
                    f"the election {self.name!r} was stopped before this program became the leader"
                )
            yield block.value

    def __call__(
        self, function: Callable[Concatenate[Leadership, P], Awaitable[R]]
    ) -> Callable[P, Awaitable[R | None]]:
        """As a decorator: to call the coroutine function is to `run` it."""
        check_can_be_called(function, "function")

        @wraps(function)
        async def led(*args: P.args, **options: P.kwargs) -> R | None:
            return await self.run(partial(function, **options), *args)

        return led
