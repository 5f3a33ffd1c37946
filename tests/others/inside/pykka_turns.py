"""A plugin of pytest for Pykka's tests: their actors are what lock servers and agents are, actors without a greenlet, carried out in turns.

A lock server and an agent begin otherwise, and their operations are their own. So the tests' classes are put behind such a reference, each as one actor;
its methods are its operations.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pykka
import pykka_gevent
import pytest

from locks.runtime.addressed import InlineActor, TurnActor
from locks.runtime.inline import Turn, Work


class Journal:
    """Nothing is written down: these actors are not undone."""

    torn = False
    news = ()

    def conclude(self, work: Work | None = None) -> None:
        self.torn = False
        if work is not None:
            work.done = True

    def mend(self, error: BaseException | None = None) -> None:
        self.torn = False

    def refuses(self, error: BaseException) -> bool:
        return False

    def cannot_do(self, work: Work, error: BaseException) -> bool:
        work.done = True
        return False

    def can_tell_past(self, question: Any) -> bool:
        return False

    def tell_past(self, question: Any, args: Any) -> Any:
        raise NotImplementedError

    def tell(self) -> None:
        """Nobody wants to be told."""


turn = Turn(Journal(), lambda function: function())


class Ref(InlineActor):
    """A reference as an agent's."""

    def __init__(self, kind: type[Actor]) -> None:
        super().__init__(turn)
        self.kind = kind
        self.actor: Actor | None = None
        self.failures: list[Exception] = []

    @property
    def actor_class(self) -> Any:
        return self.kind

    @property
    def _behind(self) -> Any:
        return lambda _: self.actor

    @property
    def _actor_weakref(self) -> Any:
        return lambda: self.actor

    def __str__(self) -> str:
        return f"{self.kind.__name__} ({self.actor_urn})"

    @property
    def actor_urn(self) -> str:
        return f"urn:uuid:{id(self)}"

    def receive(self, message: Any) -> Any:
        assert self.actor is not None
        return self.actor.on_receive(message)

    def stop_inline(self, reason: object) -> None:
        if not self._stopped:
            watch = self.ended()
            pykka.ActorRegistry.unregister(self)
            if watch is not None:
                watch.fire(self, reason)

    def failed(self, message: Any, error: Exception) -> None:
        self.failures.append(error)


class Actor(TurnActor):
    """The base of the tests' actors."""

    _begun_by = "start()"

    def __init__(self) -> None:
        """What there is, `start` has made."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in set(cls.__mro__) - set(
            Actor.__mro__
        ):  # the tests have methods in a base beside this one
            own = (name for name, found in vars(base).items() if isinstance(found, FunctionType))
            cls._operations |= {name for name in own if not name.startswith("_")}

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Ref:
        ref = Ref(cls)
        actor = ref.actor = cls.__new__(cls)
        TurnActor.__init__(actor, ref)
        actor.__init__(*args, **kwargs)
        pykka.ActorRegistry.register(ref)
        return ref


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Actors are carried out in turns."""
    pykka_gevent.use("turns", Actor)
