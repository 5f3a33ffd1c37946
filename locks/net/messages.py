"""The frames between nodes: a closed union of Structs, in MessagePack.

A frame is an array: the name of its kind, then its fields in their order. Types and bounds are the annotations of the fields; the decoder
checks them, and makes what the machines take in. So a new field or message is written in one place, and mypy names every place that has
to handle it.

What may change later: a field that is added stands at the end and has a default, so an older node ignores it and a newer one does without
it. A frame, message or question of a kind that is not known is dropped (`StrangeMessage`); a question is answered by `NotUnderstood`.
Everything else that does not decode is a fault of the other node (`BadMessage`), and ends the connection.

Five types have no bound that says what they are, and are checked here: a lock id that is asked for, one that is told of, which may also
stand for a client's wait, an element of one, a place in a queue, which may be a fraction, and a text that a person reads, which is put
into one line: whoever sends it gives no orders to terminals, and forges no lines of logs. `docs/protocol.md` describes the protocol for other languages.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec
from msgspec import Meta, field

from locks.core.facts import Answer, Question
from locks.core.messages import (
    AgentMessage,
    Inquire,
    RaiseVersion,
    Release,
    Remove,
    Request,
    StandingElsewhere,
    Surrender,
)
from locks.errors import InvalidOption, OperatingError, nearest
from locks.lock_ids import DEEPEST, check_lock_id, shown
from locks.model import AgentId, Contender, Deadlock, Require, View
from locks.ranges import (
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_RECORDS,
    PLACE_BITS,
    Created,
    Message,
    Name,
    Names,
    Number,
    Text,
    Value,
    Version,
    one_line,
)
from locks.words import HELD_UP, Key, KnownId, LockId, Place

__all__ = [
    "BadMessage",
    "Frame",
    "StrangeMessage",
    "beginning",
    "brief",
    "check_speaker",
    "checked",
    "decode",
    "decode_part",
    "encode",
    "encoded",
]

BRIEF: Final = 200  # characters of another node's data that an error shows
LARGEST_FRAME: Final = 16 * 2**20  # bytes
LARGEST_PAYLOAD: Final = LARGEST_FRAME - 1024  # bytes: the rest of its frame is far smaller
MOST_SERVERS: Final = 1000
MOST_NAMES: Final = 1000  # nodes that one message names
CHUNK: Final = 16_384  # bytes of a frame that a server passes on at once
WINDOW: Final = 65_536  # bytes of a link through a server that are on their way, at most
MOST_ITEMS: Final = 100  # requests in one page of a view
FORGET: Final = 600.0  # seconds until a node is forgotten that was neither asked for nor seen


class BadMessage(OperatingError):
    """Another node has sent a message with a wrong field, or in the name of another node."""


class StrangeMessage(BadMessage):
    """Another node has sent a message of an unknown kind. This is no fault."""


def brief(value: Any) -> str:
    """A value, cut, as an error shows it."""
    return shown(value)[:BRIEF]


def check_speaker(node: str, speaker: str) -> None:
    """Raise `BadMessage` if a node speaks for something of another one."""
    if node != speaker:
        raise BadMessage(f"{speaker} speaks for something of {brief(node)}")


# --- To lock servers and agents ---------------------------------------------------------------------

FromAgent = Request | Release | Surrender | Remove | StandingElsewhere | Inquire | RaiseVersion


class ToServer(Message, frozen=True):
    """An agent of the sender to the lock server."""

    message: FromAgent


class ToAgent(Message, frozen=True):
    """A lock server, or an agent, to the agent with this number."""

    number: Created
    message: AgentMessage


# --- Questions to a node and its lock server -------------------------------------------------------


class News(Value, frozen=True):
    """A node that was connected with the sender.

    Attributes:
        name: Its name.
        host: Where it listens.
        port: Likewise.
        age: How many seconds ago it was known to be alive.
    """

    name: Name
    host: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\s\x00-\x1f\x7f]+\Z")]
    port: Annotated[int, Meta(ge=1, le=65535)]
    age: Annotated[float, Meta(ge=0, le=FORGET)]

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.host, self.port


class Limits(Value, frozen=True):
    """What each program may have at a lock server.

    Attributes:
        requests: Its locks and requests.
        waits: Those of them that wait.
        watches: The lock ids that it watches.
        transactions: Its transactions with locks or requests.
    """

    requests: Annotated[int, Meta(ge=1)] = 1_000_000
    waits: Annotated[int, Meta(ge=1)] = 1_000_000
    watches: Annotated[int, Meta(ge=1)] = 1_000
    transactions: Annotated[int, Meta(ge=1)] = 20_000

    @classmethod
    def check(cls, given: Any) -> Limits:
        """Limits from a mapping, such as `{"waits": 100}`; the rest have their defaults.

        Raises:
            InvalidOption: A name or a number is wrong.
        """
        if not isinstance(given, Mapping):
            raise InvalidOption(
                f'limits={shown(given)} is not a mapping; use one, such as {{"requests": 10_000, "waits": 100}}',
                limits=shown(given),
            )
        names = cls.__struct_fields__
        for name, number in given.items():
            if name not in names:
                raise InvalidOption(
                    f"there is no limit of {shown(name)}; the limits are {', '.join(names)}{nearest(str(name), names)}",
                    limits=shown(name),
                )
            if type(number) is not int or not 1 <= number < 1 << 63:
                raise InvalidOption(
                    f"the limit of {name} is {shown(number)}, but must be a whole number from 1 on",
                    limits=shown(number),
                )
        return cls(**given)


class Greeting(Message, frozen=True):
    """The first question on a connection: use me as a lock server, if I have one for others.

    Attributes:
        version: The last version of the sender's lock table.
        known: The nodes that it names.
        limits: What the receiver may have at its lock server.
    """

    version: Version
    known: Annotated[tuple[News, ...], Meta(max_length=MOST_NAMES)]
    limits: Limits


class Agree(Message, frozen=True):
    """The set of servers with which the sender was started; asked before any request. The answer is `Done`, or another set."""

    nodes: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MOST_SERVERS)]
    require: Require
    copies: Number


class AskView(Message, frozen=True):
    """Who holds, and who waits for, a lock id? The answer is a `View`, or `Large` if it does not fit into a page."""

    lock_id: LockId


class Done(Message, frozen=True):
    """It is done, or agreed."""


class Refusal(Message, frozen=True):
    """It is refused."""

    why: Text


class Seen(Message, frozen=True):
    """The answer to `AskView`."""

    view: View


class Large(Message, frozen=True):
    """The view does not fit into a page: read it (`Read`)."""


class NotUnderstood(Message, frozen=True):
    """The question is of a kind that is not known here."""


AnyQuestion = Greeting | Agree | AskView | Question
AnyAnswer = Done | Refusal | Agree | Seen | Large | NotUnderstood | Answer


class Call(Message, frozen=True):
    """A question, with a number for its answer."""

    number: Number
    question: AnyQuestion


class Reply(Message, frozen=True):
    """The answer to a call."""

    number: Number
    answer: AnyAnswer


# --- Views that are read in pages ------------------------------------------------------------------


class Read(Message, frozen=True):
    """Begin to read the view of a lock id; `reading` is its number at the reader. Again: say something at once."""

    reading: Number
    lock_id: LockId


class EndRead(Message, frozen=True):
    """End a reading."""

    reading: Number


class Page(Message, frozen=True):
    """One page of a view that is read.

    Attributes:
        reading: The reading.
        number: Number of the page in it, from 1.
        version: The version of the lock table when it was sent.
        anew: Whether the reader begins with it, and forgets what it has read before.
        complete: Whether the reader knows the whole view with it.
        gone: The numbers of requests that are no longer there.
        requests: How others are now.
    """

    reading: Number
    number: Number
    version: Version
    anew: bool
    complete: bool
    gone: Annotated[tuple[Number, ...], Meta(max_length=MOST_ITEMS)]
    requests: Annotated[tuple[Contender, ...], Meta(max_length=MOST_ITEMS)]


class Taken(Message, frozen=True):
    """The reader has taken in a page, and all before it."""

    reading: Number
    number: Number


# --- Actors: payloads are values (`locks.net.values`) -----------------------------------------------

Actor = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(max_length=LONGEST_NAME)]
"""The number of an actor on its node, or a name under which it is registered there."""
Payload = Annotated[bytes, Meta(max_length=LARGEST_PAYLOAD)]
Reason = Annotated[bytes, Meta(max_length=2**17)]


class Tell(Message, frozen=True):
    """A message to an actor."""

    to: Actor
    payload: Payload


class Ask(Message, frozen=True):
    """A message to an actor that is to be answered."""

    number: Number
    to: Actor
    payload: Payload


class Answered(Message, frozen=True):
    """An actor's answer."""

    number: Number
    payload: Payload


