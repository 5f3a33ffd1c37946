"""Clients of every kind, so that one script of several clients runs in every context.

A test takes the fixture `run` (see conftest.py) and starts clients::

    def test_two(run):
        one, two = run.begin(2)  # two clients, each with a transaction of its own
        one.lock(("a",)).get()
        answer = two.lock(("a",))  # asked in the context of client two; nobody waits for it yet
        run.until_waiting(two, ("a",))
        one.end()
        answer.get()

What is given to `Client.do` runs in that client's own context: its thread, greenlet or actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import gevent
import gevent.event
import gevent.queue
import pykka
import pytest

import locks
from locks.aio.tasks import current_owner
from tests.helpers import EXPLORE, LIMIT, eventually

PATCHED = os.environ.get("LOCKS_PATCHED") == "1"


def many(default: int, explore: int) -> int:
    """How often to do something: less where the same tests run once more, in a patched process."""
    return explore if EXPLORE else default // 4 if PATCHED else default


_Thread = gevent.monkey.get_original("threading", "Thread")


class AnswerWait:
    """What a client will say to one job."""

    def __init__(self, get: Callable[[float], Any], what: str, ready: Callable[[], bool]) -> None:
        self._get = get
        self._what = what
        self._ready = ready

    def get(self, timeout: float = LIMIT) -> Any:
        """Return the value of the job, or raise what it raised."""
        try:
            return self._get(timeout)
        except (futures.TimeoutError, gevent.Timeout, pykka.Timeout) as error:
            if isinstance(error, locks.LocksError) or self._ready():
                raise
            raise AssertionError(f"no answer within {timeout} s: {self._what}") from None

    @property
    def ready(self) -> bool:
        """Whether there is an answer."""
        return self._ready()


class Client:
    """One client; subclasses say where its jobs run."""

    agent: locks.actors.Agent

    def __init__(self, name: str) -> None:
        self.name = name

    def do(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> AnswerWait:
        """Run a job in this client's context, after those that it was given before."""
        raise NotImplementedError

    def call(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a job in this client's context and wait for it."""
        return self.do(job, *args, **kwargs).get()

    def stop(self) -> None:
        """Let the client end normally after its jobs; wait for its end."""
        raise NotImplementedError

    @property
    def subject(self) -> Any:
        """What others name as client: a thread, a greenlet, an actor's reference."""
        raise NotImplementedError

    # --- Its transaction

    def begin(self, **options: Any) -> Client:
        """Begin a transaction."""
        self.agent, _ = self.call(locks.original.begin_transaction, **options)
        return self

    def lock(self, lock_id: Sequence[Any], *args: Any, **kwargs: Any) -> AnswerWait:
        return self.do(lambda: locks.original.lock(self.agent, lock_id, *args, **kwargs))

    def lock_nowait(self, lock_id: Sequence[Any], *args: Any) -> None:
        self.call(lambda: locks.original.lock_nowait(self.agent, lock_id, *args))

    def await_all(self, **kwargs: Any) -> AnswerWait:
        return self.do(lambda: locks.original.await_all_locks(self.agent, **kwargs))

    def status(self) -> locks.values.LockResult:
        return self.call(lambda: locks.original.transaction_status(self.agent))

    def unlock(self, lock_id: Sequence[Any]) -> None:
        self.call(lambda: locks.original.unlock(self.agent, lock_id))

    def end(self) -> None:
        self.call(lambda: locks.original.end_transaction(self.agent))

    def holds(self, lock_id: Sequence[Any]) -> bool:
        """Whether it holds a lock on exactly this id, as the lock table says."""
        return any(
            c.agent == self.agent.id and c.lock_id == tuple(lock_id) for c in locks.holders(lock_id)
        )

    def waits(self, lock_id: Sequence[Any]) -> bool:
        """Whether it waits for exactly this id, as the lock table says."""
        return any(
            c.agent == self.agent.id and c.lock_id == tuple(lock_id)
            for c in locks.queue(lock_id).waiting
        )


class ThreadClient(Client):
    """A client that is a thread, or a greenlet where threads are patched."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            future, function = job
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
                if isinstance(error, (SystemExit, gevent.GreenletExit)):
                    raise
            finally:
                del job, future, function

    def do(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> AnswerWait:
        future: futures.Future[Any] = futures.Future()
        self._jobs.put((future, lambda: job(*args, **kwargs)))
        return AnswerWait(lambda timeout: future.result(timeout), f"{self.name} {job}", future.done)

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), f"{self.name} is still busy"

    @property
    def subject(self) -> Any:
        # In a patched program a thread is a greenlet, and that is what is known of it.
        return self.call(locks.runtime.monitor.current_client)


class GreenletClient(Client):
    """A client that is a greenlet in the hub of the thread that the test runs in."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._jobs: gevent.queue.SimpleQueue[Any] = gevent.queue.SimpleQueue()
        self.greenlet = gevent.Greenlet(self._work)
        self.greenlet.name = name
        self.greenlet.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            result, function = job
            try:
                result.set(function())
            except BaseException as error:
                result.set_exception(error)
                if isinstance(error, (SystemExit, gevent.GreenletExit)):
                    raise
            finally:
                del job, result, function

    def do(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> AnswerWait:
        result: gevent.event.AsyncResult[Any] = gevent.event.AsyncResult()
        self._jobs.put((result, lambda: job(*args, **kwargs)))
        return AnswerWait(
            lambda timeout: result.get(timeout=timeout), f"{self.name} {job}", result.ready
        )

    def stop(self) -> None:
        self._jobs.put(None)
        self.greenlet.join(LIMIT)
        assert self.greenlet.ready(), f"{self.name} is still busy"

    @property
    def subject(self) -> Any:
        return self.greenlet


class _Performer:
    """What an actor that is a client does: it runs the jobs that it is sent, and keeps the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    def on_receive(self, message: Any) -> Any:
        if callable(message):
            return message()
        self.received.append(message)
        return None


class PlainActor(_Performer, pykka.ThreadingActor):
    use_daemon_thread = True


class GreenActor(_Performer, locks.actors.GeventActor):
    pass


class ActorClient(Client):
    """A client that is an actor."""

    kind: type[Any]

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ref = self.kind.start()

    def do(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> AnswerWait:
        done = []

        def perform() -> Any:
            try:
                return job(*args, **kwargs)
            finally:
                done.append(True)

        future = self.ref.ask(perform, block=False)
        return AnswerWait(
            lambda timeout: future.get(timeout=timeout), f"{self.name} {job}", lambda: bool(done)
        )

    def stop(self) -> None:
        self.ref.stop(block=True, timeout=LIMIT)

    @property
    def subject(self) -> Any:
        return self.ref


class ThreadingActorClient(ActorClient):
    kind = PlainActor


class GeventActorClient(ActorClient):
    kind = GreenActor


class TaskClient(Client):
    """A client that is a task, in an event loop of a thread of its own. Its jobs are run by `locks.aio.call`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._begun: futures.Future[Any] = futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._loop, self._jobs, self._owner = self._begun.result(LIMIT)

    def _run(self) -> None:
        with contextlib.suppress(SystemExit, gevent.GreenletExit):  # of a job
            asyncio.run(self._work())

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name(self.name)
        jobs: asyncio.Queue[Any] = asyncio.Queue()
        self._begun.set_result((asyncio.get_running_loop(), jobs, current_owner()))
        while True:
            job = await jobs.get()
            if job is None:
                return
            future, function = job
            try:
                future.set_result(await locks.aio.call(function))
            except BaseException as error:
                future.set_exception(error)
                if isinstance(error, (SystemExit, gevent.GreenletExit)):
                    raise
            finally:
                del job, future, function

    def do(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> AnswerWait:
        future: futures.Future[Any] = futures.Future()
        entry = (future, lambda: job(*args, **kwargs))
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, entry)
        return AnswerWait(lambda timeout: future.result(timeout), f"{self.name} {job}", future.done)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # a job has ended the task
            self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), f"{self.name} is still busy"

    @property
    def subject(self) -> Any:
        return self._owner


KINDS: dict[str, type[Client]] = {
    "threads": ThreadClient,
    "greenlets": GreenletClient,
    "threading_actors": ThreadingActorClient,
    "gevent_actors": GeventActorClient,
    "tasks": TaskClient,
}
if PATCHED:
    del KINDS["tasks"]  # asyncio itself has but one event loop in a patched program


def play(test: pytest.Function, fixture: str) -> bool | None:
    """Play a test in the context that this fixture of it is, if it has it: for pytest's hook."""
    played = test.funcargs.get(fixture)
    if not isinstance(played, Run):
        return None
    names = test._fixtureinfo.argnames
    arguments = {name: test.funcargs[name] for name in names}
    played.play(lambda: test.obj(**arguments))
    return True


class Run:
    """The context of one test: what kind its clients are, and where it runs."""

    def __init__(self, kind: str, patched: bool) -> None:
        self.kind = kind
        self.patched = patched
        self.in_hub = patched or kind in ("greenlets", "gevent_actors")
        self.can_kill = kind in ("greenlets", "gevent_actors") or (patched and kind == "threads")
        # A task's transactions are its owner's: whoever has one acts for that, so nobody is refused.
        self.owned = kind == "tasks"
        self.clients: list[Client] = []

    def __repr__(self) -> str:
        return f"<Run {self.kind}>"

    def client(self, name: str = "") -> Client:
        """Start a client."""
        client = KINDS[self.kind](name or f"client-{len(self.clients) + 1}")
        self.clients.append(client)
        return client

    def begin(self, number: int, **options: Any) -> list[Client]:
        """Start some clients, each with a transaction, from the oldest to the youngest."""
        return [self.client().begin(**options) for _ in range(number)]

    def pause(self) -> None:
        """Let other clients run: called within a client's job."""
        if self.in_hub:
            gevent.sleep(0)
        else:
            time.sleep(0)

    def until_waiting(self, client: Client, lock_id: Sequence[Any]) -> None:
        """Wait until a client waits for an id, as everybody can see."""
        eventually(lambda: client.waits(lock_id))

    def stop(self, client: Client) -> None:
        """Let a client end normally."""
        self.clients.remove(client)
        client.stop()

    def play(self, script: Callable[[], object]) -> None:
        """Run a test in this context, and see that it leaves nothing behind.

        In a process that is not patched that is a fresh native thread, whatever other tests have
        done in the main one: with a hub for those kinds of clients that need one there.
        """
        if self.patched:
            self._play(script)
            return
        errors: list[BaseException] = []

        def body() -> None:
            if self.in_hub:
                gevent.get_hub()
            try:
                self._play(script)
            except BaseException as error:
                errors.append(error)
            if self.in_hub:
                gevent.get_hub().destroy(destroy_loop=True)

        thread = _Thread(target=body, name="test", daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def _play(self, script: Callable[[], object]) -> None:
        try:
            locks.start()
            script()
            while self.clients:
                self.clients.pop().stop()
            left_nothing_behind()
        finally:
            locks.stop()
            for client in self.clients:
                client.stop()


def left_nothing_behind() -> None:
    """See that no agent and no request is left."""
    eventually(lambda: locks.statistics().agents == 0)
    assert locks.statistics().table.entries == 0
    assert locks.statistics().table.agents == 0
