"""Reasons of ends, and texts of errors, as terms that can always be sent.

They may be sent in the turn of an unrelated caller, and must not fail there. So they are bounded,
and text that can't be sent is replaced.
"""

from __future__ import annotations

from typing import Any

from locks.lock_ids import shown
from locks.otp.bytes import etf
from locks.otp.bytes.terms import LONGEST_ATOM, Atom

__all__ = ["reason_term", "reason_value", "sendable_text"]

LONGEST_TEXT = 4096  # characters
LONGEST_REASON = 64 * 1024  # bytes, of what is neither text nor an exception


def reason_term(reason: Any) -> Any:
    """The reason of an end as a term: an atom for text, name and text for an exception.

    Every reason has a term, because it may be sent in the turn of another caller.
    """
    if isinstance(reason, str):
        return Atom(sendable_text(reason)[:LONGEST_ATOM])
    if isinstance(reason, BaseException):
        return (Atom(type(reason).__name__[:LONGEST_ATOM]), sendable_text(reason))
    try:
        if len(etf.encode(reason)) <= LONGEST_REASON:
            return reason
    except etf.EncodeError:
        pass
    return sendable_text(shown(reason))


def sendable_text(value: object) -> str:
    """The text of a value, shortened, in a form that can be sent."""
    try:
        text = str.__str__(value if isinstance(value, str) else str(value))
    except Exception:
        text = f"<{type(value).__name__}>"
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}..."
    return text.encode(errors="backslashreplace").decode()


def reason_value(term: Any) -> Any:
    """The reason of an end from the term that another node has sent."""
    return term.name if isinstance(term, Atom) else term
