"""Histories: the clients' calls on an object of the user, checked against a sequential model of it.

The object is wrapped. Each call of a method that the model has is recorded, with the numbers of its
begin and end among all begins and ends. After the run, there must be an order of the calls
(`locks.testing.linearizability`). A call that ended by an error of `locks`, or by the death of its
client, may have taken effect or not. Any other error is the call's outcome, like a value.

The model is copied for each call that is tried. Arguments of calls that are no containers are not
copied, so that they keep their identity when the model returns them.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

from locks.errors import InvalidOption, LocksError, MisuseError
from locks.lock_ids import shown
from locks.testing.linearizability import Model, Span, TooMany, core, order, until
from locks.testing.nodes import SimulatedNodes
from locks_lab.applications.places import Place, of_function
from locks_lab.worlds.host import Violation

__all__ = ["History", "NotLinearizable", "Recorded"]

MOST = 20_000  # calls that are tried, for one part of a history
CONTAINERS = (list, tuple, dict, set)
ATOMS = (str, int, float, bytes, type(None))  # a copy of one is itself
WIDTH = 4  # the width of a point in time in a picture


class NotLinearizable(Violation):
    """Calls had outcomes that are impossible in any order of the calls."""

    def __init__(self, check: _Check) -> None:
        super().__init__(check)
        self._check = check

    @functools.cached_property
    def _told(
        self,
    ) -> str:  # it takes time, and most errors of a search for a shorter one are never shown
        return "\n".join(self._check.story())

    def __str__(self) -> str:
        return self._told


@dataclass(eq=False)
class _Call:
    """A call.

    Attributes:
        who: The caller.
        name: The method.
        args: Its positional arguments.
        options: Its keyword arguments.
        part: The part that it concerns, if parts are checked separately.
        place: The place in the user's code.
        begin: The number of its begin.
        end: The number of its end; infinite if it is unknown whether it took effect.
        outcome: Its result, or the type of its exception.
    """

    who: str
    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    part: Any
    place: Place | None
    begin: int
    end: float = inf
    outcome: _Outcome | None = None

    def __str__(self) -> str:
        given = [*map(shown, self.args), *(f"{k}={shown(v)}" for k, v in self.options.items())]
        return f"{self.name}({', '.join(given)})"

    @property
    def span(self) -> Span:
        """When it was under way."""
        return Span(self.begin, self.end)


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a call: a value, or the type of an error."""

    value: Any = None
    error: type[Exception] | None = None

    def __str__(self) -> str:
        return (
            f"returned {shown(self.value)}"
            if self.error is None
            else f"raised {self.error.__name__}"
        )


