"""Files with the secret that nodes share: only their owner can read them.

Kubernetes and systemd hand secrets to a program in files of root, which the program's own group may read, or which an access list lets it
read (that shows as rights of the group). Such a file is taken, too: its owner has chosen who reads it, and can read everything anyway.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from locks.errors import InvalidOption, OperatingError
from locks.otp.admission.secret import Cookie

__all__ = ["make_cookie", "open_to_others", "read_cookie"]


def read_cookie(path: Path) -> str:
    """Read a cookie from a file that only its owner can read, or that root lets this program's group read.

    Raises:
        InvalidOption: It is no file, or can't be read, or other users can read it, too.
    """
    try:
        status = path.stat()
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise InvalidOption(f"the cookie can't be read: {path} is a folder", path=str(path))
        if not open_to_others(mode, status.st_uid, os.geteuid()):
            return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"the cookie can't be read: {error}", path=str(path)) from error
    raise InvalidOption(
        f"{path} can be read by others, and whoever knows the cookie can do anything to the "
        f"node: chmod 600 {path}",
        path=str(path),
    )


def open_to_others(mode: int, owner: int, reader: int) -> bool:
    """Whether a file with these rights, of this owner, is for more than its reader, or than root wants.

    Args:
        mode: Its rights.
        owner: The number of the user who owns it.
        reader: That of the user who wants to read it.
    """
    handed = owner == 0 != reader
    allowed = stat.S_IRWXU | (stat.S_IRGRP if handed else 0)
    return bool(stat.S_IMODE(mode) & ~allowed)


def make_cookie(path: Path, cookie: Cookie) -> None:
    """Make a file with a cookie, unless it is there: whole, or not at all.

    Raises:
        OperatingError: It can't be made.
    """
    draft = path.with_name(f"{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, cookie.encoded())
        finally:
            os.close(file)
        with suppress(FileExistsError):
            os.link(draft, path)  # of several at the same moment the first one stays
    except OSError as error:
        raise OperatingError(f"no cookie can be made at {path}: {error}", path=str(path)) from error
    finally:
        draft.unlink(missing_ok=True)
