"""A Python from which what Windows lacks is taken away: `python -m tests.windows program.py`, or `-m MODULE`, with arguments.

What stands in `GONE` and `MODULES` is not there for `locks`, and for the program. Python's own modules and gevent are loaded before:
on Windows they do without, in ways of their own. `sys.platform` says `win32` from then on. `os.name` stays: by it `pathlib` decides
what paths look like. So this shows what would fail for want of a function. It does not show what a function does differently there.
"""

from __future__ import annotations

import _socket
import os
import runpy
import select
import signal
import socket
import sys
import sysconfig
import time
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

LOADED = """
    asyncio concurrent.futures.process logging.handlers multiprocessing.connection ssl subprocess tempfile urllib.request
    gevent.monkey gevent.pool gevent.socket gevent.subprocess gevent.threadpool pykka
"""
"""They keep what they have taken of the others."""
GONE: dict[ModuleType, str] = {
    os: """
        fork forkpty register_at_fork posix_spawn posix_spawnp POSIX_SPAWN_OPEN POSIX_SPAWN_CLOSE POSIX_SPAWN_DUP2 wait wait3 wait4 waitid WIFEXITED WEXITSTATUS
        getuid geteuid getgid getegid getgroups getresuid getpwuid setuid seteuid setgid setgroups initgroups getpgid getpgrp setpgid setpgrp getsid
        setsid killpg tcgetpgrp tcsetpgrp ttyname openpty ctermid nice getpriority sched_getaffinity sched_yield getloadavg uname sysconf
        O_CLOEXEC O_NOFOLLOW O_NOCTTY O_NONBLOCK O_DIRECTORY O_SYNC chown fchown lchown fchmod lockf mkfifo mknod pipe2 pread pwrite
        readv writev sendfile statvfs sync eventfd memfd_create pidfd_open
    """,
    socket: """
        AF_UNIX SO_PEERCRED SO_REUSEPORT SCM_RIGHTS SCM_CREDENTIALS CMSG_LEN CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL TCP_USER_TIMEOUT
        TCP_QUICKACK SOCK_CLOEXEC SOCK_NONBLOCK send_fds recv_fds
    """,
    _socket: "socketpair",
    signal: """
        SIGHUP SIGQUIT SIGKILL SIGUSR1 SIGUSR2 SIGPIPE SIGALRM SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGWINCH
        alarm pause setitimer getitimer siginterrupt pthread_kill pthread_sigmask sigpending sigwait sigwaitinfo sigtimedwait
    """,
    select: "poll epoll kqueue",
    time: "clock_gettime clock_settime clock_getres pthread_getcpuclockid tzset CLOCK_MONOTONIC CLOCK_REALTIME CLOCK_BOOTTIME",
}
"""What is not in these modules on Windows."""
MODULES = [
    "fcntl",
    "resource",
    "pwd",
    "grp",
    "termios",
    "tty",
    "pty",
    "syslog",
    "readline",
    "curses",
    "posix",
]
"""Modules that can't be imported there."""


def pair(*terms: object) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, as Python makes them on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def take_away() -> None:
    """Take away what Windows lacks, from now on."""
    for name in LOADED.split():
        import_module(name)
    sysconfig.get_config_vars()  # it looks for a file by the platform's name
    of_gevent: Any = sys.modules["gevent.socket"]
    of_gevent.socketpair = vars(sys.modules["gevent._socket3"])["_fallback_socketpair"]
    for module, names in GONE.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    socket.socketpair = pair
    subprocess: Any = sys.modules["subprocess"]
    subprocess.Popen.kill = subprocess.Popen.terminate
    subprocess._USE_POSIX_SPAWN = False
    sys.platform = "win32"


def main() -> None:
    """Run a program or a module."""
    if sys.argv[1:3] == ["-m", "pytest"]:
        with suppress(ImportError):
            import_module("trio")  # plugins load it, and it looks at the system it is on
    take_away()
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
