import threading

from counting import ROUNDS, WORKERS, count_one

import locks


def count():
    for _ in ROUNDS:
        with locks.Lock(("counter",)):
            count_one()


threads = [threading.Thread(target=count) for _ in WORKERS]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
