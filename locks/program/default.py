"""This program's node: started on first use, or with options; one per process."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from locks.errors import InvalidOption, MisuseError
from locks.lock_ids import shown
from locks.model import (
    NODE_NAME,
    Require,
    check_node_name,
    check_own_name,
    check_require,
    is_seconds,
)
from locks.node.client.leaks import warn_of_leak
from locks.node.client.refusals import check_may_wait
from locks.node.client.scope import Here, take_servers
from locks.node.node import Node, Trace
from locks.node.observing.long_waits import LONG
from locks.node.ports import Servers
from locks.program.handed_down import hand_down, handed_down
from locks.program.settings import Setting, arguments, read_settings
from locks.program.several import one_of_several
from locks.runtime.callables import check_callbacks
from locks.runtime.executor import check_interpreter_lasts
from locks.runtime.first_use import Unloaded, loaded
from locks.runtime.forked import forked_from
from locks.runtime.identity import client_key
from locks.runtime.native import native_lock
from locks.runtime.port import is_simulated

if TYPE_CHECKING:
    from locks.program import meeting
else:
    meeting = Unloaded("locks.program.meeting")

__all__ = [
    "check_settings",
    "check_shared",
    "default_node",
    "is_at_hand",
    "preset",
    "running_node",
    "stand_in",
    "start",
    "stop",
]

GREEN_THREADS = (
    "locks needs native threads, and eventlet.monkey_patch() has replaced them: call eventlet.monkey_patch(thread=False), and "
    "functions that lock by eventlet.tpool.execute(function); or use gevent"
)
ONE_OF_SEVERAL = (
    "process {} can't have locks of its own: {}, and no process would see the locks of the others. For locks that processes "
    'share, set LOCKS_SERVERS=local or call locks.start(servers="local"), or name servers=[...] on several machines; if each '
    "process is to have locks of its own, set LOCKS_SERVERS=here or call locks.start(servers=locks.HERE)"
)
UNTOLD = (
    "node %s was started in process %s, and process %s was forked from it without Python's knowledge: it has the node's memory "
    "but not its threads. Use locks only after the fork; with --lazy-apps, uWSGI loads the program after the fork"
)

_default: Node | None = None
_started_in = 0  # the process that started a node
_newborn: Node | None = None  # a node that is still waiting for its servers
_plan: _Plan | None = None  # of the node that was started last
_begun: ref[Node] | None = None  # that node, which this must not keep in memory
_preset: Callable[[], Mapping[str, Any]] | None = None
_parents_plan: _Plan | None = None  # of the parent's node
_may_inherit = True  # whether the settings of the parent's node were not looked up yet
_starting = native_lock()
CONNECTED_WITHIN = 5.0  # seconds that `start` waits until it is known whether the servers run


def start(
    name: str | None = None,
    *,
    cookie: str | Path | Sequence[str] | None = None,
    listen: str | int | meeting.Address | bool | None = None,
    servers: Iterable[str] | meeting.Locator | Here | None = None,
    require: Require | None = None,
    copies: int | None = None,
    peers: Iterable[str] | None = None,
    tls: meeting.TLS | None = None,
    net_ticktime: float | None = None,
    mesh: bool | None = None,
    allow_plaintext: bool | None = None,
    log_waits_longer_than: float | None = None,
    state: str | Path | None = None,
    limits: Mapping[str, int] | None = None,
    trace: Trace | None = None,
    register_agents: bool = False,
) -> Node:
    """Start this program's node, unless it is running.

    The first use of `locks` starts it, too; in a forked child, with the options of the parent's node. Missing
    options are taken from the environment (`LOCKS_SERVERS` and so on), or from a file `locks.toml` (see
    `locks.program.settings`). If there are none, the node has no peers. The node's background work runs
    in a separate thread. If the program is monkey-patched by gevent and starts the node in its main thread, the
    work runs in that thread's hub.

    Args:
        name: The node's name, `name@host`; `node@localhost` by default; a client node gets a unique
            name by default.
        cookie: The secret that the nodes of a cluster share. A node needs it to connect to other nodes.
            16 to 255 characters, without white space. Several: the node proves itself with each, and
            accepts each. A `Path`: a file with one in each line, which is read again when no cookie in it is accepted.
        listen: Where it accepts connections: `"host:port"`, `(host, port)`, or a port on
            loopback; a free port on loopback by default. `False` does not listen, which is the
            default without mesh.
        servers: The nodes on which locks are taken, each `name@host:port`; all programs that share them must list
            the same servers. A program that is not one of them is only a client: it gets a unique name,
            does not listen, and takes no part in the work of other programs. Instead of a list: `"local"`, for
            the lock server of this machine, or `locks.HERE`, for private locks of a program that connects to other nodes.
        require: How many of the servers a lock needs: `"majority"`, the default for several servers, or `"all"`.
        copies: How many of the servers have each lock id, such as 3; all of them by default. Then the first element of an id
            decides which ones, and `require` counts these. All programs that share servers must use the same number.
        peers: More nodes to connect to, each `name@host:port`. The node keeps trying while a peer is not
            running, and reconnects after a connection is lost.
        tls: Certificates. Required for addresses other than loopback.
        net_ticktime: Seconds without a message until a node counts as down; 15 by default.
        mesh: Whether nodes announce the nodes that they know to each other, so that all get connected. That is the
            default, except for clients of servers. A node without mesh that does not listen is a *client node*: it
            connects only to its peers and uses their lock servers; other nodes neither see it nor use it for locks.
        allow_plaintext: Allow addresses other than loopback without TLS.
        log_waits_longer_than: Waits for a lock of this node that take longer, in seconds, are logged to `locks.waits`;
            1 by default. `math.inf` logs none.
        state: The file in which a lock server keeps what is done (`locks.once`), so that it survives the end of all
            servers; made if it is not there.
        limits: What each other program may have at this node's lock server: `requests`, `waits`, `watches` and
            `transactions`, such as `{"requests": 10_000, "waits": 100}`.
        trace: For debugging: a function that is called with sender, receiver and message for each message between
            actors, in order, after the step that sent it.
        register_agents: Add the agent of each transaction to Pykka's registry, so that `stop_all()` and `broadcast()`
            find it. The cost of each transaction then grows with the number of actors. `node.agents()` finds agents without it.

    Returns:
        The node. A client of servers is connected to enough of them, or knows why not; `start` waits at most
        five seconds for that.

    Raises:
        MisuseError: A node is running with another name, other servers, another requirement or number of copies, or a
            cookie is given.
        InvalidOption: An option is wrong.
        NodeNotRunning: Another thread has stopped the node meanwhile.
        OperatingError: The servers of an engine were not found within five seconds.
    """
    given = dict(locals())
    del given["trace"], given["register_agents"]
    if cookie is not None:
        given["cookie"] = meeting.Cookie(cookie)  # no traceback shows it
    check_interpreter_lasts()
    _inherit()
    if isinstance(servers, str):
        given["servers"] = meeting.servers_by_word(servers)
    elif isinstance(servers, Iterable) and not isinstance(servers, bytes):
        given["servers"] = tuple(servers)
    cookie = None  # keeps it out of tracebacks that show variables
    if _parents_plan is not None and all(each is None for each in given.values()):
        return _start_as_parent()
    with _starting:
        node = _running(given)
        elsewhere = {} if node is not None else arguments(read_settings())
    if node is None:
        if servers is None and _preset is not None:
            check_may_wait()
            elsewhere |= _preset()
        wanted = dict(given)
        wanted |= {what: value for what, value in elsewhere.items() if given[what] is None}
        # Without the lock, because it may take time: another greenlet of this thread may need it.
        plan = _plan_of(trace, register_agents, **wanted)
        if plan.has_servers_elsewhere:
            check_may_wait()
        with _starting:
            node = _running(given) or _begin(plan)
    return _ready(node)


def preset(
    say: Callable[[], Mapping[str, Any]] | None, servers: meeting.Locator | None = None
) -> None:
    """Set arguments of `start` that precede the settings outside of the program: a framework that runs the program knows its servers.

    They apply to each node that is started later without other servers.

    Args:
        say: Returns arguments of `start`, the cookie as a `Cookie`; it is called for each node, and may wait. `None`
            removes them.
        servers: The servers that it will return, if they are known.

    Raises:
        MisuseError: The program's node is running with other servers.
    """
    global _preset
    with _starting:
        node = _default
        if node is not None and node.running and servers is not None and _are_others(node, servers):
            raise MisuseError(
                f"node {node.name} of this program is running with other servers than "
                f"{servers.describe()}; stop it first with locks.stop()",
                node=node.name,
            )
        _preset = say


def _running(given: Mapping[str, Any]) -> Node | None:
    """The program's node, if it is running; call it with the lock.

    Raises:
        MisuseError: It is running with other options than `start` was given.
    """
    global _plan
    name, node = given["name"], _default  # which another thread may stop meanwhile
    if node is not None and node.running:
        _check_is_here(node)
        if (
            name not in (None, node.name)
            or given["cookie"] is not None
            or _are_others(node, given["servers"])
            or _requires_other(node, given["require"])
            or _has_other_copies(node, given["copies"])
        ):
            raise MisuseError(
                f"node {node.name} is already running; stop it with locks.stop() before you "
                f"start {name or 'another one'}",
                node=node.name,
            )
        if isinstance(given["servers"], Here) and _is_begun(node) and _plan is not None:
            _plan = _plan._replace(here=True)  # now it is on purpose
        return node
    if node is not None:
        node.stop()  # its lock server crashed
    return None


def _is_begun(node: Node) -> bool:
    """Whether a node is the one that was started last, and not one that stands in for it."""
    return _begun is not None and _begun() is node


class _Plan(NamedTuple):
    """The options that a node is started with.

    Attributes:
        name: Its name.
        anonymous: Whether the name was generated.
        options: Its connections with other nodes.
        here: Whether its locks are private on purpose.
        trace: As for `start`.
        register_agents: As for `start`.
        log_waits_longer_than: As for `start`.
    """

    name: str
    anonymous: bool
    options: meeting.Options | None
    here: bool
    trace: Trace | None
    register_agents: bool
    log_waits_longer_than: float

    @property
    def has_servers_elsewhere(self) -> bool:
        """Whether the node is a client of servers; then `start` waits for them."""
        return self.options is not None and any(each != self.name for each in self.options.servers)

    def for_child(self) -> _Plan:
        """The same options for the node of a child process.

        Raises:
            MisuseError: A forked child needs another name, and the name was chosen by the program.
        """
        if self.options is None:
            return self
        if self.anonymous and self.options.hidden:
            return self._replace(name=self.options.name_for(None))
        raise MisuseError(
            f"can't use node {self.name} here: it belongs to the parent process; call locks.start(...) here, "
            "with another name, or without a name as a client of servers=[...]",
            node=self.name,
        )


def _plan_of(
    trace: Trace | None,
    register_agents: bool,
    *,
    name: str | None,
    servers: Any,
    log_waits_longer_than: float | None,
    **options: Any,
) -> _Plan:
    """Check the arguments of `start` and the settings."""
    check_callbacks(trace=trace)
    long = LONG if log_waits_longer_than is None else log_waits_longer_than
    if not (is_seconds(long) or long == inf) or not long > 0:
        raise InvalidOption(
            f"log_waits_longer_than={shown(long)} is not a number of seconds > 0; use math.inf to log none",
            value=shown(long),
        )
    checked = None if name is None else check_node_name(name)
    if checked is not None:
        check_own_name(checked)
    here = isinstance(servers, Here)
    if isinstance(servers, tuple) and not servers:
        raise InvalidOption(
            "servers=[] is empty; list the servers, leave it out, or use servers=locks.HERE for private locks of this program",
            servers="[]",
        )
    made = None
    if not (servers is None or here) or any(each is not None for each in options.values()):
        made = meeting.options_of(name, checked, CONNECTED_WITHIN, servers=servers, **options)
    if checked is None:
        checked = NODE_NAME if made is None else made.name_for(None)
    return _Plan(checked, name is None, made, here, trace, register_agents, long)


def check_settings(settings: Mapping[str, Setting]) -> None:
    """Refuse settings that `start` would refuse, without looking for servers, or starting anything.

    Raises:
        InvalidOption: They are wrong.
    """
    found = arguments(settings)
    options: dict[str, Any] = {"name": None} | (start.__kwdefaults__ or {}) | found
    if isinstance(options["servers"], meeting.Locator):
        options["servers"] = None  # it would be looked for
        if options["require"] is not None:
            check_require(options["require"])
        options["require"] = options["copies"] = None
    _plan_of(**options)


def _begin(plan: _Plan) -> Node:
    """Create the node.

    Raises:
        MisuseError: This process is one of several, would have locks of its own, and nothing says that this is intended.
    """
    global _default, _newborn, _begun, _plan, _parents_plan, _started_in
    patcher = loaded("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        raise MisuseError(GREEN_THREADS, node=plan.name)
    if plan.options is None and not plan.here and (why := one_of_several(forked_from())):
        raise MisuseError(ONE_OF_SEVERAL.format(os.getpid(), why), node=plan.name)
    _started_in = os.getpid()
    node = _newborn = Node(
        plan.name,
        plan.trace,
        plan.options,
        plan.register_agents,
        plan.log_waits_longer_than,
    )
    _default, _begun = node, ref(node)
    if plan.here:
        take_servers(node, Servers.alone(plan.name))
    _plan, _parents_plan = plan, None
    if plan.here or plan.options is not None:
        hand_down(plan._replace(trace=None))
    return node


def _inherit() -> None:
    """In a process that `multiprocessing` has started: the node is started with what the parent's was started with."""
    global _parents_plan, _may_inherit
    if _may_inherit and _preset is None:
        plan = handed_down()
        with _starting:
            if _may_inherit and _default is None and _parents_plan is None:
                _parents_plan = plan
            _may_inherit = False


