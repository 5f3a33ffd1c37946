"""What nodes say to each other: sends frames, takes them in, and answers calls.

Theory of operation
-------------------
Each frame goes to one of the parts that this node has for it (`Parts`). A *call* is a question with a number; its answer has the same
number, and a call whose connection is lost is answered `noconnection`. All is done in the node's turn.

What can be wrong, and what follows: a frame of an unknown kind is dropped, and a question of an unknown kind is answered so; both are
logged once for each node and hour. A frame that does not decode, a message in the name of another node, and more than a node may keep
here end the connection, and with it everything that the node keeps here. An exception while a frame is taken in does so, too, because a
part of it may have been carried out.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from locks.core.messages import AgentMessage
from locks.errors import assert_never
from locks.net import messages
from locks.net.budgets import OverBudget
from locks.net.messages import (
    AboutActors,
    AnyAnswer,
    AnyQuestion,
    BadMessage,
    Call,
    Frame,
    FromAgent,
    NotUnderstood,
    Ping,
    Pong,
    Relaying,
    Reply,
    StrangeMessage,
    StrangeQuestion,
    ToAgent,
    ToServer,
    brief,
    check_speaker,
    decode,
    encode,
)
from locks.ranges import one_line
from locks.runtime.waiter import Waiter

if TYPE_CHECKING:
    from locks.net.notices import Notices
    from locks.net.relay import AnyLink

__all__ = ["NOCONNECTION", "Exchange", "Parts"]

NOCONNECTION: Final = "noconnection"
Told = Callable[[bool, Any], object]
"""Called with `True` and the answer to a call, or with `False` and the reason why there is none."""


class Parts(Protocol):
    """The parts of a node that take frames in. All in the turn."""

    def to_server(self, speaker: str, message: FromAgent) -> None:
        """A message to the lock server."""

    def to_agent(self, speaker: str, number: int, message: AgentMessage) -> None:
        """A message to an agent."""

    def thin(self, speaker: str, frame: Frame) -> bool:
        """Take in a frame that concerns thin locks only; returns whether it does. In a turn for what is thin.

        Raises:
            BadMessage: It is wrong.
        """

    def asked(
        self, speaker: str, question: AnyQuestion, answer: Callable[[AnyAnswer], object]
    ) -> None:
        """A question; `answer` is called once, now or later."""

    def about_views(
        self, speaker: str, frame: messages.Read | messages.EndRead | messages.Page | messages.Taken
    ) -> None:
        """A frame about views that are read."""

    def about_actors(self, speaker: str, frame: AboutActors) -> None:
        """A frame about actors."""

    def relayed(self, link: AnyLink, frame: Relaying, body: bytes) -> None:
        """A frame of links through servers."""


class Exchange:
    """Sends frames to other nodes, and takes in theirs.

    Args:
        name: The node's name.
        link_to: Returns the link to a node, if there is one.
        notices: Logs what is wrong.
        parts: Take frames in.

    Attributes:
        link_to: The same.
    """

    def __init__(
        self, name: str, link_to: Callable[[str], AnyLink | None], notices: Notices, parts: Parts
    ) -> None:
        self.name = name
        self.link_to = link_to
        self.notices = notices
        self._parts = parts
        self._serial = itertools.count(1)
        self._calls: dict[int, tuple[str, Told]] = {}  # that wait for an answer
        # A body that `take_thin` has decoded, and its frame.
        self._ahead: tuple[bytes | None, Frame] = NOTHING

    # --- From this node -------------------------------------------------------------------------

    def send(self, node: str, frame: Frame) -> bool:
        """Send a frame; return whether there is a connection."""
        link = self.link_to(node)
        if link is None:
            return False
        link.send(encode(frame))
        return True

    def send_body(self, node: str, body: bytes) -> None:
        """Send a frame that is encoded, if there is a connection."""
        link = self.link_to(node)
        if link is not None:
            link.send(body)

    def room(self, node: str) -> Waiter | None:
        """A waiter that is woken when a node has read most of our output; `None` if it has."""
        link = self.link_to(node)
        if link is None or not link.is_full:
            return None
        waiter = Waiter()
        link.drained[waiter.wake] = None
        return waiter

    def new_number(self) -> int:
        """A number that identifies something of this node for another one."""
        return next(self._serial)

    def call(self, node: str, question: AnyQuestion, told: Told) -> int:
        """Put a question to a node; return the number of the call, for `give_up`."""
        number = self.new_number()
        self.send_call(node, number, Call(number, question), told)
        return number

    def send_call(self, node: str, number: int, frame: Frame, told: Told) -> None:
        """Send a frame that is answered with its number; `told` is called once, in the turn."""
        self._calls[number] = (node, told)
        if not self.send(node, frame):
            self.answered(node, number, False, NOCONNECTION)

    def give_up(self, number: int) -> None:
        """Forget a call whose answer is no longer needed."""
        self._calls.pop(number, None)

    def answered(self, speaker: str, number: int, there: bool, answer: Any) -> None:
        """A call is answered, or will not be."""
        node, told = self._calls.get(number, (speaker, None))
        if told is not None:
            check_speaker(node, speaker)
            del self._calls[number]
            told(there, answer)

    def ping(self, link: AnyLink) -> None:
        """Ask for a sign of life."""
        link.send(PING)

    def ignored(self, speaker: str, text: str, *args: object) -> None:
        """Log that something of another node was ignored."""
        self.notices.warn("ignored", speaker, text, *args)

    # --- From others ----------------------------------------------------------------------------

    def take_thin(self, link: AnyLink, body: bytes) -> bool:
        """Take in a frame, in a turn for what is thin, if it concerns nothing else; returns whether it does."""
        try:
            frame = decode(body)
            if self._parts.thin(link.peer.name, frame):
                return True
        except BadMessage:
            return False
        self._ahead = body, frame
        return False

    def take_in(self, link: AnyLink, body: bytes) -> None:
        """Take in a frame of a link; if it is wrong, the link is lost."""
        speaker = link.peer.name
        try:
            ahead, frame = self._ahead
            self._ahead = NOTHING
            self._take(link, speaker, frame if ahead is body else decode(body), body)
        except StrangeMessage as error:
            self.ignored(speaker, "ignored a message of %s: %s", speaker, error)
            if isinstance(error, StrangeQuestion):
                self.send(speaker, Reply(error.number, NotUnderstood()))
        except BadMessage as error:
            self.refuse(link, "wrong message", f"it sent an invalid message: {error}")
        except OverBudget as error:
            self.refuse(link, "budget", str(error))
        except Exception as failure:  # a part of it may have been carried out
            text = "failed to carry out a message of %s: %s"
            self.notices.warn(
                "failed", speaker, text, speaker, brief(body), level=logging.ERROR, error=failure
            )
            link.lose(one_line(f"failed to carry out a message of it: {failure!r}"))

    def refuse(self, link: AnyLink, cause: str, reason: str) -> None:
        """Close a link because of a fault of the other node."""
        name, text = link.peer.name, "%s closed the connection to %s: %s"
        self.notices.warn(cause, name, text, self.name, name, reason)
        link.lose(one_line(reason))

    def _take(self, link: AnyLink, speaker: str, frame: Frame, body: bytes) -> None:
        match frame:
            case ToServer():
                self._parts.to_server(speaker, frame.message)
            case ToAgent():
                self._parts.to_agent(speaker, frame.number, frame.message)
            case Call():
                self._parts.asked(
                    speaker, frame.question, partial(self._answer, link, frame.number)
                )
            case Reply():
                self.answered(speaker, frame.number, True, frame.answer)
            case messages.Read() | messages.EndRead() | messages.Page() | messages.Taken():
                self._parts.about_views(speaker, frame)
            case (
                messages.Tell()
                | messages.Ask()
                | messages.Answered()
                | messages.Raised()
                | messages.Monitor()
                | messages.Demonitor()
                | messages.Down()
                | messages.Link()
                | messages.Exit()
            ):
                self._parts.about_actors(speaker, frame)
            case messages.Open() | messages.Relay() | messages.Took() | messages.NoWay():
                self._parts.relayed(link, frame, body)
            case Ping():
                link.send(PONG)
            case Pong():
                pass  # any frame is a sign of life
            case _:
                assert_never(frame)

    def _answer(self, link: AnyLink, number: int, answer: AnyAnswer) -> None:
        if link.closed is None:
            link.send(encode(Reply(number, answer)))

    def lost(self, node: str) -> None:
        """A node's link is lost: its calls get no answer."""
        for number, (where, told) in list(self._calls.items()):
            if where == node:
                del self._calls[number]
                told(False, NOCONNECTION)


PING: Final = encode(Ping())
NOTHING: Final = (None, Ping())
PONG: Final = encode(Pong())
