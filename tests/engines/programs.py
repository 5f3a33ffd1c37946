"""Programs that evaluate what they are told, and coordinators of tooz among them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from tests.cluster.servers import hear, tell

__all__ = ["Coordinator", "Program"]

LOOP = """
import sys
def tried(do):
    try:
        return do()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print("ready", flush=True)
for line in sys.stdin:
    print(repr(tried(lambda: eval(line))), flush=True)
"""
COORDINATOR = """
from tooz import coordination
name = {name!r}.encode()
coordinator = coordination.get_coordinator({url!r}, name)
coordinator.start()
told, found = [], {{}}
def events():
    coordinator.run_watchers()
    seen = list(told)
    told.clear()
    return [(type(each).__name__, each.member_id.decode()) for each in seen]
def lock(name):
    return found.setdefault(name, coordinator.get_lock(name.encode()))
"""


class Program:
    """A program that evaluates expressions.

    Args:
        start: Starts a program of Python.
        code: What it does first.
    """

    def __init__(self, start: Callable[[str], subprocess.Popen[str]], code: str) -> None:
        self.process = start(code + LOOP)

    def ready(self) -> None:
        """Wait until it has begun."""
        assert hear(self.process) == "ready"

    def begin(self, expression: str) -> None:
        """Have it evaluate something, without waiting."""
        tell(self.process, expression)

    def told(self) -> Any:
        """What came of it; an error as text."""
        return eval(hear(self.process), {})

    def do(self, expression: str) -> Any:
        """Both."""
        self.begin(expression)
        return self.told()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.communicate()


class Coordinator(Program):
    """A program with a coordinator.

    Args:
        start: As for `Program`.
        url: Where its locks are.
        name: Its id.
    """

    def __init__(self, start: Callable[[str], subprocess.Popen[str]], url: str, name: str) -> None:
        super().__init__(start, COORDINATOR.format(url=url, name=name))

    def members(self, group: str) -> Any:
        """The members of a group, as this one sees them; an error as text."""
        found = self.do(f"sorted(coordinator.get_members({group!r}.encode()).get())")
        return found if isinstance(found, str) else [each.decode() for each in found]
