"""The cookie, the secret that nodes share, wrapped so that no code shows it by mistake.

A cookie is wrapped as soon as it is handed in. In a `repr`, and in a traceback that shows
variables, it appears as `<cookie>`. So code that may raise an error has only the wrapped cookie.
"""

from __future__ import annotations

import hmac
from hashlib import md5
from pathlib import Path
from typing import Any

from locks.errors import InvalidOption
from locks.otp.bytes.terms import LONGEST_ATOM

__all__ = ["SHORTEST", "Cookie"]

SHORTEST = 16  # characters; as a number in hexadecimal that is 64 bits


class Cookie:
    """A cookie, hidden.

    Args:
        given: The value given as a cookie, of any type; or a `Cookie`. It may also be several cookies, or the path of a file
            with them (`locks.otp.admission.cookies`).
    """

    __slots__ = ("_text",)

    def __init__(self, given: Any) -> None:
        self._text: Any = given._text if type(given) is Cookie else given

    def __repr__(self) -> str:
        return "<cookie>"

    def __bool__(self) -> bool:
        return bool(self._text)

    @property
    def path(self) -> Path | None:
        """The file, if one was given."""
        return self._text if isinstance(self._text, Path) else None

    def each(self) -> tuple[Cookie, ...]:
        """The cookies, if several were given; else this one."""
        if type(self._text) in (list, tuple):
            return tuple(map(Cookie, self._text))
        return (self,)

    def check(self, shortest: int = 1) -> Cookie:
        """Return it if it is a valid cookie.

        Args:
            shortest: How many characters it must have.

        Raises:
            InvalidOption: It is not valid.
        """
        wrong = self._wrong(shortest)
        if wrong is not None:
            raise InvalidOption(f"{wrong}; create one with secrets.token_hex()")
        return self

    def _wrong(self, shortest: int) -> str | None:
        """What is wrong with it, if anything. The caller raises the error: here a traceback shows it."""
        text = self._text
        if type(text) is not str or not 0 < len(text) <= LONGEST_ATOM or max(text) > "\xff":
            return f"the cookie must be text of 1 to {LONGEST_ATOM} Latin-1 characters"
        if any(each.isspace() or not each.isprintable() for each in text):
            return (
                "the cookie contains white space or an unprintable character; if it was read from a "
                "file, remove the end of the line with strip()"
            )
        if len(text) < shortest:
            return (
                f"the cookie has only {len(text)} characters; whoever guesses it can do anything to the node, so it must "
                f"have {shortest}"
            )
        return None

    def encoded(self) -> bytes:
        """The bytes for a file; do not keep them in a variable, which a traceback may show."""
        encoded: bytes = self._text.encode("latin-1")
        return encoded

    def is_same(self, other: Cookie) -> bool:
        """Whether both are the same secret."""
        return hmac.compare_digest(self.encoded(), other.encoded())

    def digest(self, challenge: int) -> bytes:
        """The answer to a challenge, by which a node proves that it knows the cookie."""
        text = self._text.encode("latin-1")
        return md5(text + str(challenge).encode(), usedforsecurity=False).digest()
