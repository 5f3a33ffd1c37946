"""The messages between peers in the form of OTP's `pg`, and groups as keys.

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

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, get_args

from locks.errors import InvalidOption, MisuseError, assert_never
from locks.groups.table import AnyGroup, Discover, Join, Leave, Members, Message, Sync
from locks.lock_ids import shown
from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.fields import BadMessage, Form, Forms, brief, tag_of
from locks.otp.bytes.terms import Atom, ImproperList, Pid

__all__ = ["Group", "pack", "pieces", "to_group", "unpack"]

CAST = constant("$gen_cast")
LONGEST_GROUP = 65_535  # bytes: it must fit into a message with many pids
PIECE = 1_000  # members in a message, if one message was too large
SPECIAL: dict[str, bool | None] = {
    "true": True,
    "false": False,
    "undefined": None,
}  # atoms that Python has values for
PLAIN = frozenset((str, int, Pid))  # their values are canonical
NOBODY = Pid(1, "nobody@localhost", 1)


class Group(bytes):
    """A group as a key, its encoded term: two groups are the same if they are the same term.

    So `1`, `1.0` and `True` are different groups, as they are for Erlang; text and its encoded
    bytes are the same group, because Erlang can't distinguish them.

    Args:
        value: Its name, as users pass it.

    Attributes:
        given: Its name as it was passed here.
        value: Its name as other nodes decode it.

    Raises:
        EncodeError: It has no term.
    """

    given: Any
    value: Any

    def __new__(cls, value: Any) -> Group:
        """Encode it."""
        canonical = _canonical(value)
        self = super().__new__(cls, etf.encode(canonical))
        self.given = value
        self.value = canonical
        return self

    def __repr__(self) -> str:
        return f"Group({self.value!r})"


def to_group(value: Any) -> Group:
    """Convert a user's value to a group.

    Raises:
        InvalidOption: The value can't be the name of a group.
    """
    try:
        # Encoded as passed first: that refuses a value that is nested too deep, or within itself.
        etf.encode((CAST, (_TAGS[Sync], NOBODY, [(value, [NOBODY])])))
        group = Group(value)
    except MisuseError as error:
        raise InvalidOption(f"can't use {shown(value)} as a group: {error}") from error
    if len(group) > LONGEST_GROUP:
        raise InvalidOption(
            f"the group {shown(value)} has {len(group):,} bytes, more than "
            f"{LONGEST_GROUP:,}; use a shorter name"
        )
    return group


def _canonical(value: Any, depth: int = etf.Limits().depth) -> Any:
    """The canonical form of a value, equal for all values with the same term; raises `EncodeError` if it is nested too deep."""
    kind = type(value)
    if depth < 0:
        raise etf.EncodeError("it is nested too deep, or within itself; use a flatter value")
    depth -= 1
    if kind is Atom:
        return SPECIAL.get(value.name, value)
    if kind is bytes:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if kind is tuple or kind is list:
        return kind([e if type(e) in PLAIN else _canonical(e, depth) for e in value])
    if kind is dict:
        pairs = [(_canonical(k, depth), _canonical(each, depth)) for k, each in value.items()]
        return dict(sorted(pairs, key=lambda pair: etf.encode(pair[0])))
    if kind is ImproperList:
        return ImproperList(_canonical(value.items, depth), _canonical(value.tail, depth))
    return value


# --- Messages as terms, and back ----------------------------------------------------------------


def _value(group: Hashable) -> Any:
    assert isinstance(group, Group)
    return group.value


def _to_key(term: Any) -> Group:
    try:
        return Group(term)
    except MisuseError as error:  # it can be decoded, but not encoded again
        raise BadMessage(f"{brief(term)} is not a group: {error}") from error


def _pids(members: Iterable[Any], pid_of: Callable[[Any], Pid]) -> list[Pid]:
    return [pid_of(member) for member in members]


def _one_or_more(members: Iterable[Any], pid_of: Callable[[Any], Pid]) -> Any:
    """A list of pids, or a single pid where OTP sends one."""
    pids = _pids(members, pid_of)
    return pids[0] if len(pids) == 1 else pids


def _to_members(term: Any, peer: Pid) -> tuple[Pid, ...]:
    """Members of a peer: one pid, or a list of them."""
    pids = term if type(term) is list else [term]
    for pid in pids:
        if type(pid) is not Pid or pid.node != peer.node:
            raise BadMessage(
                f"{brief(pid)} is not a process of {peer.node}, so it can't be a member there"
            )
    return tuple(pids)


# The fields of a message follow a tag and the peer. A function tells `pack` how members are written,
# and `unpack` checks them against the peer.
_CHANGES = Forms(
    {AnyGroup: Form(_value, _to_key), Members: Form(_one_or_more, _to_members, in_context=True)}
)
_CONTENT = _CHANGES.but({Members: Form(_pids, _to_members, in_context=True)})
_FORMS = {
    kind: (_CONTENT if kind is Sync else _CHANGES).message(kind) for kind in get_args(Message)
}
_TAGS = {kind: constant(tag_of(kind)) for kind in _FORMS}
_KINDS = {tag: kind for kind, tag in _TAGS.items()}


def pack(message: Message, me: Pid, pid_of: Callable[[Any], Pid]) -> tuple[Any, ...]:
    """The term of a message.

    Args:
        message: The message.
        me: The pid of the scope's process here.
        pid_of: Gives the pid of a member.
    """
    kind = type(message)
    term = (_TAGS[kind], me, *_FORMS[kind].pack(message, pid_of))
    return (CAST, term) if kind is Sync else term


def unpack(term: Any) -> tuple[Pid, Message]:
    """The peer that has sent a message, and the message.

    Raises:
        StrangeMessage: It is not a message of `pg`.
        BadMessage: It is one, but wrong.
    """
    is_cast = type(term) is tuple and len(term) == 2 and term[0] == CAST
    inner = term[1] if is_cast else term
    tag = inner[0] if type(inner) is tuple and inner else None
    kind = _KINDS.get(tag) if type(tag) is Atom else None
    if kind is None:
        raise StrangeMessage(f"{brief(term)} is not a message of process groups")
    if len(inner) < 2 or type(inner[1]) is not Pid or is_cast != (kind is Sync):
        raise BadMessage(f"{brief(term)} is not a message of process groups")
    _, peer, *fields = inner
    if kind is Discover and len(fields) == 1:
        fields = []  # a version of the protocol
    return peer, _FORMS[kind].unpack(tuple(fields), peer)


# --- What is too large --------------------------------------------------------------------------


def pieces(message: Message) -> Iterator[Message]:
    """Split a message that is too large into several."""
    match message:
        case Sync(groups):
            yield Sync(())
            for group, members in groups:
                yield from pieces(Join(group, members))
        case Join(group, members):
            for start in range(0, len(members), PIECE):
                yield Join(group, members[start : start + PIECE])
        case Leave(members, groups):
            for group in groups:
                for start in range(0, len(members), PIECE):
                    yield Leave(members[start : start + PIECE], (group,))
        case Discover():
            yield message
        case _:
            assert_never(message)
