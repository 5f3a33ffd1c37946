"""The cookies that a node knows, and files with them: only their owner can read these.

A node usually knows one cookie. While the cookie is changed it knows two: it proves itself with the first one, and accepts both. A
file has one cookie in each line.

Kubernetes and systemd give secrets to a program in files that belong to root and that the program's group, or an access list (which
shows as rights of the group), may read. Such a file is accepted, too: root has chosen its readers, and can read everything anyway.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from locks.errors import InvalidOption, OperatingError
from locks.otp.admission.secret import SHORTEST, Cookie

__all__ = ["Cookies", "make_cookie", "open_to_others", "read_cookies"]

MOST = 9  # cookies that a node may know


class Cookies(NamedTuple):
    """The cookies that a node knows.

    Attributes:
        each: The cookies. All are accepted; the node proves itself with them, in this order.
        given: The value that they were read from: a text, several texts, or the path of a file.
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
        try:
            if not 0 < len(each) <= MOST:
                raise InvalidOption(f"a node can know 1 to {MOST} cookies, not {len(each)}")
            return cls(tuple(cookie.check(SHORTEST) for cookie in each), given)
        except InvalidOption as error:
            if path is None:
                raise
            raise InvalidOption(f"{path}: {error}", path=str(path)) from None

    def again(self) -> Cookies:
        """The same, as they are in the file now.

        Raises:
            InvalidOption: As for `read`.
        """
        return Cookies.read(self.given)

    def are_same(self, other: Cookies) -> bool:
        """Whether both are the same secrets, in the same order."""
        return len(self.each) == len(other.each) and all(map(Cookie.is_same, self.each, other.each))


def read_cookies(path: Path) -> tuple[Cookie, ...]:
    """Read the cookies, one in each line, from a file that only its owner can read; or of root, that its group can read (a mounted secret).

    Raises:
        InvalidOption: It is not a file, it can't be read, or other users can read it.
    """
    try:
        status = path.stat()
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise InvalidOption(f"can't read the cookie: {path} is a folder", path=str(path))
        if not open_to_others(mode, status.st_uid, os.geteuid()):
            lines = Cookie([line.strip() for line in path.read_text().splitlines()])
            return tuple(line for line in lines.each() if line)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"can't read the cookie: {error}", path=str(path)) from error
    raise InvalidOption(
        f"refused the cookie file {path}: other users can read it, and a user with the cookie can do anything to the "
        f"node: chmod 600 {path}",
        path=str(path),
    )


def open_to_others(mode: int, owner: int, reader: int) -> bool:
    """Whether a file with these rights and owner can be read by more users than its reader, or than root allows.

    Args:
        mode: Its rights.
        owner: The user id of its owner.
        reader: The user id of the reader.
    """
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
        with suppress(FileExistsError):
            os.link(
                draft, path
            )  # if several programs do this at the same time, the first file stays
    except OSError as error:
        raise OperatingError(f"can't create a cookie at {path}: {error}", path=str(path)) from error
    finally:
        draft.unlink(missing_ok=True)
