"""Each call, disturbed at each position in each way: a search without chance.

`python -m tests.torture.systematic` plays the cases (`cases`) under the faults below, at every position, and prints
a table; with `--json` one line for each case under each fault. `--tries K` plays K positions of each, evenly spread,
from a start that `--seed` decides; `--case` and `--fault` choose.

The faults, and what a position is for each:

=================  ===================================================================================
Injected           a `BaseException` is raised at the n-th instruction (`tracing`)
InjectedError      an `Exception` is raised there
KeyboardInterrupt  a `KeyboardInterrupt` is raised there
SIGINT             a real signal comes there, and `locks` handles it if it has installed its handler
acquire            a transaction that locks another id is run there, as a finaliser or a hook would
view               who holds what is asked there, as a signal handler would
release            another transaction of the same client is ended there
collection         the n-th allocation begins a collection, in which a finaliser would lock another id
memory             the n-th allocation fails (`_testcapi.set_nomemory`); where no other client is about
stack              n frames are left when the call begins
=================  ===================================================================================

After each: the exception was seen once, by the caller; `acquire` was run or refused at once, `release` is done
when the call has returned; the ledger of holders is as the case says (`cases`), the invariants hold
(`invariants`), all waiting clients get their locks when the holders let go, nothing is left, and a new transaction
works at once. Nothing is printed, and nothing logged. Before no instruction of the call is there a thin lock that the next
turn would not inflate.

A trial that hangs must be found, and what it has broken must not spoil the next one: trials run in a forked
child, until the first that fails; the next child goes on behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

import gevent
from gevent import getcurrent

import locks
from tests.helpers import eventually
from tests.torture.cases import CASES, Case
from tests.torture.memory import remove_mem_hooks, set_nomemory
from tests.torture.stage import Stage, name_id
from tests.torture.tracing import Strike, Tracer, trace

__all__ = ["FAULTS", "Row", "Trial", "sweep"]

HANG = 60.0
"""Seconds after which a trial hangs: its own limits are shorter."""


class Injected(BaseException):
    """What is raised at a position, and no product code knows."""


class InjectedError(Exception):
    """The same, for code that catches `Exception`."""


class Trial(NamedTuple):
    """One call that was disturbed at one position.

    Attributes:
        case: The case.
        kind: The kind of clients.
        fault: The fault.
        at: The position.
        where: What that is in the source.
        outside: Whether nothing could be done about it: see `tracing`.
        struck: Whether the fault has happened at all: else there are no more positions.
        problems: What was wrong afterwards.
    """

    case: str
    kind: str
    fault: str
    at: int
    where: str
    outside: bool
    struck: bool
    problems: list[str]


class Row(NamedTuple):
    """The trials of one case under one fault."""

    case: str
    kind: str
    fault: str
    trials: int
    outside: int
    failed: list[Trial]


# --- The faults -------------------------------------------------------------------------------------


class Disturbed(NamedTuple):
    """What came of a call that was disturbed."""

    raised: BaseException | None
    strike: Strike | None
    struck: bool
    problems: list[str]


LATE = 10.0  # seconds, at most, until a signal comes that was sent once more

Disturb = Callable[[Case, Stage, int], Disturbed]


def _call(act: Callable[[], object]) -> BaseException | None:
    try:
        act()
    except BaseException as error:
        return error
    return None


class Looking(Tracer):
    """Looks before each instruction whether there is a thin lock that the next turn would not inflate.

    Attributes:
        node: The node that has them.
        unannounced: Where there was one.
    """

    node: locks.node.Node
    unannounced: frozenset[str] = frozenset()

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        """An instruction is next."""
        node = self.node
        if node.thin.agents and not node._dispatch.thin:
            self.unannounced |= {f"{frame.f_code.co_name}:{frame.f_lineno}"}
        super().step(frame, event, arg)
        return self.step


def _at_instruction(case: Case, stage: Stage, at: int, strike: Callable[[], object]) -> Disturbed:
    interlude = case.interlude
    tracer = Looking(
        at,
        strike,
        case.begin,
        None if interlude is None else (lambda: interlude(stage)),
    )
    tracer.node = stage.node
    raised = _call(lambda: trace(tracer, lambda: case.act(stage)))
    problems = [f"a thin lock that is not announced at {each}" for each in tracer.unannounced]
    return Disturbed(raised, tracer.struck, tracer.struck is not None, problems)


def _raising(kind: type[BaseException]) -> Disturb:
    def disturb(case: Case, stage: Stage, at: int) -> Disturbed:
        error = kind("injected")

        def strike() -> None:
            raise error

        done = _at_instruction(case, stage, at, strike)
        problems = done.problems
        if done.struck and done.raised is not error:
            problems.append(f"the exception was lost; the caller saw {done.raised!r}")
        return done._replace(problems=problems)

    return disturb


def _signalled(case: Case, stage: Stage, at: int) -> Disturbed:
    done = _at_instruction(case, stage, at, lambda: signal.raise_signal(signal.SIGINT))
    problems = done.problems
    if done.struck and done.raised is None:
        # Where nobody would get it, it is sent once more, a moment later.
        done = done._replace(raised=_call(lambda: time.sleep(LATE)))
    if done.struck and not isinstance(done.raised, KeyboardInterrupt):
        problems.append(f"Ctrl-C was lost; the caller saw {done.raised!r}")
    return done._replace(problems=problems)


def _acquiring(case: Case, stage: Stage, at: int) -> Disturbed:
    seen: list[BaseException] = []

    def strike() -> None:
        try:
            with locks.transaction(timeout=1) as tx:
                tx.lock(name_id("elsewhere"))
        except (locks.LocksError, RuntimeError) as error:
            if isinstance(error, locks.LockTimeout):
                raise
            seen.append(error)

    done = _at_instruction(case, stage, at, strike)
    return done._replace(problems=_unexpected(case, done))


def _viewing(case: Case, stage: Stage, at: int) -> Disturbed:
    views: list[Callable[[], object]] = [
        lambda: locks.holders(name_id("elsewhere")),
        lambda: locks.queue(name_id("elsewhere")),
        lambda: locks.Lock(name_id("elsewhere")).locked(),
        lambda: locks.Lock(name_id("elsewhere")).owned(),
        locks.statistics,
        locks.facts.waits,
    ]
    answered: list[object] = []

    def strike() -> None:
        for view in views:
            with suppress(locks.errors.ReentrantCall):
                answered.append(view())

    done = _at_instruction(case, stage, at, strike)
    problems = _unexpected(case, done)
    if done.struck and len(answered) < 3:
        problems.append(f"of the views only {len(answered)} were answered")
    return done._replace(problems=problems)


def _releasing(case: Case, stage: Stage, at: int) -> Disturbed:
    agent = locks.original.spawn_agent()
    locks.original.lock(agent, name_id("elsewhere"), timeout=1)
    done = _at_instruction(case, stage, at, lambda: locks.original.end_transaction(agent))
    problems = _unexpected(case, done)
    # Another client's thread may have the turn: then it does it, a moment later.
    if done.struck and not _within_a_second(lambda: not agent.is_alive()):
        problems.append("a release within the call was not done when it had returned")
    if agent.is_alive():
        agent.end_transaction()
    return done._replace(problems=problems)


def _within_a_second(condition: Callable[[], bool]) -> bool:
    try:
        eventually(condition, 1.0)
    except AssertionError:
        return False
    return True


def _at_collection(case: Case, stage: Stage, at: int, strike: Callable[[], object]) -> Disturbed:
    """Strike at an allocation."""
    if case.begin is not None:
        return _undisturbed(case, stage)
    mine = getcurrent()
    count = 0

    def begins(phase: str, info: object) -> None:
        nonlocal count
        if phase == "start" and getcurrent() is mine:
            count += 1
            if count == at + 1:
                strike()

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(begins)
    gc.set_threshold(1, 10**6, 10**6)  # one collection, of the newest, for each two allocations
    try:
        raised = _call(lambda: case.act(stage))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(begins)
    return Disturbed(raised, None, count > at, [])


def _collecting(case: Case, stage: Stage, at: int) -> Disturbed:
    def strike() -> None:
        with suppress(locks.LocksError, RuntimeError), locks.transaction(timeout=1) as tx:
            tx.lock(name_id("elsewhere"))

    done = _at_collection(case, stage, at, strike)
    return done._replace(problems=_unexpected(case, done))


def _without_memory(case: Case, stage: Stage, at: int) -> Disturbed:
    if not stage.alone or case.begin is not None:  # it would hit others, too
        return _undisturbed(case, stage)

    def act() -> None:
        set_nomemory(at, at + 1)
        try:
            case.act(stage)
        finally:
            remove_mem_hooks()

    raised = _call(act)
    problems = []
    if not isinstance(raised, (MemoryError, case.expected or MemoryError, type(None))):
        problems.append(f"the caller saw {raised!r}")
    # There is no telling whether it has happened: some of the interpreter's own code goes on without.
    return Disturbed(raised, None, True, problems)


def _without_stack(case: Case, stage: Stage, at: int) -> Disturbed:
    if case.begin is not None:
        return _undisturbed(case, stage)
    depth = 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()

    def act() -> None:
        sys.setrecursionlimit(depth + 3 + at)
        try:
            case.act(stage)
        finally:
            sys.setrecursionlimit(before)

    raised = _call(act)
    problems = []
    if not isinstance(raised, (RecursionError, case.expected or RecursionError, type(None))):
        problems.append(f"the caller saw {raised!r}")
    return Disturbed(raised, None, True, problems)


def _undisturbed(case: Case, stage: Stage) -> Disturbed:
    """Where a fault makes no sense."""
    done = _at_instruction(case, stage, -1, lambda: None)
    return done._replace(struck=False)


def _unexpected(case: Case, done: Disturbed) -> list[str]:
    expected = type(None) if case.expected is None else case.expected
    wrong = not isinstance(done.raised, expected)
    return [*done.problems, *([f"the caller saw {done.raised!r}"] if wrong else [])]


FAULTS: dict[str, Disturb] = {
    "Injected": _raising(Injected),
    "InjectedError": _raising(InjectedError),
    "KeyboardInterrupt": _raising(KeyboardInterrupt),
    "SIGINT": _signalled,
    "acquire": _acquiring,
    "view": _viewing,
    "release": _releasing,
    "collection": _collecting,
    "memory": _without_memory,
    "stack": _without_stack,
}
LENGTHS = {"memory": 400, "stack": 60, "collection": 120}
"""How many allocations, and frames, are tried; of the others, as many as there are instructions."""


# --- One trial --------------------------------------------------------------------------------------


class _Log(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def play(name: str, kind: str, fault: str, at: int, log: _Log) -> Trial:
    """One trial, in the calling thread or greenlet."""
    case = CASES[name]
    stage = Stage(kind)
    log.lines.clear()
    case.prepare(stage)
    done = FAULTS[fault](case, stage, at)
    stage.ended()
    stage.problems += done.problems
    outside = done.strike is not None and done.strike.outside
    case.check(stage)
    as_returned = done.raised is None or (
        case.expected is not None and isinstance(done.raised, case.expected)
    )
    if case.expected is not None:
        allowed: tuple[Any, ...] = case.raised
    elif as_returned or outside:
        allowed = (case.returned, *case.raised) if outside else (case.returned,)
    else:
        allowed = case.raised
    if outside and done.raised is not None and name in ("spawn_agent", "begin_transaction of two"):
        stage.agents += stage.node.agents_by_id.values()  # it has begun, and nobody knows of it
    stage.expect("returned" if done.raised is None else "raised", *allowed)
    stage.close(lambda: case.finish(stage))
    stage.problems += [f"logged: {line}"[:200] for line in log.lines]
    where = "" if done.strike is None else done.strike.where
    return Trial(name, kind, fault, at, where, outside, done.struck, stage.problems)


def _length(name: str, kind: str) -> int:
    """How many instructions a case has; played once to find out."""
    case = CASES[name]
    stage = Stage(kind)
    case.prepare(stage)
    interlude = case.interlude
    tracer = Tracer(
        None, None, case.begin, None if interlude is None else (lambda: interlude(stage))
    )
    _call(lambda: trace(tracer, lambda: case.act(stage)))
    stage.ended()
    stage.close(lambda: case.finish(stage))
    if stage.problems:
        raise AssertionError(f"{name} goes wrong without any fault: {stage.problems}")
    return tracer.count


# --- Many trials, in children -----------------------------------------------------------------------


def _in_context(kind: str, function: Callable[[], None]) -> None:
    """Call it where clients of this kind have their like: greenlets want a greenlet."""
    if kind == "threads":
        function()
    else:
        greenlet = gevent.spawn(function)
        greenlet.join()
        greenlet.get()


Plan = list[tuple[str, int]]
"""Faults and positions."""


def _child(out: int, name: str, kind: str, plan: Plan | None, errors: Any) -> None:
    """Plays a plan, tells each outcome, and ends with the first that fails; without a plan, the length."""
    log = _Log()
    logging.getLogger("locks").addHandler(log)
    logging.getLogger("locks").propagate = False

    def tell(word: str, value: Any) -> None:
        os.write(out, (json.dumps([word, value]) + "\n").encode())

    def work() -> None:
        if plan is None:
            faulthandler.dump_traceback_later(HANG, exit=True)
            tell("length", _length(name, kind))
            return
        for fault, at in plan:
            faulthandler.dump_traceback_later(HANG, exit=True)
            tell("begin", None)
            mark = os.lseek(errors.fileno(), 0, os.SEEK_END)
            try:
                trial = play(name, kind, fault, at, log)
            except BaseException as error:
                text = f"the trial broke down: {type(error).__name__}: {error}"[:300]
                where = Tracer.last.where if Tracer.last is not None else ""
                trial = Trial(name, kind, fault, at, where, False, True, [text])
            printed = os.pread(errors.fileno(), 3000, mark).decode(errors="replace").strip()
            lines = printed.splitlines()
            ignored = [line for line in lines if line.startswith("Exception ignored")]
            if fault == "memory" and all("generator object" in line for line in ignored):
                lines = []  # the interpreter's own way to say that it could not end a generator
            if lines:
                trial.problems.append(f"printed: {lines[0]} ... {lines[-1]}"[:300])
            tell("done", trial)
            if trial.problems:
                return

    _in_context(kind, work)


def _run_child(name: str, kind: str, plan: Plan | None) -> tuple[list[list[Any]], str]:
    """What a child told, and what it printed."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(read)
                os.environ["LOCKS_SERVERS"] = "here"  # the trials share no locks
                os.dup2(errors.fileno(), 2)
                _child(write, name, kind, plan, errors)
                status = 0
            except BaseException as error:
                os.write(write, (json.dumps(["broken", repr(error)]) + "\n").encode())
            finally:
                os._exit(status)
        os.close(write)
        text = b""
        while True:
            if not select.select([read], [], [], HANG + 5)[0]:
                os.kill(pid, signal.SIGKILL)  # not even faulthandler could end it
                break
            chunk = os.read(read, 65536)
            if not chunk:
                break
            text += chunk
        os.close(read)
        _, status = os.waitpid(pid, 0)
        errors.seek(0)
        printed = errors.read().decode(errors="replace")
    told = [json.loads(line) for line in text.decode().splitlines()]
    if os.WIFSIGNALED(status):
        printed += f"\nended by signal {os.WTERMSIG(status)}"
    return told, printed


