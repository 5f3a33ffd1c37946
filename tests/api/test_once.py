"""`locks.once` and `locks.aio.once` in one program; several servers are in `cluster/test_once.py`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

import locks
from locks import aio
from locks.shapes.once import MarkAsker
from tests.helpers import eventually


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of this program alone are meant."""
    monkeypatch.setenv("LOCKS_SERVERS", "here")
    locks.stop()


def test_a_program_without_servers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this program would know what is done, so nothing is run; making and decorating is fine before `locks.start`."""
    monkeypatch.delenv("LOCKS_SERVERS")
    block = locks.once(("a", "b"))
    refused = pytest.raises(
        locks.MisuseError,
        match=r"no lock servers configured: only this program would know that a/b is done, .*LOCKS_SERVERS=local.*locks\.HERE",
    )
    with refused, block:
        raise AssertionError("it ran")

    async def run() -> None:
        async with aio.once(("a", "b")):
            raise AssertionError("it ran")

    with refused:
        asyncio.run(run())
    assert nobody_holds(("a", "b"))
    locks.stop()
    locks.start(servers=locks.HERE)
    with block:
        pass


def nobody_holds(lock_id: tuple[Any, ...]) -> bool:
    """Whether the lock is free."""
    return not locks.queue(lock_id).requests


def test_the_first_block_runs_and_the_others_are_told() -> None:
    """By whom, when, and with which token; the lock is free, and other ids are other work."""
    with locks.once(("a",), label="ann") as run:
        token = run.token
        run.ensure_held()
        assert not run.lost.is_open
        assert [each.client for each in locks.holders(("a",))] == ["ann"]
    for _ in range(2):
        told = pytest.raises(locks.AlreadyDone, match="a is already done: by ann on ")
        with told as caught, locks.once(("a",)):
            raise AssertionError("it ran")
        assert (caught.value.lock_id, caught.value.token) == (("a",), token)
        assert caught.value.by.startswith("ann on ")
        assert abs(caught.value.at - token / 1e6) < 60  # both are by the same clock
        assert nobody_holds(("a",))
    with locks.once(("a", "b")):
        pass


def test_work_that_fails_is_not_done() -> None:
    """The exception is the block's own, and the next token is larger."""
    tokens = []
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError), locks.once(("a",)) as run:
            tokens.append(run.token)
            raise ZeroDivisionError
        assert nobody_holds(("a",))
    assert tokens == sorted(set(tokens))


def test_who_comes_meanwhile_waits() -> None:
    """And is told that it is done; with a time limit, that it is not."""
    said: list[object] = []

    def other() -> None:
        try:
            with locks.once(("a",)):
                said.append("ran")
        except locks.AlreadyDone as error:
            said.append(error.lock_id)

    thread = threading.Thread(target=other)
    with locks.once(("a",)):
        thread.start()
        with pytest.raises(locks.LockTimeout):
            locks.once(("a",), timeout=0, owner=locks.Owner("third")).__enter__()
    thread.join()
    assert said == [("a",)]


def test_a_function_runs_once() -> None:
    """Each call is a block of its own, and one that fails may be called again."""
    calls: list[int] = []

    @locks.once(("f",))
    def function(number: int) -> int:
        calls.append(number)
        if number < 0:
            raise ZeroDivisionError
        return number

    with pytest.raises(ZeroDivisionError):
        function(-1)
    assert function(2) == 2
    with pytest.raises(locks.AlreadyDone):
        function(3)
    assert calls == [-1, 2]


def test_coroutines() -> None:
    """The same for tasks; one that is cancelled has not done it."""

    async def main() -> None:
        async def cancelled() -> None:
            async with aio.once(("a",)):
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(cancelled())
        while nobody_holds(("a",)):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with aio.once(("a",)) as run:
            assert run.token
            run.ensure_held()
            assert not run.lost.is_open
            assert run.lock_id == ("a",)
        with pytest.raises(locks.AlreadyDone):
            async with aio.once(("a",)):
                raise AssertionError("it ran")

        @aio.once(("f",))
        async def function(number: int) -> int:
            return number

        assert await function(2) == 2
        with pytest.raises(locks.AlreadyDone):
            await function(3)

    asyncio.run(main())
    assert nobody_holds(("a",))


@pytest.mark.parametrize("remember", [0, 0.5, True, "1d", float("nan"), float("inf")])
def test_times_that_are_none(remember: Any) -> None:
    """They are refused before anything happens."""
    with pytest.raises(locks.errors.InvalidOption, match="remember="):
        locks.once(("a",), remember=remember)


def test_misuse() -> None:
    """Errors say what to do instead."""

    async def coroutine() -> None: ...

    with pytest.raises(locks.errors.InvalidOption, match=r"aio\.once"):
        locks.once(("a",))(coroutine)
    with pytest.raises(locks.errors.InvalidOption, match=r"locks\.once"):
        aio.once(("a",))(lambda: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(locks.MisuseError, match="has not begun"):
        _ = locks.once(("a",)).token
    assert repr(locks.once(("a",))) == "<Once a>"


def test_the_time_limit_covers_the_wait_and_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the wait for the lock has used of it is not there to read the mark."""
    given: list[tuple[float, float]] = []
    find = MarkAsker.find

    def finds(asker: MarkAsker, timeout: float, setting: float) -> Any:
        given.append((timeout, setting))
        return find(asker, timeout, setting)

    monkeypatch.setattr(MarkAsker, "find", finds)
    waiting = threading.Event()

    def hold() -> None:
        with locks.transaction() as tx:
            tx.write_lock(("slow",))
            waiting.set()
            eventually(lambda: len(locks.queue(("slow",)).requests) == 2)

    holder = threading.Thread(target=hold)
    holder.start()
    waiting.wait()
    with locks.once(("slow",), timeout=10):
        pass
    holder.join()
    assert all(0 <= limit < 10 for limit in given[0])


def test_newer_grants_are_not_replaced_by_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A background thread that has asked servers before the client did takes note of nothing older."""
    with locks.once(("noted",)) as run:
        asker = run._asker
        assert asker is not None
        newest = {"node@localhost": 3}
        rounds: list[int] = []

        def answers(grants: Any, mark: Any = None) -> Any:
            rounds.append(1)
            if len(rounds) == 1:
                asker._grants = newest  # another thread is faster
            return {}, {}

        with monkeypatch.context() as patched:
            patched.setattr(asker, "_ask", answers)
            patched.setattr(asker, "_has_new_grants", lambda: asker._grants is not newest)
            before, asker._grants = asker._grants, {}
            asker.refresh_grants()
            assert asker._grants is newest
            asker._grants = before
