"""References to actors without a greenlet, and the actor classes behind these references.

An actor whose operations take a turn (`locks.runtime.inline`) is its own reference, inbox
and stop flag, so it costs just one small object. It is a `pykka.ActorRef`: it supports `ask`,
`tell`, `stop`, proxies and monitors, and can be passed around.

Pykka expects an actor behind each reference: `actor_class` is its class, and a proxy inspects it
for callable names. Here it is a `TurnActor`. It has no state, only a method for each operation. So
one is made when a proxy inspects it, and one for each call. A call runs at once, in the caller's
thread, like everything that such an actor does, and takes the turn. An operation that has to wait
returns `Later`, and is answered when the wait is over.

A message that is a tuple of an operation's name and its arguments has the same effect:
`ref.ask(("name", 1))` and `ref.proxy().name(1).get()`.

These actors are not in Pykka's registry by default, because each exit there costs time in the
number of actors. Their owner (a node) knows them and stops them.
"""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

import pykka
from pykka import ActorDeadError, ActorRegistry
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop

from locks.errors import MisuseError
from locks.runtime.actor import GeventFuture
from locks.runtime.inline import Turn
from locks.runtime.monitor import DeathWatch, Mortal
from locks.runtime.native import native_rlock

if TYPE_CHECKING:
    from pykka._actor import ActorInbox
    from pykka._envelope import Envelope

__all__ = [
    "InlineActor",
    "Later",
    "OfAnotherNode",
    "OwnReference",
    "TurnActor",
    "register",
    "register_first",
]

_making = native_rlock()  # while a watch is made


class Later(NamedTuple):
    """The result of an operation that is answered later.

    Attributes:
        begin: Begins it. Its argument is a function to call with the answer, which may be an
            exception; of several answers the first one counts.
    """

    begin: Callable[[Callable[[Any], None]], object]


