"""Locks for Dask (`dask.distributed`): `install(client)`, then tasks use `locks.transaction` and `locks.aio` as usual.

    from dask.distributed import Client
    from locks.engines import dask as locks_dask

    client = Client()
    locks_dask.install(client)

    def book(account):
        with locks.transaction(timeout=30) as tx:
            tx.write_lock(("accounts", account))
            ...

It consists of two Dask plugins. The scheduler plugin keeps the lock servers running, beside the scheduler or beside some of its
workers, and knows their addresses. If the cluster shrinks, servers that find no other worker go on beside the scheduler. The worker plugin, which later workers get, too, gives each worker's program the secret and a way
to ask for the addresses, and makes each task the owner of its locks. All this goes over Dask's connections, encrypted if these are.

The owner is the task, because the threads that run tasks are reused: the locks of a task are released when the task ends. If
Dask does not need a task any more (it was cancelled, its worker is closed), its locks are released immediately, and its waits end. Its code
can't be stopped, so it continues until its next call: `ensure_held` and all other calls raise `TransactionEnded`. If Dask needs it again, it is run again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import secrets
import tempfile
from collections.abc import Mapping
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin, Worker, WorkerPlugin
from distributed.comm.addressing import get_address_host
from distributed.worker_state_machine import ExecuteFailureEvent, RescheduleEvent

from locks.engines.beside import Beside
from locks.engines.places import Asked, names_of
from locks.errors import InvalidOption, LocksError, MisuseError, OperatingError
from locks.lock_ids import shown
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.otp.admission.secret import Cookie
from locks.otp.names.discovery import HostAndPort
from locks.otp.options import MOST_SERVERS, TLS
from locks.program import default as program

__all__ = ["install", "join"]

logger = logging.getLogger("locks.engines")

NAME = "locks"  # of both plugins
PATIENCE = 60.0  # seconds that `install` waits for the lock servers
ANSWER = 5.0  # seconds that the scheduler has to return their addresses
AGAIN = 0.2  # seconds until a lock server that has ended is restarted
NEW_WORKER = 10.0  # seconds in which a worker may come that takes the place of a lost one
CANCELLED = "Dask does not need the task any more"

Places = dict[str, HostAndPort]


def install(client: Client, *, workers: int = 0, port: int = 0) -> Any:
    """Give a cluster lock servers, and let all of its tasks, on current and later workers, use them.

    A second call does nothing. This program itself uses the locks after `join`.

    Args:
        client: The cluster's client.
        workers: The number of workers that get a lock server each; a lock needs a majority of these. With 3, locks work while one is
            lost; it is replaced beside another worker, or beside the scheduler if there is none. 0: one server beside the
            scheduler, which does not depend on workers.
        port: The port of the lock servers; 0 gives each a free port.

    Returns:
        Nothing; for an asynchronous client, an awaitable.

    Raises:
        InvalidOption: There are too few workers, or the number is wrong.
        MisuseError: Other lock servers are installed, or a worker already uses locks on other servers.
        OperatingError: The lock servers did not start.
    """
    if type(workers) is not int or not 0 <= workers <= MOST_SERVERS:
        raise InvalidOption(
            f"workers={shown(workers)} is wrong; use a number from 0 to {MOST_SERVERS}",
            workers=shown(workers),
        )
    if type(port) is not int or not 0 <= port < 65536:
        raise InvalidOption(f"port={shown(port)} is not a port number", port=shown(port))
    return client.sync(_install, client, workers, port)


def join(client: Client) -> Any:
    """Let this program use the locks of a cluster, as another client of its lock servers, which it must be able to reach.

    Args:
        client: The cluster's client; keep it as long as this program uses locks.

    Returns:
        Nothing; for an asynchronous client, an awaitable.

    Raises:
        MisuseError: The cluster has no lock servers, or this program uses others.
    """
    return client.sync(_join, client)


async def _install(client: Client, workers: int, port: int) -> None:
    await client.register_plugin(_Servers(workers, port), name=NAME)
    known = await client.run_on_scheduler(_said)
    if len(known["names"]) != max(workers, 1) or known["on_workers"] != bool(workers):
        raise MisuseError(
            f"can't install other lock servers: this cluster already has lock servers {_told(known)}, which all of its programs share"
        )
    await client.register_plugin(_Joined(), name=NAME)
    problem = await client.run_on_scheduler(_await_servers)
    if problem:
        raise OperatingError(f"the lock servers {_told(known)} did not start: {problem}")


def _told(known: Mapping[str, Any]) -> str:
    beside = f"{len(known['names'])} workers" if known["on_workers"] else "the scheduler"
    return f"beside {beside}"


async def _join(client: Client) -> None:
    known = await client.run_on_scheduler(_said)
    if known is None:
        raise MisuseError(
            "this cluster has no lock servers; call locks.engines.dask.install(client) first"
        )

    async def ask() -> Any:
        return (await client.run_on_scheduler(_said))["found"]

    _preset(known, client.security, "client", ask, client.loop.asyncio_loop)


def _said(dask_scheduler: Scheduler) -> dict[str, Any] | None:
    """The scheduler's information about the lock servers."""
    plugin = dask_scheduler.plugins.get(NAME)
    return plugin.said() if isinstance(plugin, _Servers) else None


