"""However a task, a loop or a program ends: what its tasks have is free, and nobody is stuck."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import locks
from locks import aio
from tests.aio.steps import RUNS, nothing_held, together, until
from tests.helpers import LIMIT, eventually

A, B = ("a",), ("b",)
ROOT = Path(__file__).parents[2]


async def hold(lock_id: Any = A, begun: asyncio.Event | None = None) -> None:
    """Have a lock until cancelled."""
    async with aio.transaction() as tx:
        await tx.write_lock(lock_id)
        if begun is not None:
            begun.set()
        await asyncio.Event().wait()


async def in_background(work: Callable[..., Awaitable[None]], *args: Any) -> asyncio.Task[None]:
    """Begin some work; returns when it has its lock."""
    begun = asyncio.Event()
    task = asyncio.ensure_future(work(*args, begun))
    await begun.wait()
    return task  # type: ignore[return-value]


def run(main: Callable[[], Any]) -> Any:
    """Run a coroutine function in an event loop of its own."""
    return asyncio.run(main())


# --- Waits that are given up -----------------------------------------------------------------------


def test_wait_for_withdraws() -> None:
    """A wait that `asyncio.wait_for` gives up is withdrawn; the transaction goes on."""

    async def main() -> None:
        holder = await in_background(hold, A)
        async with aio.transaction() as tx:
            await tx.write_lock(B)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(tx.write_lock(A), 0.01)
            assert locks.queue(A).waiting == ()
            holder.cancel()
            await tx.write_lock(A)
            tx.ensure_held(B)
        await nothing_held()

    run(main)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout and TaskGroup are newer")
def test_timeout_and_task_group() -> None:
    """`asyncio.timeout` withdraws; if one task of a `TaskGroup` fails, those that wait for locks end, and let go."""

    async def main() -> None:
        holder = await in_background(hold, A)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), aio.Lock(A):
                raise AssertionError
        waiting = 0

        async def wait() -> None:
            nonlocal waiting
            async with aio.transaction() as tx:
                await tx.write_lock(("own", waiting))
                waiting += 1
                await tx.write_lock(A)

        async def fail() -> None:
            await until(lambda: len(locks.queue(A).waiting) == 5)
            raise ZeroDivisionError

        async def together() -> None:
            async with asyncio.TaskGroup() as group:
                for work in (wait, wait, wait, wait, wait, fail):
                    group.create_task(work())

        with pytest.raises(BaseExceptionGroup) as raised:  # noqa: F821
            await together()
        assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError]
        assert locks.statistics().agents == 1
        holder.cancel()
        await nothing_held()

    run(main)


@pytest.mark.parametrize("loop", RUNS)
def test_an_abort_takes_back_what_a_task_holds(loop: str) -> None:
    """Two tasks in a deadlock: one is run again with its age, and both get through."""

    async def main() -> None:
        runs = 0

        async def body(tx: aio.Transaction, first: Any, second: Any) -> None:
            nonlocal runs
            runs += 1
            await tx.write_lock(first)
            if runs <= 2:
                await until(lambda: runs == 2)
            await tx.write_lock(second)

        await together(
            partial(aio.run_transaction, lambda tx: body(tx, A, B)),
            partial(aio.run_transaction, lambda tx: body(tx, B, A)),
        )
        assert runs == 3

    RUNS[loop](main)


# --- Ends of tasks and loops -----------------------------------------------------------------------


def test_a_task_that_ends_lets_go() -> None:
    """What a task holds by `Lock`s is free when it has ended, also if it has released nothing."""

    async def main() -> None:
        async def forget() -> None:
            await aio.Lock(A).acquire()

        await asyncio.create_task(forget())
        assert await aio.Lock(A).acquire(timeout=60)

    run(main)


def test_a_loop_that_is_closed_lets_go() -> None:
    """A loop that is closed in the middle, with a task that holds a lock and one that waits for it."""
    loop = asyncio.new_event_loop()
    tasks = []

    async def main() -> None:
        tasks.append(await in_background(hold, A))
        tasks.append(asyncio.ensure_future(hold(A)))
        await until(lambda: locks.queue(A).waiting)

    loop.run_until_complete(main())
    assert locks.statistics().agents == 2
    loop.close()
    eventually(lambda: locks.statistics().agents == 0)
    with locks.transaction(timeout=LIMIT) as tx:
        tx.write_lock(A)
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # that would be the program's fault


def test_a_task_that_is_dropped_lets_go(caplog: pytest.LogCaptureFixture) -> None:
    """A task that nobody has any more, and that will never be resumed, lets go when it is cleared away."""
    loop = asyncio.new_event_loop()

    async def main() -> None:
        begun = asyncio.Event()

        async def lost() -> None:
            nobody = asyncio.get_running_loop().create_future()
            async with aio.Lock(A):
                begun.set()
                await nobody

        task = loop.create_task(lost())
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        await begun.wait()
        del task

    loop.run_until_complete(main())
    gc.collect()
    eventually(lambda: locks.statistics().agents == 0)
    loop.close()


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_several_loops_in_threads(kind: str) -> None:
    """Loops in four threads, and a thread without one, share a counter."""
    count = 0

    async def add(number: int) -> None:
        nonlocal count
        async with aio.transaction() as tx:
            await tx.lock_all([A, ("n", number)])
            now = count
            await asyncio.sleep(0)
            count = now + 1

    async def main() -> None:
        await asyncio.gather(*(add(n) for n in range(25)))

    loops = pytest.importorskip("uvloop") if kind == "uvloop" else asyncio

    def body() -> None:
        loop = loops.new_event_loop()
        loop.run_until_complete(main())
        loop.close()

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        with locks.transaction() as tx:
            tx.write_lock(A)
            count += 1
    for thread in threads:
        thread.join(LIMIT)
    assert count == 125


def test_the_node_is_stopped_while_tasks_wait() -> None:
    """`locks.stop()`: who waits is told, and so is who has."""

    async def main() -> None:
        holder = await in_background(hold, A)
        waiting = asyncio.ensure_future(hold(A))
        await until(lambda: locks.queue(A).waiting)
        await aio.call(locks.stop)
        with pytest.raises(locks.TransactionEnded):
            await waiting
        holder.cancel()
        with pytest.raises((locks.TransactionEnded, asyncio.CancelledError)):
            await holder

    run(main)


# --- Who the client is -----------------------------------------------------------------------------


def test_two_tasks_are_two_clients_and_one_owner_is_one() -> None:
    """Tasks exclude each other; what tasks do for one owner is one client's, and ends with it."""

    async def main() -> None:
        await aio.Lock(A).acquire()

        async def other() -> bool:
            return await aio.Lock(A).acquire(blocking=False)

        assert not await asyncio.create_task(other())
        with locks.Owner("session 17") as session:
            await aio.Lock(B).acquire()

            async def same() -> bool:
                return aio.Lock(B).owned()

            assert await asyncio.create_task(same())
            assert await asyncio.to_thread(locks.Lock(B).owned)
            (held,) = locks.holders(B)
            assert held.client.startswith("session 17")
        assert session.ended
        assert locks.holders(B) == ()
        (held,) = locks.holders(A)
        assert held.client.startswith("task Task-")

    run(main)


