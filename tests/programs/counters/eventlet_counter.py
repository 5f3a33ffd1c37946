import eventlet
from counting import ROUNDS, WORKERS, count_one
from eventlet import tpool

import locks

locked = locks.locked(("counter",))(count_one)


def count():
    for _ in ROUNDS:
        tpool.execute(locked)


for thread in [eventlet.spawn(count) for _ in WORKERS]:
    thread.wait()
