from gevent import monkey

monkey.patch_all()

import time

import gevent
from counting import ROUNDS, WORKERS, begin, end, may_end

import locks


def count():
    for _ in ROUNDS:
        with locks.Lock(("counter",)):
            found = begin()
            while not may_end():
                time.sleep(0.01)
            end(found)


gevent.joinall([gevent.spawn(count) for _ in WORKERS], raise_error=True)