class History:
    """The calls on one object.

    Args:
        nodes: The nodes of its clients.
        thing: The object.
        model: Makes a new model.
        key: The name of the parameter that names the part that a call concerns.
    """

    def __init__(
        self, nodes: SimulatedNodes, thing: Any, model: Callable[[], Any], key: str
    ) -> None:
        self._nodes = nodes
        self.thing = thing
        self._model = model
        self._key = key
        self._calls: list[_Call] = []
        self._numbers = count()
        self._is_over = False
        self._signatures = self._checked()

    def _checked(self) -> dict[str, inspect.Signature]:
        """The methods of the model."""
        what = f"history(..., model={shown(self._model)})"
        if not callable(self._model):
            raise InvalidOption(f"{what}: it is not a class, or a function that makes a model")
        made = self._model()
        names = [n for n in dir(made) if not n.startswith("_") and callable(getattr(made, n))]
        if not names:
            raise InvalidOption(f"{what}: a {type(made).__name__} has no method to compare with")
        try:
            copy.deepcopy(made)
        except TypeError as error:
            raise InvalidOption(
                f"{what}: it can't be copied ({error}); keep plain data in it"
            ) from error
        found = {}
        for name in names:
            if not callable(getattr(self.thing, name, None)):
                raise InvalidOption(
                    f"{what}: it has a method {name}, which {shown(self.thing)} has not; give the model the same methods"
                )
            found[name] = inspect.signature(getattr(made, name))
            if self._key and self._key not in found[name].parameters:
                raise InvalidOption(f"key={self._key!r}: {name}{found[name]} has no such parameter")
        return found

    def attribute(self, name: str) -> Any:
        """An attribute of the thing; a method that the model has, too, with its calls recorded."""
        attribute = getattr(self.thing, name)
        if name not in self._signatures:
            return attribute
        if inspect.iscoroutinefunction(attribute):

            @functools.wraps(attribute)
            async def awaits(*args: Any, **options: Any) -> Any:
                __tracebackhide__ = True
                call = self._begin(attribute, name, args, options)
                try:
                    value = await attribute(*args, **options)
                except Exception as error:
                    self._raised(call, error)
                    raise
                return self._returned(call, value)

            return awaits

        @functools.wraps(attribute)
        def calls(*args: Any, **options: Any) -> Any:
            __tracebackhide__ = True
            call = self._begin(attribute, name, args, options)
            try:
                value = attribute(*args, **options)
            except Exception as error:
                self._raised(call, error)
                raise
            return self._returned(call, value)

        return calls

    def _begin(
        self, method: Any, name: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> _Call:
        bound = self._signatures[name].bind(*args, **options)
        bound.apply_defaults()
        part = bound.arguments[self._key] if self._key else None
        try:
            hash(part)
        except TypeError as error:
            raise MisuseError(f"{self._key}={shown(part)} can't be a key: {error}") from None
        call = _Call(
            self._who(),
            name,
            _as_now(args),
            _as_now(options),
            part,
            self._nodes.line() or of_function(method),
            next(self._numbers),
        )
        self._calls.append(call)
        self._note(call, f"calls {call}")
        return call

    def _returned(self, call: _Call, value: Any) -> Any:
        __tracebackhide__ = True
        self._end(call, _Outcome(_as_now(value)))
        return value

    def _raised(self, call: _Call, error: Exception) -> None:
        __tracebackhide__ = True
        if not isinstance(error, LocksError):
            self._end(call, _Outcome(error=type(error)))

    def _end(self, call: _Call, outcome: _Outcome) -> None:
        __tracebackhide__ = True
        call.outcome = outcome
        call.end = next(self._numbers)
        self._note(call, f"{outcome} from {call.name}")
        if self._is_over:
            self.check()

    def _note(self, call: _Call, what: str) -> None:
        self._nodes.application.note(call.who, what, place=call.place)

    def _who(self) -> str:
        if self._nodes.is_at_work and (task := asyncio.current_task()) is not None:
            return task.get_name()
        running = self._nodes.application.running
        return "the test" if running is None else running.name

    def check(self) -> None:
        """Look for an order.

        Raises:
            NotLinearizable: There is none.
            MisuseError: That can't be found out.
        """
        __tracebackhide__ = True
        self._is_over = True
        parts: dict[Any, list[_Call]] = {}
        for call in self._calls:
            parts.setdefault(call.part, []).append(copy.copy(call))
        for calls in parts.values():
            check = _Check(calls, self._model, self._key)
            try:
                found = order(check.spans, check.model, MOST).found
            except TooMany:
                raise MisuseError(
                    f"the order of {len(calls)} calls can't be found with {MOST} tries: let fewer of them overlap, or die, or say by "
                    "history(..., key=...) which parameter says what a call concerns"
                ) from None
            if not found:
                raise NotLinearizable(check)


class Recorded:
    """A thing whose calls are recorded. Apart from that it is used like the thing itself."""

    __slots__ = ("_history",)

    def __init__(self, history: History) -> None:
        object.__setattr__(self, "_history", history)

    def __getattr__(self, name: str) -> Any:
        return self._history.attribute(name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._history.thing, name, value)

    def __repr__(self) -> str:
        return repr(self._history.thing)


class _Check:
    """Calls, in the order of their begins, and their check against a model."""

    def __init__(self, calls: Sequence[_Call], model: Callable[[], Any], key: str) -> None:
        self.calls = calls
        self.key = key
        self.spans = [call.span for call in calls]
        self.model = Model(model(), self._apply, _key)
        given = (each for call in calls for each in _leaves((call.args, call.options)))
        self._given = {id(each): each for each in given if not isinstance(each, ATOMS)}

    def _apply(self, state: Any, number: int) -> tuple[Any, bool]:
        after, outcome = self._applied(state, self.calls[number])
        return after, outcome == self.calls[number].outcome

    def _applied(self, state: Any, call: _Call) -> tuple[Any, _Outcome]:
        after = copy.deepcopy(state, dict(self._given))
        try:
            value = getattr(after, call.name)(*_as_now(call.args), **_as_now(call.options))
        except Exception as error:
            return after, _Outcome(error=type(error))
        return after, _Outcome(value)

    def story(self) -> Iterator[str]:
        """A smallest set of calls without an order, and the model's outcomes."""
        spans = until(self.spans, self.model, MOST)
        part = sorted(core(spans, self.model, MOST))
        name = type(self.model.initial).__name__
        about = f" (all with {self.key}={shown(self.calls[0].part)})" if self.key else ""
        yield f"these calls can't have come one after the other, as those of a {name} do{about}:"
        yield from _picture([self.calls[number] for number in part])
        others = {number for number in range(len(spans)) if number not in part}
        found = order(spans, self.model, MOST, others)
        for number in found.stuck[:1]:
            call = self.calls[number]
            before = ", ".join(str(self.calls[n]) for n in found.calls)
            where = f"after {before}" if before else "at first"
            _, would = self._applied(found.state, call)
            yield f"  {where}, the {call} of {call.who} would have {would}"
        if others:
            yield f"  {_counted(len(others))} more had begun, whose outcomes do not matter"


def _counted(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


def _picture(calls: Sequence[_Call]) -> Iterator[str]:
    """A line for each call: caller, time, call, and place."""
    moments = sorted(int(moment) for call in calls for moment in call.span)
    column = {moment: at * WIDTH for at, moment in enumerate(moments)}
    width = len(moments) * WIDTH
    names = max(len(call.who) for call in calls)
    said = [f"{call} {call.outcome}" for call in calls]
    for call, text in zip(calls, said, strict=True):
        begin, end = column[call.begin], column[int(call.end)]
        bar = f"{' ' * begin}|{'-' * (end - begin - 1)}|"
        place = "" if call.place is None else f"  [{call.place}]"
        yield f"  {call.who:{names}}  {bar:{width}}  {text}{place}"


def _as_now(thing: Any) -> Any:
    """A copy of containers, independent of later changes."""
    kind = type(thing)
    if kind is dict:
        return {key: _as_now(value) for key, value in thing.items()}
    return kind(map(_as_now, thing)) if kind in CONTAINERS else thing


def _leaves(thing: Any) -> Iterator[Any]:
    """The elements of containers that are no containers."""
    if type(thing) not in CONTAINERS:
        yield thing
        return
    for each in (*thing, *thing.values()) if type(thing) is dict else thing:
        yield from _leaves(each)


def _key(model: Any) -> Hashable:
    """The state of a model, by all that a copy is made of."""
    parts = model.__reduce_ex__(4)[1:]
    return tuple(_frozen(list(each) if isinstance(each, Iterator) else each) for each in parts)


def _frozen(thing: Any) -> Hashable:
    """A value that is equal for objects that can't be distinguished; by default the object itself."""
    kind = type(thing)
    if kind in (list, tuple):
        return kind, tuple(map(_frozen, thing))
    if kind is dict:  # the order of a dict is visible
        return kind, tuple((_frozen(key), _frozen(value)) for key, value in thing.items())
    if kind in (set, frozenset):
        return kind, frozenset(map(_frozen, thing))
    try:
        hash(thing)
    except TypeError:
        return kind, _key(thing)
    return kind, thing
