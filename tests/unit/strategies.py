"""Hypothesis strategies made from annotations, as msgspec checks them.

So a message that is added to a union is tried without a word about it in any test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from locks.ranges import Range, Size, one_line

Known = Mapping[Any, st.SearchStrategy[Any]]


def values(kind: Any, known: Known) -> st.SearchStrategy[Any]:
    """Values of a type.

    Args:
        kind: The type: a known one, words, a tuple, a named tuple, or one of several.
        known: Types with their values.
    """
    args = get_args(kind)
    if kind in known:
        return known[kind]
    if kind in (bool, type(None)):
        return st.sampled_from([False, True] if kind is bool else [None])
    if get_origin(kind) is Annotated:
        return _bounded(kind, known)
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind, include_extras=True)
        return st.builds(kind, *[values(hints[name], known) for name in kind._fields])
    if get_origin(kind) is Literal:
        return st.sampled_from(args)
    if get_origin(kind) is tuple:
        return st.tuples(*[values(each, known) for each in args])
    if not args:
        raise TypeError(f"say what values of {kind} are")
    return st.one_of(*[values(each, known) for each in args])


def _bounded(kind: Any, known: Known) -> st.SearchStrategy[Any]:
    """Values of a type with a bound; of numbers, the least and the most more often than others."""
    base, bound = get_args(kind)[:2]
    if isinstance(bound, Range):
        limits = st.sampled_from([bound.least, bound.most])
        return st.integers(bound.least, bound.most) | limits
    if isinstance(bound, Size) and base is str:
        texts = st.text(max_size=min(bound.most, 30)) | st.just("x" * bound.most)
        return texts.map(one_line) if get_args(kind)[2:] == ("line",) else texts
    if isinstance(bound, Size):
        return st.lists(values(get_args(base)[0], known), max_size=3).map(tuple)
    raise TypeError(f"say what values of {kind} are")


def replaced(term: Any, data: st.DataObject, junk: st.SearchStrategy[Any]) -> Any:
    """A term with any part of it replaced by something else."""
    parts = isinstance(term, tuple | list) and list(term)
    if not parts or data.draw(st.integers(0, 4)) == 0:
        return data.draw(junk)
    where = data.draw(st.integers(0, len(parts) - 1))
    parts[where] = replaced(parts[where], data, junk)
    return tuple(parts) if isinstance(term, tuple) else parts
