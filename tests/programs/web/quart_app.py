from counting import count_one_in_task
from quart import Quart

from locks import aio

app = Quart(__name__)


@app.post("/count")
async def count():
    async with aio.Lock(("counter",)):
        await count_one_in_task()
    return "done"
