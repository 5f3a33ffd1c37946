"""`async def` clients of an application: tasks of an event loop that runs in virtual time.

The loop is asyncio's own (`BaseEventLoop`), except at the point where it would wait. There the
application's scheduler lets other clients run, and returns when something is ready or due. The loop
runs in one more greenlet of the application. While this greenlet is inside a call of `locks`, the
whole loop stands still, as it does in a thread. Other clients may run meanwhile.

Asyncio's callbacks keep their order. But which of the ready *tasks* continues is drawn at random,
because programs cannot rely on that order: it depends on what else is ready. The delay of a timer
is drawn, too.

Each `async def` client also has its own greenlet, which only waits for its task. So it is
scheduled, killed and reported like any other client. As with `asyncio.run`, the loop ends with the
last of these, and the remaining tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent

from locks.errors import MisuseError
from locks_lab.applications.application import Application, Client
from locks_lab.applications.places import Place, of_coroutine

if TYPE_CHECKING:
    from typing_extensions import TypeVarTuple, Unpack

    Ts = TypeVarTuple("Ts")

__all__ = ["EventLoop", "LoopGreenlet", "Tasks"]

LONGEST = 365 * 86400.0  # seconds; a timer that is due later is not waited for

REFUSED = (
    *("add_reader", "add_signal_handler", "add_writer", "connect_accepted_socket"),
    *("connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint"),
    *("create_server", "create_unix_connection", "create_unix_server", "getaddrinfo"),
    *("getnameinfo", "run_in_executor", "sendfile", "sock_accept", "sock_connect", "sock_recv"),
    *("sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile"),
    *("sock_sendto", "start_tls", "subprocess_exec", "subprocess_shell"),
)
"""Methods of event loops that reach outside of the simulation."""


class EventLoop(asyncio.BaseEventLoop):
    """An event loop that takes time and readiness from the application.

    Attributes:
        is_over: Returns whether it should end.
    """

    def __init__(self, application: Application, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self.is_over = is_over
        self._application = application
        self._selector = self
        self._steps: list[asyncio.Handle] = []  # of tasks that can continue
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order, which asyncio's sets are not
        self._begun = 0
        self._greenlet: Client | None = None
        self._idle = self._leaving = False
        loop: Any = self
        self._handles = loop._ready  # what `BaseEventLoop` runs next

    def run(self) -> None:
        """In its own greenlet: run to the end, then cancel the remaining tasks."""
        current = getcurrent()
        assert isinstance(current, Client)
        self._greenlet = current
        try:
            with contextlib.suppress(GreenletExit):  # the application ends
                self.run_forever()
            self._leaving = True
            left = list(self._tasks)
            for task in left:
                task.cancel()
            self.run_until_complete(self._see_off(left))
        finally:
            for task in self._tasks:  # these were never finished: do not warn about them
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.close()

    async def _see_off(self, tasks: list[asyncio.Task[Any]]) -> None:
        """As `asyncio.run` does in the end."""
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self.call_exception_handler(
                    {
                        "message": "unhandled exception at the end of a simulation",
                        "exception": outcome,
                        "task": task,
                    }
                )
        await self.shutdown_asyncgens()

    def wake(self) -> None:
        """There is something to do, if it waits for that."""
        if self._idle and self._greenlet is not None:
            self._application.ready(self._greenlet)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run with an unhandled error, unless the program has a handler of its own."""
        if self.get_exception_handler() is None and isinstance(
            error := context.get("exception"), Exception
        ):
            self._application.fail(error)
        super().call_exception_handler(context)

    # --- What `BaseEventLoop` asks for

    def time(self) -> float:
        """Now, in seconds of virtual time."""
        return self._application.time

    def call_at(self, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:  # type: ignore[override]
        """Call something at a time, or slightly later."""
        return super().call_at(when + self._application.moment(), *args, **options)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task. Default names are the same in each run."""
        self._begun += 1
        task = super().create_task(coro, name=name or f"Task-{self._begun}", **options)
        if not task.done():
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        return task

    def select(self, timeout: float | None) -> list[Any]:
        """Let other clients run: this is called where the loop waits, once in each round.

        Then one task continues, and all callbacks that are ready run.
        """
        application = self._application
        self._sort()
        if application.leaving:
            if not (self._leaving and (self._handles or self._steps)):
                raise GreenletExit
        elif not self._leaving and self.is_over():
            self.stop()
        elif self._handles or self._steps:
            application.pause()
        else:
            self._wait()
        self._sort()
        if self._steps:
            self._handles.append(self._steps.pop(application.draw(len(self._steps))))
        return []

    def _sort(self) -> None:
        """Set steps of tasks apart from callbacks."""
        ready = list(self._handles)
        self._handles.clear()
        for handle in ready:
            is_step = isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)
            (self._steps if is_step else self._handles).append(handle)

    def _wait(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        left = timers[0].when() - self.time() if timers else LONGEST
        self._idle = True
        try:
            self._application.wait(None if left >= LONGEST else max(0.0, left))
        finally:
            self._idle = False

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        self.wake()


def _refused(name: str) -> Callable[..., Any]:
    what = "a thread" if name == "run_in_executor" else "anything outside of it"

    def refuse(self: EventLoop, *args: Any, **kwargs: Any) -> Any:
        raise MisuseError(
            f"loop.{name}: a simulation can't wait for {what}. Replace what calls it in the test, with "
            "`await asyncio.sleep(...)` for the time that it takes"
        )

    refuse.__name__ = name
    return refuse


for _name in REFUSED:
    setattr(EventLoop, _name, _refused(_name))


class LoopGreenlet(Client):
    """The greenlet in which an event loop runs.

    Only while this greenlet runs, its loop is asyncio's running loop, and its task the current one.

    Attributes:
        loop: The event loop.
        task: The task in which it is paused, if any.
    """

    is_helper = True

    def __init__(self, loop: EventLoop, node: str) -> None:
        super().__init__("event loop", loop.run, (), node)
        self.loop = loop
        self.task: asyncio.Task[Any] | None = None
        self._running: asyncio.AbstractEventLoop | None = None

    def go_on(self, fatal: BaseException | None) -> None:
        """Continue like a client; asyncio knows its loop and its task meanwhile."""
        asyncio._set_running_loop(self._running)
        task, self.task = self.task, None
        if (
            task is not None
        ):  # from Python 3.14 on a thread has one current task, not one for each loop
            asyncio.tasks._enter_task(self.loop, task)
        try:
            super().go_on(fatal)
        finally:
            self._running = asyncio._get_running_loop()
            if self._running is not None and (task := asyncio.current_task()) is not None:
                asyncio.tasks._leave_task(self.loop, task)
                self.task = task
            asyncio._set_running_loop(None)


class Tasks:
    """The clients of a node that are tasks."""

    def __init__(self, application: Application, node: str) -> None:
        self._application = application
        self._node = node
        self._clients: list[Client] = []
        self._greenlet: LoopGreenlet | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether it is the event loop that runs now."""
        running = self._application.running
        return running is not None and running is self._greenlet

    def place(self) -> Place | None:
        """The position of the current task in the user's code."""
        assert self._greenlet is not None
        task = self._greenlet.task or asyncio.current_task(self._greenlet.loop)
        return None if task is None else of_coroutine(task.get_coro())

    def client(
        self,
        name: str,
        function: Callable[[Unpack[Ts]], Coroutine[Any, Any, Any]],
        args: tuple[Unpack[Ts]],
    ) -> Client:
        """Add a client that runs a coroutine function, in a task of this name."""
        given = (name, function, *args)
        client = self._application.client(f"task {name}", self._work, given, self._node)
        self._clients.append(client)
        return client

    def look(self) -> None:
        """A client has ended: that may be the end of the event loop."""
        if self._greenlet is not None and self._is_over():
            self._greenlet.loop.wake()

    def _is_over(self) -> bool:
        return all(client.dead for client in self._clients)

    def _loop(self) -> EventLoop:
        """The event loop; a new one if none is running."""
        if self._greenlet is None or self._greenlet.dead:
            if asyncio._get_running_loop() is not None:
                raise MisuseError(
                    "an event loop runs here already, and a simulation with async clients has one of its "
                    "own: call simulation.run() in a plain function, not in a coroutine"
                )
            self._greenlet = LoopGreenlet(EventLoop(self._application, self._is_over), self._node)
            self._application.help(self._greenlet)
        return self._greenlet.loop

    def _work(
        self,
        name: str,
        function: Callable[[Unpack[Ts]], Coroutine[Any, Any, Any]],
        *args: Unpack[Ts],
    ) -> Any:
        """In the client's greenlet: run the task, and wait for it."""
        application = self._application
        client = application.running
        assert client is not None
        loop = self._loop()
        begun: list[asyncio.Task[Any]] = []

        def begin() -> None:
            begun.append(loop.create_task(function(*args), name=name))
            begun[0].add_done_callback(lambda _: application.ready(client))

        handle = loop.call_soon_threadsafe(begin)
        try:
            while not (begun and begun[0].done()):
                application.wait(None)
        except BaseException:  # it is killed
            if begun:
                loop.call_soon_threadsafe(begun[0].cancel)
            else:
                handle.cancel()
            while begun and not begun[0].done():
                application.wait(None)
            raise
        return begun[0].result()
