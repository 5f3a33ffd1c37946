"""`with` blocks in generators, which are left in another thread or task than they were entered in."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import pytest

import locks
from locks import aio
from tests.helpers import LIMIT, eventually

A, B, C = ("a",), ("b",), ("c",)


class Thread:
    """A worker thread, which does each job in a copy of the context of whoever gives it, as those of anyio do."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function returns, or raises, in this thread."""
        return self.begin(function, *args).result(LIMIT)

    def begin(self, function: Callable[..., Any], *args: Any) -> Any:
        """The same, without waiting."""
        return self._pool.submit(self._run, contextvars.copy_context(), function, args)

    @staticmethod
    def _run(context: contextvars.Context, function: Callable[..., Any], args: Any) -> Any:
        return context.run(function, *args)

    def end(self) -> None:
        """End the thread."""
        self._pool.shutdown()


@pytest.fixture
def threads() -> Iterator[tuple[Thread, Thread]]:
    """Two of them."""
    both = Thread(), Thread()
    yield both
    for each in both:
        each.end()


def by_lock() -> AbstractContextManager[Any]:
    """A block with a `Lock`."""
    return locks.Lock(A, timeout=LIMIT)


def by_rlock() -> AbstractContextManager[Any]:
    """A block with an `RLock`."""
    return locks.RLock(A, timeout=LIMIT)


def by_semaphore() -> AbstractContextManager[Any]:
    """A block with a `Semaphore` that only one client may hold."""
    return locks.Semaphore(A, 1, timeout=LIMIT)


@contextmanager
def by_transaction() -> Iterator[locks.Transaction]:
    """A block with a transaction."""
    with locks.transaction(timeout=LIMIT) as tx:
        tx.write_lock(A)
        yield tx


@contextmanager
def by_stack() -> Iterator[Any]:
    """A block that an `ExitStack` enters."""
    with ExitStack() as stack:
        yield stack.enter_context(locks.Lock(A, timeout=LIMIT))


@contextmanager
def by_rlocks() -> Iterator[Any]:
    """Two blocks of one lock that an `ExitStack` enters."""
    lock = locks.RLock(A, timeout=LIMIT)
    with ExitStack() as stack:
        stack.enter_context(lock)
        yield stack.enter_context(lock)


KINDS = [by_lock, by_rlock, by_semaphore, by_transaction, by_stack, by_rlocks]


@contextmanager
def dependency(kind: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """A block in a generator."""
    with kind() as what:
        yield what


def is_held(lock_id: tuple[str, ...] = A) -> bool:
    """Whether anybody holds an id, or something below it."""
    return bool(locks.holders(lock_id))


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_left_in_another_thread(
    kind: Callable[[], AbstractContextManager[Any]], threads: tuple[Thread, Thread]
) -> None:
    """The thread that has entered the block waits for the next request's; that gets it when another thread leaves the first one."""
    one, other = threads
    first, second = dependency(kind), dependency(kind)
    one.do(first.__enter__)
    waits = one.begin(second.__enter__)
    eventually(lambda: bool(locks.queue(A).waiting))
    other.do(first.__exit__, None, None, None)
    waits.result(LIMIT)
    assert is_held()
    other.do(second.__exit__, None, None, None)
    assert not is_held()


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_outlives_the_thread_that_entered_it(
    kind: Callable[[], AbstractContextManager[Any]], threads: tuple[Thread, Thread]
) -> None:
    """A pool may end an idle thread: the lock is held on, and released when the block is left."""
    block = dependency(kind)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, block.__enter__).result(LIMIT)
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert is_held()
    threads[0].do(block.__exit__, None, None, None)
    assert not is_held()


@pytest.mark.parametrize("kind", KINDS)
def test_a_generator_that_is_collected_releases(
    kind: Callable[[], AbstractContextManager[Any]], threads: tuple[Thread, Thread]
) -> None:
    """Nobody has left the block, and its thread goes on: what it held is released with the generator."""
    block = dependency(kind)
    threads[0].do(block.__enter__)
    assert is_held()
    del block
    gc.collect()
    eventually(lambda: not is_held())


def test_a_block_that_nobody_has_parted_ends_with_its_generator_not_with_its_thread() -> None:
    """A thread that ends leaves what it has acquired by itself, and keeps the lock of a generator that is still suspended."""
    block = dependency(by_lock)

    def run() -> None:
        block.__enter__()
        locks.Lock(B).acquire()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    eventually(lambda: not is_held(B))
    assert is_held()
    block.__exit__(None, None, None)
    assert not is_held()


def test_a_pool_that_copies_no_context(threads: tuple[Thread, Thread]) -> None:
    """`loop.run_in_executor` has nothing but the generator to call, so its thread is free when that has yielded."""
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as another:
        first, second = dependency(by_lock), dependency(by_lock)
        pool.submit(first.__enter__).result(LIMIT)
        waits = pool.submit(second.__enter__)
        eventually(lambda: bool(locks.queue(A).waiting))
        another.submit(first.__exit__, None, None, None).result(LIMIT)
        waits.result(LIMIT)
        another.submit(second.__exit__, None, None, None).result(LIMIT)
    assert not is_held()


