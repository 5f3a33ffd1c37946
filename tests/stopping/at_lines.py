"""`stop` at each line of each call, and each call at each line of `stop`: `python -m tests.stopping.at_lines`.

There are four ways, and in each the call is one of `calls.CALLS`, in a program with private locks:

=======  =========================================================================================
beside   the call is held at a line, and another thread calls `locks.stop()` meanwhile
within   the call's own thread calls it at that line, as a signal handler would
behind   the node's background is held at a line, and another thread calls `locks.stop()` meanwhile
during   `locks.stop()` is held at a line, and another thread makes the call meanwhile
=======  =========================================================================================

What is held goes on when the other one has ended, or after `MOMENT`: one may have to wait for the other. Both must end, the call with a
result that `calls` allows; and a lock can be taken afterwards, on a new node. With `--opcodes` a line is an instruction.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import locks
import locks_leader
from tests.stopping.calls import CALLS, REFUSED

__all__ = ["WAYS", "Trial", "length", "play"]

WAYS = ("beside", "within", "behind", "during")
HANGS = 30.0  # seconds in which both have ended
MOMENT = 0.03  # seconds that what is held waits for the other one
AGAIN = 0.05  # seconds between two stops, for a call that has begun a new node and waits there
FOLDERS = tuple(str(Path(each.__file__).parent) for each in (locks, locks_leader))


class Trial(NamedTuple):
    """One call beside one `stop`.

    Attributes:
        call: The name of the call.
        way: See above.
        at: The line at which one of them was held, counted.
        where: The same in the source; empty if it has fewer lines.
        result: What the call ended with.
        problem: What was wrong, in words.
    """

    call: str
    way: str
    at: int
    where: str
    result: str
    problem: str


class _Lines:
    """Counts the lines of `locks` in a thread, or in all greenlets of one, and calls a function before one of them."""

    def __init__(self, at: int, strike: Callable[[], object], opcodes: bool) -> None:
        self.count = 0
        self.where = ""
        self._at = at
        self._strike = strike
        self._event = "opcode" if opcodes else "line"

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A function begins."""
        if not frame.f_code.co_filename.startswith(FOLDERS):
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        return self.step

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A line is next."""
        if event == self._event:
            self.count += 1
            if self.count == self._at:
                file = frame.f_code.co_filename.rpartition("/locks")[2]
                self.where = f"{file}:{frame.f_lineno} {frame.f_code.co_name}"
                self._strike()
        return self.step


class _Side:
    """One of the two: a thread that calls something, perhaps traced."""

    def __init__(self, do: Callable[[], object], lines: _Lines | None = None) -> None:
        self.error: BaseException | None = None
        self._do = do
        self._lines = lines
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        if self._lines is not None:
            sys.settrace(self._lines.enter)
        try:
            self._do()
        except BaseException as error:
            self.error = error
        finally:
            sys.settrace(None)

    def ends(self, seconds: float) -> bool:
        """Whether it has ended in time."""
        self.thread.join(seconds)
        return not self.thread.is_alive()


def _prepare(way: str, lines: _Lines) -> None:
    """Start a node, with something on it that ends with it."""
    os.environ["LOCKS_SERVERS"] = "here"  # of the next node, too
    node = locks.start()
    if way == "behind":
        node.executor.call(sys.settrace, lines.enter)
    if way == "during":
        locks.Lock(("a",)).acquire()
        locks_leader.Election("e").start()


def length(name: str, way: str, opcodes: bool = False) -> int:
    """How many lines a call has, or `stop` beside it; a call that waits is stopped by another thread."""
    lines = _Lines(-1, print, opcodes)
    _prepare(way, lines)
    if way == "during":
        side = _Side(locks.stop, lines)
        assert side.ends(HANGS)
        return lines.count
    side = _Side(CALLS[name].do, None if way == "behind" else lines)
    while not side.ends(0.3):
        locks.stop()
    locks.stop()
    return lines.count


def play(name: str, way: str, at: int, opcodes: bool = False) -> Trial:
    """One trial."""
    call = CALLS[name]
    sides: dict[str, _Side] = {}
    refused: list[BaseException] = []

    def other() -> None:
        if way == "within":
            try:
                locks.stop()
            except locks.LocksError as error:
                refused.append(error)
            return
        side = sides["other"] = _Side(call.do if way == "during" else locks.stop)
        side.ends(MOMENT)

    lines = _Lines(at, other, opcodes)
    _prepare(way, lines)
    held = _Side(locks.stop if way == "during" else call.do, None if way == "behind" else lines)
    problem = ""
    for _ in range(int(HANGS / AGAIN)):
        if held.ends(AGAIN) and all(side.ends(AGAIN) for side in sides.values()):
            break
        if lines.where or held.ends(0) or call.waits:
            locks.stop()  # a call may have begun a new node, or the program has fewer lines
    else:
        problem = "hangs:\n" + _stacks()
    caller = sides.get("other") if way == "during" else held
    error = None if caller is None else caller.error
    result = "not called" if caller is None else "done" if error is None else type(error).__name__
    if error is not None and result not in REFUSED | call.errors:
        problem = "".join(traceback.format_exception(error))
    stopper = held if way == "during" else sides.get("other")
    if stopper is not None and stopper.error is not None:
        problem += "stop: " + "".join(traceback.format_exception(stopper.error))
    if not problem:
        locks.stop()
        with locks.Lock(("after it",), timeout=HANGS):
            pass
        locks.stop()
    return Trial(name, way, at, lines.where, result, problem)


def _stacks() -> str:
    """Where all threads are."""
    frames = sys._current_frames()
    named = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{named.get(ident)}:\n{''.join(traceback.format_stack(frame)[-12:])}"
        for ident, frame in frames.items()
    )


def trials(
    names: list[str], ways: list[str], tries: int | None, seed: int, opcodes: bool
) -> Iterator[Trial]:
    """All trials of some calls, or some of each, chosen by the seed."""
    for name in names:
        for way in ways:
            most = length(name, way, opcodes)
            every = range(1, most + 1)
            chance = random.Random(f"{seed} {name} {way}")
            chosen = (
                every if tries is None else sorted(chance.sample(every, min(tries, len(every))))
            )
            for at in chosen:
                yield play(name, way, at, opcodes)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.stopping.at_lines")
    parser.add_argument("--call", action="append", choices=CALLS)
    parser.add_argument("--way", action="append", choices=WAYS)
    parser.add_argument("--tries", type=int, help="lines of each; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--opcodes", action="store_true")
    options = parser.parse_args()
    names = options.call or [name for name in CALLS if CALLS[name].needs != "servers"]
    total: Counter[tuple[str, str]] = Counter()
    results: dict[tuple[str, str], Counter[str]] = {}
    bad = 0
    for trial in trials(
        names, options.way or list(WAYS), options.tries, options.seed, options.opcodes
    ):
        faulthandler.dump_traceback_later(3 * HANGS, exit=True)
        key = (trial.call, trial.way)
        total[key] += 1
        results.setdefault(key, Counter())[trial.result] += 1
        if trial.problem:
            bad += 1
            print(f"{trial.call} ({trial.way}) at {trial.at} {trial.where}: {trial.problem}")
            if "hangs" in trial.problem:
                break
    for (name, way), found in results.items():
        said = ", ".join(f"{count} {what}" for what, count in found.most_common())
        print(f"{name:28} {way:8} {total[name, way]:6} {said}")
    print(f"{sum(total.values())} trials, {bad} wrong", flush=True)
    os._exit(bool(bad))


if __name__ == "__main__":
    main()