class About(Value, frozen=True):
    """What an error says besides its text; of long tuples the first elements."""

    plain: dict[Name, str | int | float | bool] = field(default_factory=dict)
    agent: AgentId | None = None
    deadlock: Deadlock | None = None
    holder: AgentId | None = None
    holders: Annotated[tuple[Contender, ...], Meta(max_length=MOST_RECORDS)] | None = None
    lock_id: KnownId | None = None
    lock_ids: Annotated[tuple[KnownId, ...], Meta(max_length=MOST_RECORDS)] | None = None
    lost: Annotated[tuple[KnownId, ...], Meta(max_length=MOST_RECORDS)] | None = None
    nodes: Names | None = None


class Raised(Message, frozen=True):
    """An actor has raised an exception instead of an answer.

    Attributes:
        kind: The name of its class.
        text: Its text.
        about: What else it says.
    """

    number: Number
    kind: Name
    text: Annotated[str, Meta(max_length=5_000)]
    about: About = About()


class Monitor(Message, frozen=True):
    """Tell the sender when an actor has ended."""

    number: Number
    to: Actor


class Demonitor(Message, frozen=True):
    """A monitor is no longer needed."""

    number: Number


class Down(Message, frozen=True):
    """A monitored actor has ended, or there is none."""

    number: Number
    reason: Reason