# --- In one thread, everything is as in a function ---------------------------------------------


def test_in_one_thread_a_lock_is_not_re_entrant() -> None:
    """A second block of the same client, in a function or in a generator, is refused and does not wait; the owner is named."""
    for outer, inner in (
        (dependency(by_lock), by_lock()),
        (dependency(by_lock), dependency(by_lock)),
        (by_lock(), dependency(by_lock)),
    ):
        with outer, pytest.raises(locks.MisuseError, match=r"owner=locks\.Owner\("), inner:
            pass
        assert not is_held()


# --- Tasks --------------------------------------------------------------------------------------


@asynccontextmanager
async def fixture() -> AsyncIterator[aio.Lock]:
    """A lock, as a fixture has it."""
    async with aio.Lock(A) as lock:
        yield lock


@asynccontextmanager
async def transaction_fixture() -> AsyncIterator[aio.Transaction]:
    """A transaction, likewise."""
    async with aio.transaction() as tx:
        await tx.write_lock(A)
        yield tx


@asynccontextmanager
async def stack_fixture() -> AsyncIterator[aio.Lock]:
    """A lock that an `AsyncExitStack` enters."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(aio.RLock(A))


FIXTURES = [fixture, transaction_fixture, stack_fixture]


@pytest.mark.parametrize("make", FIXTURES)
def test_a_fixture_is_set_up_in_a_task_of_its_own(make: Callable[[], Any]) -> None:
    """The task has ended when the test runs in another one: the lock is held until a third one tears the fixture down."""

    async def main() -> None:
        block = make()
        held = await asyncio.create_task(block.__aenter__())
        assert await aio.Lock(A).locked()
        if isinstance(held, aio.Lock):
            assert held.owned()
            assert await held.token()
        else:
            held.ensure_held(A)
            await held.write_lock(B)
        await asyncio.create_task(block.__aexit__(None, None, None))
        assert not await aio.Lock(A).locked()
        assert not await aio.Lock(B).locked()

    asyncio.run(main())


def test_in_one_task_a_lock_is_not_re_entrant() -> None:
    """As in one thread."""

    async def main() -> None:
        async with fixture():
            with pytest.raises(locks.MisuseError):
                await aio.Lock(A).acquire(timeout=None)
            with pytest.raises(locks.MisuseError):
                await fixture().__aenter__()
            assert aio.Lock(A).owned()
        assert not await aio.Lock(A).locked()

    asyncio.run(main())


async def _status(app: Any, path: str) -> int:
    """The status of a request, made as a server makes it."""
    found: list[int] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }

    received: list[bool] = []

    async def receive() -> dict[str, Any]:
        if received:
            await asyncio.Event().wait()  # the client does not disconnect
        received.append(True)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app(scope, receive, send)
    return found[0]


@pytest.mark.parametrize("path", ["/plain", "/coroutine", "/stream"])
@pytest.mark.parametrize("which", ["lock", "transaction", "aio"])
def test_dependencies_of_fastapi(path: str, which: str) -> None:
    """Sixty requests, twelve at once, each with a dependency that holds the same lock: all are served, one after the other.

    With forty at once, their dependencies would wait in all threads that anyio has, and none would be left for an endpoint.
    """
    fastapi = pytest.importorskip("fastapi")
    from fastapi.responses import StreamingResponse

    def lock() -> Iterator[locks.Lock]:
        with locks.Lock(A, timeout=LIMIT) as held:
            yield held

    def transaction() -> Iterator[locks.Transaction]:
        with by_transaction() as tx:
            yield tx

    async def asynchronous() -> AsyncIterator[aio.Lock]:
        async with fixture() as held:
            yield held

    needs = fastapi.Depends({"lock": lock, "transaction": transaction, "aio": asynchronous}[which])
    app = fastapi.FastAPI()
    inside, worst = [0], [0]

    def enter() -> None:
        inside[0] += 1
        worst[0] = max(worst[0], inside[0])

    def leave() -> None:
        inside[0] -= 1

    def plain(held: Any = needs) -> None:
        enter()
        if which == "transaction":
            assert held.write_lock(B)
        elif which == "lock":
            assert held.owned()
        leave()

    async def coroutine(held: Any = needs) -> None:
        enter()
        await asyncio.sleep(0)
        leave()

    def stream(held: Any = needs) -> StreamingResponse:
        def body() -> Iterator[bytes]:
            with locks.Lock(C, timeout=LIMIT) as lock:
                for _ in range(3):
                    enter()
                    assert lock.owned()
                    leave()
                    yield b"."

        return StreamingResponse(body())

    for function in (plain, coroutine, stream):
        function.__annotations__.clear()
        app.get(f"/{function.__name__}", response_model=None)(function)

    async def main() -> list[int]:
        await aio.start()
        some = asyncio.Semaphore(12)

        async def request() -> int:
            async with some:
                return await _status(app, path)

        return await asyncio.gather(*(request() for _ in range(60)))

    assert asyncio.run(main()) == [200] * 60
    assert worst == [1]
    eventually(lambda: not is_held())
    assert not is_held(C)
