"""Linearizability: whether overlapping calls of a finished history could have run one after the other.

A call takes effect at some point in time between its begin and its end. A history is linearizable
(Herlihy, Wing: Linearizability: A Correctness Condition for Concurrent Objects, 1990) if there is
an order of such points in which each call has the outcome that a sequential model gives it. The
search is that of Wing and Gong (Testing and Verifying Concurrent Objects, 1993), with two means of Lowe's
(Testing for Linearizability, 2017). If the same calls led to the same state before, it stops there. And calls take effect just in time: the
call that returns first is tried first, and others are put before it only if there is no order otherwise. A call under a lock takes effect
shortly before it returns, however long it has waited, so a history of correct code is mostly explained without a step back.
Independent parts of a history can be checked separately (Horn, Kroening: Faster Linearizability
Checking via P-Compositionality, 2015); this is up to the caller. The problem is NP-complete, so the
number of calls that are tried is bounded.

A call whose end is infinite is a *maybe*: it may have taken effect, with any outcome, or never. A
call that is *set free* may have taken effect between its begin and end, with any outcome, or never.
Setting calls free only allows more orders. So if no more calls can be set free without allowing an
order, the remaining calls are a smallest set without an order (`core`). A history with an order
also has one at each earlier time, where calls that were under way are maybes. So there is a first
time without an order (`until`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Model", "Order", "Span", "TooMany", "core", "order", "until"]

S = TypeVar("S")


class Span(NamedTuple):
    """The time of a call.

    Attributes:
        begin: The number of its begin; all begins and ends have different numbers.
        end: The number of its end; infinite for a maybe.
    """

    begin: int
    end: float = inf


@dataclass(frozen=True)
class Model(Generic[S]):
    """The sequential model of the calls.

    Attributes:
        initial: The first state.
        apply: Applies a call, by its index, to a state: returns the next state, and whether the
            outcome is the recorded one.
        key: Returns a value that is equal only for equal states.
    """

    initial: S
    apply: Callable[[S, int], tuple[S, bool]]
    key: Callable[[S], Hashable]


@dataclass(frozen=True)
class Order(Generic[S]):
    """The result of the search for an order.

    Attributes:
        found: Whether all calls that must take effect can be ordered.
        calls: The indices of the calls, in order; if not all can be ordered, one of the longest
            orders.
        state: The state after them.
        stuck: The calls that could be next, but have another outcome in that state.
    """

    found: bool
    calls: tuple[int, ...]
    state: S
    stuck: tuple[int, ...] = ()


class TooMany(Exception):
    """More calls would have to be tried than allowed."""


def order(
    spans: Sequence[Span], model: Model[S], limit: int, free: Collection[int] = ()
) -> Order[S]:
    """Look for an order.

    Args:
        spans: The calls, in the order of their begins.
        model: The model.
        limit: The most calls that are tried.
        free: The indices of calls that are set free.

    Raises:
        TooMany: More calls must be tried.
    """
    needed = sum(1 << n for n, span in enumerate(spans) if span.end != inf and n not in free)
    if not needed:
        return Order(True, (), model.initial)
    known: set[tuple[int, Hashable]] = set()  # the calls that have led to a state, and the state
    tried = 0
    longest = Order(False, (), model.initial)
    most = -1
    path = [_Place(model.initial, 0, _next(spans, needed, 0))]
    while path:
        here = path[-1]
        number = next(here.following, None)
        if number is None:
            if (done := (here.done & needed).bit_count()) > most:
                most = done
                longest = Order(False, _taken(path), here.state, tuple(here.stuck))
            path.pop()
            continue
        tried += 1
        if tried > limit:
            raise TooMany(limit)
        state, fits = model.apply(here.state, number)
        if not fits and needed >> number & 1:
            here.stuck.append(number)
            continue
        done = here.done | 1 << number
        key = (done, model.key(state))
        if key in known:
            continue
        known.add(key)
        here.taken = number
        path.append(_Place(state, done, _next(spans, needed, done)))
        if not needed & ~done:
            return Order(True, _taken(path), state)
    return longest


class _Place(Generic[S]):
    """A place on the path of the search.

    Attributes:
        state: The state there.
        done: The calls that have led there, as bits.
        following: Which calls may be next.
        taken: Which one is, just now.
        stuck: Which can't be, for they have another outcome.
    """

    __slots__ = ("done", "following", "state", "stuck", "taken")

    def __init__(self, state: S, done: int, following: Iterator[int]) -> None:
        self.state, self.done, self.following = state, done, following
        self.taken = 0
        self.stuck: list[int] = []


def _taken(path: Sequence[_Place[S]]) -> tuple[int, ...]:
    return tuple(place.taken for place in path[:-1])


def _next(spans: Sequence[Span], needed: int, done: int) -> Iterator[int]:
    """The calls that may be next, in the order of their ends, and then the maybes.

    A call may be next unless another one, which has to be there, has ended before it begins.
    """
    first = (~done & done + 1).bit_length() - 1  # all earlier ones are done
    latest = spans[done.bit_length() - 1].begin if done else -1
    soonest = inf
    possible, maybes = [], []
    for number in range(first, len(spans)):
        begin, end = spans[number]
        if begin > soonest:
            break
        if done >> number & 1:
            continue
        if needed >> number & 1:
            soonest = min(soonest, end)
            possible.append(number)
        elif end > latest:
            maybes.append(number)
    possible.sort(key=lambda number: spans[number].end)
    return iter(possible + maybes)


def until(spans: Sequence[Span], model: Model[S], limit: int) -> list[Span]:
    """The calls, of a history without an order, up to the first time without one."""
    ends = sorted(int(span.end) for span in spans if span.end != inf)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if _has_none(_cut(spans, ends[middle]), model, limit):
            high = middle
        else:
            low = middle + 1
    return _cut(spans, ends[high])


def _cut(spans: Sequence[Span], moment: int) -> list[Span]:
    return [Span(begin, end if end <= moment else inf) for begin, end in spans if begin < moment]


def core(spans: Sequence[Span], model: Model[S], limit: int) -> set[int]:
    """Of calls that have no order, the indices of a smallest part: whatever the others have done, it has none."""
    free = {number for number, span in enumerate(spans) if span.end == inf}
    left = set(range(len(spans))) - free
    for number in sorted(left):
        if _has_none(spans, model, limit, {*free, number}):
            free.add(number)
    return left - free


def _has_none(
    spans: Sequence[Span], model: Model[S], limit: int, free: Collection[int] = ()
) -> bool:
    """Whether there is known to be no order."""
    try:
        return not order(spans, model, limit, free).found
    except TooMany:
        return False
