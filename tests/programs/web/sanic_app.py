from counting import count_one_in_task
from sanic import Sanic, text

from locks import aio

app = Sanic("counter")


@app.post("/count")
async def count(request):
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return text("done")
