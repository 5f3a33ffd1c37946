"""Conversion of messages to terms and back, made from the messages' fields.

A message is a named tuple, and the annotations of its fields are its definition. Each type that
occurs has a `Form`: a function that packs a value into a term, and one that unpacks a term into a
value. Unpacking checks everything: types, and the ranges and sizes of the annotations
(`locks.ranges`). `Forms` is a table of them. At import, the two functions of each message are made
from it. So a new message or field needs no code here, unless it has a type that is not in the
table, or a number, text or tuple without a bound. Then the import fails and names it.

The functions are made as source text without loops, as `collections.namedtuple` and `dataclasses`
make theirs. Functions that loop over fields take 0.6 µs more for a `Request` each way, where
encoding takes 3 µs and decoding 5. The text contains only names of fields and types. For `Release`
it is this:

    def pack(value, context=None):
        (agent_, lock_id_, mode_,) = value
        return (head0, head1, pack0(agent_, context), pack1(lock_id_),
                None if mode_ is None else pack2(mode_),)

    def unpack(term, context=None):
        if type(term) is not tuple or len(term) != 5:
            raise wrong(term, kind)
        (_, _, agent_, lock_id_, mode_,) = term
        return new(kind, (unpack0(agent_, context), unpack1(lock_id_),
                    None if mode_ is None else unpack2(mode_),))

`new` is `tuple.__new__`: a named tuple's own function would check the number of values, which is
known.

`tests/unit/test_wire_forms.py` compares the bytes of all messages with recorded ones.

`locks_leader` uses this module for the messages of its elections.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Meta
from msgspec.structs import astuple

from locks.otp.bytes.control import BadMessage, brief
from locks.otp.bytes.etf_decode import constant
from locks.otp.bytes.terms import Atom
from locks.ranges import one_line

__all__ = ["BadMessage", "Form", "Forms", "brief", "parts", "tag_of", "words"]

_numbers = count()  # numbers the texts


def parts(term: Any, count: int) -> tuple[Any, ...]:
    """Return the parts of a tuple that must have this number of parts."""
    if type(term) is not tuple or len(term) != count:
        raise BadMessage(f"{brief(term)} should be a tuple of {count}")
    return term


class Form(NamedTuple):
    """The conversion of the values of one type to terms and back.

    Attributes:
        pack: Makes the term of a value.
        unpack: Makes the value of a term; raises `BadMessage` if the term is wrong.
        in_context: Whether both take a second argument, the context of the whole message.
    """

    pack: Callable[..., Any]
    unpack: Callable[..., Any]
    in_context: bool = False


def words(kind: Any) -> Form:
    """The form of a `Literal`: its words are atoms."""
    atoms = {word: constant(word) for word in get_args(kind)}

    def unpack(term: Any) -> Any:
        if type(term) is Atom and term.name in atoms:
            return term.name
        raise BadMessage(f"{brief(term)} should be one of {', '.join(atoms)}")

    return Form(atoms.__getitem__, unpack)


def tag_of(kind: type[Any]) -> str:
    """The name of a message class on the wire: `yield_to` for `YieldTo`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Forms:
    """A table of the forms of given types, and of all types made from these.

    Args:
        given: Types with their forms. No form is needed for `bool`, `Any`, words (`Literal`), `int`
            with a `Range`, and `str` and tuples with a `Size`; nor for tuples of a fixed length,
            named tuples and optional values of types that have a form.
    """

    def __init__(self, given: Mapping[Any, Form]) -> None:
        self.given = dict(given)
        self._made: dict[Any, Form] = {}

    def but(self, others: Mapping[Any, Form]) -> Forms:
        """The same table, but with other forms for some types."""
        return Forms({**self.given, **others})

    def of(self, kind: Any) -> Form:
        """The form of a type.

        Raises:
            TypeError: There is no form for it, or for one of its parts.
        """
        form = self.given.get(kind) or self._made.get(kind)
        if form is None:
            form = words(kind) if get_origin(kind) is Literal else self.message(kind)
            self._made[kind] = form
        return form

    def message(self, kind: Any, *head: Any) -> Form:
        """The form of messages whose terms begin with these parts, which unpacking skips."""
        return _Text(self, kind, head).form()


