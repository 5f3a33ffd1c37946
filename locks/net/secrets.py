"""Cookies, the secrets that nodes share: wrapped so that no code shows them by mistake, and files with them.

A cookie is wrapped as soon as it is handed in. In a `repr`, and in a traceback that shows variables, it appears as `<cookie>`.

A node usually knows one cookie. While the cookie is changed it knows two: it proves itself with both, and accepts both. A file has one
cookie in each line.

Only its owner may be able to read such a file. Kubernetes and systemd give secrets to a program in files that belong to root and that
the program's group, or an access list (which shows as rights of the group), may read. Such a file is accepted, too: root has chosen
its readers, and can read everything anyway.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from locks.errors import InvalidOption, OperatingError

__all__ = ["MOST", "Cookie", "Cookies", "make_cookie", "open_to_others", "read_cookies"]

SHORTEST, LONGEST = 16, 255  # characters; 16 of a number in hexadecimal are 64 bits
MOST = 9  # cookies that a node may know


class Cookie:
    """A cookie, hidden.

    Args:
        given: What was given as a cookie, of any type, or a `Cookie`; perhaps several cookies, or the path of a file.
    """

    __slots__ = ("_text",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, given: Any) -> None:
        self._text: Any = given._text if type(given) is Cookie else given

    def __repr__(self) -> str:
        return "<cookie>"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cookie) and hmac.compare_digest(self.encoded(), other.encoded())

    @property
    def path(self) -> Path | None:
        """The file, if one was given."""
        return self._text if isinstance(self._text, Path) else None

    def each(self) -> tuple[Cookie, ...]:
        """The cookies, if several were given; else this one."""
        return tuple(map(Cookie, self._text)) if type(self._text) in (list, tuple) else (self,)

    def wrong(self) -> str | None:
        """What is wrong with it, if anything. The caller raises the error: here a traceback shows it."""
        text = self._text
        if type(text) is not str or not 0 < len(text) <= LONGEST:
            return f"the cookie must be text of 1 to {LONGEST} characters"
        if any(each.isspace() or not each.isprintable() for each in text):
            return (
                "the cookie contains white space or an unprintable character; if it was read from a "
                "file, remove the end of the line with strip()"
            )
        if len(text) < SHORTEST:
            return (
                f"the cookie has only {len(text)} characters; whoever guesses it can do anything to the node, so it must "
                f"have {SHORTEST}"
            )
        return None

    def encoded(self) -> bytes:
        """The bytes for a file; do not keep them in a variable, which a traceback may show."""
        encoded: bytes = self._text.encode()
        return encoded

    def code(self, message: bytes) -> bytes:
        """The authentication code of a message, which only who knows the cookie can make."""
        return hmac.digest(self._text.encode(), message, "sha256")


class Cookies(NamedTuple):
    """The cookies that a node knows.

    Attributes:
        each: The cookies, in the order in which the node prefers them.
        given: What they were read from: a text, several texts, or the path of a file.
    """

    each: tuple[Cookie, ...]
    given: Cookie

    @classmethod
    def read(cls, given: Cookie) -> Cookies:
        """Check what was given; read it, if it is a file.

        Raises:
            InvalidOption: A cookie is wrong, or the file can't be used.
        """
        path = given.path
        if path is not None:
            given = Cookie(path.absolute())  # the program may go to another folder
        each = given.each() if path is None else read_cookies(path)
        wrong: str | None = f"a node can know 1 to {MOST} cookies, not {len(each)}"
        if 0 < len(each) <= MOST:
            wrong = next(filter(None, map(Cookie.wrong, each)), None)
            wrong = wrong and f"{wrong}; create one with secrets.token_hex()"
        if wrong is not None:
            raise InvalidOption(wrong if path is None else f"{path}: {wrong}")
        return cls(each, given)


def read_cookies(path: Path) -> tuple[Cookie, ...]:
    """Read the cookies, one in each line, from a file that only its owner can read; or of root, that its group can read (a mounted secret).

    Raises:
        InvalidOption: It is not a file, it can't be read, or other users can read it.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InvalidOption(f"can't read the cookie: {path} is a folder", path=str(path))
        if not open_to_others(status.st_mode, status.st_uid):
            lines = Cookie([line.strip() for line in path.read_text("utf-8").splitlines()])
            return tuple(line for line in lines.each() if line)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"can't read the cookie: {error}", path=str(path)) from error
    raise InvalidOption(
        f"refused the cookie file {path}: other users can read it, and a user with the cookie can do anything to the "
        f"node: chmod 600 {path}",
        path=str(path),
    )


def open_to_others(mode: int, owner: int) -> bool:
    """Whether a file with these rights, of this user, can be read by other users, of whom root has not chosen the readers."""
    allowed = stat.S_IRWXU | (stat.S_IRGRP if owner == 0 else 0)
    return bool(stat.S_IMODE(mode) & ~allowed)


def make_cookie(path: Path, cookie: Cookie) -> None:
    """Create a file with a cookie, atomically, unless the file exists.

    Raises:
        OperatingError: It can't be created.
    """
    draft = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(file, cookie.encoded())
        finally:
            os.close(file)
        with suppress(FileExistsError):  # if several programs do this at once, the first file stays
            os.link(draft, path)
    except OSError as error:
        raise OperatingError(f"can't create a cookie at {path}: {error}", path=str(path)) from error
    finally:
        draft.unlink(missing_ok=True)
