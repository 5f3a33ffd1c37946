"""Greenlets that a simulation's clients start, above all those of actors; they are simulated as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pykka
from greenlet import GreenletExit

from locks.runtime.monitor import ACTOR_REF
from locks_lab.applications.application import Application, Client

__all__ = ["Spawned"]


class Spawned(Client):
    """A simulated greenlet with gevent's interface; it is no client, and the run does not wait for its end.

    Args:
        application: Its application.
        function: The function that it runs; for a method of an actor, its name is that of the
            actor's class.
        args: The arguments.
        node: The node on which it runs.
    """

    is_helper = True

    def __init__(
        self,
        application: Application,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        node: str,
    ) -> None:
        of = type(getattr(function, "__self__", None)).__name__
        name = function.__name__ if of == "NoneType" else of
        super().__init__(f"{name.lstrip('_')}-{application.made + 1}", function, args, node)
        self.exception: BaseException | None = None
        self._leaves = False
        self._application = application
        self._links: list[Callable[[Spawned], object]] = []

    def start(self) -> None:
        """Begin."""
        self._belong(getattr(self.actor, "label", ""))
        self._application.help(self)

    @property
    def actor(self) -> pykka.ActorRef[Any] | None:
        """The actor that runs in it, if one does."""
        return self.__dict__.get(ACTOR_REF)

    def _belong(self, label: str) -> None:
        """An instance of an election is its client's: it dies with it."""
        maker = self._application.here()
        if label and maker is not None:
            self.maker = maker
            self.name = self._application.unused_name(f"{maker.name}'s {label}")

    def leave(self) -> bool:
        """All clients have ended: so must an actor, as with its node."""
        if self.actor is None or self._leaves:
            return False
        self._leaves = True
        self.actor.stop(block=False)
        return True

    def rawlink(self, callback: Callable[[Spawned], object]) -> None:
        """Call a function when it has ended."""
        self._links.append(callback)

    def go_on(self, fatal: BaseException | None) -> None:
        """As a client, but that others look at its end."""
        if isinstance(fatal, GreenletExit):
            self.value = fatal  # if it does not catch that
        try:
            super().go_on(fatal)
        except BaseException as error:
            self.exception = error
            raise
        finally:
            if self.dead:
                for each in self._links:
                    each(self)
