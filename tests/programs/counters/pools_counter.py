"""A pool of processes, by the first argument: fork, spawn or forkserver."""

import multiprocessing
import sys

from counting import JOBS, WORKERS, count_one


def count(_):
    import locks

    with locks.Lock(("counter",)):
        count_one()


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(len(WORKERS)) as pool:
        pool.map(count, JOBS, chunksize=1)