class _Plain(NamedTuple):
    """A type whose values are terms: its description, and an expression that tests for it."""

    words: str
    test: str  # with `{}` for the value


def _plain(kind: Any) -> _Plain | None:
    """The description and test of a plain type; `None` for other types."""
    if kind is bool:
        return _Plain("a bool", "type({}) is bool")
    if get_origin(kind) is not Annotated:
        return None
    base, bound = get_args(kind)[:2]
    if base is int and isinstance(bound, Meta):
        most = (1 << 64) - 1 if bound.le is None else bound.le
        test = f"type({{}}) is int and {bound.ge} <= {{}} <= {most}"
        return _Plain(f"an int from {bound.ge} to {most}", test)
    if base is str and isinstance(bound, Meta):
        test = f"type({{}}) is str and len({{}}) <= {bound.max_length}"
        return _Plain(f"a str of at most {bound.max_length} characters", test)
    return None


def _cleaned(kind: Any, value: str) -> str:
    """The expression of a checked value; in text for people, unprintable characters are escaped."""
    is_line = get_origin(kind) is Annotated and get_args(kind)[2:] == ("line",)
    return f"({value} if {value}.isprintable() else one_line({value}))" if is_line else value


def _test(plain: _Plain, value: str) -> str:
    return plain.test.replace("{}", value)


def _sized(kind: Any) -> tuple[Any, int] | None:
    """The element type and the most elements of a tuple of any length; `None` for other types."""
    if get_origin(kind) is Annotated:
        base, bound = get_args(kind)[:2]
        if get_args(base)[-1:] == (Ellipsis,) and isinstance(bound, Meta):
            return get_args(base)[0], bound.max_length or 0
    return None


