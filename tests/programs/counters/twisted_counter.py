import time

from counting import ROUNDS, WORKERS, begin, end, may_end
from twisted.internet import task
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.threads import deferToThread

import locks


@locks.locked(("counter",))
def count_one():
    found = begin()
    while not may_end():
        time.sleep(0.01)
    end(found)


async def count():
    for _ in ROUNDS:
        await deferToThread(count_one)


@task.react
def main(reactor):
    return gatherResults([ensureDeferred(count()) for _ in WORKERS])
