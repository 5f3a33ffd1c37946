"""The lock server of this user on this machine, for `locks.start(servers="local")`.

There is one server for each *domain*, a name that programs choose. It listens on a Unix domain socket, is started by the
first program that needs it (`locks.program.local_server`), and ends when no program has been connected for a while.
A program first checks whether the server answers. If not, the program claims the right to start one, checks again, and
starts it. So there is only one server, even if many programs start at the same time.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gevent import monkey

from locks.errors import InvalidOption, OperatingError
from locks.lock_ids import shown
from locks.net.addresses import Address, UnixAddress
from locks.net.secrets import Cookie
from locks.node.client.scope import HERE, Here
from locks.program.folder import Folder, await_claim, folder_of
from locks.runtime.clock import monotonic

__all__ = [
    "HERE_WORD",
    "IDLE",
    "READY",
    "LocalServer",
    "is_word",
    "server_name",
    "servers_by_word",
]

HERE_WORD, LOCAL_WORD = "here", "local"  # in the place of a list of servers
DEFAULT = "default"  # the domain if none is named
READY = b"ready\n"  # a lock server sends it when it is ready
IDLE = 10.0  # seconds without connections until a lock server ends
IDLE_VARIABLE = "LOCKS_LOCAL_IDLE"
PATIENCE = 30.0  # seconds until a lock server has started, by this or another program
LOOK = 0.002  # seconds between two checks whether it has started
MOST_TOLD = 4096  # bytes of the error text of a server that fails to start
KEPT = ("PYTHONHOME",)  # environment variables that control how Python and `locks` behave
DROPPED = ("PYTHON", "LOCKS_", "GEVENT")
# What the server's interpreter runs: modules of the standard library are found before those beside the program that starts it, and the
# packages that it needs where that program has found them.
RUN = (
    "import os, sys; sys.path = [each for each in sys.path if each] + os.environ.pop('LOCK_SERVER_PATH').split(os.pathsep); "
    "import site; site.main(); from locks.program.local_server import main; main()"
)
_PYTHON = re.compile(r"(python|pypy)[0-9.]*[a-z]?")
_DOMAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")

# Native functions: slow calls run in a thread that has no hub.
_waitpid: Any = monkey.get_original("os", "waitpid")
_sleep: Any = monkey.get_original("time", "sleep")


def server_name(domain: str) -> str:
    """The name of a domain's lock server."""
    return f"{domain}@{LOCAL_WORD}"


