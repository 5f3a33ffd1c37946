import asyncio
import sys

from counting import ROUNDS, WORKERS, count_one_in_task

from locks import aio


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            await count_one_in_task()


async def main():
    await asyncio.gather(*[count() for _ in WORKERS])


if sys.argv[1] == "uvloop":
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