async def _await_servers(dask_scheduler: Scheduler) -> str:
    plugin = dask_scheduler.plugins[NAME]
    assert isinstance(plugin, _Servers)
    return await plugin.complete()


def _preset(
    known: Mapping[str, Any], security: Any, role: str, ask: Any, loop: asyncio.AbstractEventLoop
) -> None:
    """Set the servers of this program."""

    def ask_and_wait() -> Places:
        try:
            answer = asyncio.run_coroutine_threadsafe(ask(), loop).result(ANSWER)
        except (concurrent.futures.TimeoutError, RuntimeError, OSError) as error:
            raise OSError(f"{known['engine']} does not answer: {error!r}") from error
        return _places(answer)

    asked = Asked(known["engine"], known["names"], ask_and_wait, _places(known["found"]))
    tls = _tls(security, role) if known["tls"] else None
    options = {"servers": asked, "cookie": Cookie(known["cookie"]), "tls": tls}
    program.preset(lambda: {**options, "allow_plaintext": tls is None}, asked)


def _places(found: Mapping[str, Any]) -> Places:
    return {name: (host, port) for name, (host, port) in found.items()}


_folders: list[tempfile.TemporaryDirectory[str]] = []


def _tls(security: Any, role: str) -> TLS:
    """Convert Dask's certificates, which may be in memory, to those of a node.

    Like Dask, it does not check the host in a certificate: every program with a certificate of this CA belongs to the cluster.
    """
    config = security.get_tls_config_for_role(role)
    paths = []
    for what in ("cert", "key", "ca_file"):
        value = config[what] or config["cert"]
        if "\n" in value:
            folder = tempfile.TemporaryDirectory(prefix="locks-")
            _folders.append(folder)  # removed when the program ends
            value, pem = f"{folder.name}/{what}.pem", value
            with open(value, "w", encoding="ascii") as file:
                file.write(pem)
        paths.append(value)
    certificate, key, ca = paths
    return TLS(certificate, key, ca, check_hostname=False)


def _host(address: str) -> str:
    """The host of a Dask server; servers in one process use loopback."""
    return "127.0.0.1" if address.startswith("inproc://") else get_address_host(address)


