"""Locks for Ray: `install()`, and tasks and actors use `locks.transaction` and `locks.aio` as they are.

    import ray
    from locks.engines import ray as locks_ray

    ray.init(runtime_env={"worker_process_setup_hook": "locks.engines.ray.setup"})
    locks_ray.install()

    @ray.remote
    def book(account):
        with locks.transaction(timeout=30) as tx:
            tx.write_lock(("accounts", account))
            ...

The lock servers are actors of Ray: named, so that every process of the cluster finds them; detached, so that they outlive
the job; each in a process of its own, on up to three nodes, and started anew by Ray when it is lost, elsewhere if its node is. A
process asks them for the secret and the addresses when it first uses a lock, over the connections of Ray.

The owner is the task, for Ray uses the processes of tasks again: what a task has not released is free when it has ended. Of an actor it
is the thread, or the coroutine, that runs the method, and all of these end with the actor's process.
"""

from __future__ import annotations

import functools
import inspect
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from locks import program
from locks.engines.places import Asked, names_of, take_port
from locks.errors import InvalidOption, LocksError, MisuseError, OperatingError
from locks.lock_ids import shown
from locks.node.client.clients import plain_label
from locks.node.client.owner import Owner
from locks.otp.admission.secret import Cookie
from locks.otp.names.discovery import HostAndPort
from locks.otp.options import MOST_SERVERS, TLS
from locks.program.serving import open_many_files

__all__ = ["install", "setup", "uninstall"]

NAMESPACE = "locks"
USUAL = 3  # lock servers, where there are as many nodes
PATIENCE = 60.0  # seconds that `install` waits for the lock servers
ANSWER = 2.0  # seconds that a lock server has to say where it is
SHARE = 0.01  # of a processor; Ray places an actor that asks for nothing at random
PAUSES = (0.0, 0.01, 0.1)  # seconds; a signal that comes just before a wait begins does not end it
THREADS = 16  # of a lock server, for those who ask where it is


def install(servers: int | None = None) -> None:
    """Give a Ray cluster lock servers, and let this program use them; tasks and actors do by `setup`.

    They stay until `uninstall`. Again, it only lets this program use them.

    Args:
        servers: How many, each on another node if there are as many; a lock needs a majority. By default 3, or 1 where there
            are fewer than three nodes.

    Raises:
        InvalidOption: That is no number of servers.
        MisuseError: There are others already, or this program uses other servers.
        OperatingError: They don't start.
    """
    if servers is not None and (type(servers) is not int or not 0 < servers <= MOST_SERVERS):
        raise InvalidOption(
            f"servers={shown(servers)} is not a number of servers from 1 to {MOST_SERVERS}",
            servers=shown(servers),
        )
    nodes = [
        each["NodeID"]
        for each in ray.nodes()
        if each["Alive"] and each["Resources"].get("CPU", 0) >= SHARE
    ]
    if not nodes:
        raise OperatingError("this Ray cluster has no node with a processor for a lock server")
    size = servers or (USUAL if len(nodes) >= USUAL else 1)
    names = names_of(size, "ray")
    try:
        # Of two programs that do this at the same moment, one makes the first, and it says what the others are.
        said = ray.get(_server(names[0], nodes[0], names, secrets.token_hex()).said.remote())
        if servers is not None and len(said["names"]) != servers:
            raise MisuseError(
                f"this cluster has {len(said['names'])} lock servers already, not {servers}; see uninstall()"
            )
        names = said["names"]
        actors = [
            _server(name, nodes[number % len(nodes)], names, said["cookie"])
            for number, name in enumerate(names)
        ]
        problems = ray.get([each.ready.remote() for each in actors], timeout=PATIENCE)
    except ray.exceptions.RayError as error:
        raise OperatingError(f"the lock servers of Ray don't start: {error}") from error
    if any(problems):
        raise OperatingError(f"the lock servers of Ray don't start: {problems}")
    program.preset(_options, _asked(said))


def setup() -> None:
    """Let the tasks and actors of a worker process use locks; Ray calls it in each: `worker_process_setup_hook`."""
    program.preset(_options)
    _let_cancel_end_waits()
    manager = ray._private.worker.global_worker.function_actor_manager
    find = manager.get_execution_info

    def get_execution_info(job_id: Any, descriptor: Any) -> Any:
        info = find(job_id, descriptor)
        return (
            info
            if descriptor.is_actor_method()
            else info._replace(function=_as_owner(info.function))
        )

    manager.get_execution_info = get_execution_info


def uninstall() -> None:
    """End the lock servers; whoever holds a lock has lost it."""
    program.preset(None)
    program.stop()
    for name in _names():
        ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)