def test_what_blocks_is_refused_in_a_coroutine() -> None:
    """A call that may wait is refused, changes nothing, and is allowed in threads of the same program."""

    async def main() -> None:
        for job in (
            locks.Lock(A).acquire,
            lambda: locks.original.begin_transaction([(A, "write")]),
        ):
            with pytest.raises(locks.errors.BlocksEventLoop, match=r"locks\.aio"):
                job()
            assert await asyncio.to_thread(locks.statistics) is not None
            assert locks.statistics().table.entries == 0
        with locks.transaction() as tx, pytest.raises(locks.errors.BlocksEventLoop):
            tx.write_lock(A)
        assert await asyncio.to_thread(locks.Lock(A).acquire)

    run(main)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are newer")
def test_eager_tasks_are_clients_like_others() -> None:
    """A task that begins to run when it is made has locks of its own, and lets go at its end."""

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        holder = asyncio.create_task(hold(A))  # runs until it waits
        assert locks.holders(A)
        waiting = asyncio.create_task(hold(A))
        assert locks.queue(A).waiting

        async def at_once() -> bool:
            return await aio.Lock(B).acquire()

        assert await asyncio.create_task(at_once())
        async with aio.Lock(B, timeout=60):
            holder.cancel()
            await until(lambda: not locks.queue(A).waiting)
        waiting.cancel()
        await nothing_held()

    run(main)


# --- Signals, forks, gevent ------------------------------------------------------------------------


