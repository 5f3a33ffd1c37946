"""The lock server of this user on this machine, for `locks.start(servers="local")`.

There is one for each *domain*, a name that programs choose. It listens on a socket of the Unix domain, is started by the
first program that needs it (`locks.program.local_server`), and ends when nobody has been connected for a while.
A program that wants to be connected looks whether it answers; if not, it claims the right to start one, looks again, and starts
it. So there is one, however many programs come at the same moment.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gevent import monkey

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.otp.admission.secret import Cookie
from locks.otp.names.discovery import Address, UnixAddress
from locks.program.folder import Folder, await_claim, folder_of

__all__ = ["IDLE", "READY", "LocalServer", "server_name"]

WORD = "local"
DEFAULT = "default"  # the domain of who names none
READY = b"ready\n"  # what a lock server says that can be asked
IDLE = 10.0  # seconds until a lock server ends that nobody is connected with
IDLE_VARIABLE = "LOCKS_LOCAL_IDLE"
PATIENCE = 30.0  # seconds until a lock server has started, or another program has started it
LOOK = 0.002  # seconds between two looks at whether it has
MOST_TOLD = 4096  # bytes of what a server says that can't start
KEPT = ("PYTHONHOME",)  # of the environment that says how Python and `locks` behave
DROPPED = ("PYTHON", "LOCKS_", "GEVENT")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")

# Natively: what takes a while is done in a thread that has no hub.
_posix_spawn: Any = monkey.get_original("os", "posix_spawn")
_waitpid: Any = monkey.get_original("os", "waitpid")
_sleep: Any = monkey.get_original("time", "sleep")


def server_name(domain: str) -> str:
    """The name of a domain's lock server."""
    return f"{domain}@{WORD}"


class LocalServer:
    """The lock server of a domain. A `locks.Discovery`.

    Args:
        domain: Its name.

    Attributes:
        domain: The same.
    """

    def __init__(self, domain: str = DEFAULT) -> None:
        self.domain = domain
        # Those with which the program's node was started:
        self._cookie: Cookie | None = None
        self._folder: Folder | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalServer) and other.domain == self.domain

    def __hash__(self) -> int:
        return hash(self.domain)

    @classmethod
    def of(cls, text: str) -> LocalServer | None:
        """What `"local"` or `"local:domain"` means; `None` for other texts.

        Raises:
            InvalidOption: That is no name for a domain.
        """
        word, colon, domain = text.partition(":")
        if word != WORD:
            return None
        if colon and not _DOMAIN.fullmatch(domain):
            raise InvalidOption(
                f'servers={shown(text)}: a domain has 1 to 32 letters, digits, "-", "_" and ".", and begins with one of '
                'the first two: "local:myproject"',
                servers=shown(text),
            )
        return cls(domain or DEFAULT)

    @property
    def size(self) -> int:
        """There is one."""
        return 1

    @property
    def folder(self) -> Folder:
        """Where the programs of the domain meet."""
        return self._folder or Folder(folder_of(self.domain))

    def describe(self) -> str:
        """What it is, in a few words."""
        return f"{WORD}:{self.domain} ({self.folder.path})"

    def secret(self, options: Mapping[str, Any]) -> Cookie:
        """The cookie of those who use it.

        Args:
            options: What else `locks.start` was given.

        Raises:
            InvalidOption: Something was given that does not go with it.
            OperatingError: It can't be read, or made.
        """
        for name in ("cookie", "listen", "peers", "tls", "epmd", "mesh"):
            if options.get(name):
                raise InvalidOption(
                    f'servers="local" goes without {name}: programs of one user on one machine meet there, and have a '
                    "cookie of their own",
                )
        if options.get("name") == server_name(self.domain):
            raise InvalidOption(f"{options['name']} is the name of the lock server itself")
        folder = self._folder = self.folder
        folder.make()
        self._cookie = folder.cookie()
        return self._cookie

    def find(self) -> dict[str, Address]:
        """See that the lock server runs; blocks.

        Raises:
            OperatingError: It can't be started.
        """
        try:
            self._see_to_it()
        except OSError as error:
            raise OperatingError(
                f"the lock server of this machine can't be found, or started, by {self.describe()}: {error}"
            ) from error
        return {server_name(self.domain): UnixAddress(str(self.folder.socket))}

    def _see_to_it(self) -> None:
        folder = self.folder
        folder.make()
        # If somebody has cleared the folder away, programs that go on meet in it as before.
        cookie = folder.cookie(self._cookie)
        if self._cookie is not None and not cookie.is_same(self._cookie):
            raise OperatingError(
                f"{folder.path} was removed and made again by other programs, with another cookie; start this "
                "program again, to meet them",
                path=str(folder.path),
            )
        if not folder.answers():
            self._start(folder)

    def _start(self, folder: Folder) -> None:
        deadline = time.monotonic() + PATIENCE
        claim = folder.starting()
        if not await_claim(claim, deadline):
            raise OperatingError(
                f"another program has been starting the lock server in {folder.path} for {PATIENCE:g} s; end it if it "
                "hangs: `fuser` shows who has the file `starting` there",
            )
        try:
            if not folder.answers():  # it may have been started meanwhile
                start_server(folder, deadline)
        finally:
            claim.drop()


