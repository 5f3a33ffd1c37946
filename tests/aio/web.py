"""A FastAPI program for tests: numbers in files, which requests read and write under a lock of theirs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

import locks
from locks import aio

FOLDER = Path(os.environ["NUMBERS"])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The node is started before the first request, and stopped after the last one."""
    await aio.start()
    yield
    await asyncio.to_thread(locks.stop)


app = FastAPI(lifespan=lifespan)


@app.post("/numbers/{key}")
async def add(key: str, hold: float = 0) -> dict[str, int]:
    """Count one up, which would go wrong without the lock."""
    file = FOLDER / key
    async with aio.Lock(("numbers", key), timeout=240):
        number = int(file.read_text()) if file.exists() else 0
        await asyncio.sleep(hold)
        file.write_text(str(number + 1))
    return {"process": os.getpid(), "number": number + 1}
