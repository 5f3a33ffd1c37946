"""Lock ids in their canonical form: what stays, what becomes plain, what a key stands for, what is refused."""

from __future__ import annotations

import enum
import pickle
from collections import UserString, namedtuple
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks.core.server.table import LockTable
from locks.errors import InvalidLockId
from locks.lock_ids import DEEPEST, LARGEST, MOST_ELEMENTS, check_lock_id
from locks.words import show
from tests.lockstep import agent

PLAIN = st.one_of(
    st.text(),
    st.binary(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)


class Named:
    """A value of a program that could be a key of a dictionary."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Named) else NotImplemented


class Text(str):
    """Text with nothing of its own."""


class Loud(str):
    """Text with methods of its own to hash and compare, which agree with those of text."""

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return str(self) == other


class Index:
    """What numpy's integers are like: a class of its own, and equal to an integer."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __eq__(self, other: object) -> bool:
        return self.number == other


class Colour(enum.IntEnum):
    RED = 1


class Words(str, enum.Enum):
    HELLO = "hello"


class Plain(enum.Enum):
    NAMED = "named"
    NONE = None
    PAIR = ("a", 1)
    DAY = date(2026, 11, 28)


class Other(enum.Enum):
    MEMBER = frozenset((1,))


BERLIN = timezone(timedelta(hours=1))


Point = namedtuple("Point", "x y")


# --- What ids become ----------------------------------------------------------------------------


@given(st.lists(PLAIN | st.tuples(PLAIN, st.tuples(PLAIN)), min_size=1, max_size=5).map(tuple))
def test_plain_values_stay_as_they_are(lock_id: Any) -> None:
    """Of exactly these types, at any depth; and so is a list of them."""
    for given_id in (lock_id, list(lock_id)):
        checked = check_lock_id(given_id)
        assert repr(checked) == repr(lock_id)


@pytest.mark.parametrize(
    ("element", "plain"),
    [
        (Text("a"), "a"),
        (Loud("a"), "a"),
        (Index(5), 5),
        (Colour.RED, 1),
        (Point(1, Text("y")), (1, "y")),
    ],
)
def test_what_is_equal_to_a_plain_value_becomes_that_value(element: Any, plain: Any) -> None:
    """Instances of subclasses, integers and numbers of other classes: by Python they are one key."""
    (found,) = check_lock_id((element,))
    assert (found, type(found)) == (plain, type(plain))
    if type(plain) is tuple:
        assert [type(part) for part in found] == [type(part) for part in plain]


@pytest.mark.parametrize(
    ("element", "plain"),
    [
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (date(2026, 11, 28), "2026-11-28"),
        (datetime(2026, 11, 28, 9, 30), "2026-11-28T09:30:00"),
        (datetime(2026, 11, 28, 9, 30, tzinfo=BERLIN), "2026-11-28T08:30:00+00:00"),
        (Plain.NAMED, "named"),
        (Plain.NONE, None),
        (Plain.PAIR, ("a", 1)),
        (Words.HELLO, "hello"),
        (Plain.DAY, "2026-11-28"),
    ],
)
def test_what_stands_for_a_plain_value(element: Any, plain: Any) -> None:
    """A UUID, date or datetime for its text, an enum member for its value: the same in every program and on every server."""
    for given_id in ((element,), ("a", (element,))):
        checked: Any = check_lock_id(given_id)
        found = checked[0] if len(checked) == 1 else checked[1][0]
        assert (found, type(found)) == (plain, type(plain))


def test_equal_times_in_different_zones_are_one_lock() -> None:
    """Whoever names a time in its own zone means the same."""
    time = datetime(2026, 11, 28, 9, 30, tzinfo=BERLIN)
    assert check_lock_id((time,)) == check_lock_id((time.astimezone(timezone.utc),))


def test_1_and_true_and_1_0_are_one_lock() -> None:
    """By Python's equality: two locks where a program means one would be the quiet fault."""
    table = LockTable()
    for number, element in enumerate((1, True, 1.0, Index(1), Colour.RED)):
        entry = table.request(agent(number), "c", check_lock_id((element,)), "write")[0]
        assert entry.granted is (number == 0)
    assert table.ids() == [(1,)]


# --- What is refused ----------------------------------------------------------------------------


class Unhashable:
    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


class FailingHash:
    def __hash__(self) -> int:
        raise OSError("no hash today")


class FailingEq:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise OSError("no comparison today")


class Changing:
    def __init__(self) -> None:
        self.number = 0

    def __hash__(self) -> int:
        self.number += 1
        return self.number


class NotItself:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return False


class NoAnswer:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        class Neither:
            def __bool__(self) -> bool:
                raise ValueError("neither true nor false")

        return Neither()


class Unprintable(FailingHash):
    def __repr__(self) -> str:
        raise OSError("no text today")


@pytest.mark.parametrize(
    "element",
    [
        Unhashable(),
        FailingHash(),
        FailingEq(),
        Changing(),
        NotItself(),
        NoAnswer(),
        Unprintable(),
        float("nan"),
        float("inf"),
        Named("x"),
        Decimal(3),
        Fraction(6, 2),
        2 + 0j,
        frozenset((1,)),
        UserString("x"),
        memoryview(b"x"),
        Other.MEMBER,
        1 << 63,
        -(1 << 63) - 1,
        "caf\udce9",
        (1, (FailingHash(),)),
        (1, float("nan")),
        [1],
        {"a": 1},
        ("a", ["b"]),
        bytearray(b"a"),
    ],
    ids=lambda element: type(element).__name__,
)
def test_what_is_not_plain_is_refused(element: Any) -> None:
    """With an error that can be written and pickled, and that says what to use."""
    with pytest.raises(InvalidLockId, match="lock id") as caught:
        check_lock_id(("a", element))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert " use " in str(caught.value) or "decode" in str(caught.value)


def test_a_type_is_named_with_its_module() -> None:
    """It may have the name of one of Python's own, as numpy's `bool` has."""
    kind = type("bool", (), {"__module__": "numpy"})
    with pytest.raises(InvalidLockId, match=r"of the type numpy\.bool, "):
        check_lock_id(("a", kind()))


def _nested(depth: int) -> Any:
    lock_id: Any = ("x",)
    for _ in range(depth - 1):
        lock_id = (lock_id,)
    return lock_id


@pytest.mark.parametrize(
    "lock_id",
    [
        tuple(range(MOST_ELEMENTS)),
        tuple([(1 << 63) - 1] * MOST_ELEMENTS),
        _nested(DEEPEST),
        ("x" * (LARGEST - 8),),
        (b"x" * (LARGEST - 8),),
        tuple(["x" * 248] * MOST_ELEMENTS),
    ],
    ids=["elements", "large numbers", "depth", "text", "bytes", "texts"],
)
def test_the_greatest_ids_are_good(lock_id: Any) -> None:
    """As many elements, as deep and as large as the documentation says."""
    assert check_lock_id(lock_id) == lock_id


@pytest.mark.parametrize(
    ("lock_id", "words"),
    [
        (tuple(range(MOST_ELEMENTS + 1)), "more than 256 elements"),
        (("a", tuple(range(MOST_ELEMENTS))), "more than 256 elements"),
        (_nested(DEEPEST + 1), "more than 16 tuples deep"),
        (_nested(100_000), "more than 16 tuples deep"),
        (("x" * (LARGEST - 7),), "65,536 bytes"),
        (tuple(["x" * 249] * MOST_ELEMENTS), "65,536 bytes"),
        ((b"x" * LARGEST,), "65,536 bytes"),
        ((("x" * LARGEST,), "y"), "65,536 bytes"),
    ],
    ids=["elements", "in all", "depth", "very deep", "text", "texts", "bytes", "within"],
)
def test_what_is_larger_is_refused(lock_id: Any, words: str) -> None:
    """And the error says what is too much."""
    with pytest.raises(InvalidLockId, match=words):
        check_lock_id(lock_id)


@pytest.mark.parametrize(
    ("lock_id", "text"),
    [
        (("a", 1, "für Ann"), "a/1/für Ann"),
        (("a\nWARNING b", "\x1b[2J"), r"'a\nWARNING b'/'\x1b[2J'"),
        (("a", b"\n"), r"a/b'\n'"),
    ],
    ids=["plain", "lines", "bytes"],
)
def test_ids_in_texts(lock_id: tuple[Any, ...], text: str) -> None:
    """Errors and logs show any id in one line that can be written anywhere."""
    assert show(check_lock_id(lock_id)) == text
    text.encode()