class LocalServer:
    """The lock server of a domain. A `Locator`.

    Args:
        domain: Its name.

    Attributes:
        domain: Its name.
    """

    def __init__(self, domain: str = DEFAULT) -> None:
        self.domain = domain
        # The servers that the program's node was started with:
        self._cookie: Cookie | None = None
        self._folder: Folder | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalServer) and other.domain == self.domain

    def __hash__(self) -> int:
        return hash(self.domain)

    @classmethod
    def of(cls, text: str) -> LocalServer:
        """The server that `"local"` or `"local:domain"` stands for.

        Raises:
            InvalidOption: It is another text, or the domain's name is wrong.
        """
        word, colon, domain = text.partition(":")
        if word != LOCAL_WORD:
            raise InvalidOption(
                f"servers={shown(text)} is not a list of servers; write one: "
                '["a@10.0.0.1:9100", "b@10.0.0.2:9100", "c@10.0.0.3:9100"], or "local"',
                servers=shown(text),
            )
        if colon and not _DOMAIN.fullmatch(domain):
            raise InvalidOption(
                f'servers={shown(text)} has a wrong domain: use 1 to 32 letters, digits, "-", "_" and ".", beginning with a letter or '
                'digit, as in "local:myproject"',
                servers=shown(text),
            )
        return cls(domain or DEFAULT)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name."""
        return (server_name(self.domain),)

    @property
    def folder(self) -> Folder:
        """The folder of the domain."""
        return self._folder or Folder(folder_of(self.domain))

    def describe(self) -> str:
        """A short description for messages."""
        return f"{LOCAL_WORD}:{self.domain} ({self.folder.path})"

    def secret(self, options: Mapping[str, Any]) -> Cookie:
        """The cookie of the server and its clients.

        Args:
            options: The other arguments of `locks.start`.

        Raises:
            InvalidOption: One of these does not go together with a local server.
            OperatingError: The cookie can't be read or created.
        """
        for name in ("cookie", "listen", "peers", "tls", "mesh"):
            if options.get(name):
                raise InvalidOption(
                    f'{name} cannot be combined with servers="local", which connects programs of one user on one machine and has a '
                    "cookie of its own; leave it out",
                )
        if options.get("name") == server_name(self.domain):
            raise InvalidOption(
                f"can't use the name {options['name']}: the lock server has it; choose another one"
            )
        folder = self._folder = self.folder
        folder.make()
        self._cookie = folder.cookie()
        return self._cookie

    def find(self) -> dict[str, Address]:
        """Start the lock server, if it is not running; blocks.

        Raises:
            OperatingError: It can't be started.
        """
        try:
            self._see_to_it()
        except OSError as error:
            raise OperatingError(
                f"can't find or start the lock server of this machine, {self.describe()}: {error}"
            ) from error
        return {server_name(self.domain): UnixAddress(str(self.folder.socket))}

    def _see_to_it(self) -> None:
        folder = self.folder
        folder.make()
        # If the folder was cleared, running programs create it again, with the same cookie.
        cookie = folder.cookie(self._cookie)
        if self._cookie is not None and cookie != self._cookie:
            raise OperatingError(
                f"can't use {folder.path}: it was removed, and created again by other programs with another cookie; restart this "
                "program",
                path=str(folder.path),
            )
        if not folder.answers():
            self._start(folder)

    def _start(self, folder: Folder) -> None:
        deadline = monotonic() + PATIENCE
        claim = folder.starting()
        if not await_claim(claim, deadline):
            raise OperatingError(
                f"timed out after {PATIENCE:g} s waiting for another program to start the lock server in {folder.path}; end that program if it "
                "hangs: `fuser` shows which process has the file `starting` there open",
            )
        try:
            if not folder.answers():  # another program may have started it meanwhile
                start_server(folder, deadline)
        finally:
            claim.drop()


def is_word(servers: str) -> bool:
    """Whether a setting is a word in the place of a list of servers."""
    return servers == HERE_WORD or servers.partition(":")[0] == LOCAL_WORD


def servers_by_word(text: str) -> Here | LocalServer:
    """What a word in the place of a list of servers stands for.

    Raises:
        InvalidOption: There is no such word.
    """
    return HERE if text == HERE_WORD else LocalServer.of(text)


def start_server(folder: Folder, deadline: float) -> None:
    """Start the lock server as a detached process, and wait until it is ready.

    Raises:
        OperatingError: It did not start.
    """
    idle = os.environ.get(IDLE_VARIABLE) or str(IDLE)
    command = [python(), "-S", "-s", "-c", RUN, str(folder.path), "--idle", idle]
    try:
        process, pipe = _spawn(command, environment_of_server(os.environ, sys.path))
    except OSError as error:
        raise OperatingError(f"can't start the lock server of this machine: {error}") from error
    try:
        said = _read(pipe, deadline)
    finally:
        os.close(pipe)
    if said is not None:
        # The process started a child, the server, and has exited: collect its status.
        with suppress(ChildProcessError):  # the program has collected it, or ignores SIGCHLD
            _waitpid(process, 0)
    if said is None or not said.endswith(READY):
        told = "timed out" if said is None else said.decode(errors="replace").strip()
        raise OperatingError(
            f"can't start the lock server of this machine in {folder.path}: {told or 'it has ended'}; see {folder.log}",
        )


def _read(file: int, deadline: float) -> bytes | None:
    """Read until the other side closes; `None` if it does not in time."""
    os.set_blocking(file, False)
    said = b""
    while monotonic() < deadline:
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
    """Start a process that gets no signals of the terminal; return it, and the pipe from it.

    It does not use `subprocess`, which needs a hub in a monkey-patched program.
    """
    posix_spawn: Any = monkey.get_original("os", "posix_spawn")
    pipe, end = os.pipe()
    try:
        said = fcntl.fcntl(
            end, fcntl.F_DUPFD_CLOEXEC, 3
        )  # must not be one of the three standard files, which it replaces
        try:
            files = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, said, 1),
                (os.POSIX_SPAWN_DUP2, said, 2),
            ]
            process: int = posix_spawn(
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
    """The environment of a lock server: it finds the same packages, and has no settings that change its behaviour."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(DROPPED)
    }
    # Without relative paths: the server runs in another folder. What is not text is ignored by Python, too.
    found = [os.path.abspath(each) for each in path if each and isinstance(each, str)]
    return {**kept, "LOCK_SERVER_PATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1"}


def python() -> str:
    """The interpreter; `sys.executable` may be wrong in programs that embed Python, and is the program itself in a frozen one.

    Raises:
        OperatingError: No interpreter was found.
    """
    given = sys.executable or ""
    name = f"python{sys.version_info[0]}"
    others = [Path(prefix, "bin", name) for prefix in (sys.prefix, sys.base_prefix)]
    for path in others if getattr(sys, "frozen", False) else [Path(given), *others]:
        if _PYTHON.fullmatch(path.name) and os.access(path, os.X_OK):
            return str(path)
    raise OperatingError(
        f"can't start the lock server of this machine: sys.executable is {given!r}, which is not a Python interpreter. Start the server with "
        "another program, such as `locks run --servers local ...`, or run `locks node` and pass its name and port as servers=[...]"
    )
