"""Atoms, pids and the other values that Python has no type for."""

from __future__ import annotations

import copy
import pickle

import pytest

from locks.errors import InvalidOption
from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term


def test_atoms_are_equal_by_name_and_only_to_atoms() -> None:
    """An atom is no text, no Term, and the same key as another atom of its name."""
    assert Atom("x") == Atom("x") != Atom("y")
    assert Atom("x") != "x"
    assert Atom("true") != True  # noqa: E712
    assert {Atom("x"): 1}[Atom("x")] == 1
    assert len({Atom("x"), Atom("x"), "x"}) == 2
    assert (repr(Atom("x")), str(Atom("x"))) == ("Atom('x')", "x")


@pytest.mark.parametrize("value", [Atom("x"), Term(b"a\x01")])
def test_values_cannot_be_changed(value: Atom | Term) -> None:
    """Atoms and kept terms are immutable: they may be shared and used as keys."""
    for name in ("name", "encoded", "other"):
        with pytest.raises(AttributeError, match="can't be changed"):
            setattr(value, name, "y")
        with pytest.raises(AttributeError, match="can't be changed"):
            delattr(value, name)
    assert value in (Atom("x"), Term(b"a\x01"))


@pytest.mark.parametrize(
    "value",
    [
        *(Atom("x"), Term(b"a\x01"), Pid(5, "a@h", 1), Reference("a@h", 1, (1, 2, 3))),
        ImproperList((Atom("alias"),), Reference("a@h", 1, (1,))),
    ],
)
def test_values_survive_pickle_and_copy(value: object) -> None:
    """What was pickled or copied is equal, and hashes alike."""
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert other == value
        assert hash(other) == hash(value)
        assert type(other) is type(value)


def test_an_atom_has_at_most_255_characters() -> None:
    """255 characters are fine, whatever they take in bytes; one more is refused."""
    assert Atom("ö" * 255).encoded == b"v\x01\xfe" + "ö".encode() * 255
    with pytest.raises(InvalidOption, match="at most 255 characters, not 256"):
        Atom("x" * 256)


def test_pids_order_by_number_then_node_then_creation() -> None:
    """The order of pids is that of their numbers first: larger means younger."""
    pids = [Pid(1, "b@h", 9), Pid(2, "a@h", 3), Pid(2, "a@h", 4), Pid(2, "b@h", 1)]
    assert sorted([pids[2], pids[3], pids[0], pids[1]]) == pids