def _ready(node: Node) -> Node:
    """Wait for the servers of a client node that was just started.

    Call it without the lock: another greenlet of this thread may need it.
    """
    global _newborn
    if node is not _newborn:
        return node
    servers = node.servers
    try:
        if node.cluster is not None and servers is not None and node.name not in servers.nodes:
            found = node.cluster.options.locator is not None
            node.cluster.arrivals.await_servers(servers, CONNECTED_WITHIN, found=found)
            node.check_running()  # it may have been stopped at the very end of the wait
    finally:
        if _newborn is node and not node.running:
            _newborn = None
    if _newborn is node:
        _newborn = None
    return node


def _start_as_parent() -> Node:
    """In a child process: start a node with the options of the parent's."""
    plan = _parents_plan
    if plan is None:  # another thread has done it
        return default_node()
    plan = plan.for_child()
    if plan.options is not None:
        plan = plan._replace(options=meeting.located_again(plan.options, CONNECTED_WITHIN))
    with _starting:
        node = _default
        if node is None:  # otherwise another thread has done it
            node = _begin(plan)
    return _ready(node)


def _are_others(node: Node, servers: Iterable[str] | meeting.Locator | Here | None) -> bool:
    """Whether a node was started with other servers than these."""
    if servers is None:
        return False
    if isinstance(servers, Here):
        return node.servers is None or node.servers.nodes != (node.name,)
    return meeting.are_others(node, servers)


