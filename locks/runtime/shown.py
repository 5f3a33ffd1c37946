"""Classes of which `help` and completion show only the names for programs."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["Shown"]


class Shown(type):
    """The type of classes that list the names for programs in `_for_users`; other names are hidden."""

    _for_users: ClassVar[frozenset[str]]

    def __dir__(cls) -> list[str]:
        for_users = cls._for_users
        return [name for name in super().__dir__() if name.startswith("_") or name in for_users]
