import asyncio

from counting import ROUNDS, WORKERS, count_one_in_task
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from locks import aio

engine = create_async_engine("sqlite+aiosqlite://")


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)), engine.begin() as connection:
            await connection.execute(text("SELECT 1"))
            await count_one_in_task()


async def main():
    await asyncio.gather(*[count() for _ in WORKERS])
    await engine.dispose()


asyncio.run(main())