class _Server:
    """A lock server, as an actor of Ray.

    Args:
        name: Its name.
        names: Those of all.
        cookie: Their secret.
    """

    def __init__(self, name: str, names: Sequence[str], cookie: str) -> None:
        self._names = names
        self._cookie = cookie
        self._address = take_port(ray.util.get_node_ip_address())
        self._started = threading.Event()
        self._problem = ""
        others = [each for each in names if each != name]
        found = _Found("Ray", names, functools.partial(_addresses, others), {name: self._address})
        threading.Thread(target=self._serve, args=(name, found), daemon=True).start()

    def _serve(self, name: str, found: _Found) -> None:
        """Start, as soon as the others are there, too."""
        open_many_files()
        while not self._started.is_set():
            try:
                program.start(
                    name,
                    cookie=self._cookie,
                    listen=self._address,
                    servers=found,
                    tls=(tls := _tls()),
                    allow_plaintext=tls is None,
                )
            except OperatingError as error:  # they are not found yet
                self._problem = str(error)
                continue
            except (LocksError, OSError) as error:
                self._problem = str(error)
            else:
                self._problem = ""
            self._started.set()

    def said(self) -> Mapping[str, Any]:
        """What programs of the cluster are to know."""
        return {"names": self._names, "cookie": self._cookie}

    def address(self) -> HostAndPort:
        """Where it listens."""
        return self._address

    def ready(self) -> str:
        """Wait until it serves; return what is wrong if it does not."""
        return "" if self._started.wait(PATIENCE) and not self._problem else self._problem


class _Found(Asked):
    """The lock servers, for one of them: it looks all the time.

    So it grants nothing until the others have said that they are of the same servers: two that have one name, since Ray has
    taken the first one for dead, never both serve others.
    """

    interval = 5.0


def _server(name: str, node: str, names: Sequence[str], cookie: str) -> Any:
    """The lock server with a name; it is started if there is none."""
    return (
        ray.remote(_Server)
        .options(
            name=name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=THREADS,
            num_cpus=SHARE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        )
        .remote(name, names, cookie)
    )


def _names() -> list[str]:
    """The names of the lock servers that there are."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(each["name"] for each in found if each["namespace"] == NAMESPACE)


def _answers(names: Sequence[str], method: str) -> dict[str, Any]:
    """What those lock servers say that answer in time.

    Raises:
        OSError: Ray can't be asked.
    """
    if not ray.is_initialized():  # to ask it then would start another cluster
        raise OSError("this program is not connected with Ray (any more)")
    asked = {}
    try:
        for name in names:
            try:
                asked[name] = getattr(ray.get_actor(name, NAMESPACE), method).remote()
            except ValueError:  # there is none of this name just now
                continue
        refs = list(asked.values())
        ready = ray.wait(refs, num_returns=len(refs), timeout=ANSWER)[0] if refs else []
        found = {}
        for name, ref in asked.items():
            if ref in ready:
                try:
                    found[name] = ray.get(ref)
                except ray.exceptions.RayActorError:  # it has ended meanwhile
                    continue
    except (ray.exceptions.RayError, RuntimeError) as error:
        raise OSError(f"Ray does not answer: {error}") from error
    return found


def _addresses(names: Sequence[str]) -> dict[str, HostAndPort]:
    return {name: (host, port) for name, (host, port) in _answers(names, "address").items()}


def _options() -> dict[str, Any]:
    """With what the node of a program of the cluster is started: the lock servers are asked."""
    names = _names() if ray.is_initialized() else ()
    said = next(iter(_answers(names, "said").values()), None) if names else None
    if said is None:
        raise MisuseError(
            "this Ray cluster has no lock servers, or they don't answer; call locks.engines.ray.install() once, after ray.init()"
        )
    tls = _tls()
    cookie = Cookie(said["cookie"])
    return {"servers": _asked(said), "cookie": cookie, "tls": tls, "allow_plaintext": tls is None}


def _asked(said: Mapping[str, Any]) -> Asked:
    names = tuple(said["names"])
    engine = f"the Ray cluster {ray.get_runtime_context().gcs_address}"
    return Asked(engine, names, functools.partial(_addresses, names), {})


def _tls() -> TLS | None:
    """The certificates of Ray, if it uses any; like Ray, it does not look whether a certificate is for that host."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    certificate, key, ca = (
        os.environ[f"RAY_TLS_{what}"] for what in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")
    )
    return TLS(certificate, key, ca, check_hostname=False)


def _let_cancel_end_waits() -> None:
    """See that the main thread's wait ends when Ray cancels its task.

    Ray does not send a signal: it has Python find one (`interrupt_main`) when it runs its next step, which a thread that waits does
    not do. Python writes it to the wakeup file as well; then a signal that does nothing ends the wait.
    """
    told, tell = socket.socketpair()
    tell.setblocking(False)
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        assert tell.fileno() >= 0  # it stays open
        while numbers := told.recv(64):
            if signal.SIGINT in numbers:
                for pause in PAUSES:
                    time.sleep(pause)
                    signal.pthread_kill(main, signal.SIGURG)

    signal.signal(signal.SIGURG, lambda *_: None)
    signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="locks-cancel", daemon=True).start()


def _as_owner(function: Callable[..., Any]) -> Callable[..., Any]:
    """A task's function, as an owner of locks that ends with it."""

    def owner() -> Owner:
        task = ray.get_runtime_context().get_task_id() or ""
        return Owner(plain_label(f"task {getattr(function, '__name__', 'task')} {task[:16]}"))

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with owner():
                yield from function(*args, **kwargs)

        return generate

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with owner():
            return function(*args, **kwargs)

    return run
