"""A program that stops its node again and again while something else calls: `python -m tests.stopping.beside`.

It prints a line of JSON for each call: how often it ended with what, the tracebacks of errors that are none of `locks`, and whether it
hangs. Where its locks are, the environment says.
"""

# ruff: noqa: E402  (what is patched must be patched first)

from __future__ import annotations

import sys

PATCHED = "--patched" in sys.argv
if PATCHED:
    from gevent import monkey

    monkey.patch_all()

import argparse
import asyncio
import faulthandler
import json
import os
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent
import gevent.monkey
import pykka

import locks
from locks import aio
from tests.stopping.calls import CALLS, TASKS, allowed

HANGS = 20.0  # seconds in which a call ends whose node was stopped
_native_sleep: Any = gevent.monkey.get_original("time", "sleep")
sleep: Callable[[float], object] = gevent.sleep if PATCHED else time.sleep


class Log:
    """What came of the calls."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.stop = False
        self.running = 0

    def note(self, error: BaseException | None) -> None:
        """One call has ended."""
        if error is None:
            self.results["done"] += 1
            return
        self.results[type(error).__name__] += 1
        if not isinstance(error, (locks.LocksError, pykka.ActorDeadError)):
            self.wrong.append("".join(traceback.format_exception(error))[-3000:])

    def once(self, call: Callable[[], object]) -> None:
        """Call it."""
        try:
            call()
        except BaseException as error:
            self.note(error)
        else:
            self.note(None)

    def again(self, call: Callable[[], object], pause: Callable[[float], object] = sleep) -> None:
        """Call it until it is told to stop."""
        while not self.stop:
            self.once(call)
            pause(0)
        self.running -= 1

    async def again_in_task(self, call: Callable[[], Any], pause: Callable[[], Any]) -> None:
        """The same in a task."""
        while not self.stop:
            try:
                await call()
            except Exception as error:
                self.note(error)
            else:
                self.note(None)
            await pause()
        self.running -= 1


def by_thread(log: Log, call: Callable[[], object]) -> None:
    """Call it in a native thread."""
    if PATCHED:
        gevent.get_hub().threadpool.spawn(log.again, call, _native_sleep)
    else:
        threading.Thread(target=log.again, args=(call,), daemon=True).start()


def by_greenlet(log: Log, call: Callable[[], object]) -> None:
    """In a greenlet of this thread."""
    gevent.spawn(log.again, call)


class _Caller:
    def on_receive(self, message: Any) -> None:
        """Call it once."""
        log, call = message
        log.once(call)
        sleep(0)
        if log.stop:
            log.running -= 1
        else:
            self.actor_ref.tell(message)  # type: ignore[attr-defined]


class GeventCaller(_Caller, locks.actors.GeventActor):  # type: ignore[misc]
    """In a greenlet."""


class ThreadingCaller(_Caller, pykka.ThreadingActor):
    """In a thread."""

    use_daemon_thread = True


def by_gevent_actor(log: Log, call: Callable[[], object]) -> None:
    """In an actor of this hub, or of one in a thread."""
    if PATCHED:
        GeventCaller.start().tell((log, call))
        return

    def run() -> None:
        GeventCaller.start().tell((log, call))
        while log.running:
            gevent.sleep(0.01)

    threading.Thread(target=run, daemon=True).start()


def by_threading_actor(log: Log, call: Callable[[], object]) -> None:
    """In an actor with a thread."""
    ThreadingCaller.start().tell((log, call))


def by_asyncio(log: Log, call: Callable[[], object]) -> None:
    """In a task of asyncio."""
    task = TASKS.get(getattr(call, "name", ""), partial(aio.call, call))
    work = log.again_in_task(task, lambda: asyncio.sleep(0))
    threading.Thread(target=lambda: asyncio.run(work), daemon=True).start()


def by_trio(log: Log, call: Callable[[], object]) -> None:
    """In a task of trio."""
    import trio

    task = TASKS.get(getattr(call, "name", ""), partial(aio.call, call))
    work = partial(trio.run, log.again_in_task, task, lambda: trio.sleep(0))
    threading.Thread(target=work, daemon=True).start()


ALONE = ("threads", "gevent actors", "threading actors", "asyncio", "trio")
"""Kinds of callers in a program that is not patched."""
WITH_GEVENT = ("threads", "greenlets", "gevent actors", "threading actors")
"""In one that is."""
KINDS: dict[str, Callable[[Log, Callable[[], object]], None]] = {
    "threads": by_thread,
    "greenlets": by_greenlet,
    "gevent actors": by_gevent_actor,
    "threading actors": by_threading_actor,
    "asyncio": by_asyncio,
    "trio": by_trio,
}


class Task:
    """Stands for a coroutine function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        """It is called in its loop only."""


def play(kind: str, name: str, cycles: int, chance: random.Random) -> dict[str, Any]:
    """Stop the node beside one call, again and again."""
    log, first = Log(), time.monotonic()
    call: Any = Task(name) if name in TASKS else CALLS[name].do
    log.running = 2
    for _ in range(2):
        KINDS[kind](log, call)
    early = []
    for _ in range(cycles):
        sleep(chance.choice((0, 0.001, 0.01, 0.05, 0.1)) * chance.random())
        for do in (locks.stop, locks.start):
            begun = time.monotonic()
            try:
                do()
            except locks.LocksError as error:
                log.results[f"{do.__name__}: {type(error).__name__}"] += 1
            except BaseException as error:
                log.wrong.append(do.__name__ + "".join(traceback.format_exception(error))[-3000:])
            early.append(time.monotonic() - begun)
    log.stop = True
    end = time.monotonic() + HANGS
    while log.running and time.monotonic() < end:
        locks.stop()
        sleep(0.05)
    hangs = bool(log.running)
    if hangs:
        faulthandler.dump_traceback(all_threads=True)
    return {
        "call": name,
        "kind": kind,
        "results": dict(log.results),
        "wrong": log.wrong[:3],
        "unexpected": sorted({each for each in log.results if ": " not in each} - allowed(name)),
        "hangs": hangs,
        "seconds": round(time.monotonic() - first, 2),
        "longest": round(max(early), 2),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--patched", action="store_true")
    parser.add_argument("--kind", choices=KINDS, default="threads")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--call", action="append")
    parser.add_argument("--every", type=int, default=1, help="play only each so many calls")
    options = parser.parse_args()
    names = list(CALLS)
    if options.kind in ("asyncio", "trio"):
        names += TASKS
    missing = set()
    if os.environ.get("LOCKS_SERVERS") == "here":
        missing.add("servers")
    if options.patched or options.kind != "threads":
        missing.add("thread")
    names = [name for name in names if name in TASKS or CALLS[name].needs not in missing]
    names = [name for name in names if not options.call or name in options.call]
    names = names[options.seed % options.every :: options.every]
    faulthandler.dump_traceback_later(300, exit=True)
    for name in names:
        said = play(options.kind, name, options.cycles, random.Random(f"{options.seed} {name}"))
        print(json.dumps(said), flush=True)
        if said["hangs"]:
            break
    os._exit(0)


if __name__ == "__main__":
    main()
