import scrapy
from counting import JOBS, WORKERS, count_one_in_task
from scrapy.crawler import CrawlerProcess

from locks import aio


class Pipeline:
    async def process_item(self, item):
        async with aio.Lock(("counter",)):
            await count_one_in_task()
        return item


class Counter(scrapy.Spider):
    name = "counter"

    async def start(self):
        for number in JOBS:
            yield {"number": number}


settings = {"ITEM_PIPELINES": {Pipeline: 1}, "CONCURRENT_ITEMS": len(WORKERS)}
process = CrawlerProcess(settings | {"TELNETCONSOLE_ENABLED": False})
process.crawl(Counter)
process.start()
