"""The folder through which programs of one user on one machine connect: a socket, a cookie, locks on files.

The folder must belong to the user alone; anything else in its place is refused. One process at a time starts a
lock server, and one process is the lock server. Each of them holds a file lock (`flock`), which the system releases
whenever the process dies.
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
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gevent import monkey

from locks.errors import OperatingError
from locks.net.secrets import Cookie, make_cookie, read_cookies
from locks.net.stream import check_user, credentials_of, native_socket
from locks.runtime.clock import monotonic

__all__ = ["Claim", "Folder", "folder_of"]

LONGEST_PATH = 103 if sys.platform == "darwin" else 107  # longest path of a socket, in bytes
LOOK = 0.01  # seconds between two attempts to lock a file
PATIENCE = 1.0  # seconds to connect; a server that takes longer is running, but busy

_sleep = monkey.get_original("time", "sleep")
_claims: set[Claim] = set()


def folder_of(domain: str, environment: Mapping[str, str] | None = None) -> Path:
    """The folder of a domain: in the user's runtime folder, or else in the folder for temporary files."""
    environment = os.environ if environment is None else environment
    uid = os.geteuid()
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}")
    try:
        status = runtime.stat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == uid:
            return runtime.absolute() / "locks" / domain
    except OSError:
        pass  # it does not exist, or belongs to another user
    return Path(tempfile.gettempdir()).absolute() / f"locks-{uid}" / domain


class Claim:
    """A lock on a file, held until it is dropped or the process dies.

    Args:
        path: The file; it is created if it does not exist, and stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take_file(self) -> bool:
        """Lock the file if it is free; does not wait."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
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
        """Whether the file at the path is still the same."""
        assert self._file is not None
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def drop(self) -> None:
        """Release the lock."""
        _claims.discard(self)
        file, self._file = self._file, None
        if file is not None:
            # Released explicitly: closing is not enough, because a process that was forked meanwhile has it open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def forget(self) -> None:
        """Forget the lock in a forked child: it is the parent's."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


class Folder:
    """The folder of one domain.

    Args:
        path: Its path.

    Attributes:
        path: Its path.
        socket: The path of the socket of the lock server.
        log: The path of the server's log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = path / "socket"
        self.log = path / "log"
        self._cookie = path / "cookie"

    def make(self) -> None:
        """Create the folder, if it does not exist, and check that it belongs to the user alone.

        Raises:
            OperatingError: It does not, it can't be created, or its path is too long for a socket.
        """
        length = len(os.fsencode(self.socket)) + 1  # a socket has a longer name until it listens
        if length > LONGEST_PATH:
            raise OperatingError(
                f"can't use {self.path} for a socket: the path has {length} bytes with the socket's name, more than "
                f"{LONGEST_PATH}. Set XDG_RUNTIME_DIR or TMPDIR to a shorter one",
                path=str(self.path),
            )
        for path in (self.path.parent, self.path):
            try:
                with suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                check_owner(path, path.lstat(), os.geteuid())
            except OSError as error:
                raise OperatingError(
                    f"can't create {path}, the folder through which programs of this machine connect: {error.strerror}. Set "
                    "XDG_RUNTIME_DIR to a folder of your own",
                    path=str(path),
                ) from error

    def cookie(self, known: Cookie | None = None) -> Cookie:
        """The secret of the programs that use this folder; the first one creates it.

        Args:
            known: The secret to create; a random one by default.

        Raises:
            OperatingError: It can't be created.
            InvalidOption: It can't be read.
        """
        if not self._cookie.exists():
            make_cookie(self._cookie, known or Cookie(secrets.token_hex(32)))
        return read_cookies(self._cookie)[0]

    def starting(self) -> Claim:
        """The claim of a process that starts a lock server, or ends it because no program uses it."""
        return Claim(self.path / "starting")

    def running(self) -> Claim:
        """The claim of the lock server."""
        return Claim(self.path / "running")

    def answers(self) -> bool:
        """Whether a lock server listens.

        Raises:
            Refused: Another user's program does.
            OSError: It can't be determined.
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
                return True  # the queue of connections is full
            raise
        finally:
            sock.close()
        return True


def check_owner(path: Path, status: os.stat_result, uid: int) -> None:
    """Check that a folder belongs to a user alone.

    Raises:
        OperatingError: It does not, or it is not a folder.
    """
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a folder"
        wrong = f"is {kind}; remove it"
    elif status.st_uid != uid:
        wrong = f"belongs to user {status.st_uid}, but this program runs as user {uid}; ask for its removal"
    elif mode & 0o077:
        wrong = f"is open to other users (mode {mode:o}); chmod 700 {path}"
    else:
        return
    raise OperatingError(
        f"can't use {path}: it {wrong}, or set XDG_RUNTIME_DIR to a folder of your own. Programs of one user connect through it",
        path=str(path),
    )


def await_claim(claim: Claim, deadline: float) -> bool:
    """Take a claim as soon as it is free, until a deadline by `monotonic`; blocks the native thread."""
    while not claim.take_file():
        if monotonic() >= deadline:
            return False
        _sleep(LOOK)
    return True


def _in_child() -> None:
    """Forget the claims in a forked child: open files belong to the parent."""
    claims = list(_claims)
    _claims.clear()
    for claim in claims:
        claim.forget()


os.register_at_fork(after_in_child=_in_child)
