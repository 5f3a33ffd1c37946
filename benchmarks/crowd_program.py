"""One program of a crowd.

    python -m benchmarks.crowd_program KIND JSON

It prints a line when it is ready, does what each line of its input says, and answers each with a line of JSON. All
times are those of `time.monotonic`, one clock for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import locks
import locks_leader
from locks import aio

__all__ = ["main"]

now = time.monotonic


def say(what: Any) -> None:
    """Answer."""
    print(json.dumps(what), flush=True)


def told() -> Iterator[dict[str, Any]]:
    """What it is to do, line by line."""
    say("ready")
    for line in sys.stdin:
        yield json.loads(line)


# --- Tasks -----------------------------------------------------------------------------------------


def tasks(given: dict[str, Any]) -> None:
    """An asyncio program, whose tasks each have a lock once: as requests of the web do."""
    asyncio.run(_tasks(given))


async def _tasks(given: dict[str, Any]) -> None:
    await aio.start(**given)
    say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        found: list[tuple[float, float, int]] = []
        what = json.loads(line)
        await asyncio.gather(*(_task(n % what["keys"], what, found) for n in range(what["tasks"])))
        say(found)
    await asyncio.to_thread(locks.stop)


async def _task(key: int, what: dict[str, Any], found: list[tuple[float, float, int]]) -> None:
    """Take a lock once, and count a number in a file up if there is a folder for it."""
    asked = now()
    try:
        async with aio.Lock((what["name"], key), timeout=what["limit"]):
            found.append((asked, now(), key))
            if "folder" in what:
                file = Path(what["folder"], str(key))
                value = int(file.read_text()) if file.exists() else 0
                await asyncio.sleep(0)
                file.write_text(str(value + 1))
    except locks.LockTimeout:
        return  # whoever asked sees that it is missing


# --- Starts and elections --------------------------------------------------------------------------


class Stands(locks_leader.Behaviour):
    """Notes when it is elected, and when it knows the leader."""

    def init(self, notes: list[tuple[float, bool]], settled: threading.Event) -> None:
        """Take part."""
        self.notes = notes
        self.settled = settled

    def elected(self, election: locks_leader.ElectionState, newcomer: Any) -> Any:
        """It leads, or leads one more."""
        if newcomer is None:
            self._note(leads=True)
        return "state"

    def surrendered(self, message: Any, election: locks_leader.ElectionState) -> None:
        """Another one leads."""
        self._note(leads=False)

    def _note(self, leads: bool) -> None:
        self.notes.append((now(), leads))
        self.settled.set()


def start(given: dict[str, Any]) -> None:
    """A program that starts its node and takes a lock: how long that takes, each time anew."""
    for what in told():
        begun = now()
        locks.start(**given)
        with locks.Lock((*what["name"], "start")):
            say(now() - begun)
        locks.stop()


def election(given: dict[str, Any]) -> None:
    """A program with a candidate: how long it takes until it leads, or knows who does."""
    locks.start(**given)
    for what in told():
        settled = threading.Event()
        begun = now()
        instance = locks_leader.start(Stands, [], settled, resource=what["resource"])
        settled.wait(what["limit"])
        say(now() - begun)
        instance.stop()
    locks.stop()


def candidate(given: dict[str, Any]) -> None:
    """A program that starts and stands for election at once; a line asks what it has noted, and another one ends it."""
    imported = now()
    name, peers = given.pop("name"), given.get("peers")
    locks.start(name, **given)
    notes: list[tuple[float, bool]] = []
    counts = {} if peers is None else {"policy": "majority", "nodes": [name, *map(_name, peers)]}
    instance = locks_leader.start(
        Stands,
        notes,
        threading.Event(),
        resource="crowd",
        **counts,  # type: ignore[arg-type]
    )
    say(imported)
    for _ in sys.stdin:
        say(notes)
    instance.stop()
    locks.stop()


def _name(address: str) -> str:
    return address.partition(":")[0]


def bare(given: dict[str, Any]) -> None:
    """A program that only imports what a candidate does."""
    say(now())


KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "tasks": tasks,
    "start": start,
    "election": election,
    "candidate": candidate,
    "bare": bare,
}


def main() -> None:
    """Be the program that the command line names."""
    logging.disable()  # deadlocks and long waits are what is measured
    KINDS[sys.argv[1]](json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
