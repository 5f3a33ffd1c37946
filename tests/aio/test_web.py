"""FastAPI under uvicorn with three workers, over three lock servers that they share. Figures are in the output (`-s`)."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import World
from tests.cluster.servers import Servers
from tests.helpers import LIMIT, ROOT, free_port

aiohttp = pytest.importorskip("aiohttp")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = [pytest.mark.explore, pytest.mark.xdist_group("web")]

ROUNDS = 5


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program has its numbers."""
    return tmp_path_factory.mktemp("numbers")


@pytest.fixture(scope="module")
def url(numbers: Path) -> Iterator[str]:
    """Where the program is."""
    with World() as world:
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "tests.aio.web:app", "--workers=3"]
        command += [f"--port={port}", "--log-level=warning"]
        environment = Servers(world).environment() | {"NUMBERS": str(numbers)}
        with subprocess.Popen(command, cwd=ROOT, env=environment) as program:
            try:
                asyncio.run(_until_there(f"http://127.0.0.1:{port}"))
                yield f"http://127.0.0.1:{port}"
            finally:
                program.terminate()
                program.wait(LIMIT)


async def _until_there(url: str) -> None:
    deadline = time.monotonic() + LIMIT
    processes = set()
    while len(processes) < 3:
        assert time.monotonic() < deadline
        with contextlib.suppress(aiohttp.ClientError):
            async with session() as client, client.post(f"{url}/numbers/first") as answer:
                processes.add((await answer.json())["process"])
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client; each request makes a connection of its own, so that every worker gets some."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as made:
        yield made


def test_600_of_600_writes_are_right(url: str, numbers: Path) -> None:
    """600 requests to count up six numbers, 100 for each, at the same time: none is lost."""

    async def main() -> set[int]:
        async with session() as client:

            async def add(number: int) -> int:
                async with client.post(f"{url}/numbers/n{number % 6}") as answer:
                    assert answer.status == 200
                    return int((await answer.json())["process"])

            return set(await asyncio.gather(*(add(number) for number in range(600))))

    workers = asyncio.run(main())
    assert len(workers) == 3
    assert [int((numbers / f"n{number}").read_text()) for number in range(6)] == [100] * 6


def test_another_key_is_served_while_many_fight_for_one(url: str) -> None:
    """Requests for another key are answered while 60 fight for a hot one without end; it prints how much longer they take."""

    async def main() -> list[tuple[float, float]]:
        async with session() as client:

            async def request(key: str, hold: float) -> float:
                begun = time.perf_counter()
                async with client.post(f"{url}/numbers/{key}", params={"hold": hold}) as answer:
                    await answer.read()
                return time.perf_counter() - begun

            async def others() -> float:
                return statistics.median([await request("other", 0.02) for _ in range(25)])

            async def fight() -> None:
                while True:
                    await request("hot", 0.05)

            found = []
            await others()
            for _ in range(ROUNDS):
                alone = await others()
                crowd = [asyncio.ensure_future(fight()) for _ in range(60)]
                await asyncio.sleep(0.5)
                found.append((alone, await others()))
                for each in crowd:
                    each.cancel()
                await asyncio.gather(*crowd, return_exceptions=True)
                await request("hot", 0)  # after those that were begun
            return found

    found = asyncio.run(main())
    ratios = [crowded / alone for alone, crowded in found]
    for alone, crowded in found:
        print(f"alone {alone * 1000:.1f} ms, with a crowd {crowded * 1000:.1f} ms")
    print(f"ratio {statistics.median(ratios):.2f}")
