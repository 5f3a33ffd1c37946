import tornado.gen
import tornado.ioloop
from counting import ROUNDS, WORKERS, begin, end, may_end

from locks import aio


async def count():
    for _ in ROUNDS:
        async with aio.Lock(("counter",)):
            found = begin()
            while not may_end():
                await tornado.gen.sleep(0.01)
            end(found)


async def main():
    await tornado.gen.multi([count() for _ in WORKERS])


tornado.ioloop.IOLoop.current().run_sync(main)
