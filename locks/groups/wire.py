"""The messages between peers as OTP's `pg` has them, and groups as keys.

| Message | Term |
|---|---|
| `Discover` | `{discover, Peer}`; `{discover, Peer, Version}` is understood, too |
| `Sync` | `{'$gen_cast', {sync, Peer, [{Group, [Pid]}]}}` |
| `Join` | `{join, Peer, Group, Pid}`, or a list of pids |
| `Leave` | `{leave, Peer, Pid, [Group]}`, or a list of pids |

`Discover` goes to the name of the scope on a node, the others to the pid of the peer. `Peer` is the
process of the scope on the node that sends.

Source: `pg.erl` in OTP's application `kernel`, of OTP 23 to 28.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from locks.errors import InvalidOption, MisuseError
from locks.groups.table import Discover, Join, Leave, Message, Sync
from locks.otp import etf
from locks.otp.etf_decode import constant
from locks.otp.terms import Atom, ImproperList, Pid
from locks.wire import BadMessage

__all__ = ["Group", "pack", "pieces", "to_group", "unpack"]

CAST = constant("$gen_cast")
DISCOVER = constant("discover")
SYNC = constant("sync")
JOIN = constant("join")
LEAVE = constant("leave")
LONGEST_GROUP = 65_535  # bytes: it must fit into a message beside many pids
PIECE = 1_000  # members in a message, when all at once were too many
SPECIAL = {"true": True, "false": False, "undefined": None}  # atoms that Python has values for
NOBODY = Pid(1, "nobody@localhost", 1)


class Group:
    """A group as a key: two are the same when they are the same term.

    So `1`, `1.0` and `True` are different groups, as they are for Erlang; text and the bytes that it
    is encoded in are the same one, as Erlang can't tell them apart.

    Args:
        value: Its name, as users give it.

    Attributes:
        given: Its name as it was given here.
        value: Its name as other nodes decode it.
        encoded: Its term.

    Raises:
        EncodeError: It has no term.
    """

    __slots__ = ("encoded", "given", "value")

    def __init__(self, value: Any) -> None:
        # Encoded as it was given first: that refuses what is nested too deep, or within itself.
        etf.encode((CAST, (SYNC, NOBODY, [(value, [NOBODY])])))
        self.given = value
        self.value = _canonical(value)
        self.encoded = etf.encode(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        return f"Group({self.value!r})"


def to_group(value: Any) -> Group:
    """The group that users mean.

    Raises:
        InvalidOption: That can't be the name of a group.
    """
    try:
        group = Group(value)
    except MisuseError as error:
        raise InvalidOption(f"{value!r:.100} can't be a group: {error}") from error
    if len(group.encoded) > LONGEST_GROUP:
        raise InvalidOption(
            f"the group {value!r:.100} takes {len(group.encoded):,} bytes, more than "
            f"{LONGEST_GROUP:,}; give it a shorter name"
        )
    return group


def _canonical(value: Any) -> Any:
    """The one form of all values that are the same term."""
    kind = type(value)
    if kind is Atom:
        return SPECIAL.get(value.name, value)
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if kind is tuple or kind is list:
        return kind([_canonical(each) for each in value])
    if kind is dict:
        pairs = [(_canonical(key), _canonical(each)) for key, each in value.items()]
        return dict(sorted(pairs, key=lambda pair: etf.encode(pair[0])))
    if kind is ImproperList:
        return ImproperList(_canonical(value.items), _canonical(value.tail))
    return value


# --- Messages to terms --------------------------------------------------------------------------


def pack(message: Message, me: Pid, pid_of: Callable[[Any], Pid]) -> tuple[Any, ...]:
    """The term of a message.

    Args:
        message: The message.
        me: The pid of the scope's process here.
        pid_of: Gives the pid of a member.
    """
    if isinstance(message, Discover):
        return (DISCOVER, me)
    if isinstance(message, Sync):
        groups = [
            (_value(group), [pid_of(member) for member in members])
            for group, members in message.groups
        ]
        return (CAST, (SYNC, me, groups))
    pids: Any = [pid_of(member) for member in message.members]
    if len(pids) == 1:
        (pids,) = pids
    if isinstance(message, Join):
        return (JOIN, me, _value(message.group), pids)
    return (LEAVE, me, pids, [_value(group) for group in message.groups])


def pieces(message: Message) -> Iterator[Message]:
    """The same in several messages, where it is too large for one."""
    if isinstance(message, Sync):
        yield Sync(())
        for group, members in message.groups:
            yield from pieces(Join(group, members))
    elif isinstance(message, Join):
        for start in range(0, len(message.members), PIECE):
            yield Join(message.group, message.members[start : start + PIECE])
    elif isinstance(message, Leave):
        for group in message.groups:
            for start in range(0, len(message.members), PIECE):
                yield Leave(message.members[start : start + PIECE], (group,))
    else:
        yield message


def _value(group: Hashable) -> Any:
    assert isinstance(group, Group)
    return group.value


# --- Terms to messages --------------------------------------------------------------------------


def unpack(term: Any) -> tuple[Pid, Message]:
    """The peer that has sent a message, and the message.

    Raises:
        BadMessage: It is not a message of `pg`.
    """
    inner = term
    if type(term) is tuple and len(term) == 2 and term[0] == CAST:
        inner = term[1]
    if type(inner) is tuple and len(inner) > 1 and type(inner[1]) is Pid:
        tag, peer, *rest = inner
        try:
            message = _unpack(tag, peer, rest) if (inner is not term) == (tag == SYNC) else None
        except MisuseError as error:  # a group name that can be read, but not sent back
            raise BadMessage(f"{term!r:.200} is no message of process groups: {error}") from error
        if message is not None:
            return peer, message
    raise BadMessage(f"{term!r:.200} is no message of process groups")


def _unpack(tag: Any, peer: Pid, rest: list[Any]) -> Message | None:
    if tag == DISCOVER and len(rest) <= 1:
        return Discover()
    if tag == SYNC and len(rest) == 1 and type(rest[0]) is list:
        groups = []
        for each in rest[0]:
            if type(each) is not tuple or len(each) != 2:
                return None
            groups.append((Group(each[0]), _pids(each[1], peer)))
        return Sync(tuple(groups))
    if tag == JOIN and len(rest) == 2:
        return Join(Group(rest[0]), _pids(rest[1], peer))
    if tag == LEAVE and len(rest) == 2 and type(rest[1]) is list:
        return Leave(_pids(rest[0], peer), tuple([Group(group) for group in rest[1]]))
    return None


def _pids(term: Any, peer: Pid) -> tuple[Pid, ...]:
    """Members of a peer: one pid, or a list of them."""
    pids = term if type(term) is list else [term]
    for pid in pids:
        if type(pid) is not Pid or pid.node != peer.node:
            raise BadMessage(f"{pid!r:.200} is no process of {peer.node}, so no member of its own")
    return tuple(pids)
