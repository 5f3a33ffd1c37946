"""The door of an actor, where messages of the program are checked in the sender's own context.

Lock servers and agents are Pykka actors, so that they can be monitored, stopped and passed around.
Their own messages to each other do not come this way (`locks.node.dispatch`). So this is the place
to refuse wrong messages: before the turn, with an error for the sender, and before anything is
changed.
"""

from __future__ import annotations

import sys
from typing import Any

from pykka._envelope import Envelope
from pykka.messages import ProxyCall, _ActorStop

from locks.errors import MisuseError
from locks.runtime.addressed import OF_PROXY, InlineActor

__all__ = ["Door"]


class Door(InlineActor):
    """An inline actor that checks messages of programs. Subclasses implement `admit`, too."""

    __slots__ = ()

    def admit(self, message: Any) -> Any:
        """Return the checked message; raise `MisuseError` to refuse it."""
        raise NotImplementedError

    def put(self, envelope: Envelope[Any]) -> None:
        """Have an operation carried out, or a message handled, if it is admitted."""
        message = envelope.message
        if type(message) is tuple and message and type(message[0]) is str:
            message = ProxyCall((message[0],), message[1:], {})
            envelope = Envelope(message, envelope.reply_to)
        if not isinstance(message, (_ActorStop, *OF_PROXY)):
            try:
                admitted = self.admit(message)
            except MisuseError as error:
                if envelope.reply_to is None:
                    self.failed(message, error)
                else:
                    envelope.reply_to.set_exception(sys.exc_info())
                return
            envelope = Envelope(admitted, envelope.reply_to)
        super().put(envelope)
