"""Ownership under churn: workers of every kind come, leave, fail and die while they do tasks, and tasks come in.

    python -m tests.torture.churn --seconds 60 --seed 17

No two tasks of a resource are at hand at once, those of a resource are done in their order, and at the end each is done once, or
set aside because it is poison. Prints what has happened, as JSON. The same seed makes the same choices, not at the same moments.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

import gevent

import locks
from locks.ownership import Backlog, Ownership, SetAside
from locks.ownership.member import Member
from tests.helpers import eventually

__all__ = ["Churn"]

GROUPS = 48
RESOURCES = 200
THREADS, GREENLETS = 5, 3
MOST_WAITING = 3000
HANG = 120.0


class Fails(Exception):
    """A handler fails."""


class Dies(BaseException):
    """A worker is torn away in the middle of a task."""


class Churn:
    """A backlog, and those who work.

    Args:
        seed: The seed.

    Attributes:
        counts: What has happened, by name.
        problems: What is wrong.
    """

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._rng = random.Random(seed)
        self._backlog: Backlog[tuple[int, int]] = Backlog(
            (),
            self._resource,
            groups=GROUPS,
            more=True,
            retries=1,
            retry_delay=0.001,
            on_failure="set aside",
        )
        self._number = 0
        self._kinds: dict[
            int, str
        ] = {}  # of tasks that are not done, and that do something special
        self._at_hand: dict[int, int] = {}  # by resource
        self._last: dict[int, int] = {}  # the last one done of each resource
        self._done: Counter[int] = Counter()
        self._workers: dict[Ownership, None] = {}
        self._over = False

    @staticmethod
    def _resource(task: tuple[int, int]) -> int:
        return task[0]

    def run(self, seconds: float) -> None:
        """Let them work for so long, and until all is done."""
        threads = [threading.Thread(target=self._live, args=(n,)) for n in range(THREADS)]
        threads.append(threading.Thread(target=self._hub))
        for thread in threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.problems:
            if len(self._backlog) < MOST_WAITING:
                self._add()
            if self._rng.random() < 0.3:
                self._stop_one()
            time.sleep(0.0005)
        self._over = True
        self._backlog.close()
        with contextlib.suppress(AssertionError):
            eventually(lambda: self._backlog.finished or self.problems, HANG)
        for thread in threads:
            thread.join(HANG)
        self._judge(any(thread.is_alive() for thread in threads))

    # --- Tasks

    def _add(self) -> None:
        rng, tasks = self._rng, []
        for _ in range(rng.choice([1, 1, 10, 300])):
            self._number += 1
            if rng.random() < 0.02:
                kinds = ["fails once", "poison", "dies", "stops", "waits"]
                self._kinds[self._number] = rng.choice(kinds)
            tasks.append((rng.randrange(RESOURCES), self._number))
        self._backlog.add(*tasks)

    def _stop_one(self) -> None:
        workers = tuple(self._workers)
        if workers:
            self._rng.choice(workers).stop()
            self.counts["stopped"] += 1

    def _handle(self, mine: Ownership, task: tuple[int, int]) -> None:
        resource, number = task
        other = self._at_hand.setdefault(resource, number)
        if other != number:
            self.problems.append(f"{number} and {other} of resource {resource} are at hand at once")
        try:
            if number <= self._last.get(resource, 0):
                self.problems.append(f"{number} comes after {self._last[resource]}")
            self._act(mine, number)
            if self._at_hand.get(resource) != number:
                self.problems.append(f"{number} of resource {resource} was not alone")
            self._done[number] += 1
            self._last[resource] = max(number, self._last.get(resource, 0))
        finally:
            self._at_hand.pop(resource, None)

    def _act(self, mine: Ownership, number: int) -> None:
        match self._kinds.get(number):
            case "fails once":
                del self._kinds[number]
                self.counts["failed"] += 1
                raise Fails
            case "poison":
                raise Fails
            case "dies":
                del self._kinds[number]
                self.counts["died"] += 1
                raise Dies
            case "stops":
                mine.stop()
            case "waits":
                gevent.sleep(0.001) if threading.current_thread().name == "hub" else time.sleep(
                    0.001
                )

    # --- Workers

    def _live(self, number: int) -> None:
        """One worker after the other."""
        while not self._backlog.finished and not self.problems:
            mine = Ownership("churn", GROUPS)
            self._workers[mine] = None
            self.counts["joined"] += 1
            try:
                if self.counts["joined"] % 3:
                    mine.run(self._backlog, lambda task, token: self._handle(mine, task))  # noqa: B023
                else:
                    self._short(mine)
            except Dies:
                pass
            except Exception as error:
                self.problems.append(repr(error))
            finally:
                self._workers.pop(mine, None)

    def _short(self, mine: Ownership) -> None:
        """A worker that never leaves: the thread, or greenlet, in which it works ends."""

        def work() -> None:
            with contextlib.suppress(Dies):
                mine.join()
                mine.run(self._backlog, lambda task, token: self._handle(mine, task))

        one: Any
        if threading.current_thread().name == "hub":
            one = gevent.spawn(work)
        else:
            one = threading.Thread(target=work)
            one.start()
        one.join()
        self.counts["ended"] += 1

    def _hub(self) -> None:
        """Those in greenlets."""
        threading.current_thread().name = "hub"
        gevent.joinall([gevent.spawn(self._live, number) for number in range(GREENLETS)])

    # --- Afterwards

    def _judge(self, hangs: bool) -> None:
        if hangs or not self._backlog.finished:
            self.problems.append(f"it hangs: {self._backlog!r}, {tuple(self._workers)!r}")
        aside: tuple[SetAside, ...] = self._backlog.set_aside
        poison = {number for number, kind in self._kinds.items() if kind == "poison"}
        if not self.problems:
            if {each.task[1] for each in aside} != poison or len(aside) != len(poison):
                self.problems.append(f"set aside: {len(aside)} of {len(poison)}")
            if any(each.attempts < 2 for each in aside):
                self.problems.append("set aside without a second try")
            if set(self._done) | poison != set(range(1, self._number + 1)):
                self.problems.append(
                    f"{self._number - len(self._done) - len(poison)} were not done"
                )
            if any(count > 1 for count in self._done.values()):
                self.problems.append("some were done twice")
        self.counts["tasks"] = self._number
        self.counts["done"] = sum(self._done.values())
        self.counts["set aside"] = len(aside)


def main() -> int:
    """Run it; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.churn", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--wrong", action="store_true", help="with a fault that it must find")
    options = parser.parse_args()
    if options.wrong:  # groups are let go with a task at hand
        Member._idle = lambda member: list(member.leaving)  # type: ignore[method-assign]
    faulthandler.dump_traceback_later(options.seconds + 3 * HANG, exit=True)
    churn = Churn(options.seed)
    churn.run(options.seconds)
    locks.stop()
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"seed": options.seed, **churn.counts, "problems": churn.problems}))
    return 1 if churn.problems else 0


if __name__ == "__main__":
    sys.exit(main())
