"""The operations of an agent for a client on another node: their arguments, actions and answers.

`locks.node.peers.remote_clients` makes calls from this table, checks received calls by it, and
carries them out. An operation that *waits* is answered when its wait is over, and can be given up.
The names are those on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from locks.core.agent.machine import Object
from locks.model import LockId, check_lock_id, check_mode, check_nodes, check_require
from locks.node.client.agent import Agent
from locks.otp.bytes.control import brief
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Pid
from locks.ranges import LONGEST_NAME
from locks.wire.forms import agent_of, pid_of
from locks.wire.values import pack_result, unpack_result

__all__ = ["OPERATIONS", "Argument", "Operation", "Word"]

# fmt: off
Word = Literal[
    "lock", "await", "token",
    "ask", "unlock", "surrender", "flag", "status", "info", "more", "ensure_held", "end",
]
# fmt: on


class Argument(NamedTuple):
    """An argument of an operation.

    Attributes:
        name: Its name.
        pack: Makes its term.
        unpack: Makes its value from a term; raises `BadMessage` or `MisuseError` for a wrong term.
    """

    name: str
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


class Operation(NamedTuple):
    """An operation of an agent for its client.

    Attributes:
        arguments: Its arguments.
        act: Carries it out, in the turn. It gets the agent, for operations that wait the wait, and
            the arguments. It returns the answer as a term. `None` for an operation that is answered
            in pages.
        unpack: Makes the client's result from the answer.
        waits: Whether it is answered when a wait is over.
        by_anybody: Whether other callers than the client may call it.
    """

    arguments: tuple[Argument, ...]
    act: Callable[..., Any] | None
    unpack: Callable[[Any], Any] = lambda answer: answer
    waits: bool = False
    by_anybody: bool = False

    def pack_arguments(self, values: Sequence[Any]) -> list[Any]:
        """The terms of the arguments; the last ones may be left out."""
        values = (*values, *[None] * (len(self.arguments) - len(values)))
        return [each.pack(value) for each, value in zip(self.arguments, values, strict=True)]

    def unpack_arguments(self, terms: Sequence[Any]) -> list[Any]:
        """The arguments that were sent.

        Raises:
            BadMessage: They are others than these.
            MisuseError: One of them is wrong.
        """
        needed = len(self.arguments)
        if len(terms) != needed:
            raise BadMessage(f"got {len(terms)} arguments instead of {needed}")
        return [each.unpack(term) for each, term in zip(self.arguments, terms, strict=True)]


# --- Arguments ----------------------------------------------------------------------------------


def _pack_objects(objects: Sequence[Object]) -> list[Any]:
    return [(list(lock_id), mode, list(nodes), need) for lock_id, mode, nodes, need in objects]


def _to_objects(term: Any) -> list[Object]:
    if type(term) is not list:
        raise BadMessage(f"{brief(term)} is not a list of objects")
    checked: list[Object] = []
    for each in term:
        if type(each) is not tuple or len(each) != 4:
            raise BadMessage(f"{brief(each)} is not an object to be locked")
        lock_id, mode, nodes, require = each
        checked.append(
            (_to_id(lock_id), check_mode(mode), _to_nodes(nodes), check_require(require))
        )
    return checked


def _to_id(term: Any) -> LockId:
    if type(term) is not list:
        raise BadMessage(f"{brief(term)} should be a lock id, a list")
    return check_lock_id(term)


def _to_nodes(term: Any) -> tuple[str, ...]:
    if type(term) is not list:
        raise BadMessage(f"{brief(term)} should be a list of nodes")
    checked = check_nodes(term)
    if any(len(name) > LONGEST_NAME for name in checked):
        raise BadMessage(f"{brief(term)} should be names of at most {LONGEST_NAME} characters")
    return checked


def _to_agent(term: Any) -> Any:
    if type(term) is not Pid:
        raise BadMessage(f"{brief(term)} is not an agent")
    return agent_of(term)


def _as_it_is(value: Any) -> Any:
    return value


OBJECTS = Argument("objects", _pack_objects, _to_objects)
LOCK_ID = Argument("lock_id", list, _to_id)
SOME_ID = Argument(
    "lock_id",
    lambda lock_id: None if lock_id is None else list(lock_id),
    lambda term: None if term is None else _to_id(term),
)
OTHER = Argument("other", pid_of, _to_agent)
NODES = Argument("nodes", list, _to_nodes)
FLAG = Argument("flag", _as_it_is, _as_it_is)  # the machine checks it, and its value
VALUE = Argument("value", _as_it_is, _as_it_is)
READING = Argument("reading", _as_it_is, _as_it_is)


# --- The table ----------------------------------------------------------------------------------


def _token(agent: Agent, wait: Any, lock_id: LockId) -> None:
    agent.known_token(lock_id)  # raises if there can't be one
    agent.event(agent.machine.establish_token, lock_id, wait)


def _status(agent: Agent) -> Any:
    agent.event(agent.machine.told_status)
    return pack_result(agent.machine.result())


OPERATIONS: Final[dict[Word, Operation]] = {
    "lock": Operation(
        (OBJECTS,),
        lambda agent, wait, objects: agent.event(agent.machine.ask_all, objects, wait),
        unpack_result,
        waits=True,
    ),
    "await": Operation(
        (),
        lambda agent, wait: agent.event(agent.machine.await_all, wait),
        unpack_result,
        waits=True,
    ),
    "token": Operation((LOCK_ID,), _token, waits=True),
    "ask": Operation(
        (OBJECTS,), lambda agent, objects: agent.event(agent.machine.ask_all, objects)
    ),
    "unlock": Operation((LOCK_ID,), lambda agent, lock_id: agent.unlock_now(lock_id)),
    "surrender": Operation(
        (LOCK_ID, OTHER, NODES), lambda agent, *given: agent.event(agent.machine.surrender, *given)
    ),
    "flag": Operation(
        (FLAG, VALUE), lambda agent, *given: agent.event(agent.machine.set_flag, *given)
    ),
    "status": Operation((), _status, unpack_result, by_anybody=True),
    "info": Operation((), None, by_anybody=True),
    "more": Operation((READING,), None, by_anybody=True),
    "ensure_held": Operation((SOME_ID,), lambda agent, lock_id: agent.machine.ensure_held(lock_id)),
    "end": Operation((), lambda agent: agent.event(agent.machine.end_transaction)),
}
