"""The functions of `locks_leader`, under the original's names."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import pykka

from locks.api import checked_label
from locks.errors import InvalidLockId, InvalidOption
from locks.lock_ids import shown
from locks.model import check_lock_id, check_timeout
from locks.node import Node, RemoteError
from locks.ownership.worker import check_node
from locks.program.default import check_shared, default_node
from locks.runtime.actor import GeventFuture
from locks.runtime.callables import check_callable
from locks.runtime.interrupts import whole
from locks.runtime.port import world
from locks_leader.behaviour import Behaviour
from locks_leader.core.messages import Role
from locks_leader.errors import LeaderDied, LeaderTimeout
from locks_leader.letters import AskInfo, CallLeader, CancelCall, Cast, CastToLeader
from locks_leader.policy import Policy, named_nodes, policy_of
from locks_leader.shell.acquaintance import check_electorate, servers_of
from locks_leader.shell.instance import Begin, Instance
from locks_leader.shell.obstacles import obstacles_of
from locks_leader.state import Caller

__all__ = [
    "Info",
    "call",
    "cast",
    "info",
    "leader_call",
    "leader_cast",
    "leader_reply",
    "reply",
    "start",
]

Ref = pykka.ActorRef[Any]
_tickets = itertools.count(1)
_PROGRAM = os.urandom(8).hex()  # tickets of programs on different machines differ


class Info(NamedTuple):
    """What an instance knows of its election.

    Attributes:
        leader: The leader; `None` if none is known.
        leader_node: The leader's node.
        candidates: The other candidates.
        new_candidates: Those of them to which the instance, as the leader, has not announced itself
            yet.
        workers: The workers.
        role: What the instance is.
        term: The leader's term.
    """

    leader: Ref | None
    leader_node: str | None
    candidates: list[Ref]
    new_candidates: list[Ref]
    workers: list[Ref]
    role: Role
    term: int


def start(
    behaviour: type[Behaviour],
    *args: Any,
    resource: Any = None,
    role: Literal["candidate", "worker"] = "candidate",
    name: str | None = None,
    policy: Literal["island", "majority"] | Policy | None = None,
    nodes: Iterable[str] | None = None,
    node: Node | None = None,
    label: str | None = None,
) -> Ref:
    """Start an instance of an election: a candidate, or a worker.

    Args:
        behaviour: The class with the callbacks.
        *args: The arguments of its `init`.
        resource: What the election is about; the name of the class by default. Instances with the
            same resource take part in the same election. Any value that an element of a lock id may have.
        role: `"candidate"` stands for election, `"worker"` only follows.
        name: A name under which other nodes reach it (`node.remote(name, node)`).
        policy: Who may lead when the network is split: `"island"` (each part has a leader),
            `"majority"` of `nodes`, or `quorum(n)`. The same for all instances. By default a
            majority of `nodes`, or else of the `servers` that `locks.start` was given, or else
            `"island"`.
        nodes: The nodes that count for the policy, and on which the lock is asked for; by default
            those servers, or all that are known.
        node: The node on which it runs; this program's node by default.
        label: What it is called where its locks are shown, such as "billing, 2nd try"; by default
            the name of the behaviour.

    Returns:
        The instance, as an actor's reference: you can `tell`, `ask`, monitor and stop it. It lives
        in the hub of the node, so a callback that computes for long holds up the node.

    Raises:
        InvalidOption: An argument is wrong; nothing was started.
        MisuseError: The name is taken; or the node is alone without `servers=locks.HERE`, so each program would lead.
        NodeNotRunning: The node was stopped.
    """
    if not (isinstance(behaviour, type) and issubclass(behaviour, Behaviour)):
        raise InvalidOption(
            f"{behaviour!r} is not a class of callbacks; pass a subclass of locks_leader.Behaviour",
            behaviour=repr(behaviour),
        )
    for callback in [name for name in vars(Behaviour) if not name.startswith("_")]:
        check_callable(
            getattr(behaviour, callback),
            f"{behaviour.__qualname__}.{callback}",
            "make it a function",
        )
    if role not in ("candidate", "worker"):
        raise InvalidOption(f'role={role!r} is wrong; use "candidate" or "worker"', role=repr(role))
    nodes = named_nodes(nodes)
    policy_of(policy, nodes)
    if label is not None:
        label = checked_label(label)
    else:
        label = behaviour.__name__[:100] if behaviour.__name__.isidentifier() else role
    resource = check_resource(behaviour.__qualname__ if resource is None else resource)
    check_is_shared(resource, check_node(node))
    node = node or default_node()
    node.check_running()
    checked = policy_of(policy, nodes, servers_of(node, resource))
    check_electorate(node, checked)
    made: list[Ref] = []
    given_up: list[bool] = []

    def make() -> None:
        made.append(Instance.start(behaviour, args, resource, role, checked, node, label))
        node.add_dependent(made[0])
        if given_up:  # the caller's wait has ended by an exception
            made[0].stop(block=False)

    try:
        node.executor.call(make)
        if name is not None:
            node.register(name, made[0])
        made[0].ask(Begin())
        return made[0]
    except BaseException as error:
        _give_up(given_up, made)
        if isinstance(error, pykka.ActorDeadError):
            node.check_running()  # the instance has ended with its node
        raise


@whole
def _give_up(given_up: list[bool], made: list[Ref]) -> None:
    """Stop an instance whose caller was interrupted, whether it exists already or not."""
    given_up.append(True)
    for ref in made:
        ref.stop(block=False)


def check_is_shared(resource: Any, node: Node | None) -> None:
    """Refuse an election in a program whose locks no other program sees, unless that is intended.

    Raises:
        MisuseError: The program has no lock servers.
    """
    check_shared(
        f"each program that takes part in {shown(resource)} would lead",
        among_peers=True,
        node=node,
    )


def check_resource(resource: Any) -> Any:
    """Return the resource in a form that is the same, and one key of a lock id, in every program."""

    def is_good(value: Any) -> bool:
        if type(value) is tuple:
            return all(is_good(each) for each in value)
        return type(value) in (str, int)

    try:
        (resource,) = check_lock_id((resource,))  # which is not too deep
    except InvalidLockId as error:
        raise InvalidOption(
            f"resource={shown(resource)} can't be shared by programs: {error}"
        ) from error
    if not is_good(resource):
        raise InvalidOption(
            f"resource={shown(resource)} can't be shared by programs: use text, a whole number, or a tuple of such"
        )
    return resource


def _check_instance(instance: Any) -> None:
    if not isinstance(instance, pykka.ActorRef):
        raise InvalidOption(
            f"{instance!r:.100} is not an instance of an election; pass the result of start()",
            instance=f"{instance!r:.100}",
        )
    world().check_actor(instance)


def call(instance: Ref, request: Any, *, timeout: float | None = 5) -> Any:
    """Call an instance, whatever its role; its `handle_call` answers.

    Args:
        instance: A candidate or a worker, of any node.
        request: The request.
        timeout: Seconds to wait at most; `None` waits for ever.

    Raises:
        pykka.Timeout: Time ran out.
        pykka.ActorDeadError: It has ended, or is cut off.
    """
    check_timeout(timeout)
    _check_instance(instance)
    world().note(None, "calls an instance: {!r:.60}", request)
    return _noted(instance.ask(request, timeout=timeout))


def _noted(answer: Any) -> Any:
    world().note(None, "is answered {!r:.60}", answer)
    return answer


def cast(instance: Ref, message: Any) -> None:
    """Send an instance a message that nobody waits for; its `handle_cast` gets it."""
    _check_instance(instance)
    instance.tell(Cast(message))


def leader_call(instance: Ref, request: Any, *, timeout: float | None = 5) -> Any:
    """Call the leader through any instance; its `handle_leader_call` answers.

    While there is no leader, the call waits for one. It is carried out once at most.

    Args:
        instance: A candidate or a worker, of any node: the leader itself or another one.
        request: The request.
        timeout: Seconds to wait at most; `None` waits for ever.

    Raises:
        LeaderDied: The leader, or the instance that was asked, died or was cut off before it
            answered: the call may have been carried out.
        LeaderTimeout: Time ran out. If the call still waited for a leader it was withdrawn.
        Exception: What `handle_leader_call` raised; `RemoteError` if it was on another node.
    """
    check_timeout(timeout)
    _check_instance(instance)
    world().note(None, "calls the leader: {!r:.60}", request)
    ticket = f"{_PROGRAM}-{os.getpid()}-{next(_tickets)}"
    answered = False  # before it was withdrawn, which is answered, too
    try:
        answer = instance.ask(CallLeader(ticket, request), block=False)
        with _withdrawn_if_abandoned(instance, ticket):
            try:
                return _noted(answer.get(timeout=timeout))
            except pykka.Timeout:
                answered = isinstance(answer, GeventFuture) and answer.is_set
                if not answered:
                    raise
                return _noted(answer.get())
    except pykka.Timeout:
        if answered:  # the leader has raised it
            raise
        obstacles = obstacles_of(instance)
        known = "" if obstacles is None else obstacles.why()
        why = "; the network may be split, or the leader may still be working on it"
        raise LeaderTimeout(
            f"timed out after {timeout} s waiting for a leader to answer {request!r:.200}{f': {known}' if known else why}",
            timeout=timeout,
        ) from None
    except pykka.ActorDeadError as error:
        raise LeaderDied(
            f"{error}; it is unknown whether {request!r:.200} was carried out"
        ) from error
    except RemoteError as error:
        if error.kind == LeaderDied.__name__:
            raise LeaderDied(str(error)) from error
        raise


@contextmanager
def _withdrawn_if_abandoned(instance: Ref, ticket: str) -> Iterator[None]:
    """Withdraw a call if its caller stops waiting for the answer, for any reason."""
    try:
        yield
    except (pykka.ActorDeadError, RemoteError):
        raise
    except BaseException:
        with suppress(pykka.ActorDeadError):
            instance.tell(CancelCall(ticket))
        raise


def leader_cast(instance: Ref, message: Any) -> None:
    """Send the leader a message through any instance; its `handle_leader_cast` gets it.

    While there is no leader it waits for one. It is lost with an instance or a leader that dies.
    """
    _check_instance(instance)
    world().note(None, "casts to the leader: {!r:.60}", message)
    instance.tell(CastToLeader(message))


def info(instance: Ref, *, timeout: float | None = 5) -> Info:
    """What an instance knows of its election."""
    check_timeout(timeout)
    _check_instance(instance)
    known: Any = instance.ask(AskInfo(), timeout=timeout)
    return Info(*(known.get(field) for field in Info._fields))


def reply(caller: Caller, value: Any) -> None:
    """Answer a call that was answered by `NO_REPLY`; an exception is raised to the caller.

    From any thread; the first answer counts. A call whose instance has ended needs none.

    Raises:
        InvalidOption: It is no caller.
    """
    if not isinstance(caller, Caller):
        raise InvalidOption(
            f"caller={shown(caller)} is not waiting for an answer; pass the caller that the callback with NO_REPLY got"
        )
    caller.answer(value)


leader_reply = reply