def start_server(folder: Folder, deadline: float) -> None:
    """Start the lock server as a process that is nobody's child, and wait until it can be asked.

    Raises:
        OperatingError: It has not started.
    """
    idle = os.environ.get(IDLE_VARIABLE) or str(IDLE)
    command = [python(), "-m", "locks.program.local_server", str(folder.path), "--idle", idle]
    try:
        process, pipe = _spawn(command, environment_of_server(os.environ, sys.path))
    except OSError as error:
        raise OperatingError(
            f"the lock server of this machine can't be started: {error}"
        ) from error
    try:
        said = _read(pipe, deadline)
    finally:
        os.close(pipe)
    if said is not None:
        # It has a child that is the server, and ends: nothing of it is left in this program.
        with suppress(
            ChildProcessError
        ):  # the program does this itself, or leaves it to the system
            _waitpid(process, 0)
    if said is None or not said.endswith(READY):
        told = "it takes too long" if said is None else said.decode(errors="replace").strip()
        raise OperatingError(
            f"the lock server of this machine could not be started in {folder.path}: {told or 'it has ended'}; see {folder.log}",
        )


def _read(file: int, deadline: float) -> bytes | None:
    """All that is said, until the other side closes; `None` if it does not in time."""
    os.set_blocking(file, False)
    said = b""
    while time.monotonic() < deadline:
        try:
            part = os.read(file, MOST_TOLD)
        except BlockingIOError:
            _sleep(LOOK)
            continue
        if not part:
            return said
        said = (said + part)[-MOST_TOLD:]
    return None


def _spawn(command: list[str], environment: dict[str, str]) -> tuple[int, int]:
    """Start a process without a terminal's signals; return it, and what can be read of it.

    Not by `subprocess`: in a monkey-patched program, that needs a hub.
    """
    pipe, end = os.pipe()
    try:
        said = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)  # not one of the three that it replaces
        try:
            files = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, said, 1),
                (os.POSIX_SPAWN_DUP2, said, 2),
            ]
            process: int = _posix_spawn(
                command[0], command, environment, file_actions=files, setpgroup=0, setsigmask=()
            )
        finally:
            os.close(said)
    except BaseException:
        os.close(pipe)
        raise
    finally:
        os.close(end)
    return process, pipe


def environment_of_server(environment: Mapping[str, str], path: list[str]) -> dict[str, str]:
    """The environment of a lock server: it finds the same modules, and nothing changes how it behaves."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(DROPPED)
    }
    # As far as they are not relative: it runs in another folder.
    found = [os.path.abspath(each) for each in path if each]
    return {**kept, "PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1"}


def python() -> str:
    """The interpreter; in programs that embed it, `sys.executable` may be something else.

    Raises:
        OperatingError: There is none.
    """
    given = sys.executable or ""
    name = f"python{sys.version_info[0]}"
    for path in (given, Path(sys.prefix, "bin", name), Path(sys.base_prefix, "bin", name)):
        if Path(path).name.startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return str(path)
    raise OperatingError(
        f"the lock server of this machine can't be started: sys.executable is {given!r}, and no Python"
    )
