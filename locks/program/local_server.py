"""The process of the lock server that the programs of one user on one machine share.

`locks.program.local` starts it: `python -m locks.program.local_server FOLDER`. It is nobody's child, has no
terminal, and ends by itself. Its life:

1. It leaves the program that has started it, and claims to be the lock server. If another one answers, that is fine, too.
2. It listens in the place of a socket that a killed one may have left, and says that it is ready.
3. When nobody has been connected for a while, it claims the right of who starts a server, takes its socket away, and
   looks once more. Who comes in that moment finds nothing, waits for that right, and starts another one.
4. If its folder is taken away, new programs would start another one: it ends at once, and its clients are told.
"""

from __future__ import annotations

import argparse
import logging
import logging.handlers
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from locks.node.node import Node
from locks.otp.names.discovery import UnixAddress
from locks.otp.options import Options
from locks.program.folder import Claim, Folder
from locks.program.local import READY, server_name
from locks.program.serving import open_many_files, settle
from locks.runtime import Event

__all__ = ["main"]

logger = logging.getLogger("locks.local")

LOG_SIZE = 2**18  # bytes; there are two such files at most
PATIENCE = 15.0  # seconds until a server that ends has ended
LOOK = 0.5  # seconds between two looks at whether somebody is there
MOMENT = 0.05  # seconds, for those who were connecting just now


def main() -> None:
    """Run the lock server of a folder."""
    parser = argparse.ArgumentParser(prog="python -m locks.program.local_server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle", type=float, required=True, metavar="SECONDS")
    options = parser.parse_args()
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
            logger.exception("the lock server ends")
            raise
    else:
        tell_ready()


def leave() -> None:
    """Have nothing to do any more with the program that has started this one, but for the pipe to it."""
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
    """Become the lock server; `None` if another process is it, and answers."""
    deadline = time.monotonic() + PATIENCE
    claim = folder.running()
    while not claim.take():
        if folder.answers():
            return None
        if time.monotonic() >= deadline:
            sys.exit(
                f"another process has been the lock server for {PATIENCE:g} s, and does not answer"
            )
        time.sleep(MOMENT)
    return claim


def begin(folder: Folder) -> Node:
    """Make the node, and listen."""
    name, address = server_name(folder.path.name), UnixAddress(str(folder.socket))
    options = Options.check(
        name,
        cookie=folder.cookie(),
        listen=address,
        peers=None,
        tls=None,
        epmd=None,
        net_ticktime=None,
        mesh=False,
        allow_plaintext=None,
        servers={name: address},
    )
    return Node(name, None, options)


def log_to(path: Path) -> None:
    """Write the log into a file of bounded size, and leave no words for anybody else."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_SIZE, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logger.setLevel(logging.INFO)


def tell_ready() -> None:
    """Say that a lock server answers, and close what whoever has started this one listens to."""
    with suppress(OSError):  # whoever has started it may be gone
        os.write(1, READY)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


class Serving:
    """The life of a lock server that listens.

    Args:
        folder: Where.
        claim: Its claim to be the lock server.
        node: It.
        idle: After how many seconds without anybody it ends.
        ended: Opens when it is to end.
    """

    def __init__(self, folder: Folder, claim: Claim, node: Node, idle: float, ended: Event) -> None:
        self._folder = folder
        self._claim = claim
        self._node = node
        self._idle = idle
        self._ended = ended
        self._socket = os.stat(folder.socket)

    def serve(self) -> None:
        """Serve until nobody needs it, it is told to end, or its folder is taken away."""
        settle()
        logger.info("the lock server %s listens at %s", self._node.name, self._folder.socket)
        tell_ready()
        since = time.monotonic()
        look = min(LOOK, self._idle / 4)
        reason = "it was told to"
        while not self._ended.wait(timeout=look):
            if not self._node.running:
                reason = "its lock table has crashed"
                break
            if not self._is_in_place():
                reason = f"{self._folder.path} was taken away, or is another one"
                break
            if not self._is_deserted():
                since = time.monotonic()
            elif time.monotonic() - since >= self._idle:
                with suppress(FileNotFoundError):  # if the folder was just taken away
                    if self._end_unless_needed():
                        return
        logger.info("the lock server ends: %s", reason)
        self._end()

    def _end_unless_needed(self) -> bool:
        """End, unless somebody comes just now; return whether it has."""
        folder = self._folder
        starting = folder.starting()
        if not starting.take():
            return False  # somebody is about to come
        try:
            aside = folder.socket.with_name("socket~")
            os.rename(folder.socket, aside)
            time.sleep(MOMENT)
            if not self._is_deserted():
                os.rename(aside, folder.socket)
                return False
            os.unlink(aside)
            logger.info("the lock server ends: nobody was connected for %g s", self._idle)
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
        """Whether nobody is connected, or about to be."""
        cluster = self._node.cluster
        return cluster is None or cluster.distribution.is_deserted

    def _is_in_place(self) -> bool:
        """Whether programs that come find this server."""
        try:
            here = os.path.samestat(os.stat(self._folder.socket), self._socket)
        except FileNotFoundError:
            return False
        return here and self._claim.is_in_place()


if __name__ == "__main__":
    main()
