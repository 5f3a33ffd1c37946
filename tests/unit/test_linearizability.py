"""`locks.testing.linearizability`: the search against one that tries all orders, and what it says of histories without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations, count, permutations
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from locks.testing.linearizability import Model, Span, TooMany, core, order, until

LIMIT = 100_000
Operation = tuple[str, int]  # of a register: what, and the value that was written or read
History = list[tuple[Span, Operation]]


def after(state: int, operation: Operation) -> tuple[int, bool]:
    """What a register does: a write, a read, an increment that returns the new value."""
    what, value = operation
    if what == "write":
        return value, True
    if what == "increment":
        return state + 1, state + 1 == value
    return state, state == value


def model_of(operations: Sequence[Operation]) -> Model[int]:
    """A register, at first with 0, and what is done with it."""
    return Model(0, lambda state, number: after(state, operations[number]), int)


def brute(history: History) -> bool:
    """Whether any order of all completed calls and of some maybes is one of the register."""
    needed = [n for n, (span, _) in enumerate(history) if span.end != inf]
    maybes = [n for n, (span, _) in enumerate(history) if span.end == inf]
    chosen = chain.from_iterable(combinations(maybes, k) for k in range(len(maybes) + 1))
    return any(
        _is_order(history, each) for some in chosen for each in permutations([*needed, *some])
    )


def _is_order(history: History, numbers: Sequence[int]) -> bool:
    state = 0
    for at, number in enumerate(numbers):
        span, operation = history[number]
        if any(history[later][0].end < span.begin for later in numbers[at + 1 :]):
            return False
        state, fits = after(state, operation)
        if not fits and span.end != inf:
            return False
    return True


@st.composite
def histories(draw: st.DrawFn, most: int = 6) -> History:
    """Calls that overlap; some have not ended."""
    number = draw(st.integers(0, most))
    moments = draw(st.permutations(range(2 * number)))
    values = st.tuples(st.sampled_from(["write", "read", "increment"]), st.integers(0, 2))
    found = []
    for call in range(number):
        begin, end = sorted(moments[2 * call : 2 * call + 2])
        ends = draw(st.integers(0, 4)) > 0
        found.append((Span(begin, end if ends else inf), draw(values)))
    return sorted(found)


def split(history: History) -> tuple[list[Span], Model[int]]:
    """The calls, and the model."""
    return [span for span, _ in history], model_of([operation for _, operation in history])


@given(histories())
@example([(Span(0, 1), ("write", 1)), (Span(2, 3), ("read", 0))])
@example([(Span(0), ("write", 1)), (Span(1, 2), ("read", 1)), (Span(3, 4), ("read", 0))])
@example([(Span(0, 5), ("write", 1)), (Span(1, 2), ("read", 1)), (Span(3, 4), ("read", 0))])
def test_search_agrees_with_all_orders(history: History) -> None:
    """It finds an order where there is one, and only there; the order is one."""
    spans, model = split(history)
    found = order(spans, model, LIMIT)
    assert found.found == brute(history)
    if found.found:
        assert _is_order(history, found.calls)
        needed = {n for n, span in enumerate(spans) if span.end != inf}
        assert needed <= set(found.calls)


@given(histories())
def test_smallest_part_has_no_order(history: History) -> None:
    """Up to the first moment without an order; each call of the part matters, and no other one does."""
    spans, model = split(history)
    if order(spans, model, LIMIT).found:
        return
    cut = until(spans, model, LIMIT)
    last = max(int(span.end) for span in cut if span.end != inf)
    earlier = [Span(b, e if e < last else inf) for b, e in spans if b < last]
    assert order(earlier, model, LIMIT).found, "there was none before"
    part = core(cut, model, LIMIT)
    others = set(range(len(cut))) - part
    assert not order(cut, model, LIMIT, others).found
    for number in part:
        assert order(cut, model, LIMIT, {*others, number}).found, "it is not needed"


@given(histories(5), st.data())
def test_call_that_is_set_free_has_its_own_time(history: History, data: st.DataObject) -> None:
    """It is as if it had any outcome, or were not there."""
    spans, model = split(history)
    ended = [n for n, span in enumerate(spans) if span.end != inf]
    if not ended:
        return
    free = data.draw(st.sampled_from(ended))
    span, (what, _) = history[free]
    without = [each for each in history if each is not history[free]]
    variants = [without, *([*without, (span, (what, value))] for value in range(9))]
    if what == "write":  # what it writes is known
        variants = [without, history]
    expected = any(brute(sorted(each)) for each in variants)
    assert order(spans, model, LIMIT, {free}).found == expected


@pytest.mark.parametrize("wrong", [False, True])
def test_long_histories_are_searched_without_recursion(wrong: bool) -> None:
    """A thousand calls of which each overlaps two others, and the last one may be wrong."""
    spans = [Span(4 * n, 4 * n + 5) for n in range(1000)]
    operations = [("increment", n + 1 + (wrong and n == 999)) for n in range(1000)]
    found = order(spans, model_of(operations), LIMIT)
    assert found.found is not wrong
    assert len(found.calls) == 1000 - wrong
    assert found.stuck == ((999,) if wrong else ())


def test_states_are_remembered_and_tries_bounded() -> None:
    """Twelve writes at once, of the same values, and a read of another one: without a memory these are 12! orders."""
    spans = [*(Span(n, 100 + n) for n in range(12)), Span(200, 201)]
    operations: list[Operation] = [*(("write", n % 2) for n in range(12)), ("read", 7)]
    model, enough = model_of(operations), 2 * 12 * 2**12
    assert not order(spans, model, enough).found
    with pytest.raises(TooMany):
        order(spans, model, 12 * 2**10)
    keys = count()
    with pytest.raises(TooMany):
        order(spans, replace(model, key=lambda state: next(keys)), enough)
