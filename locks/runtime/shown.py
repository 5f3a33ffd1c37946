"""What `help` and completion show of a class: what programs call, and not what other parts of `locks` need of it."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Shown"]


class Shown(type):
    """The type of classes that name in `_for_users` what is for programs; all else is there, and is not shown."""

    _for_users: ClassVar[frozenset[str]]

    def __dir__(cls) -> list[str]:
        for_users = cls._for_users
        return [name for name in super().__dir__() if name.startswith("_") or name in for_users]
