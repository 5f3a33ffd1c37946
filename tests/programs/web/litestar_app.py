from counting import count_one_in_task
from litestar import Litestar, MediaType, post

from locks import aio


@post("/count", media_type=MediaType.TEXT)
async def count() -> str:
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return "done"


app = Litestar([count])