class Link(Message, frozen=True):
    """An actor of the sender, and one of the receiver, are to end together."""

    to: Created
    sender: Created


class Exit(Message, frozen=True):
    """An actor is to end."""

    to: Created
    reason: Reason


AboutActors = Tell | Ask | Answered | Raised | Monitor | Demonitor | Down | Link | Exit

# --- Links through servers (`locks.net.relay`) ----------------------------------------------------


class Open(Message, frozen=True):
    """A request for a link, or the answer that there is one now.

    Attributes:
        session: The number of the link.
        sender: The node that has sent it first.
        to: The node that it is for.
        incarnation: The sender's.
        via: The servers that have passed a request on, or will pass an answer on after the next one.
        answers: Whether it is an answer.
    """

    session: Number
    sender: Name
    to: Name
    incarnation: Annotated[int, Meta(ge=0)]
    via: Annotated[tuple[Name, ...], Meta(max_length=2)] = ()
    answers: bool = False


class Relay(Message, frozen=True):
    """A piece of a frame, and whether more pieces of it follow."""

    session: Number
    body: Annotated[bytes, Meta(max_length=CHUNK)]
    more: bool = False


class Took(Message, frozen=True):
    """The sender has taken in so many bytes, so as many may follow."""

    session: Number
    size: Annotated[int, Meta(ge=1, le=WINDOW)]


class NoWay(Message, frozen=True):
    """A link does not exist, or no longer."""

    session: Number
    why: Annotated[str, Meta(max_length=LONGEST_TEXT)]


Relaying = Open | Relay | Took | NoWay


# --- Signs of life ---------------------------------------------------------------------------------


class Ping(Message, frozen=True):
    """Are you there?"""


class Pong(Message, frozen=True):
    """Yes."""


Frame = (
    ToServer
    | ToAgent
    | Call
    | Reply
    | Read
    | EndRead
    | Page
    | Taken
    | AboutActors
    | Relaying
    | Ping
    | Pong
)

# --- Bytes -----------------------------------------------------------------------------------------

T = TypeVar("T")
MOST_PLACE: Final = 1 << PLACE_BITS


def encoded(value: Any) -> Any:
    """What stands for a value that MessagePack has no form for: a fraction, as the bytes of its two numbers."""
    if isinstance(value, Fraction):
        return [integer_bytes(value.numerator), integer_bytes(value.denominator)]
    raise NotImplementedError(f"{shown(value)} can't be sent")


