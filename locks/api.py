"""The functions of the original, under their names.

Each of them checks its arguments (`locks.arguments`) before anything is changed. Most programs use
`locks.transaction`, which stands on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from locks.arguments import (
    Pattern,
    checked_agent,
    checked_node,
    checked_nodes,
    checked_object,
    checked_pattern,
    checked_watcher,
)
from locks.core.agent.flags import Flag
from locks.core.checked import check_agent_id
from locks.errors import InvalidOption
from locks.model import (
    AgentId,
    Contender,
    LockInfo,
    LockResult,
    Mode,
    Require,
    View,
    check_lock_id,
    check_timeout,
)
from locks.node.client.agent import Agent, NotifyTarget
from locks.node.client.clients import checked_label
from locks.node.client.objects import surrender_to
from locks.node.client.owner import Owner
from locks.node.client.scope import Nodes
from locks.node.node import Node
from locks.node.server import Watcher, listener
from locks.program import default_node
from locks.runtime import Client, current_client
from locks.runtime.hints import Unpack
from locks.wire.sendable import check_sendable

__all__ = [
    "await_all_locks",
    "begin_transaction",
    "change_flag",
    "end_transaction",
    "ensure_held",
    "fencing_token",
    "fencing_token_nowait",
    "holders",
    "lock",
    "lock_info",
    "lock_nowait",
    "lock_objects",
    "queue",
    "spawn_agent",
    "surrender_nowait",
    "transaction_status",
    "unlock",
    "unwatch",
    "unwatch_on",
    "watch",
    "watch_on",
    "watchers",
]


NO_LOCKS = LockResult("no_locks", ())
FLAGS = ("link", "abort_on_deadlock", "await_nodes", "monitor_nodes")


class AgentOptions(TypedDict, total=False):
    """The options of an agent; `spawn_agent` says what they mean."""

    client: Client | None
    link: bool
    abort_on_deadlock: bool
    await_nodes: bool
    monitor_nodes: bool
    notify: NotifyTarget
    label: str | None


def begin_transaction(
    objects: Iterable[Pattern] = (),
    *,
    timeout: float | None = None,
    **options: Unpack[AgentOptions],
) -> tuple[Agent, LockResult]:
    """Begin a transaction, and lock some objects at once.

    Args:
        objects: What to lock, each `(lock_id, mode)`, `(lock_id, mode, nodes)` or
            `(lock_id, mode, nodes, require)`. The call waits until all are locked.
        timeout: Seconds to wait at most; `None` waits for ever.
        **options: As for `spawn_agent`.

    Returns:
        The agent, and the result of the wait.

    Raises:
        MisuseError: An object or option is wrong; no transaction was begun.
        CannotServe: Nodes that are needed do not run.
        LockTimeout: Time ran out.
        DeadlockAborted: The transaction was aborted (only with `abort_on_deadlock`).
    """
    if timeout is not None:
        check_timeout(timeout)
    wanted = []
    for pattern in objects:
        wanted.append(checked_pattern(default_node(), pattern))
    client = options.get("client")
    if wanted and not (client is None or isinstance(client, Owner) or client == current_client()):
        raise InvalidOption(
            f"objects can only be locked for the caller, not for client {client!r}; begin with "
            "spawn_agent(client=...) and let the client lock",
            client=repr(client),
        )
    kept: list[Agent] = []
    try:
        agent = _spawn_agent(kept.append, **options)
        if not wanted:
            return agent, NO_LOCKS
        return agent, agent.lock_all(wanted, timeout)
    except BaseException:
        for agent in kept:
            agent.let_go()
        raise


def spawn_agent(
    *,
    client: Client | None = None,
    link: bool = False,
    abort_on_deadlock: bool = False,
    await_nodes: bool = False,
    monitor_nodes: bool = False,
    notify: NotifyTarget = False,
    label: str | None = None,
) -> Agent:
    """Begin a transaction without asking for locks.

    Args:
        client: The actor (its reference), greenlet, thread or `locks.Owner` that the transaction belongs to; by
            default the owner that the caller acts for, or else the caller. Only the client may use the transaction
            (any thread may use an owner's), and it ends when the client ends.
        link: Stop the client when the transaction ends abnormally.
        abort_on_deadlock: When a deadlock can only be resolved by giving up a lock that the client
            knows it has, abort the transaction instead of surrendering that lock.
        await_nodes: Wait for nodes that are needed and do not run, instead of failing.
        monitor_nodes: Notify the client of nodes whose lock servers come and go, while the
            transaction lasts.
        notify: Notify the client of lock infos and changes of status: `True` sends
            `Notification` messages to a client that is an actor; a callable is called with them.
        label: What the client is called where others see it, such as "nightly import"; by default the name of its
            thread, greenlet or actor.

    Returns:
        The agent.

    Raises:
        InvalidOption: An option has a wrong value.
    """
    # Here and in `begin_transaction`, and not in a function that both call: an exception may come up at the last
    # instruction of each one, and in the outermost alone nothing can be done about it.
    kept: list[Agent] = []
    try:
        return _spawn_agent(
            kept.append,
            client=client,
            link=link,
            abort_on_deadlock=abort_on_deadlock,
            await_nodes=await_nodes,
            monitor_nodes=monitor_nodes,
            notify=notify,
            label=label,
        )
    except BaseException:
        for agent in kept:
            agent.let_go()
        raise


def _spawn_agent(keep: Callable[[Agent], object], **options: Unpack[AgentOptions]) -> Agent:
    """Begin a transaction; as soon as it has begun, `keep` is called with its agent, which the caller is to end."""
    if options:
        for name in FLAGS:
            value = options.get(name, False)
            if value is not False and value is not True:
                text = f"option {name}={value!r} is neither True nor False"
                raise InvalidOption(text, option=name)
        if options.get("label") is not None:
            options["label"] = checked_label(options["label"])
    return default_node().spawn_agent(keep=keep, **options)


def end_transaction(agent: Agent) -> None:
    """End a transaction; everything it had locked is released at once.

    Raises:
        NotClient: The caller is not its client.
        AgentEnded: It has ended already.
    """
    (agent if type(agent) is Agent else checked_agent(agent)).end()


def lock(
    agent: Agent,
    lock_id: Sequence[Any],
    mode: Mode = "write",
    nodes: Nodes | None = None,
    require: Require | None = None,
    *,
    timeout: float | None = None,
) -> LockResult:
    """Lock an id, and wait until this and all earlier requests of the transaction are granted.

    Args:
        agent: The transaction's agent.
        lock_id: A non-empty tuple or list of key elements, e.g. `("db", "users", 17)`. It covers
            everything below it.
        mode: `"write"` is exclusive, `"read"` is shared. A read lock is upgraded by asking again.
        nodes: Names of the nodes on which to lock it, or `locks.HERE`; by default those that `locks.start` was
            given as `servers`, or the own one.
        require: How many of them are needed: `"all"`, `"any"`, `"majority"`, `"all_alive"`,
            `"majority_alive"`. By default a majority of several servers, and all of `nodes`.
        timeout: Seconds to wait at most; `None` waits for ever, `0` doesn't wait.

    Returns:
        The status, and the deadlocks of this transaction that were resolved so far; the newest 100.

    Raises:
        MisuseError: The call is wrong; nothing was changed.
        CannotServe: Too few of the nodes run; nothing was changed.
        LockTimeout: Time ran out; this request was withdrawn. Its `lost` says which locks, if any,
            were surrendered meanwhile.
        NotHeld: Another thread that acts for the same owner has unlocked it meanwhile.
        DeadlockAborted: The transaction was aborted (only with `abort_on_deadlock`).
        AgentEnded: The transaction has ended.
    """
    user = agent if type(agent) is Agent else checked_agent(agent)
    wanted = checked_object(user.node, lock_id, mode, nodes, require)
    call = user.node.new_call()
    try:
        return user.lock_by(call, (wanted,), timeout)
    except BaseException:
        user.give_up(call)
        raise


def lock_nowait(
    agent: Agent,
    lock_id: Sequence[Any],
    mode: Mode = "write",
    nodes: Nodes | None = None,
    require: Require | None = None,
) -> None:
    """Ask for a lock without waiting for it; see `lock` and `await_all_locks`."""
    user = checked_agent(agent)
    user.ask_for((checked_object(user.node, lock_id, mode, nodes, require),))


def lock_objects(agent: Agent, objects: Iterable[Pattern]) -> None:
    """Ask for several locks at once, without waiting for them.

    Args:
        agent: The transaction's agent.
        objects: Each `(lock_id, mode)`, `(lock_id, mode, nodes)` or
            `(lock_id, mode, nodes, require)`.
    """
    user = checked_agent(agent)
    user.ask_for([checked_pattern(user.node, pattern) for pattern in objects])


def await_all_locks(agent: Agent, *, timeout: float | None = None) -> LockResult:
    """Wait until everything that was asked for is granted; return at once if nothing was asked for.

    Raises:
        LockTimeout: Time ran out; the requests stay.
        DeadlockAborted: The transaction was aborted.
        AgentEnded: The transaction has ended.
    """
    return checked_agent(agent).await_all(timeout)


def unlock(agent: Agent, lock_id: Sequence[Any]) -> None:
    """Release a lock before the transaction ends, or cancel the request for it.

    Raises:
        NotHeld: The transaction has not asked for exactly this id.
    """
    checked_agent(agent).unlock(check_lock_id(lock_id))


def transaction_status(agent: Agent) -> LockResult:
    """The status of a transaction, and its deadlocks so far."""
    return checked_agent(agent).status()


def change_flag(agent: Agent, flag: Flag, value: NotifyTarget) -> None:
    """Change an option of a running transaction.

    Args:
        agent: Its agent.
        flag: `"abort_on_deadlock"`, `"await_nodes"`, `"monitor_nodes"` or `"notify"`.
        value: `True` or `False`; for `"notify"` also a callable. Switching `"notify"` on notifies
            the client of the present status at once.
    """
    checked_agent(agent).change_flag(flag, value)


def lock_info(agent: Agent) -> list[LockInfo]:
    """What a transaction has asked for, and which of it is granted."""
    return checked_agent(agent).lock_info()


def surrender_nowait(
    agent: Agent,
    lock_id: Sequence[Any],
    other: Agent | AgentId,
    nodes: Nodes | None = None,
) -> None:
    """Give up a lock to another agent that waits for it; this one stands last and waits again.

    Args:
        agent: The transaction's agent.
        lock_id: The lock id.
        other: The agent that waits for it, or its id, as views and reports give it.
        nodes: The nodes; by default those on which this program takes its locks.

    Raises:
        NotHeld: The lock isn't held, or the other agent doesn't wait for it.
    """
    user = checked_agent(agent)
    to = check_agent_id(other) if isinstance(other, AgentId) else checked_agent(other).id
    surrender_to(user, lock_id, to, nodes)


def fencing_token(agent: Agent, lock_id: Sequence[Any], *, timeout: float | None = None) -> int:
    """The fencing token of a lock: larger than that of each earlier holder of the same id.

    Pass it along with what you do under the lock; the resource refuses a token smaller than one it
    has seen. For a lock on several nodes, with `"all"` or `"majority"`, enough of them are asked to
    confirm it that every later holder gets a larger one; that takes one round trip, once. With
    `"all_alive"` all nodes that are up confirm it: it is larger than that of each earlier holder that
    had the lock on one of the same nodes, and says nothing of holders in other parts of a network.

    Args:
        agent: The transaction's agent.
        lock_id: The lock id.
        timeout: Seconds to wait at most for nodes to confirm it; `None` waits for ever.

    Raises:
        NotHeld: The transaction doesn't hold exactly this id.
        InvalidOption: It is held on several nodes in a way that allows two holders (`"any"`, ...).
        LockLost: It was held, and is lost.
        LockTimeout: Time ran out.
    """
    return checked_agent(agent).token(check_lock_id(lock_id), timeout)


def fencing_token_nowait(agent: Agent, lock_id: Sequence[Any]) -> None:
    """Notify the client of the fencing token of a lock that is held, without waiting for it.

    It comes as a `Notification` of kind `"token"`, with the lock id and the token, or the exception
    that `fencing_token` would raise.

    Args:
        agent: The transaction's agent, which was begun with `notify`.
        lock_id: The lock id.

    Raises:
        NotHeld: The transaction doesn't hold exactly this id; as for `fencing_token`.
        InvalidOption: The agent does not notify its client.
    """
    checked_agent(agent).token_nowait(check_lock_id(lock_id))


def ensure_held(agent: Agent, lock_id: Sequence[Any] | None = None) -> None:
    """Make sure that acknowledged locks, those that the client knows it holds, are still held.

    Args:
        agent: The transaction's agent.
        lock_id: The lock to check; all acknowledged ones by default.

    Raises:
        LockLost: A lock was lost, with a node or by a surrender, since it was acknowledged.
        NotHeld: The transaction doesn't hold exactly this id.
    """
    checked_agent(agent).ensure_held(None if lock_id is None else check_lock_id(lock_id))


def holders(
    lock_id: Sequence[Any], *, node: str | None = None, timeout: float | None = 5
) -> tuple[Contender, ...]:
    """The requests that hold a lock on this id, above it or below it; see `queue`."""
    return queue(lock_id, node=node, timeout=timeout).holders


def queue(lock_id: Sequence[Any], *, node: str | None = None, timeout: float | None = 5) -> View:
    """All requests on this id, above it and below it, in their order, as they were at one moment.

    Args:
        lock_id: The lock id.
        node: Name of the node whose lock server is asked; by default the own one, or the first of the `servers`
            that can be asked, if the program takes its locks on these.
        timeout: Seconds to wait for another node at most.

    Raises:
        NodeNotRunning: The node can't be reached.
        LockTimeout: It does not answer in time.
    """
    here = default_node()
    return here.view(check_lock_id(lock_id), checked_node(here, node), timeout)


def watch(
    lock_id: Sequence[Any],
    nodes: Nodes | None = None,
    *,
    watcher: Watcher | None = None,
) -> None:
    """Get notified of each change of a lock id: a `View` now, and one after each change.

    Each view shows the lock table at the view's version. Changes on another node that come faster than
    they can be sent are reported together.

    Args:
        lock_id: The lock id.
        nodes: Names of the nodes; by default those on which this program takes its locks, of which some may
            be down: their views come when they are back.
        watcher: An actor's reference, which gets the views as messages, or a callable; the calling
            actor by default. A callable runs in the node's background greenlet.

    Raises:
        InvalidOption: There is no watcher to tell.
        NodeNotRunning: A node of `nodes` can't be reached. If a node is lost later, its views come again when
            it is back.
    """
    watch_on(default_node(), lock_id, nodes, checked_watcher(watcher))


def watch_on(node: Node, lock_id: Sequence[Any], nodes: Nodes | None, who: Watcher) -> None:
    """The same, by a node that the caller has at hand."""
    checked = check_lock_id(lock_id)
    if node.is_clustered:
        check_sendable(checked)
    named = nodes is not None
    for name in checked_nodes(node, nodes, must_run=named):
        if name == node.name:
            node.server.add_watcher(checked, who)
        else:
            node.watch_elsewhere(name, checked, listener(who), named)


def unwatch(
    lock_id: Sequence[Any],
    nodes: Nodes | None = None,
    *,
    watcher: Watcher | None = None,
) -> None:
    """End what `watch` began."""
    unwatch_on(default_node(), lock_id, nodes, checked_watcher(watcher))


def unwatch_on(node: Node, lock_id: Sequence[Any], nodes: Nodes | None, who: Watcher) -> None:
    """The same, by a node that the caller has at hand."""
    checked = check_lock_id(lock_id)
    for name in checked_nodes(node, nodes, must_run=False):
        if name == node.name:
            node.server.remove_watcher(checked, who)
        elif node.cluster is not None:
            node.turn.run(node.cluster.views.unwatch, name, checked, listener(who))


def watchers(lock_id: Sequence[Any]) -> list[Any]:
    """The watchers of exactly this lock id, on this program's node."""
    return default_node().server.watchers(check_lock_id(lock_id))
