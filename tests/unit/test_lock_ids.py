"""Lock ids in their canonical form: what stays, what becomes plain, what a key stands for, what is refused."""

from __future__ import annotations

import copy
import enum
import gc
import pickle
import threading
from collections import namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locks import lock_ids
from locks.core.server.table import LockTable
from locks.errors import InvalidLockId
from locks.lock_ids import DEEPEST, LARGEST, MOST_ELEMENTS, Key, check_lock_id
from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term
from locks.words import show
from tests.lockstep import agent

PLAIN = st.one_of(
    st.text(), st.binary(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()
)


class Named:
    """A key of a program: equal to what has the same name. It counts how often it is asked."""

    asked = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        Named.asked += 1
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        Named.asked += 1
        return self.name == other.name if isinstance(other, Named) else NotImplemented

    def __str__(self) -> str:
        Named.asked += 1
        return f"the one named {self.name}"


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
        (Decimal(3), 3),
        (Decimal("0.5"), 0.5),
        (Fraction(6, 2), 3),
        (2 + 0j, 2.0),
        (Point(1, Text("y")), (1, "y")),
    ],
)
def test_what_is_equal_to_a_plain_value_becomes_that_value(element: Any, plain: Any) -> None:
    """Instances of subclasses, integers and numbers of other classes: by Python they are one key."""
    (found,) = check_lock_id((element,))
    assert (found, type(found)) == (plain, type(plain))
    if type(plain) is tuple:
        assert [type(part) for part in found] == [type(part) for part in plain]


@pytest.mark.parametrize("element", [Decimal("0.1"), Decimal("1e999999999"), 1j, frozenset((1,))])
def test_what_is_equal_to_no_plain_value_is_a_key(element: Any) -> None:
    """Also a number that no float or integer of a bearable size is equal to."""
    (found,) = check_lock_id((element,))
    assert type(found) is Key
    assert found == element


@pytest.mark.parametrize(
    "element",
    [
        Atom("a"),
        Term(b"j"),
        Pid(1, "a@h", 2),
        Reference("a@h", 1, (1, 2)),
        ImproperList((1,), 2),
    ],
)
def test_what_erlang_has_in_lock_ids_stays_what_it_is(element: Any) -> None:
    """So it goes back to Erlang as the same term."""
    (found,) = check_lock_id((element,))
    assert (found, type(found)) == (element, type(element))


def test_1_and_true_and_1_0_are_one_lock() -> None:
    """By Python's equality: two locks where a program means one would be the quiet fault."""
    table = LockTable()
    for number, element in enumerate((1, True, 1.0, Decimal(1), Index(1), Colour.RED)):
        entry = table.request(agent(number), "c", check_lock_id((element,)), "write")[0]
        assert entry.granted is (number == 0)
    assert table.ids() == [(1,)]


# --- Keys ---------------------------------------------------------------------------------------


def test_equal_values_have_the_very_same_key() -> None:
    """For as long as it is used anywhere; so ids with them are equal, and found."""
    one, other, third = (check_lock_id(("a", Named(name))) for name in ("x", "x", "y"))
    assert one[1] is other[1]
    assert one[1] is not third[1]
    assert check_lock_id(one)[1] is one[1]
    assert {one: 1}[other] == 1


def test_a_canonical_id_asks_its_values_nothing() -> None:
    """Hashed, compared, written, looked up in a lock table: all without a method of the program."""
    ids = [check_lock_id(("a", Named(name), ("n", Named(name)))) for name in ("x", "y", "x")]
    table = LockTable()
    before = Named.asked
    for number, lock_id in enumerate(ids):
        table.request(agent(number), "c", lock_id, "write")
        assert "the one named" in str(lock_id[1])
        assert f"{lock_id!r}"
        assert lock_id == tuple(lock_id)
        assert lock_id != ("a", "x", ("n", "x"))
    for number in range(3):
        table.remove(agent(number))
    assert Named.asked == before


def test_keys_can_be_copied_and_pickled_and_not_changed() -> None:
    """They are values."""
    (key,) = check_lock_id((UUID(int=7),))
    assert copy.copy(key) is key
    assert copy.deepcopy(key) is key
    assert pickle.loads(pickle.dumps(key)) is key
    with pytest.raises(AttributeError):
        key.value = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        del key.value  # type: ignore[attr-defined]


@pytest.mark.slow
def test_keys_leave_nothing_behind() -> None:
    """The table of keys has those that are in use."""
    gc.collect()
    before = len(lock_ids._keys)
    kept = [check_lock_id((UUID(int=number),)) for number in range(1000)]
    for number in range(5000):
        check_lock_id((UUID(int=number),))
    assert len(lock_ids._keys) == before + 1000
    del kept
    gc.collect()
    assert len(lock_ids._keys) == before


def test_threads_that_ask_at_once_get_the_same_key() -> None:
    """The comparison of values is Python code, and other threads run within it."""
    rounds, number = 50, 4
    barrier = threading.Barrier(number)
    found: list[list[Any]] = [[] for _ in range(number)]

    def ask(place: int) -> None:
        for each in range(rounds):
            barrier.wait(60)
            found[place].append(check_lock_id((Named(f"of round {each}"),))[0])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for keys in zip(*found, strict=True):
        assert len({id(key) for key in keys}) == 1


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
        Decimal("nan"),
        (1, (FailingHash(),)),
        (1, float("nan")),
        [1],
        {"a": 1},
        ("a", ["b"]),
        bytearray(b"a"),
    ],
    ids=lambda element: type(element).__name__,
)
def test_what_is_not_well_behaved_is_refused(element: Any) -> None:
    """With an error that can be written and pickled, and nothing is left of it."""
    before = len(lock_ids._keys)
    with pytest.raises(InvalidLockId, match="lock id") as caught:
        check_lock_id(("a", element))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert len(lock_ids._keys) == before


def _nested(depth: int) -> Any:
    lock_id: Any = ("x",)
    for _ in range(depth - 1):
        lock_id = (lock_id,)
    return lock_id


@pytest.mark.parametrize(
    "lock_id",
    [
        tuple(range(MOST_ELEMENTS)),
        tuple([1 << 70] * MOST_ELEMENTS),
        _nested(DEEPEST),
        ("x" * (LARGEST - 8),),
        (b"x" * (LARGEST - 8),),
        (1 << 8 * (LARGEST - 16),),
        tuple(["x" * 248] * MOST_ELEMENTS),
    ],
    ids=["elements", "large numbers", "depth", "text", "bytes", "integer", "texts"],
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
        ((1 << 8 * LARGEST,), "65,536 bytes"),
        ((("x" * LARGEST,), "y"), "65,536 bytes"),
    ],
    ids=["elements", "in all", "depth", "very deep", "text", "texts", "bytes", "integer", "within"],
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
        (("\udc80", b"\n"), r"'\udc80'/b'\n'"),
        (("a", 1 << 20_000, (1 << 20_000,)), f"a/{hex(1 << 20_000)}/({hex(1 << 20_000)},)"),
    ],
    ids=["plain", "lines", "surrogate", "huge"],
)
def test_ids_in_texts(lock_id: tuple[Any, ...], text: str) -> None:
    """Errors and logs show any id in one line that can be written anywhere."""
    assert show(check_lock_id(lock_id)) == text
    text.encode()