def _setup(server: Any, role: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The setup of a lock server beside a scheduler or worker."""
    tls = _tls(server.security, role) if given["tls"] else None
    return {**given, "host": _host(server.address), "tls": tls and [*map(str, tls[:3]), False]}


class _Place:
    """A place for a lock server: beside the scheduler.

    Attributes:
        machine: The machine of the place.
        gone: Whether the server has ended, or the place is lost.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._beside: Beside | None = None
        self.machine = _host(scheduler.address)
        self.gone = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def serve(self, given: Mapping[str, Any]) -> HostAndPort:
        """Start the server; return its address."""
        self.gone.clear()
        beside = self._beside = await Beside.start_process(
            _setup(self._scheduler, "scheduler", given)
        )
        self._watching = asyncio.create_task(self._watch(beside))
        return beside.address

    async def tell_addresses(self, found: Places) -> None:
        """Send it the addresses of all servers; wait until it is running."""
        assert self._beside is not None
        await self._beside.tell_addresses(found)

    async def end_server(self) -> None:
        """End it."""
        if self._beside is not None:
            await self._beside.end_process()

    async def _watch(self, beside: Beside) -> None:
        await beside.ended()
        self.gone.set()


class _OnWorker:
    """A place for a lock server: beside a worker. Like `_Place`.

    Attributes:
        machine: The machine of the place.
        gone: Whether the server has ended, or the place is lost.
    """

    def __init__(self, scheduler: Scheduler, worker: str) -> None:
        self._worker = scheduler.rpc(worker)
        self.machine = _host(worker)
        self.gone = asyncio.Event()

    async def serve(self, given: Mapping[str, Any]) -> HostAndPort:
        """Start the server; return its address."""
        self.gone.clear()
        host, port = await self._worker.locks_serve(given=given)
        return host, port

    async def tell_addresses(self, found: Places) -> None:
        """Send it the addresses of all servers; wait until it is running."""
        await self._worker.locks_tell(found=found)

    async def end_server(self) -> None:
        """Do nothing: it ends with its worker."""


class _Servers(SchedulerPlugin):
    """Keeps the lock servers running, and knows their addresses.

    Args:
        workers: The number of workers that get a server; 0: one server beside the scheduler.
        port: Their port.
    """

    idempotent = True

    def __init__(self, workers: int, port: int) -> None:
        self._workers = workers
        self._port = port

    async def start(self, scheduler: Scheduler) -> None:
        """Start, when the plugin is registered."""
        if len(scheduler.workers) < self._workers:
            raise InvalidOption(
                f"workers={self._workers}, but the cluster has only {len(scheduler.workers)}: wait for them first, "
                "client.wait_for_workers(...)",
                workers=self._workers,
            )
        self._scheduler = scheduler
        self._cookie = secrets.token_hex()
        self._names = names_of(self._workers or 1, "dask")
        self._found: Places = {}
        self._hosts: dict[str, _OnWorker | _Place] = {}
        self._placed: dict[str, _OnWorker | _Place] = {}
        self._listening: dict[str, _OnWorker | _Place] = {}  # of those placed
        self._changed = asyncio.Event()  # a new place is available
        self._complete = asyncio.Event()
        self._problem = "timed out"
        scheduler.handlers["locks_join"] = self._worker_joins
        scheduler.handlers["locks_said"] = self.said
        scheduler.handlers["locks_ended"] = self._server_ended
        if not self._workers:
            self._hosts["scheduler"] = _Place(scheduler)
        self._keepers = [asyncio.create_task(self._keep(name)) for name in self._names]

    def said(self) -> dict[str, Any]:
        """The information for programs of the cluster."""
        return {
            "engine": f"the Dask scheduler {self._scheduler.address} ({self._scheduler.id})",
            "names": self._names,
            "cookie": self._cookie,
            "tls": self._has_tls,
            "found": self._found,
            "on_workers": bool(self._workers),
        }

    async def complete(self) -> str:
        """Wait until all servers are running; return what is wrong if they are not."""
        try:
            await asyncio.wait_for(self._complete.wait(), PATIENCE)
        except (TimeoutError, asyncio.TimeoutError):
            return self._problem
        return ""

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Handle the loss of a worker."""
        place = self._hosts.pop(worker, None)
        if place is not None:
            place.gone.set()

    async def close(self) -> None:
        """End the servers with the scheduler."""
        for keeper in self._keepers:
            keeper.cancel()
        for place in self._placed.values():
            await place.end_server()

    @property
    def _has_tls(self) -> bool:
        return bool(self._scheduler.address.startswith("tls://"))

    async def _worker_joins(self, worker: str) -> dict[str, Any]:
        if self._workers:
            self._hosts[worker] = _OnWorker(self._scheduler, worker)
            self._changed.set()
        return self.said()

    async def _server_ended(self, worker: str) -> None:
        place = self._hosts.get(worker)
        if place is not None:
            place.gone.set()

    async def _keep(self, name: str) -> None:
        """Keep a lock server of this name running, as long as the scheduler runs."""
        while True:
            place = self._placed[name] = await self._choose()
            try:
                self._found[name] = await place.serve(self._given(name))
                self._listening[name] = place
                await self._tell()
                await place.gone.wait()
                logger.warning("the lock server %s was lost; restarting it", name)
            except (OSError, LocksError) as error:
                self._problem = str(error)
                logger.warning("the lock server %s did not start: %s", name, error)
            except Exception as error:  # any error of the other side
                self._problem = repr(error)
                logger.exception("the lock server %s did not start", name)
            del self._placed[name]
            self._listening.pop(name, None)
            await asyncio.sleep(AGAIN)

    def _given(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "cookie": self._cookie,
            "port": self._port,
            "size": len(self._names),
            "tls": self._has_tls,
        }

    async def _choose(self) -> _OnWorker | _Place:
        """Choose a place without a lock server, on a machine that has few of them; beside the scheduler if there are too few workers."""
        while True:
            taken = list(self._placed.values())
            free = [each for each in self._hosts.values() if each not in taken]
            machines = [each.machine for each in taken]
            if free:
                return min(free, key=lambda each: machines.count(each.machine))
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), NEW_WORKER)
            except (TimeoutError, asyncio.TimeoutError):
                beside = _Place(self._scheduler)
                has_port = not self._port or beside.machine not in machines
                if (
                    has_port and self._complete.is_set()
                ):  # not while the first workers are still coming
                    return beside

    async def _tell(self) -> None:
        """Send the addresses of all servers to all, once they are known."""
        if len(self._found) < len(self._names):
            return
        places = [each for each in self._listening.values() if not each.gone.is_set()]
        said = await asyncio.gather(
            *(each.tell_addresses(self._found) for each in places), return_exceptions=True
        )
        problems = [each for each in said if isinstance(each, BaseException)]
        for each in problems:
            self._problem = str(each)
            logger.info("can't send the addresses of the others to a lock server: %s", each)
        if not problems and len(places) == len(self._names):
            self._complete.set()


class _Joined(WorkerPlugin):
    """Lets the tasks of a worker use locks, each as an owner, and starts lock servers beside it."""

    idempotent = True

    async def setup(self, worker: Worker) -> None:
        """Start, when the worker starts or the plugin is registered."""
        self._worker = worker
        self._tasks: dict[Any, Owner] = {}
        self._beside: Beside | None = None
        self._watching: asyncio.Task[None] | None = None
        worker.handlers["locks_serve"] = self._serve
        worker.handlers["locks_tell"] = self._tell
        known = await worker.scheduler.locks_join(worker=worker.address)
        _preset(known, worker.security, "worker", self._ask, worker.loop.asyncio_loop)
        _programs.append(self)
        self._execute = worker.execute
        worker.execute = self._run

    async def teardown(self, worker: Worker) -> None:
        """End everything when the worker is closed."""
        if self not in _programs:
            return  # it was not set up
        _programs.remove(self)
        worker.execute = self._execute
        for owner in list(self._tasks.values()):
            owner.end("its worker is closed")
        if self._watching is not None:
            self._watching.cancel()
        if self._beside is not None:
            await self._beside.end_process()
        if not _programs:
            program.preset(None)
            await asyncio.to_thread(program.stop)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Take a new state of a task; release the locks of a running task that is not needed any more."""
        if finish == "released" and key in self._tasks:
            self._tasks[key].end(CANCELLED)

    async def _run(self, key: Any, *, stimulus_id: str) -> Any:
        """Run a task as an owner of locks: all its calls, in its thread or coroutine, act for this owner."""
        with Owner(plain_label(f"task {key}")) as owner:
            self._tasks[key] = owner
            try:
                event = await self._execute(key, stimulus_id=stimulus_id)
            finally:
                del self._tasks[key]
            was_cancelled = owner.ended
        if was_cancelled and isinstance(event, ExecuteFailureEvent):
            # If the task is needed again, it failed because it had lost its locks: it is run again. Otherwise nothing waits for it.
            return RescheduleEvent(key=key, stimulus_id=f"locks-cancelled-{event.stimulus_id}")
        return event

    async def _ask(self) -> Any:
        return (await self._worker.scheduler.locks_said())["found"]

    async def _serve(self, given: Mapping[str, Any]) -> HostAndPort:
        beside = self._beside = await Beside.start_process(_setup(self._worker, "worker", given))
        self._watching = asyncio.create_task(self._watch(beside))
        return beside.address

    async def _tell(self, found: Mapping[str, Any]) -> None:
        assert self._beside is not None
        await self._beside.tell_addresses(_places(found))

    async def _watch(self, beside: Beside) -> None:
        await beside.ended()
        await self._worker.scheduler.locks_ended(worker=self._worker.address)


_programs: list[_Joined] = []  # of this process
