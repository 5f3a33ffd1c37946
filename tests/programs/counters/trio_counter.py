import trio
from counting import ROUNDS, WORKERS, begin, end, may_end

from locks import aio


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            found = begin()
            while not may_end():
                await trio.sleep(0.01)
            end(found)


async def main():
    async with trio.open_nursery() as nursery:
        for _ in WORKERS:
            nursery.start_soon(count)


trio.run(main)