def integer_bytes(number: int) -> bytes:
    """A whole number of any size, big-endian, in two's complement."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _checked(kind: Any, value: Any) -> Any:
    """The text, the lock id or the place that a decoded value stands for."""
    if kind is Text:
        if type(value) is not str or len(value) > LONGEST_TEXT:
            raise ValueError(f"a text should have at most {LONGEST_TEXT} characters")
        return value if value.isprintable() else one_line(value)
    if kind is Place:
        if type(value) is int:
            return value
        above, below = (int.from_bytes(each, "big", signed=True) for each in value)
        if not (-MOST_PLACE < above < MOST_PLACE and 0 < below < MOST_PLACE):
            raise ValueError("a place is too large")
        return Fraction(above, below)
    if kind is Key:
        (key,) = check_lock_id(tuple(_tuples([value], DEEPEST)))
        return key
    if type(value) is not list:
        raise ValueError("a lock id should be an array")
    lock_id = tuple(_tuples(value, DEEPEST))
    if kind is KnownId and lock_id[:1] == (HELD_UP,):
        _, node, created, number = lock_id
        if type(node) is str and len(node) <= LONGEST_NAME and type(created) is type(number) is int:
            return lock_id
    return check_lock_id(lock_id)


def _tuples(values: list[Any], depth: int) -> list[Any]:
    if not depth:
        raise ValueError("a lock id is nested too deep")
    return [tuple(_tuples(e, depth - 1)) if type(e) is list else e for e in values]


def checked(kind: Any, value: Any) -> Any:
    """The same, with the errors that the decoder expects."""
    try:
        return _checked(kind, value)
    except (OperatingError, ValueError, TypeError) as error:
        raise ValueError(str(error)) from None


encode: Final = msgspec.msgpack.Encoder(enc_hook=encoded).encode
"""The bytes of a frame, or of a part of one."""
_decode: Final = msgspec.msgpack.Decoder(Frame, dec_hook=checked).decode


class _Beginning(msgspec.Struct, array_like=True):
    """The beginning of any message: its kind, and two fields as they are."""

    kind: str
    first: msgspec.Raw = msgspec.Raw()
    second: msgspec.Raw = msgspec.Raw()


_beginning: Final = msgspec.msgpack.Decoder(_Beginning).decode
_number: Final = msgspec.msgpack.Decoder(Number).decode


def tags(union: Any) -> frozenset[object]:
    """The kinds of messages of a union."""
    return frozenset(kind.__struct_config__.tag for kind in get_args(union))


_KINDS: Final = tags(Frame)
_WITHIN: Final = {  # where in a frame is a message of a union, and which
    "toserver": (1, tags(FromAgent)),
    "toagent": (2, tags(AgentMessage)),
    "call": (2, tags(AnyQuestion)),
    "reply": (2, tags(AnyAnswer)),
}


def decode(body: bytes) -> Frame:
    """The frame in a body.

    Raises:
        StrangeMessage: It is of a kind that is not known here, or has such a message.
        BadMessage: It does not decode.
    """
    try:
        frame: Frame = _decode(body)
        return frame
    except (ValueError, RecursionError) as error:  # msgspec's are of the first kind
        strange = _strange(body)
        if strange is not None:
            raise strange from None
        raise BadMessage(f"{str(error)[:BRIEF]}: {brief(body)}") from None


class StrangeQuestion(StrangeMessage):
    """A question of an unknown kind.

    Attributes:
        number: The number of the call.
    """

    number: int

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def _strange(body: bytes) -> StrangeMessage | None:
    """The error for a frame of an unknown kind, or with such a message; `None` for any other one."""
    begin = beginning(body)
    if begin is None:
        return None
    if begin.kind not in _KINDS:
        return StrangeMessage(f"there is no frame {brief(begin.kind)}")
    at, kinds = _WITHIN.get(begin.kind, (0, frozenset()))
    inner = beginning((begin.first, begin.second)[at - 1]) if at else None
    if inner is None or inner.kind in kinds:
        return None
    text = f"there is no {begin.kind} {brief(inner.kind)}"
    if begin.kind == "call":
        try:
            return StrangeQuestion(text, _number(begin.first))
        except ValueError:
            pass
    return StrangeMessage(text)


def beginning(data: bytes | msgspec.Raw) -> _Beginning | None:
    """What a message begins with, if it is one; the rest of it, which may stand for far more memory than it takes, is not decoded."""
    try:
        return _beginning(data)
    except (ValueError, RecursionError):
        return None


def decode_part(data: bytes, kind: type[T]) -> T:
    """The value of a class in bytes that `encode` has made of one, with the same checks as in a frame.

    Raises:
        BadMessage: They stand for none.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=checked)
    except (ValueError, RecursionError) as error:  # msgspec's are of the first kind
        raise BadMessage(f"{str(error)[:BRIEF]}: {brief(data)}") from None
