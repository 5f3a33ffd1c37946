"""Owners: clients that are no thread, greenlet or actor, such as a web session, a job, or a request.

Any thread, greenlet or task may use an owner's transactions: the owner is the client, not the
caller. All transactions of an owner belong to one client. They do not wait for each other, and they
end together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.node.client.clients import checked_label
from locks.node.client.leaks import LEFT, TIED, is_forgetful
from locks.runtime.leaving import Block, entering
from locks.runtime.monitor import CannotMonitor, Client, Down, Ending, Monitor, acting

__all__ = ["Acting", "Owner", "checked_owner"]


@runtime_checkable
class Future(Protocol):
    """A task or a future, of `asyncio` or of `concurrent.futures`."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> object:
        """Call a function with it when it is done."""


class Owner(Ending, Block):
    """Somebody who has transactions and locks, and is no thread, greenlet or actor.

    Used as a context manager, what is done within the block is done for the owner, and the owner
    ends with the block:

        with locks.Owner("request 17"):
            with locks.transaction() as tx: ...

    One that lasts longer is named where it is needed, `locks.transaction(owner=session)`, or by
    `acting`, and is ended by `end`, or with what it is tied to. What it has is released then.

    Args:
        name: What others see; 1 to 200 characters in one line.
        tied_to: With whose end it ends, too: a thread, a greenlet, an actor's reference, another
            owner, or a future or task, of `asyncio` or `concurrent.futures`.

    Attributes:
        name: The same.

    Raises:
        InvalidOption: The name is none, or it can't be tied to that.
    """

    __slots__ = ("_before", "_entered", "_tie", "name")

    def __init__(self, name: str, *, tied_to: Client | Future | None = None) -> None:
        super().__init__()
        self.name = checked_label(name)
        self._before: Ending | None = None
        self._entered = False
        self._tie: Monitor | None = None
        if tied_to is None:
            return
        if isinstance(tied_to, Future):
            tied_to.add_done_callback(self._tied_has_ended)
            return
        self._tie = Monitor(self._tied_has_ended, surely=True)
        try:
            self._tie.begin_monitoring(tied_to)
        except CannotMonitor as error:
            raise InvalidOption(
                f"can't tie owner {self.name} to {shown(tied_to)}: {error}",
                value=shown(tied_to),
            ) from error

    def __repr__(self) -> str:
        return f"<Owner {self.name}{' (ended)' if self.ended else ''}>"

    def __reduce__(self) -> Any:
        """No copy is made, nor is it pickled: that would be another client, with the same name."""
        raise MisuseError(
            f"can't copy or pickle owner {self.name}: a copy would be another client, without its locks. "
            "Pass the owner itself within its process; to another process, pass the lock id and a fencing token",
            owner=self.name,
        )

    @property
    def ended(self) -> bool:
        """Whether it has ended: then it can't have anything any more."""
        return self.watch.ended

    def end(self, reason: object = "normal") -> None:
        """End it: its transactions end, and what they have is released. From anywhere, also twice.

        Args:
            reason: Why, for those who use its transactions still.
        """
        super().end(reason)
        tie = self._tie
        if tie is not None:
            tie.cancel()
            self._tie = None  # last: after an interruption the call is repeated

    def _tied_has_ended(self, tied_to: Any) -> None:
        is_down = isinstance(tied_to, Down)
        by_itself = is_forgetful(tied_to) if is_down else not tied_to.cancelled()
        self.end(TIED if by_itself else f"{TIED}, by force")

    def acting(self) -> Acting:
        """Act for it within a block: `with owner.acting(): ...`. What is locked there is the owner's.

        That holds for the code within the block, for tasks of asyncio or trio that it begins and for what
        it gives to `asyncio.to_thread` or `trio.to_thread`, as always with context variables; not for threads and
        greenlets that it starts.
        """
        return Acting(self)

    def __enter__(self) -> Owner:
        if self._entered:
            raise MisuseError(
                f"a block of owner {self.name} is open already; for nested or several blocks, use "
                "`with owner.acting()`, and end the owner with owner.end()",
                owner=self.name,
            )
        self._entered = True
        hold = entering(self)
        self._before = acting.get()
        hold.take(self)
        acting.set(self)
        return self

    def _leave(self, held: Owner | None, error: BaseException | None) -> None:
        """The block is left; see `Block`."""
        if acting.get() is self:  # here: if `__enter__` had enough stack, this has, too
            acting.set(self._before)
        by_itself = error is None or isinstance(error, Exception)
        self.end(LEFT if by_itself else f"{LEFT}, by force")

    def _let_go(self, held: Owner) -> None:
        """The block was left, and this was not noted; see `Block`."""
        self._leave(held, None)


Before = tuple[Ending | None]  # the owner for which the code acted before its block


class Acting(Block):
    """A block in which the code acts for an owner; blocks may be nested, and run in several threads."""

    __slots__ = ("_before", "_owner")

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._before: Ending | None = None

    def __enter__(self) -> Owner:
        hold = entering(self)
        before = self._before = acting.get()
        hold.take((before,))
        acting.set(self._owner)
        return self._owner

    def _leave(self, held: Before | None, error: BaseException | None) -> None:
        """Leave the block; see `Block`. In another context than that of its beginning, nothing changes."""
        if acting.get() is self._owner:
            acting.set(self._before if held is None else held[0])

    def _let_go(self, held: Before) -> None:
        """The block was left, and this was not noted; see `Block`."""
        self._leave(held, None)


def checked_owner(owner: Any) -> Owner | None:
    """Return an owner, or `None`; raise `InvalidOption` if it is neither."""
    if owner is None or isinstance(owner, Owner):
        return owner
    raise InvalidOption(
        f'owner={shown(owner)} is not a locks.Owner; create one, such as locks.Owner("session 17")',
        owner=shown(owner),
    )
