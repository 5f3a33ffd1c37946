"""Erlang's terms for which Python has no type: atoms, pids, references, improper lists.

All are immutable values. Two properties of Erlang are kept on purpose:

* Pids have a total order, which is the same on every node: first the number, then the node's name,
  then its creation. The fields of `Pid` are in this order, so Python sorts pids as Erlang/OTP does
  (found on OTP 25; tests compare the two).
* `true`, `false` and `undefined` are atoms. Decoding gives `True`, `False` and `None` for them;
  `Atom("true")` is for names, and has the same bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from locks.errors import InvalidOption
from locks.lock_ids import LONGEST_ATOM as LONGEST_ATOM
from locks.lock_ids import Atom as Atom
from locks.lock_ids import keep_tuples

__all__ = ["Atom", "ImproperList", "Pid", "Reference", "Term"]

SHOWN = 120  # bytes shown of a term that is not decoded


class Pid(NamedTuple):
    """The identity of a process. Larger means younger, on one node and in one incarnation of it.

    Attributes:
        number: 64 bit: `serial << 32 | id`.
        node: The name of its node.
        creation: The incarnation of its node, 32 bit.
    """

    number: int
    node: str
    creation: int

    def __str__(self) -> str:
        return f"<{self.node}.{self.number & 0xFFFFFFFF}.{self.number >> 32}>"


class Reference(NamedTuple):
    """A value that is never made twice.

    Attributes:
        node: The name of the node that made it.
        creation: The incarnation of that node, 32 bit.
        words: One to five numbers of 32 bit.
    """

    node: str
    creation: int
    words: tuple[int, ...]


class ImproperList(NamedTuple):
    """A list that ends with something other than the empty list, such as `[alias | Ref]`.

    Attributes:
        items: The terms before the bar, at least one.
        tail: The term after it; not a list.
    """

    items: tuple[Any, ...]
    tail: Any


class Term:
    """A term kept in the external term format. Two are equal if their bytes are.

    Decoding returns it for terms without a Python value: functions, ports, and bit strings that are
    not whole bytes. It can only be sent back, compared and put into sets.

    Args:
        encoded: The bytes, without the version byte. They are not checked; the caller guarantees
            that they are a term.

    Raises:
        InvalidOption: They are not bytes, or empty.
    """

    __slots__ = ("encoded",)

    encoded: bytes

    def __init__(self, encoded: bytes) -> None:
        if not isinstance(encoded, bytes) or not encoded:
            raise InvalidOption(f"an encoded term must be one or more bytes, not {encoded!r}")
        object.__setattr__(self, "encoded", b"".join((encoded,)))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a term can't be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a term can't be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and self.encoded == other.encoded

    def __hash__(self) -> int:
        return hash(self.encoded)

    def __repr__(self) -> str:
        cut = "..." if len(self.encoded) > SHOWN else ""
        return f"Term({self.encoded[:SHOWN]!r}{cut})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Term, (self.encoded,)


# Lock ids of Erlang nodes have them as elements.
keep_tuples(Pid)
keep_tuples(Reference)
keep_tuples(ImproperList)
