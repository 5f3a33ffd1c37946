"""Programs under process managers: the recipes of `docs/web.md` and `docs/programs.md`, run as they stand there.

Each writes invoices into one book under one lock: whoever has the lock counts the lines and appends one with the next
number. So a book with each number once, in order, shows that no two had the lock at the same time.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.servers import LIMIT
from tests.helpers import eventually, free_port

__all__ = ["EXAMPLES", "Managed", "answers", "managed", "numbers", "post", "recipes", "run", "web"]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "processes"
PAGES = [ROOT / "docs" / name for name in ("web.md", "programs.md")]


def recipes(*managers: str) -> list[str]:
    """The commands of the pages that begin with one of these words; without words all."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"test_process_managers\.py runs .*?-->\n```sh\n(.*?)```", text, re.S)
    found: list[str] = re.findall(r"^\$ (.*?)(?: +#.*)?$", "".join(blocks), re.M)
    return [command for command in found if not managers or command.split()[0] in managers]


class Managed:
    """A program that has processes of its own, in a group of processes.

    Attributes:
        process: That which manages the others.
        folder: Where it runs.
    """

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("a") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**environment, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """What its processes have said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Ask it to end, and see that nothing is left of it."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(LIMIT)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL of all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)


@contextmanager
def managed(command: str, folder: Path, environment: dict[str, str]) -> Iterator[Managed]:
    """Run a command, beside the examples, until the block is left; on an error show what it has said."""
    for example in EXAMPLES.glob("*.py"):
        if not (folder / example.name).exists():  # another program may be reading it just now
            shutil.copy(example, folder)
    word, *rest = shlex.split(command)
    program = Path(sys.executable) if word == "python" else Path(sys.executable).with_name(word)
    made = Managed([str(program), *rest], folder, environment)
    try:
        try:
            yield made
        finally:
            made.close()
    except BaseException:
        print(f"{command}\n{made.log}")
        raise


@contextmanager
def web(command: str, folder: Path, environment: dict[str, str]) -> Iterator[tuple[Managed, str]]:
    """Run a program that serves; also gives its address, at which somebody answers by then."""
    port = free_port()
    where = {
        # A worker that is not ready yet does not hear that it is to end: gunicorn waits for it in vain.
        "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{port} --no-control-socket --graceful-timeout 10",
        "UVICORN_PORT": f"{port}",
    }
    command = command.replace(":8000", f"127.0.0.1:{port}")  # uwsgi has no default
    with managed(command, folder, environment | where) as made:
        url = f"http://127.0.0.1:{port}"

        def is_there() -> bool:
            assert made.process.poll() is None, f"{command} has ended"
            return post(f"{url}/nothing") is not None

        eventually(is_there)
        if "--lazy-apps" in command:  # likewise, and uWSGI waits for ever
            eventually(lambda: made.log.count("(default app)") == 3)
        yield made, url


def post(url: str) -> str | None:
    """What the program answers; nothing if nobody is there, or who was there is gone."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, method="POST"), timeout=LIMIT
        ) as got:
            text: str = got.read().decode()
            return text
    except urllib.error.HTTPError as error:
        return f"{error.code}"
    except OSError as error:  # also urllib's own
        reason = getattr(error, "reason", error)
        if isinstance(reason, ConnectionError):
            return None
        raise


def answers(url: str, clients: int, each: int) -> list[str | None]:
    """What so many clients are answered, who ask so many times each."""
    got: list[str | None] = []

    def ask() -> None:
        got.extend(post(url) for _ in range(each))

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return got


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a program to its end, which must be a good one; return what it has written."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def numbers(folder: Path) -> list[int]:
    """The numbers in the book, in its order."""
    book = folder / "invoices.txt"
    text = book.read_text() if book.exists() else ""
    return [int(line.split()[0]) for line in text.splitlines()]
