"""The door of an actor: what a program tells or asks it is checked in the program's own context.

Lock servers and agents are Pykka actors, so that they can be monitored, stopped and passed around. What
they say to each other does not come this way (`locks.node.dispatch`). So here is the place to refuse what
is wrong: before the turn, to whoever sent it, and before anything is changed.
"""

from __future__ import annotations

import sys
from typing import Any

from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from locks.errors import MisuseError
from locks.runtime.inline import InlineActor

__all__ = ["Door"]


class Door(InlineActor):
    """An inline actor that checks what programs send it. Subclasses implement `admit`, too."""

    __slots__ = ()

    def admit(self, message: Any) -> Any:
        """Return the message that is to be received; raise `MisuseError` to refuse it."""
        raise NotImplementedError

    def put(self, envelope: Envelope[Any]) -> None:
        """Have a message handled, if it is admitted."""
        if not isinstance(envelope.message, _ActorStop):
            try:
                admitted = self.admit(envelope.message)
            except MisuseError as error:
                if envelope.reply_to is None:
                    self.failed(envelope.message, error)
                else:
                    envelope.reply_to.set_exception(sys.exc_info())
                return
            envelope = Envelope(admitted, envelope.reply_to)
        super().put(envelope)
