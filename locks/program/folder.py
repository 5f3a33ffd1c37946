"""The folder in which programs of one user on one machine meet: a socket, a cookie, locks on files.

It belongs to the user alone, and whatever else is found in its place is refused. One process at a time starts a
lock server, and one is the lock server: each holds a lock on a file (`flock`), which the system takes away when
the process dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gevent import monkey

from locks.errors import OperatingError
from locks.otp.admission.credentials import check_user, credentials_of
from locks.otp.admission.secret import Cookie
from locks.otp.links.stream import native_socket
from locks.program.cookies import make_cookie, read_cookie

__all__ = ["Claim", "Folder", "folder_of"]

LONGEST_PATH = 103 if sys.platform == "darwin" else 107  # bytes, of a socket
LOOK = 0.01  # seconds between two looks at whether a file is free
PATIENCE = 1.0  # seconds for a connection; a server that takes longer is busy, and there

_sleep = monkey.get_original("time", "sleep")
_claims: set[Claim] = set()


def folder_of(domain: str, environment: Mapping[str, str] | None = None) -> Path:
    """Where the programs of a domain meet: in the user's runtime folder, or else among temporary files."""
    environment = os.environ if environment is None else environment
    uid = os.geteuid()
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}")
    try:
        status = runtime.stat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == uid:
            return runtime.absolute() / "locks" / domain
    except OSError:
        pass  # there is none, or it is another user's
    return Path(tempfile.gettempdir()).absolute() / f"locks-{uid}" / domain


class Claim:
    """A lock on a file, held for as long as it is wanted, or the process lives.

    Args:
        path: The file; it is made if it is not there, and stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Take it if it is free; does not wait."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        _claims.add(self)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.is_in_place():
                return True
        except BlockingIOError:
            pass
        except BaseException:
            self.drop()
            raise
        self.drop()
        return False

    def is_in_place(self) -> bool:
        """Whether the file is still the one that others find."""
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def drop(self) -> None:
        """Let go of it."""
        _claims.discard(self)
        file, self._file = self._file, None
        if file is not None:
            # Said to the system, and not left to `close`: a process that was forked meanwhile has it open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def forget(self) -> None:
        """In a forked child: it is the parent's."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class Folder:
    """The folder of one domain.

    Args:
        path: Where it is.

    Attributes:
        path: The same.
        socket: The path of the socket of the lock server.
        log: That of its log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = path / "socket"
        self.log = path / "log"
        self._cookie = path / "cookie"

    def make(self) -> None:
        """Make it, if it is not there, and see that it is the user's alone.

        Raises:
            OperatingError: It is not, or can't be made, or is at a place where no socket can be.
        """
        length = len(os.fsencode(self.socket)) + 1  # a socket has a longer name until it listens
        if length > LONGEST_PATH:
            raise OperatingError(
                f"{self.path} is too long a path for a socket: {length} bytes with its name, and {LONGEST_PATH} are "
                "possible. Set XDG_RUNTIME_DIR or TMPDIR to a shorter one",
                path=str(self.path),
            )
        for path in (self.path.parent, self.path):
            try:
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                check_owner(path, path.lstat(), os.geteuid())
            except OSError as error:
                raise OperatingError(
                    f"the folder {path}, in which programs of this machine meet, can't be made: {error.strerror}. Set "
                    "XDG_RUNTIME_DIR to a folder of your own",
                    path=str(path),
                ) from error

    def cookie(self, known: Cookie | None = None) -> Cookie:
        """The secret of the programs that meet here; made by whoever is the first.

        Args:
            known: What it is to be if it has to be made; a random one otherwise.

        Raises:
            OperatingError: It can't be made.
            InvalidOption: It can't be read.
        """
        if not self._cookie.exists():
            make_cookie(self._cookie, known or Cookie(secrets.token_hex(32)))
        return Cookie(read_cookie(self._cookie))

    def starting(self) -> Claim:
        """What one has who starts a lock server, or ends it because nobody uses it."""
        return Claim(self.path / "starting")

    def running(self) -> Claim:
        """What the lock server has."""
        return Claim(self.path / "running")

    def answers(self) -> bool:
        """Whether a lock server listens.

        Raises:
            Refused: Somebody else's program does.
            OSError: It can't be found out.
        """
        sock = native_socket(socket.AF_UNIX)
        try:
            sock.settimeout(PATIENCE)
            sock.connect(str(self.socket))
            check_user(credentials_of(sock))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:
            if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
                return True  # many want to be connected just now
            raise
        finally:
            sock.close()
        return True


def check_owner(path: Path, status: os.stat_result, uid: int) -> None:
    """See that a folder is a user's alone.

    Raises:
        OperatingError: It is not, or is no folder.
    """
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no folder"
        wrong = f"is {kind}; remove it"
    elif status.st_uid != uid:
        wrong = f"belongs to user {status.st_uid}, and this program to user {uid}; have it removed"
    elif mode & 0o077:
        wrong = f"is open to other users (mode {mode:o}); chmod 700 {path}"
    else:
        return
    raise OperatingError(
        f"{path} {wrong}, or set XDG_RUNTIME_DIR to a folder of your own: programs of one user meet there",
        path=str(path),
    )


def await_claim(claim: Claim, deadline: float) -> bool:
    """Take a claim as soon as it is free, until a time by `time.monotonic`; blocks the native thread."""
    while not claim.take():
        if time.monotonic() >= deadline:
            return False
        _sleep(LOOK)
    return True


def _in_child() -> None:
    """In a forked child nothing is claimed: what was open belongs to the parent."""
    claims = list(_claims)
    _claims.clear()
    for claim in claims:
        claim.forget()


os.register_at_fork(after_in_child=_in_child)
