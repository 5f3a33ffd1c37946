"""The form of a greeting, the first message of a node on a new connection.

A greeting is a call of the other's lock server: `{'$locks', greeting, Protocol, Version, Known,
Limits}`. It is checked completely before it has any effect. Each field has a type, a range and a
size:

* Protocol: the integer `PROTOCOL`.
* Version: the last version of the sender's lock table (`locks.wire.versions`).
* Known: a list of at most `NAMES` nodes that the sender was connected with, and the sender itself.
  Each is `{Name, Host, Port, Age}`: where it listens, and how many seconds ago it was last known to
  be alive.
* Limits: what the receiver may have at the sender's lock server, the numbers of `Limits`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from locks.errors import InvalidOption
from locks.model import check_node_name
from locks.net import book
from locks.net.book import NAMES, News
from locks.net.budgets import Limits
from locks.otp.bytes.control import brief
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom
from locks.ranges import LONGEST_TEXT, plain
from locks.wire.forms import OURS
from locks.wire.versions import check_version

__all__ = [
    "GREETING",
    "Greeting",
    "pack_greeting",
    "pack_refusal",
    "refusal_in",
    "to_node_name",
    "unpack_greeting",
]

PROTOCOL = 1
GREETING = Atom("greeting")
REFUSED = Atom("refused")
LONGEST_HOST = 255  # characters
PORTS = range(1, 65536)


class Greeting(NamedTuple):
    """The content of a greeting.

    Attributes:
        version: The last version of the sender's lock table.
        known: The nodes that it names.
        limits: What the receiver may have at the sender's lock server.
    """

    version: int
    known: list[News]
    limits: Limits


def pack_greeting(version: int, known: Iterable[News], limits: Limits) -> tuple[Any, ...]:
    """The term of a greeting.

    Args:
        version: The last version of the sender's lock table.
        known: The nodes that it names.
        limits: What it may have.
    """
    entries = [(name, host, port, float(age)) for name, (host, port), age in known]
    return (OURS, GREETING, PROTOCOL, version, entries, tuple(limits))


def unpack_greeting(term: Any) -> Greeting:
    """Unpack a greeting.

    Raises:
        BadMessage: A field has a wrong type, range or size.
    """
    protocol = term[2] if type(term) is tuple and len(term) > 2 else None
    if type(protocol) is not int or protocol != PROTOCOL:
        raise BadMessage(
            f"it uses protocol {brief(protocol)}, but this node uses {PROTOCOL}; install the same "
            "version of locks on both"
        )
    if len(term) != 6:
        raise BadMessage("a greeting has 6 parts")
    version, known, limits = term[3:]
    check_version(version)
    if type(known) is not list:
        raise BadMessage(f"{brief(known)} should be a list of nodes")
    if len(known) > NAMES:
        raise BadMessage(f"a greeting has {len(known)} nodes, more than {NAMES}")
    return Greeting(version, [_news(entry) for entry in known], _limits(limits))


def pack_refusal(why: str) -> tuple[Any, ...]:
    """The answer to a greeting that was refused, with the reason, for the other node's users."""
    return (OURS, REFUSED, why[:LONGEST_TEXT])


def refusal_in(answer: Any) -> str | None:
    """Why another node has refused a greeting; `None` if it has not."""
    if type(answer) is tuple and len(answer) == 3 and answer[:2] == (OURS, REFUSED):
        return plain(answer[2])[:LONGEST_TEXT] if type(answer[2]) is str else None
    return None


def to_node_name(term: Any) -> str:
    """The name of a node in a term; raises `BadMessage` if it is none."""
    try:
        if type(term) is not str:
            raise InvalidOption("a node's name must be text")
        return check_node_name(term)
    except InvalidOption as error:
        raise BadMessage(f"{brief(term)} is not the name of a node") from error


def _news(entry: Any) -> News:
    """One node that is named."""
    if type(entry) is not tuple or len(entry) != 4:
        raise BadMessage(f"{brief(entry)} should be a node's name, host, port and age")
    name, host, port, age = entry
    to_node_name(name)
    if type(host) is not str or not 0 < len(host) <= LONGEST_HOST or not _is_plain(host):
        raise BadMessage(f"{brief(host)} is not a host: text of at most {LONGEST_HOST} characters")
    if type(port) is not int or port not in PORTS:
        raise BadMessage(f"{brief(port)} is not a port: 1 to 65535")
    if type(age) not in (int, float) or not 0 <= age <= book.FORGET:
        raise BadMessage(f"age {brief(age)} is not 0 to {book.FORGET:g} seconds")
    return News(name, (host, port), age)


def _limits(term: Any) -> Limits:
    """What a node may have."""
    size = len(Limits._fields)
    numbers = term if type(term) is tuple else ()
    if len(numbers) != size or any(type(each) is not int or each < 1 for each in numbers):
        raise BadMessage(f"{brief(term)} should be {size} limits, whole numbers from 1 on")
    return Limits(*numbers)


def _is_plain(host: str) -> bool:
    return host.isprintable() and not any(character.isspace() for character in host)
