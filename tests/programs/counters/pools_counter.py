"""Pools of processes, by the first argument; each maps a function over a list."""

import importlib
import sys
from concurrent.futures import ProcessPoolExecutor

from counting import JOBS, WORKERS, count_one


def count(_):
    import locks

    with locks.Lock(("counter",)):
        count_one()


def count_all(kind):
    number = len(WORKERS)
    name, _, method = kind.partition(":")
    package = importlib.import_module(name)
    if name == "concurrent.futures":
        with ProcessPoolExecutor(number) as pool:
            list(pool.map(count, JOBS))
    elif name == "loky":
        list(package.get_reusable_executor(number).map(count, JOBS))
    elif name == "pathos.pools":
        getattr(package, method)(number).map(count, JOBS)
    elif name == "mpire":
        with package.WorkerPool(number, start_method=method, use_dill=True) as pool:
            pool.map(count, JOBS, chunk_size=1)
    elif name == "pebble":
        with package.ProcessPool(number) as pool:
            for job in [pool.schedule(count, args=[each]) for each in JOBS]:
                job.result()
    else:  # multiprocessing and its copies
        with package.get_context(method).Pool(number) as pool:
            jobs = [pool.apply_async(count, [each]) for each in JOBS]
            for (
                job
            ) in jobs:  # billiard's pool never ends if it is left with jobs that nobody has done
                job.wait()
            for job in jobs:
                job.get()


if __name__ == "__main__":
    count_all(sys.argv[1])
