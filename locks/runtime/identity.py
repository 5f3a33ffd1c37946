"""Identity of clients and listeners, without calling `__hash__` or `__eq__` of the program.

Clients and listeners are objects of the program. When they are looked up or compared within a turn,
foreign code must not run: it might raise, block, or declare two threads equal.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import pykka

from locks.runtime.actor import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["ByClient", "Listener", "client_key"]

T = TypeVar("T")

_hash: Any = object.__hash__
_eq: Any = object.__eq__


class _Same:
    """Stands for a client whose class has methods of its own to hash and compare."""

    __slots__ = ("client",)

    def __init__(self, client: object) -> None:
        self.client = client

    def __hash__(self) -> int:
        return id(self.client)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other.client is self.client


def client_key(client: Any) -> Hashable:
    """A client's key in dictionaries: equal for the same client, and for no other one."""
    kind = type(client)
    if kind.__hash__ is _hash and kind.__eq__ is _eq:
        return client  # type: ignore[no-any-return]
    if issubclass(kind, pykka.ActorRef):  # two references to one process of another node
        return str.__str__(client.actor_urn)
    return _Same(client)


class ByClient(Generic[T]):
    """Something for each of some clients."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Hashable, T] = {}

    def get(self, client: Any) -> T | None:
        """The value for a client, or `None`."""
        kind = type(client)
        if kind.__hash__ is _hash and kind.__eq__ is _eq:  # the usual case
            return self._found.get(client)
        return self._found.get(client_key(client))

    def pop(self, client: Any) -> T | None:
        """Remove and return the value for a client, or `None`."""
        return self._found.pop(client_key(client), None)

    def forget(self, key: Hashable, value: T) -> None:
        """Remove a value, if it is the one for the client with this key."""
        if self._found.get(key) is value:
            del self._found[key]

    def items(self) -> list[tuple[Hashable, T]]:
        """All values, each with the key of its client."""
        return list(self._found.items())

    def values(self) -> list[T]:
        """The values for all clients."""
        return list(self._found.values())

    def put(self, key: Hashable, value: T) -> None:
        """Set the value for the client with this key."""
        self._found[key] = value

    def put_first(self, key: Hashable, value: T) -> T:
        """Set the value for the client with this key, unless there is one; return the present value."""
        return self._found.setdefault(key, value)

    def __setitem__(self, client: Any, value: T) -> None:
        self._found[client_key(client)] = value

    def __len__(self) -> int:
        return len(self._found)


class Telling(Protocol):
    """What calls functions of the program; `locks.runtime.executor.Executor` is the real one."""

    def tell(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function, after its earlier calls."""


class Own:
    """A callback of `locks` itself. It never blocks, so the node's worker calls it, in the order of all else that happens there.

    The program's own functions may block. Other workers call them, each in an order of its own (`Telling`).

    Args:
        function: What is called.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> None:
        """Call it."""
        self._function(*args)


class Listener:
    """A receiver of notifications: an actor, or a function. It is made before the turn.

    Two listeners are equal if they are the same actor, by its name in Pykka; the same method of the
    same object; or the same other function.

    Args:
        target: An actor's reference, or a callable.

    Attributes:
        target: The same.
        is_actor: Whether it is an actor.
        never_blocks: Whether it is an actor, or a callback of `locks` itself.

    Raises:
        TypeError: The target is neither.
    """

    __slots__ = ("_key", "is_actor", "never_blocks", "target")

    def __init__(self, target: Any) -> None:
        self.target = target
        self.is_actor = issubclass(type(target), pykka.ActorRef)
        self.never_blocks = self.is_actor or type(target) is Own
        if not (self.is_actor or callable(target)):
            raise TypeError("it must be an actor's reference or a callable")
        self._key: tuple[Any, ...]
        if self.is_actor:
            self._key = ("actor", str.__str__(target.actor_urn))
        elif type(target) is MethodType:
            self._key = ("method", id(target.__self__), id(target.__func__))
        elif type(target) in (BuiltinFunctionType, MethodWrapperType):
            self._key = ("method", id(target.__self__), target.__name__)
        else:
            self._key = ("function", id(target))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return type(other) is Listener and self._key == other._key

    def __repr__(self) -> str:
        return f"<Listener {self.target!r}>"

    def __call__(self, news: object) -> object:
        """Notify it, outside of the turn; an actor that has ended gets nothing. Returns what a function returns."""
        call: Callable[[object], object] = self.target
        return tell(self.target, news) if self.is_actor else call(news)  # type: ignore[func-returns-value]

    def tell(self, background: Telling, news: object) -> None:
        """The same by the node's worker: at once if it never blocks; else by what calls functions of the program."""
        if self.never_blocks:
            self(news)
        else:
            background.tell(self, news)
