"""Which messages to a lock server overtake others of the same node that were not taken in yet.

A release, the end of an agent, and what an agent says of other nodes let others go on; a request does not. In a crowd
hundreds of requests may wait before a release. So these overtake what *other* agents of their node have sent. What one
agent says stays in its order, and so does all of which nobody knows the agent: calls, monitors, links, exits.

It is found in the bytes of a frame, before that is decoded: an agent's message to a lock server begins with a tag and the
agent's number, or its pid.
"""

from __future__ import annotations

from typing import Final

from locks.core.messages import Release, Remove, StandingElsewhere
from locks.model import AgentId
from locks.otp.bytes import etf
from locks.otp.bytes.behaviours import CAST
from locks.otp.bytes.control import Send
from locks.otp.bytes.terms import Atom, Pid
from locks.otp.links.backlog import NOBODY, Kind
from locks.wire.forms import LOCK_SERVER, OURS
from locks.wire.messages import pack

__all__ = ["kind_of"]

_SOMEBODY: Final = AgentId(0, "", 0)


def _bytes(term: object) -> bytes:
    return etf.encode(term)[1:]


HEAD: Final = 1024  # bytes in which a message to the lock server begins
_CASTS: Final = _bytes(Atom(LOCK_SERVER)) + etf.encode((CAST, None))[: -len(_bytes(None))]
_OURS: Final = _bytes(OURS)
_SENDS: Final = Send(Pid(0, "a", 0), None).pack()[:6]  # up to the operation
_URGENT: Final = frozenset(
    _bytes(pack(message)[1])
    for message in (
        Remove(_SOMEBODY),
        Release(_SOMEBODY, ("a",)),
        StandingElsewhere(_SOMEBODY, False, False),
    )
)
_BYTE, _INTEGER, _BIG, _PID = b"abnX"  # the first byte of a number, or a process
_OTHERS: Final = (NOBODY, False)
_ZERO: Final = b"\0"


def kind_of(frame: bytes) -> Kind | None:
    """Which agent has sent a frame to the lock server, and whether it is urgent; see `locks.otp.links.backlog`."""
    if frame.startswith(_SENDS):
        return _OTHERS  # to a process: not to the lock server
    at = frame.find(_CASTS, 0, HEAD) + len(_CASTS) + 2  # behind the number of the message's parts
    tag = at + len(_OURS)
    if at < len(_CASTS) + 2 or not frame.startswith(_OURS, at) or tag + 2 > len(frame):
        return None
    sender = tag + 2 + frame[tag + 1]
    number = _number(frame, sender)
    if number is None:
        return None
    return number.rstrip(_ZERO) or _ZERO, frame[tag:sender] in _URGENT


def _number(frame: bytes, at: int) -> bytes | None:
    """The number of an agent, or of its pid, the lowest byte first; `None` if there is none."""
    if at + 2 > len(frame):
        return None
    first = frame[at]
    if first == _BIG:
        return frame[at + 3 : at + 3 + frame[at + 1]]
    if first == _BYTE:
        return frame[at + 1 : at + 2]
    if first == _INTEGER:
        return frame[at + 1 : at + 5][::-1]
    if first == _PID and at + 3 < len(frame):
        at += 3 + frame[at + 2]  # behind the name of its node
        return frame[at : at + 4][::-1] + frame[at + 4 : at + 8][::-1]
    return None
