"""Python programs that begin warm: `Program` is `subprocess.Popen`, without the time that imports take.

One process of each pytest worker has imported what programs with a node import, and has started nothing. A program is forked from
it, twice, and becomes a child of the pytest worker, as any other one is: Linux gives an orphan to the next subreaper above it.
What is as in a fresh interpreter: standard streams, arguments, `__main__`, environment, working directory, end, and that it was not
forked from a program with locks. What could differ begins cold: another system, a program that is patched (which must happen
before the imports), other settings of Python or gevent, another version of `locks`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

__all__ = ["Program", "run_program", "serve"]

ROOT = str(Path(__file__).parents[1])
LIMIT = 300
COLD = ("gevent", "skewed", "--patched", "pytest")
"""What these words are in begins cold."""
SETTINGS = ("PYTHON", "GEVENT")
IMPORTED = ("locks.cli.node", "locks.cli.run", "locks.cli.parser")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
LARGEST = 1 << 20


class Program(subprocess.Popen[str]):
    """A program that is given as `[sys.executable, "-m", MODULE, ...]` or `[sys.executable, "-c", CODE, ...]`; by default with pipes."""

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def __init__(self, command: list[Any], **given: Any) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__(command, **{**pipes, "text": True, **given})

    def _execute_child(self, args: Any, *given: Any) -> None:
        _, preexec_fn, _, pass_fds, cwd, env, _, _, shell, *rest = given
        streams, more = rest[:6], rest[6:]
        env = dict(os.environ if env is None else env)
        args = [os.fspath(each) for each in args]
        folder = str(cwd or os.getcwd())
        plain = more[0] and not any((preexec_fn, pass_fds, shell))
        if not plain or not _is_warm(args, env, folder, more[5]):
            super()._execute_child(args, *given)
            return
        own = [0, 1, 2]
        fds = [own[n] if fd == -1 else fd for n, fd in enumerate((streams[0], *streams[3::2]))]
        self.pid = _start([args[1:], env, folder], fds)
        self._child_created = True
        self._close_pipe_fds(*streams)


def run_program(
    command: list[Any],
    *,
    input: str = "",
    timeout: float = LIMIT,
    check: bool = False,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it printed is kept."""
    with Program(command, **given) as program:
        try:
            out, error = program.communicate(input, timeout)
        except BaseException:
            program.kill()
            raise
    assert not (check and program.returncode), error
    return subprocess.CompletedProcess(command, program.returncode, out, error)


def _is_warm(args: list[str], env: dict[str, str], cwd: str, new_session: bool) -> bool:
    if sys.platform != "linux" or new_session or list(args[:1]) != [sys.executable]:
        return False
    other_sources = cwd != ROOT and os.path.isdir(os.path.join(cwd, "locks"))
    same_path = env.get("PYTHONPATH") in (ROOT, os.environ.get("PYTHONPATH"))
    if args[1] not in ("-c", "-m") or other_sources or not same_path:
        return False
    return _settings(env) == _settings(dict(os.environ)) and not any(
        word in arg for word in COLD for arg in args
    )


def _settings(env: dict[str, str]) -> dict[str, str]:
    beside = {"PYTHONUNBUFFERED", "PYTHONPATH"}
    return {k: v for k, v in env.items() if k.startswith(SETTINGS) and k not in beside}


def _start(what: list[Any], fds: list[int]) -> int:
    """Let a program be forked; return its process id."""
    channel, prctl = _parent()
    data = json.dumps(what).encode()
    assert len(data) < LARGEST
    prctl(SUBREAPER, 1)
    try:
        socket.send_fds(channel, [data], fds)
        said = channel.recv(100)
    finally:
        prctl(SUBREAPER, 0)
    assert said, "what programs are forked from has ended"
    return int(said)


@cache
def _parent() -> tuple[socket.socket, Any]:
    """What programs are forked from; it ends with this process."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in (here, there):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
    subprocess.Popen(
        [sys.executable, "-c", f"from tests.warm import serve; serve({there.fileno()})"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
        pass_fds=[there.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    there.close()
    return here, ctypes.CDLL(None).prctl


def serve(number: int) -> None:
    """Fork programs until nobody wants any; return in none of them before its end."""
    for name in IMPORTED:
        import_module(name)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=number)
    while True:
        data, fds, _, _ = socket.recv_fds(channel, LARGEST, 3)
        if not data:
            os._exit(0)
        read, write = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            if os.fork():
                signal.pause()
            break
        os.waitpid(between, 0)
        channel.send(os.read(read, 100))
        for fd in (read, write, *fds):
            os.close(fd)
    os.write(write, str(os.getpid()).encode())
    os.kill(
        between, signal.SIGKILL
    )  # its child has run all that is run after a fork: it knows it by another parent
    while os.getppid() == between:
        time.sleep(0.0001)
    for fd in (read, write, channel.detach()):
        os.close(fd)
    _become(*json.loads(data), fds)


def _become(args: list[str], env: dict[str, str], cwd: str, fds: list[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    for fd in set(fds):
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    at_once = 1 if env.get("PYTHONUNBUFFERED") else -1
    for name, mode, buffering in (("stdin", "r", -1), ("stdout", "w", at_once), ("stderr", "w", 1)):
        was = getattr(sys, name)
        how = {"encoding": was.encoding, "errors": was.errors, "closefd": False}
        new = open(was.fileno(), mode, buffering, **how)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    main = sys.modules["__main__"].__dict__
    del main["serve"]
    kind, what, *arguments = args
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy._run_module_as_main(what)
    else:
        exec(compile(what, "<string>", "exec"), main)