def _requires_other(node: Node, require: Require | None) -> bool:
    """Whether a node with several servers was started with another requirement."""
    servers = node.servers
    if servers is None or servers.of_an_id <= 1:
        return False
    return require not in (None, servers.require)


def _has_other_copies(node: Node, copies: int | None) -> bool:
    """Whether a node was started with another number of copies."""
    servers = node.servers
    return copies is not None and (servers is None or copies != servers.of_an_id)


def _check_is_here(node: Node) -> None:
    """Refuse to use the node of another process: it would send messages in that node's name, and get no answers."""
    if _started_in not in (0, os.getpid()):
        raise MisuseError(UNTOLD % (node.name, _started_in, os.getpid()), node=node.name)


def stop() -> None:
    """Stop this program's node, if it is running: transactions end, and all locks are released.

    It may be called beside everything, from any thread. From its beginning on, the node refuses new calls with `NodeNotRunning`. A call that is
    under way is done, or ends with an error that says why: `TransactionEnded` or `LockLost` in a transaction or with a lock, `NodeNotRunning` or
    another `OperatingError` elsewhere. No call waits for a node that has ended, whatever limit it has: neither for locks and nodes, nor for
    servers in `start`, nor for a leader. Watches and monitors end without notice, except those of `locks.aio.watch`.

    The parts end in this order: transactions and connections, in one turn, so that nothing that is released is granted on the way; actors that
    depend on the node, such as candidates and workers; the lock server; process groups and agreements; the background work. When `stop` returns,
    nothing of the node is left: no thread, timer, file or greenlet. It waits at most five seconds for functions of the program that the node
    has called.

    A call that finds no node running begins a new one, as the first use does; this may be while the old one ends. A lock object that was
    acquired on the old node is not held on the new one.
    """
    node = _default
    if node is not None:
        _check_is_here(node)
        _leave(node)
        hand_down(None)
        node.stop()
        _leave(node)


