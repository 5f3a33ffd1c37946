import sys

import anyio
from counting import ROUNDS, WORKERS, begin, end, may_end

from locks import aio


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            found = begin()
            while not may_end():
                await anyio.sleep(0.01)
            end(found)


async def main():
    async with anyio.create_task_group() as group:
        for _ in WORKERS:
            group.start_soon(count)


anyio.run(main, backend=sys.argv[1])
