import time

from counting import ROUNDS, WORKERS, begin, end, may_end
from joblib import Parallel, delayed

import locks


def count():
    with locks.Lock(("counter",)):
        found = begin()
        while not may_end():
            time.sleep(0.01)
        end(found)


Parallel(n_jobs=len(WORKERS))(delayed(count)() for _ in WORKERS for _ in ROUNDS)
