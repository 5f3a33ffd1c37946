from counting import count_one_in_task
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from locks import aio


async def count(request):
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return PlainTextResponse("done")


app = Starlette(routes=[Route("/count", count, methods=["POST"])])
