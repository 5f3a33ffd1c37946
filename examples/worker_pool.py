"""Workers that share jobs without a foreman: the worker that gets the lock of a job does it.

The workers are Pykka actors, in threads and in greenlets. One of them crashes in its job. No cleaning
up is needed: a transaction ends with its client, so the lock is free, and another one does the job.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable

import gevent
import pykka

import locks

JOBS = [f"job-{number}" for number in range(1, 9)]
done: dict[str, str] = {}  # job -> its worker; an entry is written under the lock of the job


class Worker:
    def __init__(self, name: str, nap: Callable[[float], object]) -> None:
        super().__init__()
        self.name = name
        self.nap = nap

    def take(self, job: str) -> bool:
        """Begin a transaction and lock the job, unless another worker has it."""
        self.agent = locks.original.spawn_agent()
        try:
            locks.original.lock(self.agent, ("jobs", job), timeout=0)
        except locks.LockTimeout:
            locks.original.end_transaction(self.agent)
            return False
        return True

    def work(self) -> None:
        """Do jobs until all are done."""
        while len(done) < len(JOBS):
            for job in JOBS:
                if job not in done and self.take(job):
                    if job not in done:  # nor done a moment ago
                        self.nap(0.02)
                        done[job] = self.name
                    locks.original.end_transaction(self.agent)
            self.nap(0.01)

    def stumble(self) -> None:
        raise RuntimeError("out of coffee")


class ThreadWorker(Worker, pykka.ThreadingActor): ...


class GreenletWorker(Worker, locks.actors.GeventActor): ...


def main() -> None:
    logging.getLogger("pykka").setLevel(logging.CRITICAL)  # the crash is part of the plan
    locks.start("pool@localhost")
    clumsy = ThreadWorker.start("clumsy", time.sleep).proxy()
    locks.actors.monitor(clumsy.actor_ref, lambda down: print(f"a worker is down: {down.reason!r}"))
    assert clumsy.take("job-1").get()
    print(f"clumsy holds {[holder.lock_id for holder in locks.holders(('jobs',))]}")

    greenlets = [GreenletWorker.start(f"greenlet-{n}", gevent.sleep).proxy() for n in (1, 2)]
    threads = [ThreadWorker.start(f"thread-{n}", time.sleep).proxy() for n in (1, 2)]
    working = [*(worker.work() for worker in greenlets), *(worker.work() for worker in threads)]
    clumsy.stumble.defer()
    for each in working:  # greenlets first: they run while this thread waits for one of them
        each.get()

    for job in JOBS:
        print(f"{job} was done by {done[job]}")
    pykka.ActorRegistry.stop_all()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