def _leave(node: Node) -> None:
    """Let the next call begin a new node.

    While another thread is in `start`, this does nothing: that thread finds out itself whether the node is running. The caller may be a signal
    handler in the middle of `start`, so it does not wait.
    """
    global _default
    if _starting.acquire(blocking=False):
        try:
            if _default is node:
                _default = None
        finally:
            _starting.release()


def is_at_hand() -> bool:
    """Whether this program's node is running and is not waiting for its servers, so that `default_node` does not wait."""
    node = _default
    return node is not None and node.running and node is not _newborn


def running_node() -> Node | None:
    """This program's node, if it runs."""
    node = _default
    return node if node is not None and node.running else None


def default_node() -> Node:
    """This program's node; started if it is not running."""
    node = _default
    if node is not None and node.running:
        if _started_in and _started_in != os.getpid():
            _check_is_here(node)
        return _ready(node) if node is _newborn else node
    _inherit()
    return start() if _parents_plan is None else _start_as_parent()


def check_shared(otherwise: str, *, among_peers: bool = False, node: Node | None = None) -> None:
    """Refuse what is for several programs if no other program sees this program's locks, and nothing says that this is intended.

    It starts no node, so that the program can still be given servers.

    Args:
        otherwise: What would come of it.
        among_peers: Whether a node that meets others without servers will do, too.
        node: The node; this program's node by default.

    Raises:
        MisuseError: The program has no lock servers.
    """
    if is_simulated() or _is_shared(running_node() if node is None else node, among_peers):
        return
    raise MisuseError(
        f"no lock servers configured: {otherwise}. Set LOCKS_SERVERS=local or call "
        'locks.start(servers="local"), or name servers=[...] on several machines; if this is the only program, '
        "set LOCKS_SERVERS=here or call locks.start(servers=locks.HERE)"
    )