class TurnActor(pykka.Actor):
    """The Pykka actor class of an actor whose operations take a turn.

    Subclasses have a method for each operation, and properties; a proxy shows both.

    Args:
        ref: Its reference.
    """

    _begun_by: ClassVar[str]  # how one begins
    _operations: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = (name for name, found in vars(cls).items() if isinstance(found, FunctionType))
        cls._operations |= {name for name in own if not name.startswith("_")}

    def __init__(self, ref: OwnReference) -> None:
        # Not Pykka's: it would make an inbox, a flag and a reference, and there are all of these.
        self._actor_ref = ref
        self.actor_urn = ref.actor_urn
        self.actor_inbox = ref.actor_inbox
        self.actor_stopped = ref.actor_stopped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TurnActor) and self._actor_ref == other._actor_ref

    def __hash__(self) -> int:
        return hash(self._actor_ref)

    @classmethod
    def start(cls, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Refuse: such an actor begins in another way.

        Raises:
            MisuseError: Always; the text says how.
        """
        raise MisuseError(f"can't use {cls.__name__}.start(): {cls._begun_by}")

    @staticmethod
    def _create_actor_inbox() -> ActorInbox:
        raise AssertionError("its reference is its inbox")

    @staticmethod
    def _create_future() -> GeventFuture[Any]:
        return GeventFuture()

    def _start_actor_loop(self) -> None:
        raise AssertionError("it has no loop: whoever calls does the work")

    def _carry_out(self, message: Any) -> Any:
        """Carry out a proxy's message; return the answer, or `Later`.

        Raises:
            MisuseError: It is none, there is no such operation, or its arguments are wrong.
        """
        if not isinstance(message, (ProxyCall, ProxyGetAttr, ProxySetAttr)):
            raise MisuseError(
                f"a {type(message).__name__} is not a message for {self._actor_ref}; send a tuple of an operation and its arguments. "
                f"The operations are {', '.join(sorted(self._operations))}"
            )
        name = ".".join(message.attr_path)
        if isinstance(message, ProxySetAttr):
            raise MisuseError(
                f"can't set {name} of {self._actor_ref}: only its operations change it"
            )
        if isinstance(message, ProxyGetAttr):
            is_property = isinstance(getattr(type(self), name, None), property)
            if name.startswith("_") or not (is_property or name in vars(self)):
                raise MisuseError(f"{self._actor_ref} has no attribute {name!r:.100}")
            return getattr(self, name)
        if name != "stop" and name not in self._operations:
            raise MisuseError(
                f"{self._actor_ref} has no operation {name!r:.100}; its operations are {', '.join(sorted(self._operations))}"
            )
        from inspect import signature  # few programs need it

        operation = getattr(self, name)
        try:
            signature(operation).bind(*message.args, **message.kwargs)
        except TypeError as error:
            raise MisuseError(f"{name} of {self._actor_ref}: {error}") from None
        return operation(*message.args, **message.kwargs)


class OwnReference(pykka.ActorRef[Any], Mortal):
    """An actor's reference that is its own inbox and stop flag, too."""

    __slots__ = ("_stopped", "_watch")

    _behind: ClassVar[type[TurnActor]] = TurnActor

    def __init__(self) -> None:
        self._stopped = False
        self._watch: DeathWatch | None = None

    @property
    def actor_class(self) -> Any:  # type: ignore[override]
        """The class of the actor behind it."""
        return self._behind

    @property
    def _actor_weakref(self) -> Any:  # type: ignore[override]
        return partial(self._behind, self)  # for proxies

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's identity, for Pykka."""
        return f"urn:locks:{self}"

    @property
    def actor_inbox(self) -> Any:  # type: ignore[override]
        """Where messages are put."""
        return self

    @property
    def actor_stopped(self) -> Any:  # type: ignore[override]
        """The flag that says whether it has stopped."""
        return self

    def is_alive(self) -> bool:
        """Whether the actor is alive, as far as known here."""
        return not self._stopped

    def is_set(self) -> bool:
        """Whether the actor is known to have stopped."""
        return self._stopped

    def empty(self) -> bool:
        """Whether no message waits here: they wait elsewhere, if anywhere."""
        return True


class OfAnotherNode(OwnReference):
    """A reference to a process of another node: the base of `locks.node.RemoteRef`, without its imports."""

    __slots__ = ()


class InlineActor(OwnReference):
    """An actor whose operations take its owner's turn.

    Subclasses implement `stop_inline` and `failed`, and call `ended` when they have ended.

    Args:
        turn: The turn that it takes.
    """

    __slots__ = ("turn",)

    def __init__(self, turn: Turn) -> None:
        self._stopped = False  # as in `OwnReference`, inlined, as there are many agents
        self._watch = None
        self.turn = turn

    # --- What subclasses implement

    def stop_inline(self, reason: object) -> None:
        """Stop, in a turn; `None` is the reason of a normal stop."""
        raise NotImplementedError

    def failed(self, message: Any, error: Exception) -> None:
        """Handle the failure of a message that needs no answer."""
        raise NotImplementedError

    def ended(self) -> DeathWatch | None:
        """Mark the actor as dead; return its monitors, to be fired outside of the turn."""
        self._stopped = True
        return self._watch

    # --- As an inbox

    def put(self, envelope: Envelope[Any]) -> None:
        """Have an operation carried out, or the actor stopped; nothing else is a message for it."""
        message = envelope.message
        if isinstance(message, _ActorStop):
            self.turn.post(self._stop, envelope.reply_to)
            return
        if type(message) is tuple and message and type(message[0]) is str:
            message = ProxyCall((message[0],), message[1:], {})
        self._call(message, envelope.reply_to)

    def _call(self, message: Any, future: pykka.Future[Any] | None) -> None:
        """Carry out an operation, at once, in the caller's thread."""
        try:
            if self._stopped:
                raise ActorDeadError(f"{self} not found")
            answer = self._behind(self)._carry_out(message)
            if isinstance(answer, Later):
                answer.begin(partial(_answer, future))
                return
        except Exception as error:
            if future is None:
                self.failed(message, error)
            else:
                future.set_exception(sys.exc_info())
        else:
            _answer(future, answer)

    def kill(self, reason: object) -> None:
        """End the actor soon."""
        self.turn.post(self.stop_inline, reason)

    @property
    def watch(self) -> DeathWatch:  # type: ignore[override]
        """Its monitors."""
        if self._watch is None:
            made = DeathWatch()
            with _making:  # two threads may be the first
                self._watch = self._watch or made
            if self._stopped and self._watch is made:
                made.fire(self, "noproc")
        return self._watch

    def _stop(self, future: pykka.Future[Any] | None) -> None:
        if not self._stopped:
            self.stop_inline(None)
        _answer(future, None)


def _answer(future: pykka.Future[Any] | None, answer: Any) -> None:
    """Set the answer, or the exception, of a future, if there is one; the first answer counts."""
    if future is None:
        return
    with suppress(queue.Full):
        if isinstance(answer, Exception):
            future.set_exception((type(answer), answer, None))
        else:
            future.set(answer)


def register(ref: pykka.ActorRef[Any]) -> None:
    """Put an actor into Pykka's registry, unless it has ended meanwhile."""
    ActorRegistry.register(ref)
    if not ref.is_alive():
        ActorRegistry.unregister(ref)


def register_first(ref: pykka.ActorRef[Any]) -> None:
    """Put an actor into Pykka's registry, before all others.

    So `ActorRegistry.stop_all()`, which begins with the newest, stops it after those that use it.
    """
    with ActorRegistry._actor_refs_lock:
        ActorRegistry._actor_refs.insert(0, ref)


def _forked() -> None:
    """In a child: a thread of the parent may have held it."""
    global _making
    _making = native_rlock()


os.register_at_fork(after_in_child=_forked)
