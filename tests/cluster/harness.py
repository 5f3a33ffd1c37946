"""Nodes as operating-system processes, and links between them that can be cut.

A `World` starts lock servers (`python -m locks node`) and workers (`tests.cluster.worker`: programs
with clients that do what they are told), on loopback and free ports, and ends each by its own process
id. What they write to standard error is printed at the end, and must have no traceback in it.

A `Proxy` stands for the network between two nodes: one of them is given the proxy's address instead
of the other's. Such nodes are started with `mesh=False`, or they would tell each other their own
addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any, Literal, TypeVar

import locks
from tests.helpers import LIMIT, eventually, free_port
from tests.warm import Program

ROOT = Path(__file__).parents[2]
COOKIE = "cookie-of-the-tests"

# In a patched process these would be gevent's; the harness is for processes that are not.
Address = tuple[str, int]


class WorkerError(Exception):
    """A worker has raised something that is no error of `locks`."""


class Answer:
    """What a worker will answer."""

    def __init__(self, what: str) -> None:
        self.future: futures.Future[dict[str, Any]] = futures.Future()
        self._what = what

    def message(self, timeout: float = LIMIT) -> dict[str, Any]:
        """The answer as it came."""
        try:
            return self.future.result(timeout)
        except futures.TimeoutError:
            raise AssertionError(f"no answer within {timeout} s: {self._what}") from None

    def get(self, timeout: float = LIMIT) -> Any:
        """Return the result, or raise the error."""
        message = self.message(timeout)
        if "error" in message:
            kind, text, about = message["error"]
            found = getattr(locks.errors, kind, getattr(locks.node, kind, None))
            if found is None:
                raise WorkerError(f"{self._what}: {kind}: {text}")
            raise found(text, **about)
        return message["result"]

    @property
    def at(self) -> float:
        """When it was done, by `time.monotonic()`."""
        at: float = self.message()["at"]
        return at

    @property
    def ready(self) -> bool:
        """Whether it is there."""
        return self.future.done()


class Process:
    """A process of a test.

    Args:
        name: The name of its node.
        command: What follows `python -m`.
        skew: How many seconds its clock is ahead (`tests.cluster.skewed`).
        environment: More of its environment.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        skew: float = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        if skew:
            command = ["tests.cluster.skewed", str(skew), *command]
        # Its end is `close`; it outlives this function.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = Program(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
            },
            stderr=self._log,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGSTOP: when this returns it does nothing any more, and its connections stay open."""
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> float:
        """SIGKILL; returns when, by `time.monotonic()`."""
        at = time.monotonic()
        self.process.kill()
        self.process.wait()
        return at

    def errors(self) -> str:
        """What it has written to standard error."""
        number = self._log.fileno()
        # Not by `seek`: the process writes where this file stands, for the two share it.
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")

    def close(self) -> str:
        """End it, whatever state it is in; return what it wrote to standard error."""
        self.process.kill()
        self.process.wait()
        for stream in (self._stdin, self._stdout):
            with contextlib.suppress(BrokenPipeError):  # something was still to be written
                stream.close()
        text = self.errors()
        self._log.close()
        return text


class Server(Process):
    """A lock server: `python -m locks node`.

    Attributes:
        web: Where its live page is, if it has one, once it is ready.
    """

    web = ""

    def __init__(
        self, name: str, arguments: Iterable[str], skew: float, environment: Mapping[str, str]
    ) -> None:
        super().__init__(name, ["locks", "node", "--name", name, *arguments], skew, environment)
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        if self._address is None:
            line = self._stdout.readline()
            assert line, f"{self.name} did not start: {self.errors()}"
            ready = json.loads(line)
            assert ready["name"] == self.name
            self._address = (ready["host"], ready["port"])
            self.web = ready.get("web", "")
        return self._address

    @property
    def peer(self) -> str:
        """How others are told of it."""
        return f"{self.name}:{self.address[1]}"


class Worker(Process):
    """A program with clients."""

    program = "tests.cluster.worker"

    def __init__(
        self,
        name: str,
        patched: bool = False,
        skew: float = 0,
        **options: Any,
    ) -> None:
        super().__init__(name, [self.program, *(["--patched"] if patched else [])], skew)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        options.setdefault("listen", True)  # without it, and without mesh, it is a client node
        self._started = self.ask("start", name=name, cookie=COOKIE, **options)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._stdout:
            message = json.loads(line)
            self._answers.pop(message["id"]).future.set_result(message)
        for answer in list(self._answers.values()):  # it is dead
            answer.future.cancel()

    def ask(self, do: str, client: str = "main", **arguments: Any) -> Answer:
        """Tell a client to do something; returns at once."""
        number = next(self._numbers)
        answer = self._answers[number] = Answer(f"{self.name} {client}: {do} {arguments}")
        line = json.dumps({"id": number, "do": do, "client": client, **arguments})
        self._stdin.write(line + "\n")
        self._stdin.flush()
        return answer

    def do(self, do: str, client: str = "main", **arguments: Any) -> Any:
        """Tell a client to do something, and wait for it."""
        return self.ask(do, client, **arguments).get()

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._started.get()
        return (host, port)

    @property
    def peer(self) -> str:
        """How others are told of it."""
        return f"{self.name}:{self.address[1]}"


AnyWorker = TypeVar("AnyWorker", bound=Worker)


class Proxy:
    """The network between two nodes: a port that leads to another one.

    It passes everything on, until it is told to `stall` (it accepts and takes bytes in, and passes
    none on, not even that a side has closed; in one direction or both), to `delay` all that it passes on,
    or to `cut` (it closes all connections, and refuses new ones). `heal` ends all of it; what
    was held back is passed on then.

    Args:
        target: Where it leads to; may be said later. Until then connections are refused.
    """

    def __init__(self, target: Address | None = None) -> None:
        self.target = target
        self._passes = {"forth": asyncio.Event(), "back": asyncio.Event()}
        self._delay = 0.0
        self._refuses = False
        self._pairs: dict[tuple[asyncio.StreamWriter, ...], list[asyncio.Task[None]]] = {}
        listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = listener.getsockname()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._order(self._set)
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, sock=listener), self._loop
        ).result(LIMIT)

    def peer(self, name: str) -> str:
        """How others are told of the node behind it."""
        return f"{name}:{self.address[1]}"

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._pairs)

    def cut(self) -> float:
        """Close all connections and refuse new ones; returns when that was."""
        at = time.monotonic()
        self._order(self._cut)
        return at

    def stall(self, direction: Literal["both", "forth", "back"] = "both") -> None:
        """Pass nothing on, or nothing to the target (`forth`), or nothing of it (`back`)."""
        self._order(self._set, direction)

    def delay(self, seconds: float) -> None:
        """Pass all on that much later, in each direction."""
        self._delay = seconds

    def heal(self) -> None:
        """Pass everything on again, and at once."""
        self._delay = 0.0
        self._order(self._set)

    def close(self) -> None:
        """Close everything."""
        self._order(self._cut)
        self._order(self._loop.stop)

    def _order(self, order: Callable[..., None], *arguments: Any) -> None:
        done = threading.Event()

        def do() -> None:
            order(*arguments)
            done.set()

        self._loop.call_soon_threadsafe(do)
        assert done.wait(LIMIT), "the proxy does not answer"

    def _set(self, stalled: str = "") -> None:
        self._refuses = False
        for direction, passes in self._passes.items():
            if stalled in (direction, "both"):
                passes.clear()
            else:
                passes.set()

    def _cut(self) -> None:
        self._refuses = True
        for pair in list(self._pairs):
            self._drop(pair)
            for side in pair:
                side.transport.abort()

    def _drop(self, pair: tuple[asyncio.StreamWriter, ...]) -> None:
        for task in self._pairs.pop(pair, []):
            task.cancel()
        for side in pair:
            side.close()

    async def _accept(self, reader: asyncio.StreamReader, caller: asyncio.StreamWriter) -> None:
        try:
            if self._refuses or self.target is None:
                raise ConnectionRefusedError
            answers, target = await asyncio.wait_for(asyncio.open_connection(*self.target), 2)
        except (OSError, asyncio.TimeoutError):
            caller.transport.abort()
            return
        pair = (caller, target)
        if self._refuses:  # it was cut meanwhile
            self._drop(pair)
            return
        ways = (("forth", reader, target), ("back", answers, caller))
        tasks = self._pairs[pair] = []
        for direction, source, goal in ways:
            late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            tasks.append(self._loop.create_task(self._take(source, late)))
            tasks.append(self._loop.create_task(self._pass_on(direction, late, goal, pair)))

    async def _take(
        self, source: asyncio.StreamReader, late: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"first"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            late.put_nowait((time.monotonic() + self._delay, data))

    async def _pass_on(
        self,
        direction: str,
        late: asyncio.Queue[tuple[float, bytes]],
        goal: asyncio.StreamWriter,
        pair: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        data = b"first"
        while data:
            due, data = await late.get()
            while self._delay and time.monotonic() < due:
                await asyncio.sleep(min(0.01, due - time.monotonic()))
            await self._passes[direction].wait()
            try:
                goal.write(data)
                await goal.drain()
            except OSError:
                break
        self._drop(pair)


class World:
    """All processes and links of one test; a context manager that ends them.

    Args:
        shown: How many lines at most are printed of what each has written to standard error.
    """

    def __init__(self, shown: int | None = None) -> None:
        self.shown = shown
        self.processes: list[Process] = []
        self.proxies: list[Proxy] = []
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.cookie_file = self.folder / "cookie"
        self.cookie_file.touch(0o600)
        self.cookie_file.write_text(COOKIE)

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def server(
        self,
        name: str,
        peers: Iterable[str] = (),
        *,
        port: int = 0,
        net_ticktime: float = 2,
        mesh: bool = True,
        arguments: Iterable[str] = (),
        skew: float = 0,
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        """Start a lock server; it need not be ready when this returns."""
        given = [f"--listen=127.0.0.1:{port}", f"--cookie-file={self.cookie_file}", *arguments]
        known = {
            "LOCKS_NET_TICKTIME": str(net_ticktime),
            "LOCKS_PEERS": ",".join(peers),
            **(environment or {}),
        }
        server = Server(name, given if mesh else [*given, "--no-mesh"], skew, known)
        self.processes.append(server)
        return server

    def worker(
        self,
        name: str,
        peers: Iterable[str] = (),
        *,
        patched: bool = False,
        net_ticktime: float = 2,
        mesh: bool = True,
        kind: type[AnyWorker] | None = None,
        **options: Any,
    ) -> AnyWorker:
        """Start a worker; it need not be ready when this returns."""
        made: Any = kind or Worker
        worker: AnyWorker = made(
            name, patched, peers=list(peers), net_ticktime=net_ticktime, mesh=mesh, **options
        )
        self.processes.append(worker)
        return worker

    def proxy(self, target: Address | None = None) -> Proxy:
        """Put a proxy before an address."""
        proxy = Proxy(target)
        self.proxies.append(proxy)
        return proxy

    def close(self) -> None:
        """End everything, and see that no process has printed a traceback."""
        texts = {}
        for number, process in enumerate(self.processes):
            texts[f"{number} {process.name}"] = text = process.close()
            if text:
                lines = text.splitlines()[: self.shown]
                print(f"--- standard error of {process.name}:", *lines, sep="\n")
        for proxy in self.proxies:
            proxy.close()
        self._folder.cleanup()
        broken = [name for name, text in texts.items() if "Traceback" in text]
        assert not broken, f"tracebacks: {broken}: {[texts[name] for name in broken]}"


class Net:
    """Lock servers and workers, and a proxy for each link of a worker. Each node comes back where it was.

    Args:
        world: What ends them.
        servers: The names of the servers.
        workers: The names of the workers.
        net_ticktime: After how many seconds of silence a node counts as down.
        meshed: Whether workers are connected with each other; otherwise they are client nodes.
        skews: How many seconds the clocks of some are ahead, by name.
        patched: Those of them that are monkey-patched.
        kind: Of the workers.
        named: Whether servers and workers name the servers as such, and servers keep state files: `locks.once` needs them.

    Attributes:
        there: The processes, by name.
        links: By the names of both ends.
    """

    def __init__(
        self,
        world: World,
        servers: Sequence[str],
        workers: Sequence[str],
        *,
        net_ticktime: float = 3,
        meshed: bool = True,
        skews: Mapping[str, float] | None = None,
        patched: Iterable[str] = (),
        kind: type[Worker] = Worker,
        named: bool = False,
    ) -> None:
        self.world = world
        self._kind = kind
        self._named = named
        self.servers, self.workers = list(servers), list(workers)
        self.there: dict[str, Any] = {}
        self._ports = {name: free_port() for name in servers} if named else {}
        self._ticktime = net_ticktime
        self._meshed = meshed
        self._skews = skews or {}
        self._patched = set(patched)
        pairs = [*itertools.product(servers, workers)]
        pairs += itertools.combinations(workers, 2) if meshed else []
        self.links = {frozenset(pair): world.proxy() for pair in pairs}
        for name in (*servers, *workers):
            self.start(name)
        self.until_whole()

    def start(self, name: str) -> None:
        """Start a node, again if it has ended; the links that lead to it lead there from now on."""
        given: dict[str, Any] = {
            "net_ticktime": self._ticktime,
            "skew": self._skews.get(name, 0),
        }
        if name in self.servers:
            all_of_them = [f"{each}:{port}" for each, port in self._ports.items()]
            peers = [each for each in all_of_them if not each.startswith(f"{name}:")]
            if self._named:
                state = self.world.folder / f"{name}.state"
                given["arguments"] = [f"--servers={','.join(all_of_them)}", f"--state={state}"]
            port = self._ports.get(name, 0)
            process = self.there[name] = self.world.server(name, peers, port=port, **given)
            self._ports[name] = process.address[1]
            callers = self.workers
        else:
            before = self.workers[: self.workers.index(name)] if self._meshed else []
            callers = self.workers[len(before) + 1 :] if self._meshed else []
            peers = [self.link(name, other).peer(other) for other in (*self.servers, *before)]
            listen, patched = self._meshed, name in self._patched
            if self._named:
                given["servers"] = [self.link(name, server).peer(server) for server in self.servers]
            process = self.there[name] = self.world.worker(
                name, peers, mesh=False, listen=listen, patched=patched, kind=self._kind, **given
            )
        for other in callers:
            self.link(name, other).target = process.address

    def link(self, one: str, other: str) -> Proxy:
        """The link between two nodes."""
        return self.links[frozenset((one, other))]

    def links_of(self, name: str) -> list[Proxy]:
        """All links of a node that have a proxy."""
        return [proxy for pair, proxy in self.links.items() if name in pair]

    def until_whole(self, limit: float = LIMIT) -> None:
        """Wait until each worker can ask everybody that it is to be connected with."""
        names = {*self.servers, *(self.workers if self._meshed else ())}
        for name in self.workers:
            eventually(
                lambda name=name: names <= set(self.there[name].do("alive", client="looks")),  # type: ignore[misc]
                limit,
            )


def until_alive(worker: Worker, *names: str, limit: float = LIMIT) -> None:
    """Wait until a worker's node can ask the lock servers of these nodes, and no others."""
    wanted = sorted({worker.name, *names})
    eventually(lambda: worker.do("alive", client="looks") == wanted, limit)
