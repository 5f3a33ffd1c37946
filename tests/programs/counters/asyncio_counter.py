import asyncio

from counting import ROUNDS, WORKERS, count_one_in_task

from locks import aio


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            await count_one_in_task()


async def main():
    await asyncio.gather(*[count() for _ in WORKERS])


asyncio.run(main())