def _is_shared(node: Node | None, among_peers: bool) -> bool:
    """Whether other programs see the locks of a node, or of the one that would be started; or it has private locks on purpose."""
    _inherit()
    plan = _parents_plan if node is None else _plan
    if node is not None and not _is_begun(node):
        return True  # it stands in for the program's node
    if plan is not None:
        options = plan.options
        return plan.here or (options is not None and (among_peers or bool(options.servers)))
    if _preset is not None:
        return True
    said = read_settings()
    return "servers" in said or (among_peers and "cookie_file" in said)


@contextmanager
def stand_in(node: Node) -> Iterator[None]:
    """Replace this program's node by another one, such as a simulated one, during a block."""
    global _default
    before, _default = _default, node
    try:
        yield
    finally:
        _default = before


@atexit.register
def _at_exit() -> None:
    """The main thread ends: it should have released its locks."""
    node = _default
    if node is not None and node.running and _started_in == os.getpid():
        node.thin.prepare()
        for agent in list(node.clients.get(client_key(threading.main_thread()), ())):
            if held := node.turn.ask(agent.forgotten):
                warn_of_leak(agent.machine.client, held)


def _forget_node() -> None:
    """Forget the node in a forked child."""
    global _default, _starting, _parents_plan
    node, _default = _default, None
    _starting = native_lock()
    if node is not None:
        _parents_plan = _plan
        node.leave_to_parent()


os.register_at_fork(after_in_child=_forget_node)
