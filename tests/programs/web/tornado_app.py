import asyncio
import sys

import tornado.web
from counting import count_one_in_task

from locks import aio


class Count(tornado.web.RequestHandler):
    async def post(self):
        async with aio.Lock(("counter",)):
            await count_one_in_task()
        self.write("done")


async def main():
    tornado.web.Application([("/count", Count)]).listen(int(sys.argv[1]), "127.0.0.1")
    await asyncio.Event().wait()


asyncio.run(main())
