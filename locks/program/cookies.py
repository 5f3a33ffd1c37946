"""Files with the secret that nodes share: only their owner can read them.

Kubernetes and systemd give secrets to a program in files that belong to root and that the program's group, or an access list (which
shows as rights of the group), may read. Such a file is accepted, too: root has chosen its readers, and can read everything anyway.
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
    """Read a cookie from a file that only its owner can read, or a file of root that this program's group can read.

    Raises:
        InvalidOption: It is not a file, it can't be read, or other users can read it.
    """
    try:
        status = path.stat()
        mode = status.st_mode
        if stat.S_ISDIR(mode):
            raise InvalidOption(f"can't read the cookie: {path} is a folder", path=str(path))
        # On Windows the mode says nothing of other users.
        if not hasattr(os, "geteuid") or not open_to_others(mode, status.st_uid, os.geteuid()):
            return path.read_text().strip()
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
    handed = owner == 0 != reader
    allowed = stat.S_IRWXU | (stat.S_IRGRP if handed else 0)
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