def script(text: str, *, interrupt: bool = False, may_say: str = "nothing") -> str:
    """Run a program; with `interrupt`, it is sent SIGINT when it says that it is ready."""
    with subprocess.Popen(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(text),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            if interrupt:
                assert process.stdout.readline() == "ready\n"
                process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=LIMIT)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 0, error
    if may_say not in error:
        # In its debug mode asyncio says of each step that takes long, as all do on a machine that is busy.
        assert [line for line in error.splitlines() if not line.startswith("Executing <")] == []
    return out


@pytest.mark.parametrize("first", ["", "locks.start()"])
def test_ctrl_c_with_locks_held(first: str) -> None:
    """Ctrl-C in `asyncio.run`, whoever has the handler of SIGINT: it is raised, and no lock is kept."""
    assert (
        script(
            f"""
            import asyncio, locks, time
            from locks import aio
            {first}
            async def hold(n):
                async with aio.Lock(("a",)), aio.Lock(("n", n)):
                    print("ready", flush=True)
                    while True:
                        await asyncio.sleep(0.001)
            async def main():
                await asyncio.gather(*(hold(n) for n in range(5)))
            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                end = time.monotonic() + 60
                while locks.statistics().agents and time.monotonic() < end:
                    time.sleep(0.001)
                print(locks.statistics().agents, locks.holders(("a",)))
            """,
            interrupt=True,
            may_say="exception=KeyboardInterrupt()",  # by asyncio, where SIGINT is not its own: of its main task
        )
        == "0 ()\n"
    )


@pytest.mark.slow
def test_in_a_program_patched_by_gevent() -> None:
    """Tasks and greenlets of a patched program exclude each other; the loop and the hub both go on."""
    assert (
        script(
            """
            from gevent import monkey; monkey.patch_all()
            import asyncio, gevent, locks
            from locks import aio
            count = 0
            async def add():
                global count
                async with aio.Lock(("a",)):
                    now = count
                    await asyncio.sleep(0.001)
                    count = now + 1
            def green():
                global count
                with locks.Lock(("a",)):
                    now = count
                    gevent.sleep(0.001)
                    count = now + 1
            async def main():
                greenlets = [gevent.spawn(green) for _ in range(20)]
                await asyncio.gather(*(add() for _ in range(20)))
                while not all(each.dead for each in greenlets):
                    await asyncio.sleep(0.001)
            asyncio.run(main())
            print(count, locks.statistics().agents)
            """
        )
        == "40 0\n"
    )


IN_DAEMON_THREAD = """
    import atexit, sys, threading

    @atexit.register  # before `locks` is imported: it runs after what that has registered
    def last():
        {last}

    import asyncio, locks
    from locks import aio
    from locks.runtime import bridge
    from tests.helpers import eventually
    bridge.PAUSE = {pause}
    done = []

    async def work(n):
        while True:
            async with aio.transaction() as tx:
                await tx.write_lock(("a", n % 3))
                await asyncio.sleep(0)
            done.append(n)

    def run():
        asyncio.set_event_loop(loop)
        loop.run_until_complete(asyncio.gather(*(work(n) for n in range(5))))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    eventually(lambda: len(done) > 100)
"""


def test_a_daemon_thread_is_in_no_bridge_at_the_interpreters_end() -> None:
    """The loop of a daemon thread uses locks when the program ends: nothing runs in a greenlet of that thread any more.
    Python would end it there, and now and then the process with it, by SIGSEGV."""
    last = 'eventually(lambda: sys._current_frames()[thread.ident].f_code.co_name == "_pause"); print("it pauses")'
    assert script(IN_DAEMON_THREAD.format(last=last, pause=LIMIT)) == "it pauses\n"


def test_a_child_of_a_loop() -> None:
    """A child that a task forks has nothing of its parent's, and may run a loop of its own."""
    assert (
        script(
            """
            import asyncio, os, locks, sys
            from locks import aio
            async def child():
                async with aio.Lock(("a",), timeout=30):
                    return 0
            async def main():
                async with aio.Lock(("a",)) as lock:
                    pid = os.fork()
                    if pid == 0:
                        asyncio._set_running_loop(None)
                        locks.start(servers=locks.HERE)
                        os._exit(asyncio.new_event_loop().run_until_complete(child()))
                    print(os.waitpid(pid, 0)[1], lock.owned())
            asyncio.run(main())
            """
        )
        == "0 True\n"
    )
