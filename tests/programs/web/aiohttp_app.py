from aiohttp import web
from counting import count_one_in_task

from locks import aio


async def count(request):
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return web.Response(text="done")


def make(arguments):
    app = web.Application()
    app.add_routes([web.post("/count", count)])
    return app
