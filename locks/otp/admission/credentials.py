"""The process and user at the other end of a Unix domain socket, as the system reports them."""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any, NamedTuple

from locks.otp.admission.strangers import Refused

__all__ = ["Credentials", "check_user", "credentials_of"]

_UCRED = struct.Struct("iII")  # of Linux: process, user, group
_XUCRED = struct.Struct("=II")  # of the BSDs and macOS: version, user, and more
_XUCRED_SIZE = 76
_LOCAL_PEERCRED = 1


class Credentials(NamedTuple):
    """A program.

    Attributes:
        pid: Its process; `None` if the system does not report it.
        uid: Its user.
    """

    pid: int | None
    uid: int


def credentials_of(sock: Any) -> Credentials | None:
    """The program at the other end of a socket; `None` if this system does not report it."""
    if hasattr(socket, "SO_PEERCRED"):
        ucred = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, uid, _ = _UCRED.unpack(ucred)
        return Credentials(pid, uid)
    if sys.platform == "darwin" or "bsd" in sys.platform:
        xucred = sock.getsockopt(0, _LOCAL_PEERCRED, _XUCRED_SIZE)
        return Credentials(None, _XUCRED.unpack_from(xucred)[1])
    return None


def check_user(found: Credentials | None, own: int | None = None) -> None:
    """Raise unless a program belongs to the user of this one.

    Args:
        found: The program.
        own: The user of this program; looked up by default.

    Raises:
        Refused: It belongs to another user.
    """
    own = os.geteuid() if own is None else own
    if found is not None and found.uid != own:
        raise Refused(
            f"the program at the other end runs as user {found.uid}, but this one as user {own}; on a "
            "Unix domain socket only programs of one user can connect",
            cause="user",
        )
