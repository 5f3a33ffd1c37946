"""Terms of all kinds for Hypothesis, and what it means that two of them are the same."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from locks.otp.bytes.terms import Atom, ImproperList, Pid, Reference, Term

U32 = st.integers(0, 2**32 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NODES = st.sampled_from(["a@h", "b@127.0.0.1"]) | TEXTS.filter(bool)
ATOMS = TEXTS.filter(lambda name: name not in ("true", "false", "undefined")).map(Atom)
PIDS = st.builds(Pid, st.integers(0, 2**64 - 1), NODES, U32)
REFERENCES = st.builds(Reference, NODES, U32, st.lists(U32, min_size=1, max_size=5).map(tuple))
# A bit string of three bits, `fun lists:map/2`, and a port, as Erlang encodes them.
KEPT = st.sampled_from(
    [
        Term(b"M\x00\x00\x00\x01\x03\x20"),
        Term(b"qw\x05listsw\x03mapa\x02"),
        Term(b"Yw\x0dnonode@nohost\x00\x00\x00\x05\x00\x00\x00\x00"),
    ]
)
INTEGERS = (
    st.integers(-(2**33), 2**33)
    | st.integers(-(2**70), 2**70)
    | st.integers(-(2**8192) + 1, 2**8192 - 1)
)
SCALARS = (
    INTEGERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none()
    | ATOMS
    | TEXTS
    | st.binary(max_size=20)
    | PIDS
    | REFERENCES
    | KEPT
)
KEYS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    improper = st.builds(ImproperList, st.lists(inner, min_size=1, max_size=3).map(tuple), KEYS)
    return items | items.map(tuple) | st.dictionaries(KEYS, inner, max_size=3) | improper


TERMS = st.recursive(SCALARS, _containers, max_leaves=25)


def exact(term: Any) -> Any:
    """Something that is equal for two terms of the same types and values, and for no others."""
    if isinstance(term, dict):
        return (dict, frozenset((exact(key), exact(value)) for key, value in term.items()))
    if isinstance(term, list | tuple):
        return (type(term), *map(exact, term))
    return (type(term), repr(term) if isinstance(term, float) else term)