def _stack_of(printed: str) -> str:
    """Where a hung trial was, innermost first; frames of gevent's hubs tell nothing."""
    lines = [line.strip() for line in printed.splitlines() if line.strip().startswith("File")]
    frames = [line.rpartition("/")[2].replace('", line ', ":") for line in lines]
    return " < ".join(frame for frame in frames if not frame.startswith("hub.py"))[:300]


def sweep(
    name: str, kind: str, faults: list[str], tries: int | None, seed: int, most: int = 10**9
) -> list[Row]:
    """Play one case under some faults.

    Args:
        name: The case.
        kind: The kind of its clients.
        faults: The faults.
        tries: At how many positions each, evenly spread; `None` for all.
        seed: Decides where the first one is.
        most: After so many failures of a case under a fault nothing more can be learned.
    """
    told, printed = _run_child(name, kind, None)
    rows = {fault: Row(name, kind, fault, 0, 0, []) for fault in faults}
    if not told or told[-1][0] != "length":
        text = f"it goes wrong without any fault: {told} {printed}"[-600:]
        bad = Trial(name, kind, "none", -1, "", False, True, [text])
        return [Row(name, kind, "none", 1, 0, [bad])]
    plan: Plan = []
    for number, fault in enumerate(faults):
        length = LENGTHS.get(fault, told[0][1])
        stride = 1 if tries is None else max(1, length // tries)
        start = seed + number * stride // len(faults)  # together they are at more positions
        plan += [(fault, at) for at in range(start % stride, length, stride)]
    while plan:
        told, printed = _run_child(name, kind, plan)
        done = 0
        for word, value in told:
            if word == "begin":
                fault, at = plan[done]
                trial = None
            elif word == "done":
                trial = Trial(*value)
                done += 1
                row = rows[fault]
                row = row._replace(trials=row.trials + trial.struck)
                rows[fault] = row._replace(outside=row.outside + trial.outside)
                if trial.problems:
                    row.failed.append(trial)
        if not told or (told[-1][0] != "done"):
            fault, at = plan[done]
            text = printed.splitlines()[-1] if "ended by signal" in printed else "hangs"
            if not printed:
                text = f"ended: {told}"
            trial = Trial(name, kind, fault, at, _stack_of(printed), False, True, [text[:300]])
            rows[fault] = rows[fault]._replace(trials=rows[fault].trials + 1)
            rows[fault].failed.append(trial)
            done += 1
        del plan[:done]
        plan = [each for each in plan if len(rows[each[0]].failed) < most]
    return list(rows.values())


def sweeps(
    names: list[str], faults: list[str], tries: int | None, seed: int, most: int
) -> Iterator[Row]:
    """All cases of these names, with clients of their kinds, under all of these faults."""
    able = [fault for fault in faults if fault != "memory" or set_nomemory is not None]
    for name in names:
        for kind in CASES[name].kinds:
            yield from sweep(name, kind, able, tries, seed, most)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.systematic")
    parser.add_argument("--case", action="append", help="part of a case's name")
    parser.add_argument("--fault", action="append", choices=list(FAULTS))
    parser.add_argument("--tries", type=int, help="positions of each; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=10**9, help="failures of each that are enough")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [n for n in CASES if not options.case or any(part in n for part in options.case)]
    faults = options.fault or list(FAULTS)
    begun = time.monotonic()
    total: Counter[str] = Counter()
    for row in sweeps(names, faults, options.tries, options.seed, options.most):
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        total.update(trials=row.trials, failed=len(row.failed), outside=row.outside)
        print(
            f"{row.case:36} {row.kind:10} {row.fault:18} {row.trials:6} trials "
            f"{len(row.failed):5} failed {row.outside:3} outside",
            flush=True,
        )
        for trial in row.failed[:3]:
            print(f"    at {trial.at} {trial.where}: {'; '.join(trial.problems)[:400]}")
    if not options.json:
        print(
            f"{total['trials']} trials, {total['failed']} failed, {total['outside']} outside, "
            f"{time.monotonic() - begun:.0f} s"
        )


if __name__ == "__main__":
    main()