class _Text:
    """The text of the two functions of a type, and the values of the names in it."""

    def __init__(self, forms: Forms, kind: Any, head: tuple[Any, ...]) -> None:
        self._forms = forms
        self._kind = kind
        self._head = {f"head{number}": part for number, part in enumerate(head)}
        self._names = {**self._head, "kind": kind, "new": tuple.__new__}
        self._names["one_line"] = one_line
        self._names["astuple"] = astuple
        self._names |= {"wrong": _wrong, "too_long": _too_long}
        self._called: dict[Any, int] = {}

    def form(self) -> Form:
        """Make the functions."""
        fields = _fields(self._kind)
        text = self._as_a_whole() if fields is None else self._by_field(fields)
        name = f"<form {next(_numbers)} of {self._kind}>"
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)  # for tracebacks
        exec(compile(text, name, "exec"), self._names)
        return Form(self._names["pack"], self._names["unpack"], in_context=True)

    def _as_a_whole(self) -> str:
        plain = self._plain(self._kind)
        self._names["fields"] = {} if plain is None else {"": plain}
        check = "" if plain is None else f"if not ({_test(plain, 'term')}):"
        body = f"{check}\n        raise wrong(term, kind, (term,), fields)" if plain else ""
        value = (
            _cleaned(self._kind, "term")
            if plain
            else self._expression("unpack", "term", self._kind)
        )
        return f"""\
def pack(value, context=None):
    return {self._expression("pack", "value", self._kind)}

def unpack(term, context=None):
    {body}
    return {value}
"""

    def _by_field(self, fields: dict[str, Any]) -> str:
        plain = {name: self._plain(kind) for name, kind in fields.items()}
        self._names["fields"] = plain
        terms = [self._expression("pack", name, kind) for name, kind in fields.items()]
        values = [
            _cleaned(kind, name) if plain[name] else self._expression("unpack", name, kind)
            for name, kind in fields.items()
        ]
        is_plain = " and ".join(_test(each, name) for name, each in plain.items() if each)
        raise_wrong = f"raise wrong(term, kind, {_tuple(fields)}, fields)"
        whole = len(self._head) + len(fields)
        or_wrong = f"if not ({is_plain}):\n        {raise_wrong}" if is_plain else ""
        return f"""\
def pack(value, context=None):
    {_tuple(fields)} = {"astuple(value)" if _is_struct(self._kind) else "value"}
    return {_tuple([*self._head, *terms])}

def unpack(term, context=None):
    if type(term) is not tuple or len(term) != {whole}:
        raise wrong(term, kind)
    {_tuple(["_" for _ in self._head] + [*fields])} = term
    {or_wrong}
    return {self._made(values)}
"""

    def _made(self, values: list[str]) -> str:
        if _is_struct(self._kind):
            return f"kind(*{_tuple(values)})"
        return f"new(kind, {_tuple(values)})" if hasattr(self._kind, "_fields") else _tuple(values)

    def _plain(self, kind: Any) -> _Plain | None:
        return None if kind in self._forms.given else _plain(kind)

    def _expression(self, verb: Literal["pack", "unpack"], value: str, kind: Any) -> str:
        """The expression that packs a value, or unpacks a term."""
        origin, args = get_origin(kind), get_args(kind)
        if kind in self._forms.given:
            return self._call(verb, value, kind)
        if kind is Any:
            return value
        if _plain(kind):
            return value if verb == "pack" else self._call(verb, value, kind)
        if origin in (Union, UnionType) and len(args) == 2 and NoneType in args:
            inner = self._expression(verb, value, args[args[0] is NoneType])
            return f"None if {value} is None else {inner}"
        sized = _sized(kind)
        if sized is not None:
            each = self._expression(verb, "each", sized[0])
            if verb == "pack":
                return f"[{each} for each in {value}]"
            is_list = f"type({value}) is list and len({value}) <= {sized[1]}"
            there = f"({value} if {is_list} else too_long({value}, {sized[1]}))"
            return f"tuple([{each} for each in {there}])"
        of_fixed_length = origin is tuple and args[-1:] != (Ellipsis,)
        if of_fixed_length or origin is Literal or _names_of(kind):
            return self._call(verb, value, kind)
        raise TypeError(
            f"{self._kind} has a field of the type {kind}, for which there is no form or no bound: "
            "a number needs a Range, a text or a tuple a Size (locks.ranges)"
        )

    def _call(self, verb: Literal["pack", "unpack"], value: str, kind: Any) -> str:
        """The expression that calls a form's function."""
        form = self._forms.of(kind)
        name = f"{verb}{self._called.setdefault(kind, len(self._called))}"
        self._names[name] = form.pack if verb == "pack" else form.unpack
        return f"{name}({value}, context)" if form.in_context else f"{name}({value})"


def _is_struct(kind: Any) -> bool:
    return hasattr(kind, "__struct_fields__")


def _names_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a Struct or a named tuple."""
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
    return names


def _fields(kind: Any) -> dict[str, Any] | None:
    """The fields of a named tuple, or of a tuple of a fixed length; `None` for other types.

    Their names as variables end with a `_`, so that they hide no other name.
    """
    names = _names_of(kind)
    if names:
        hints = get_type_hints(kind, include_extras=True)
        return {f"{name}_": hints[name] for name in names}
    args = get_args(kind)
    if get_origin(kind) is tuple and args[-1] is not Ellipsis:
        return {f"part{number}_": each for number, each in enumerate(args)}
    return None


def _tuple(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)[:-1]})"


def _wrong(
    term: Any,
    kind: Any,
    values: tuple[Any, ...] = (),
    fields: Mapping[str, _Plain | None] | None = None,
) -> BadMessage:
    """The error for a wrong term: it names the wrong field, or the whole term."""
    for value, (name, plain) in zip(values, (fields or {}).items(), strict=False):
        if plain is not None and not eval(_test(plain, "value"), {"value": value}):
            where = f" ({name[:-1]} of a {_name(kind)})" if name else ""
            return BadMessage(f"{brief(value)} should be {plain.words}{where}")
    return BadMessage(f"{brief(term)} should be a {_name(kind)}")


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _too_long(term: Any, most: int) -> list[Any]:
    raise BadMessage(f"{brief(term)} should be a list of at most {most:,} elements")
