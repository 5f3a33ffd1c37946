"""Messages of every kind, made from the annotations of their fields: right ones, and ones with a field that is wrong."""

from __future__ import annotations

import random
from fractions import Fraction
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from locks.ranges import Text
from locks.words import HELD_UP, Key, KnownId, LockId, Place

IDS: list[Any] = [("a",), ("a", 1), ("x", (1.5, b"y", None, True)), ("t", ("$units", 3)), ("é",)]
PLACES: list[Any] = [0, 1, -3, 1 << 40, Fraction(1, 3), Fraction(-(2**70), 7)]
TEXTS = ["", "a@x", "n" * 200, "ü✓"]


class Maker:
    """Makes values of types.

    Args:
        seed: Says which.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def struct(self, kind: Any, **given: Any) -> Any:
        """A value of a class, with some fields as given."""
        hints = get_type_hints(kind, include_extras=True)
        names = getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
        return kind(
            **{name: given[name] if name in given else self.of(hints[name]) for name in names}
        )

    def of(self, kind: Any) -> Any:
        """A value of a type."""
        choice = self.random.choice
        origin, args = get_origin(kind), get_args(kind)
        if kind is Text:
            return choice(TEXTS)
        if kind is LockId:
            return choice(IDS)
        if kind is KnownId:
            return choice([*IDS, (HELD_UP, "a@x", 7, 1)])
        if kind is Key:
            return choice(["a", 1, None, ("a", (b"b",))])
        if kind is Place:
            return choice(PLACES)
        if origin is Annotated:
            return self.bounded(args[0], next(each for each in args[1:] if isinstance(each, Meta)))
        if origin in (Union, UnionType):
            return self.of(choice(args))
        if origin is Literal:
            return choice(args)
        if origin is tuple:
            if args[-1] is Ellipsis:
                return tuple(self.of(args[0]) for _ in range(self.random.randrange(4)))
            return tuple(self.of(each) for each in args)
        if origin is dict:
            return {self.of(args[0]): self.of(args[1]) for _ in range(self.random.randrange(3))}
        if hasattr(kind, "__struct_fields__") or hasattr(kind, "_fields"):
            return self.struct(kind)
        plain: dict[Any, Any] = {
            bool: lambda: choice([True, False]),
            int: lambda: choice([0, 1, -5, 1 << 40]),
            float: lambda: choice([0.0, 1.5]),
            str: lambda: choice(TEXTS),
            bytes: lambda: choice([b"", b"\xff\0"]),
            NoneType: lambda: None,
        }
        return plain[kind]()

    def bounded(self, base: Any, meta: Meta) -> Any:
        """A value of a type with bounds."""
        if base is int:
            most = meta.le if meta.le is not None else (1 << 64) - 1
            return self.random.choice([meta.ge, most, self.random.randint(meta.ge, most)])  # type: ignore[arg-type, type-var]
        if base is float:
            return float(self.random.choice([meta.ge, 1.5]))  # type: ignore[arg-type]
        if base is str and meta.pattern is not None:
            return "127.0.0.1"
        if base is str:
            return self.random.choice(TEXTS)[: meta.max_length]
        if base is bytes:
            return self.random.randbytes(self.random.randrange(20))
        made = self.of(base)
        if meta.max_length is not None:
            made = made[: meta.max_length] if type(made) is tuple else made
        while meta.min_length is not None and len(made) < meta.min_length:
            made = self.of(base)
        return made
