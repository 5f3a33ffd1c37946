"""Words of stories: lists, verbs, numbers."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["capital", "listed", "ordinal", "verb_for"]


def listed(words: Iterable[str]) -> str:
    """Words as a list."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def capital(sentence: str) -> str:
    """A sentence with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def verb_for(verb: str, plural: bool) -> str:
    """A verb for one, or for several (or for "I" and "you")."""
    return verb if not plural else "have" if verb == "has" else verb[:-1]


def ordinal(number: int) -> str:
    """A number as a place in an order."""
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th') }"
