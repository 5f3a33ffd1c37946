"""The process of the lock server that the programs of one user on one machine share.

`locks.program.local` starts it (`RUN`). It is a detached process without a
terminal, and ends by itself. Its life:

1. It detaches from the program that started it, and claims to be the lock server. If another server answers, it leaves the work to that one.
2. It listens, in place of a socket that a killed server may have left, and reports that it is ready.
3. When no program has been connected for a while, and it need not remember anything (`locks.once`), it claims the right to start a server, removes its socket, and
   checks once more. A program that comes at this time finds no server, waits for that right, and starts a new one.
4. If its folder is removed, new programs would start another server: it ends immediately, and its clients are informed.
"""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from locks.net.addresses import UnixAddress
from locks.node.marks import memory_of
from locks.node.node import Node
from locks.node.options import Options
from locks.program.folder import Claim, Folder
from locks.program.local import READY, server_name
from locks.program.serving import open_many_files, settle
from locks.runtime.clock import monotonic
from locks.runtime.waiter import Event

__all__ = ["main"]

logger = logging.getLogger("locks.local")

LOG_SIZE = 2**18  # bytes; there are at most two such files
PATIENCE = 15.0  # seconds until a server that is ending has ended
LOOK = 0.5  # seconds between two checks for connected programs
MOMENT = 0.05  # seconds for programs that are just connecting


def main() -> None:
    """Run the lock server of a folder."""
    parser = argparse.ArgumentParser(prog="locks.program.local_server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle", type=float, required=True, metavar="SECONDS")
    options = parser.parse_args()
    shed_limits()
    leave()
    folder = Folder(options.folder)
    claim = await_place(folder)
    if claim is not None:
        ended = Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: ended.open())
        open_many_files()
        log_to(folder.log)
        try:
            Serving(folder, claim, begin(folder), options.idle, ended).serve()
        except Exception:
            logger.exception("the lock server crashed")
            raise
    else:
        tell_ready()


def shed_limits() -> None:
    """Drop what the program that started this one has set for itself: it would slow or end the server of all programs.

    Limits are raised as far as the system allows. A limit of processor time that can't be raised would end the server in the middle of
    its work, so it does not begin.
    """
    for limit in (
        resource.RLIMIT_CPU,
        resource.RLIMIT_AS,
        resource.RLIMIT_DATA,
        resource.RLIMIT_FSIZE,
    ):
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except (ValueError, OSError):  # only a privileged process may raise the hard limit
            hard = resource.getrlimit(limit)[1]
            resource.setrlimit(limit, (hard, hard))
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]
    if seconds != resource.RLIM_INFINITY:
        sys.exit(
            f"the program that starts it has a limit of {seconds} s of processor time (ulimit -t), which would end the server of all "
            "programs. Set that limit with `ulimit -S -t`, or start the server with another program, such as `locks run --servers local ...`"
        )
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("0")


def leave() -> None:
    """Detach from the program that started this one, except for the pipe to it."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    for file in map(int, os.listdir("/dev/fd")):
        if file > 2:
            with suppress(OSError):
                os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def await_place(folder: Folder) -> Claim | None:
    """Become the lock server; `None` if another process is the lock server and answers."""
    deadline = monotonic() + PATIENCE
    claim = folder.running()
    while not claim.take_file():
        if folder.answers():
            return None
        if monotonic() >= deadline:
            sys.exit(
                f"timed out after {PATIENCE:g} s: another process is the lock server and does not answer"
            )
        time.sleep(MOMENT)
    return claim


def begin(folder: Folder) -> Node:
    """Create the node, and listen."""
    name, address = server_name(folder.path.name), UnixAddress(str(folder.socket))
    options = Options.check(
        name,
        cookie=folder.cookie(),
        listen=address,
        peers=None,
        tls=None,
        net_ticktime=None,
        mesh=False,
        allow_plaintext=None,
        servers={name: address},
    )
    return Node(name, None, options)


def log_to(path: Path) -> None:
    """Write the log into a file of bounded size only."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_SIZE, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logger.setLevel(logging.INFO)


def tell_ready() -> None:
    """Report that a lock server answers, and close the pipe to the program that started this one."""
    with suppress(OSError):  # that program may have ended
        os.write(1, READY)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


class Serving:
    """A lock server that listens, until it ends.

    Args:
        folder: Its folder.
        claim: Its claim to be the lock server.
        node: Its node.
        idle: Seconds without connections until it ends.
        ended: Opens when it must end.
    """

    def __init__(self, folder: Folder, claim: Claim, node: Node, idle: float, ended: Event) -> None:
        self._folder = folder
        self._claim = claim
        self._node = node
        self._idle = idle
        self._ended = ended
        self._socket = os.stat(folder.socket)

    def serve(self) -> None:
        """Serve until no program uses the server, it is told to end, or its folder is removed."""
        settle()
        logger.info("the lock server %s listens at %s", self._node.name, self._folder.socket)
        tell_ready()
        since = monotonic()
        look = min(LOOK, self._idle / 4)
        reason = "it was told to end"
        while not self._ended.wait(timeout=look):
            if not self._node.running:
                reason = "its lock table crashed"
                break
            if not self._is_in_place():
                reason = f"{self._folder.path} was removed or replaced"
                break
            if not self._is_deserted() or self._remembers():
                since = monotonic()
            elif monotonic() - since >= self._idle:
                with suppress(FileNotFoundError):  # the folder may just have been removed
                    if self._end_unless_needed():
                        return
        logger.info("the lock server ends: %s", reason)
        self._end()

    def _end_unless_needed(self) -> bool:
        """End, unless a program is connecting; return whether the server has ended."""
        folder = self._folder
        starting = folder.starting()
        if not starting.take_file():
            return False  # a program is about to connect
        try:
            aside = folder.socket.with_name("socket~")
            os.rename(folder.socket, aside)
            time.sleep(MOMENT)
            if not self._is_deserted():
                os.rename(aside, folder.socket)
                return False
            os.unlink(aside)
            logger.info("the lock server ends: no program was connected for %g s", self._idle)
            self._end()
            return True
        finally:
            starting.drop()

    def _end(self) -> None:
        if self._is_in_place():
            with suppress(FileNotFoundError):
                os.unlink(self._folder.socket)
        self._node.stop()
        self._claim.drop()

    def _is_deserted(self) -> bool:
        """Whether no program is connected or connecting."""
        cluster = self._node.cluster
        return cluster is None or cluster.network.is_deserted

    def _remembers(self) -> bool:
        """Whether it must stay to remember what is done."""
        return self._node.turn.run(lambda: memory_of(self._node).is_needed)

    def _is_in_place(self) -> bool:
        """Whether new programs find this server."""
        try:
            here = os.path.samestat(os.stat(self._folder.socket), self._socket)
        except FileNotFoundError:
            return False
        return here and self._claim.is_in_place()
