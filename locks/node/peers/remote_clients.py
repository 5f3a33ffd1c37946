"""Agents and clients on different nodes.

A transaction's client may be an actor, a greenlet or a thread of another node. It uses the agent by
its reference, with the same functions of `locks`. Its calls are sent to the agent (`RemoteAgent`),
and carried out there (`RemoteClients`). A wait for locks is answered when it is over, and withdrawn
when the client gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from locks.core.agent.flags import Flag
from locks.core.agent.machine import Object
from locks.errors import (
    InvalidOption,
    LocksError,
    LockTimeout,
    MisuseError,
    TransactionEnded,
)
from locks.model import (
    AgentId,
    LockId,
    LockInfo,
    LockResult,
    check_timeout,
    show,
)
from locks.node.client.agent import Agent
from locks.node.client.one_client import hold_up_others
from locks.node.client.refusals import not_client
from locks.node.peers.operations import OPERATIONS, Word
from locks.node.ports import NodePort, PendingCall
from locks.otp.bytes import etf
from locks.otp.bytes.control import StrangeMessage, brief
from locks.otp.bytes.fields import BadMessage
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.links.budgets import MOST_CALLS, check_budget
from locks.otp.process.calls import BlockingCalls
from locks.otp.process.processes import CAST
from locks.otp.process.proxied import is_call
from locks.otp.process.remote import RemoteRef, Remotes
from locks.runtime.identity import client_key
from locks.runtime.monitor import current_client
from locks.wire import pages
from locks.wire.forms import OURS, agent_of, is_ours
from locks.wire.values import pack_result

__all__ = ["RemoteAgent", "RemoteClients"]

ABANDON = Atom("abandon")
Rest = Iterator[tuple[list[Any], bool]]
PATIENCE = 60.0  # seconds to wait for the answer to a call that needs no lock
P = ParamSpec("P")
T = TypeVar("T")
READINGS = 16  # answers that clients on one node may read in pages at the same time


def _called(
    word: Word, method: Callable[Concatenate[Agent, P], T]
) -> Callable[Concatenate[RemoteAgent, P], T]:
    """Make a method of an agent one that has it carried out on the agent's node, by an operation of the table."""

    @wraps(method)
    def called(self: RemoteAgent, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self._call(word, *args, **kwargs)
        return answer

    return called


class RemoteAgent:
    """An agent of another node, for its client here.

    Args:
        node: The client's node.
        remotes: Sends messages to actors of other nodes.
        ref: The agent's reference.

    Attributes:
        node: The client's node, whose scope is the default.
    """

    def __init__(self, node: NodePort, remotes: Remotes, ref: RemoteRef) -> None:
        self.node = node
        self._remotes = remotes
        self._ref = ref

    @property
    def id(self) -> AgentId:
        """Its reference, as reports have it."""
        assert isinstance(self._ref.target, Pid)
        return agent_of(self._ref.target)

    def check_client(self) -> None:
        """Do nothing: its client is not known here, and the agent checks each call."""

    def lock_by(
        self, call: PendingCall, objects: Sequence[Object], timeout: float | None
    ) -> LockResult:
        """See `Agent.lock_by`."""
        result: LockResult = self._wait(timeout, [each[0] for each in objects], "lock", objects)
        return result

    def give_up(self, call: PendingCall) -> None:
        """See `Agent.give_up`; a call to another node is given up by itself when its wait is interrupted."""

    def await_all(self, timeout: float | None) -> LockResult:
        """See `Agent.await_all`."""
        result: LockResult = self._wait(timeout, [], "await")
        return result

    def change_flag(self, flag: Flag, value: Any) -> None:
        """See `Agent.change_flag`; a callable can't be called from another node."""
        if not isinstance(value, bool):
            raise InvalidOption(
                f"{flag}={value!r}: an agent on another node accepts only True and False",
                flag=repr(flag),
            )
        self._call("flag", flag, value)

    def lock_info(self) -> list[LockInfo]:
        """See `Agent.lock_info`."""
        infos: list[LockInfo] = []
        answer = self._call("info")
        while True:
            reading, page = pages.unpack_infos(answer)
            infos += page
            if not reading:
                return infos
            answer = self._call("more", reading)

    def token_nowait(self, lock_id: LockId) -> None:
        """See `Agent.token_nowait`; it is for clients on the agent's node."""
        raise MisuseError(
            f"can't get the token of {show(lock_id)} without waiting: {self} is on another node. Use fencing_token"
        )

    def token(self, lock_id: LockId, timeout: float | None = None) -> int:
        """See `Agent.token`."""
        token: int = self._wait(timeout, [lock_id], "token", lock_id)
        return token

    ask_for = _called("ask", Agent.ask_for)
    end_transaction = _called("end", Agent.end_transaction)
    ensure_held = _called("ensure_held", Agent.ensure_held)
    status = _called("status", Agent.status)
    surrender = _called("surrender", Agent.surrender)
    unlock = _called("unlock", Agent.unlock)

    def _call(self, word: Word, *arguments: Any) -> Any:
        return self._wait(PATIENCE, [], word, *arguments)

    def _wait(self, timeout: float | None, ids: list[LockId], word: Word, *arguments: Any) -> Any:
        """Have an operation carried out; return its answer."""
        check_timeout(timeout)
        operation = OPERATIONS[word]
        terms = operation.pack_arguments(arguments)
        turn, ref = self._remotes.turn, self._ref
        with BlockingCalls(self._remotes.processes, turn, self._abandon) as calls:

            def begin() -> None:
                client = self._remotes.pid_of(current_client())
                calls.begin_call(word, ref.node, ref.target, (OURS, Atom(word), client, *terms))

            turn.run(begin)
            outcome = calls.take_outcome(timeout)
        if outcome is None:
            raise LockTimeout(
                f"timed out after {timeout} s waiting for {', '.join(map(show, ids)) or 'an answer'} from {ref}",
                lock_ids=ids,
                timeout=timeout,
            )
        _, answered, answer = outcome
        if not answered:
            raise TransactionEnded(f"no answer from agent {ref}: {answer}", agent=self.id)
        error = self._remotes.errors.unraised(answer)
        if error is not None:
            raise error
        return operation.unpack(answer)

    def _abandon(self, reference: Reference) -> None:
        assert isinstance(self._ref.target, Pid)
        encoded = etf.encode((CAST, (OURS, ABANDON, reference)))
        self._remotes.processes.send(self._ref.target, encoded)


class _RemoteWait:
    """A wait of a client on another node."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[Any], object]) -> None:
        self.answer = answer


class RemoteClients:
    """Carries out calls of clients on other nodes to agents of this one. All in the turn.

    Args:
        remotes: Exchanges messages with actors of other nodes.
    """

    def __init__(self, remotes: Remotes) -> None:
        self._remotes = remotes
        # By the node that has called.
        self._waits: dict[str, dict[tuple[Agent, Reference], _RemoteWait]] = {}
        self._readings: dict[str, dict[int, Rest]] = {}  # unread pages of answers, by node
        self._read = 0

    def take_call(self, agent: Agent, caller: Pid, tag: Any, request: Any) -> None:
        """Carry out a client's call to its agent."""
        try:
            if is_call(request):
                raise MisuseError(
                    f"a proxy of agent {agent.id} works only on the agent's node; elsewhere use locks.lock(agent, ...) "
                    "and the other functions",
                    agent=agent.id,
                )
            if not is_ours(request):
                raise StrangeMessage(f"{brief(request)} is not a request to an agent")
            if not (len(request) >= 3 and type(request[1]) is Atom and type(tag) is Reference):
                raise BadMessage(f"{brief(request)} is not a request to an agent")
            if tag.node != caller.node:
                raise BadMessage(f"{brief(tag)} is the reference of another call")
            _, verb, client, *arguments = request
            if type(client) is not Pid or client.node != caller.node:
                raise BadMessage(f"{brief(client)} did not send {brief(request)}")
            operation = OPERATIONS.get(verb.name)
            who = self._remotes.client_of(client)
            mine = client_key(who) == agent.client_key
            if not mine and not (operation is not None and operation.by_anybody):
                raise not_client(agent, who)
            agent.machine.check_alive()
            if operation is None:
                raise BadMessage(f"an agent can't be asked to {brief(verb)}")
            given = operation.unpack_arguments(arguments)
            act = operation.act
            if act is None:
                answer = self._by_pages(agent, caller.node, *given)
            elif not operation.waits:
                answer = act(agent, *given)
            else:
                wait = self._new_wait(agent, caller, tag)
                try:
                    act(agent, wait, *given)
                    if verb.name != "token":
                        hold_up_others(agent, wait)
                except BaseException:
                    agent.event(agent.machine.abandon_wait, wait)
                    self._forget((agent, tag))
                    raise
                return
        except BadMessage:
            raise
        except LocksError as error:
            answer = error
        self._remotes.answer_term(caller, tag, answer)

    def take_cast(self, agent: Agent, message: tuple[Any, ...]) -> None:
        """A client has given up waiting."""
        if not (message[1] == ABANDON and len(message) == 3 and isinstance(message[2], Reference)):
            raise BadMessage(f"{brief(message)} is not a message for an agent")
        if message[2].node != self._remotes.processes.speaker:
            raise BadMessage(f"{brief(message[2])} is a call from another node")
        wait = self._forget((agent, message[2]))
        if wait is not None:
            agent.event(agent.machine.abandon_wait, wait)

    def _new_wait(self, agent: Agent, caller: Pid, tag: Reference) -> _RemoteWait:
        key = (agent, tag)
        waits = self._waits.get(caller.node, {})
        if key in waits:
            raise BadMessage(f"{brief(tag)} is the reference of another call")
        check_budget(len(waits) + 1, MOST_CALLS, "calls that wait for an answer")

        def answer(result: Any) -> None:
            self._forget(key)
            term = pack_result(result) if isinstance(result, LockResult) else result
            self._remotes.answer_term(caller, tag, term)

        wait = _RemoteWait(answer)
        self._waits.setdefault(caller.node, {})[key] = wait
        return wait

    def _forget(self, key: tuple[Agent, Reference]) -> _RemoteWait | None:
        node = key[1].node
        waits = self._waits.get(node, {})
        wait = waits.pop(key, None)
        if not waits:
            self._waits.pop(node, None)
        return wait

    def lost(self, node: str) -> None:
        """Forget the unread pages of clients on a lost node."""
        self._readings.pop(node, None)

    def _by_pages(self, agent: Agent, node: str, *reading: Any) -> Any:
        """The first page of an agent's locks, or the next one of a reading."""
        return self._next_page(node, *reading) if reading else self._first_page(agent, node)

    def _first_page(self, agent: Agent, node: str) -> Any:
        """The present locks of an agent, or the first page of them."""
        rest = pages.info_pages(agent.machine.lock_info())
        readings = self._readings.setdefault(node, {})
        self._read += 1
        answer = self._page(readings, self._read, rest)
        if len(readings) > READINGS:
            del readings[next(iter(readings))]
        return answer

    def _next_page(self, node: str, reading: Any) -> Any:
        readings = self._readings.get(node, {})
        rest = readings.get(reading) if type(reading) is int else None
        if rest is None:
            raise MisuseError(
                f"{node} already reads the locks of {READINGS} transactions; try again"
            )
        return self._page(readings, reading, rest)

    def _page(self, readings: dict[int, Rest], reading: int, rest: Rest) -> Any:
        page, more = next(rest)
        if more:
            readings[reading] = rest
        else:
            readings.pop(reading, None)
        return (reading if more else 0, page)
