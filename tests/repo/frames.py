"""Writes what nodes send each other as `docs/protocol.md` shows it, from the classes of the messages."""

from __future__ import annotations

import textwrap
from types import NoneType
from typing import Any, get_args

from msgspec import NODEFAULT
from msgspec import inspect as types

from locks.core.messages import AgentMessage
from locks.net import hello, messages
from locks.net.frames import frame
from locks.net.secrets import Cookie

WIDTH = 120
HEADS: list[tuple[str, Any]] = [
    ("Frames", messages.Frame),
    ("Messages in `toserver`", messages.FromAgent),
    ("Messages in `toagent`", AgentMessage),
    ("Questions in `call`", messages.AnyQuestion),
    ("Answers in `reply`", messages.AnyAnswer),
]
MOST = (1 << 63) - 1
CUSTOM = {
    "Text": "text <= 1,000",
    "LockId": "lock id",
    "KnownId": "known id",
    "Key": "element",
    "Place": "place",
}


class Writer:
    """Writes types, and gathers the parts that they name.

    Attributes:
        parts: The classes that have no tag, in the order in which they were named.
    """

    def __init__(self) -> None:
        self.parts: dict[type[Any], types.Type] = {}

    def name(self, kind: types.Type) -> str:
        """How a type is written in a field."""
        match kind:
            case types.Metadata():
                return self.name(kind.type)
            case types.StrType():
                return f"text{self._size(kind.min_length, kind.max_length)}"
            case types.BytesType():
                return f"bytes{self._size(kind.min_length, kind.max_length)}"
            case types.IntType(ge=0, le=most) if most == MOST:
                return "number"
            case types.IntType():
                return f"integer{_range(kind.ge, kind.le)}"
            case types.FloatType():
                return f"float{_range(kind.ge, kind.le)}"
            case types.BoolType():
                return "bool"
            case types.NoneType():
                return "nil"
            case types.LiteralType():
                return " | ".join(_value(each) for each in kind.values)
            case types.VarTupleType():
                return f"[{self.name(kind.item_type)}, ...]{self._size(kind.min_length, kind.max_length)}"
            case types.TupleType():
                return f"[{', '.join(map(self.name, kind.item_types))}]"
            case types.DictType():
                return f"map of {self.name(kind.key_type)} to {self.name(kind.value_type)}"
            case types.UnionType():
                return self._union(kind)
            case types.CustomType():
                return CUSTOM[kind.cls.__name__]
            case types.StructType() if kind.tag is not None:
                return f"a `{kind.tag}`"
            case types.StructType() | types.NamedTupleType():
                self.parts.setdefault(kind.cls, kind)
                return kind.cls.__name__
        raise NotImplementedError(str(kind))

    def _union(self, kind: types.UnionType) -> str:
        kinds = {each.cls for each in kind.types if isinstance(each, types.StructType)}
        for head, union in HEADS:
            if kinds and kinds == set(get_args(union)):
                return f"one of: {head.lower()}"
        return " | ".join(map(self.name, kind.types))

    def _size(self, least: int | None, most: int | None) -> str:
        if least == most and most is not None:
            return f" of {most}"
        return _range(least or None, most)

    def shape(self, kind: Any) -> str:
        """A message or a part: an array of its tag, if it has one, and its fields."""
        fields = [
            f"{each.name}: {self.name(each.type)}{self._default(each)}" for each in kind.fields
        ]
        tag = getattr(kind, "tag", None)
        said = ", ".join([*([f'"{tag}"'] if tag else []), *fields])
        return _wrapped(f"[{said}]" if tag else f"{kind.cls.__name__} = [{said}]")

    @staticmethod
    def _default(given: types.Field) -> str:
        if given.default is not NODEFAULT:
            default = given.default
            return f" = {_value(default) if isinstance(default, (str, int, float, NoneType)) else '[]'}"
        return "" if given.default_factory is NODEFAULT else " = empty"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False)


def _value(value: Any) -> str:
    """A value of MessagePack, as text."""
    if isinstance(value, str):
        return f'"{value}"'
    return (
        "nil" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:,}"
    )


def _range(least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    if least is None:
        return f" <= {_number(most)}"
    return f" >= {_number(least)}" if most is None else f" {_number(least)} to {_number(most)}"


def _number(value: float | None) -> str:
    return "2^63-1" if value == MOST else f"{value:,}"


def describe_hello() -> str:
    """The messages of the hello."""
    writer = Writer()
    return "\n".join(
        writer.shape(types.type_info(kind)) for kind in (hello.Hello, hello.Proof, hello.Refusal)
    )


def describe_frames() -> str:
    """All that is sent after the hello."""
    writer = Writer()
    lines = []
    for head, union in HEADS:
        lines += [head, *(writer.shape(types.type_info(kind)) for kind in get_args(union)), ""]
    lines.append("Parts")
    written: set[type[Any]] = set()
    while left := [kind for cls, kind in writer.parts.items() if cls not in written]:
        for kind in left:
            lines.append(writer.shape(kind))
            written.add(kind.cls)  # type: ignore[attr-defined]
    return "\n".join(lines)


def describe_proof() -> str:
    """An example of the two proofs."""
    cookie = Cookie("a secret of sixteen or more characters".replace(" ", "-"))
    dials = hello.Peer("ann@h", 5, True, 15.0)
    accepts = hello.Peer("b@h", 6, False, 15.0)
    dialled = hello.say_hello(dials, "b@h", b"\1" * 32)
    accepted = hello.say_hello(accepts, "ann@h", b"\2" * 32)
    lines = ["cookie", f"  {cookie.encoded().decode()}"]
    for head, body in (("the hello of ann@h", dialled), ("the hello of b@h", accepted)):
        lines += [head, *_bytes(frame(body))]
    for label in (hello.DIALS, hello.ACCEPTS):
        body = hello.prove(label, dialled, accepted, [cookie])
        lines += [f'proof "{label.decode()}"', *_bytes(frame(body))]
    return "\n".join(lines)


def _bytes(data: bytes) -> list[str]:
    return textwrap.wrap(data.hex(" "), WIDTH, initial_indent="  ", subsequent_indent="  ")


LISTS = {"hello": describe_hello, "proof": describe_proof, "frames": describe_frames}
