"""References to processes of other nodes, and messages between actors of different nodes.

A `RemoteRef` is a Pykka actor reference. It supports `tell`, `ask`, monitors (`locks.actors.monitor`),
links and exits, and can be passed on. It stands for an actor, a greenlet or a thread of another
Python node, or for any process of an Erlang node. A `gen_server` receives an `ask` as a call.

A message consists of values with Erlang terms (see `locks.otp.bytes.etf`): numbers, text, bytes,
tuples, lists, dictionaries, atoms. References to actors in it become pids when it is sent, and pids
become references when it is received.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gevent
import greenlet
import pykka
from pykka._envelope import Envelope
from pykka.messages import ProxyCall, _ActorStop

from locks.errors import LocksError, MisuseError, OperatingError
from locks.net.budgets import MOST_CALLS, check_budget
from locks.otp.bytes import etf
from locks.otp.bytes.terms import Atom, Pid, Reference
from locks.otp.process.processes import (
    NOCONNECTION,
    Local,
    Processes,
    Target,
    parse_call,
    parse_cast,
)
from locks.otp.process.proxied import RemoteActor, RemoteProxy, call_of, term_of
from locks.otp.process.reasons import sendable_text
from locks.runtime.actor import GeventFuture, ask, tell
from locks.runtime.addressed import OfAnotherNode
from locks.runtime.monitor import Client, DeathWatch, Monitor, watch_end
from locks.runtime.waiter import Waiter, get_hub_if_exists

if TYPE_CHECKING:
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

__all__ = ["Errors", "RemoteError", "RemoteRef", "Remotes"]

RAISED = Atom("$raised")
DEPTH = 100  # more than can be encoded
PLAIN = frozenset((str, int, float, bytes, Atom))  # the same in a message as in a term

logger = logging.getLogger("locks.nodes")


class RemoteError(OperatingError):
    """An actor of another node has answered with an exception.

    Attributes:
        kind: The name of the exception's class there; `None` if the answer was not understood.
    """

    kind: str | None

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message, kind=kind)


class RemoteRef(OfAnotherNode):
    """A process of another node, as a Pykka actor reference. `Remotes.ref` makes it.

    Attributes:
        node: The node's name.
        target: Its pid, or the name under which it is registered there.
    """

    __slots__ = ("_remotes", "node", "target")

    _behind = RemoteActor
    for_users = True

    def __init__(self, remotes: Remotes, node: str, target: Target) -> None:
        super().__init__()
        self.node = node
        self.target = target
        self._remotes = remotes

    def __str__(self) -> str:
        return f"{self.target}@{self.node}" if isinstance(self.target, str) else str(self.target)

    def __repr__(self) -> str:
        return f"<RemoteRef {self}>"

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """Its identity for Pykka, which differs for each incarnation of its node."""
        target = self.target
        return f"urn:locks:{self}" + (f"#{target.creation}" if isinstance(target, Pid) else "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRef) and (self.node, self.target) == (
            other.node,
            other.target,
        )

    def __hash__(self) -> int:
        return hash((self.node, self.target))

    def put(self, envelope: Envelope[Any]) -> None:
        """Send a message; see `pykka.ActorRef.tell` and `ask`.

        Raises:
            EncodeError: Erlang has no term for something in it.
        """
        if isinstance(envelope.message, _ActorStop):
            self.kill("shutdown")
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)
        elif isinstance(envelope.message, ProxyCall):
            self._remotes.send(self, term_of(envelope.message), envelope.reply_to)
        else:
            self._remotes.send(self, envelope.message, envelope.reply_to)

    def proxy(self) -> RemoteProxy:
        """A proxy: it calls methods of the actor, if that is a Pykka actor; see `pykka.ActorProxy`."""
        return RemoteProxy(actor_ref=self)

    def kill(self, reason: object) -> None:
        """Make it exit. This needs its pid; the name of the process is not enough."""
        if not isinstance(self.target, Pid):
            raise MisuseError(
                f"can't make {self} exit: only its name is known, and that needs its pid",
                ref=repr(self),
            )
        self._remotes.turn.run_surely(self._remotes.processes.exit, self.target, reason)

    @property
    def watch(self) -> DeathWatch:  # type: ignore[override]
        """Its monitors: one monitor of the distribution protocol stands behind them."""
        watch = self._watch
        if watch is None:
            watch = self._watch = _RemoteWatch(self, self._remotes)
        return watch

    def has_ended(self, reason: Any) -> None:
        """Note that its monitors were notified of its end. In the turn."""
        # A later monitor is a new one: the node may be back, or the name taken again.
        self._watch = None
        if isinstance(self.target, Pid) and reason != NOCONNECTION:
            self._stopped = True


class _RemoteWatch(DeathWatch):
    """The monitors of a process of another node."""

    __slots__ = ("_over", "_ref", "_reference", "_remotes")

    def __init__(self, ref: RemoteRef, remotes: Remotes) -> None:
        super().__init__()
        self._ref = ref
        self._remotes = remotes
        self._reference: Reference | None = None
        self._over = False

    def add(self, monitor: Monitor, subject: object) -> None:
        """Monitor it on its node while there are monitors here; before later messages of the caller."""
        super().add(monitor, subject)
        self._remotes.turn.run_surely(self._start)

    def forsaken(self) -> None:
        """End the monitor on its node, because no monitor is left here."""
        self._remotes.turn.post(self._stop)

    def _start(self) -> None:
        if self.monitors and self._reference is None and not self._over:
            ref = self._ref
            processes = self._remotes.processes
            self._reference = processes.monitor(ref.node, ref.target, self._down)

    def _stop(self) -> None:
        if self._reference is not None and not self.monitors:
            self._remotes.processes.demonitor(self._reference)
            self._reference = None

    def _down(self, reason: Any) -> None:
        self._over = True
        self._reference = None
        self._ref.has_ended(reason)
        executor = self._remotes.executor
        executor.run_soon(self.fire, self._ref, reason, reason, executor.tell)


class Remotes:
    """Messages and references between one node's actors and those of other nodes.

    Args:
        node: The node's name.
        processes: The node's processes.
        turn: The node's turn.
        executor: Runs foreign code.
        errors: Converts exceptions to terms and back.
    """

    def __init__(
        self, node: str, processes: Processes, turn: Turn, executor: Executor, errors: Errors
    ) -> None:
        self.node = node
        self.processes = processes
        self.turn = turn
        self.executor = executor
        self.errors = errors
        self._waiting: dict[str, int] = {}  # calls of others that wait for an answer, by their node

    def ref(self, node: str, target: Target) -> RemoteRef:
        """A reference to a process of another node."""
        return RemoteRef(self, node, target)

    def register(self, name: str, subject: Client) -> None:
        """Register an actor under a name for other nodes, while it lives. In the turn."""
        self.processes.register(name, Local(self._delivery(subject), subject))
        watch_end(subject, lambda _: self.turn.post(self.processes.unregister, name))

    def pid_of(self, subject: Client) -> Pid:
        """The pid of an actor, a greenlet or a thread, of this node or another. In the turn."""
        if isinstance(subject, RemoteRef):
            if isinstance(subject.target, str):
                raise MisuseError(
                    f"can't send {subject!r}: only its name is known", ref=repr(subject)
                )
            return subject.target
        return self.processes.pid_of(subject, self._delivery(subject))

    def client_of(self, pid: Pid) -> Client:
        """The owner of a pid: an actor, greenlet or thread of this node, or a remote reference."""
        subject = self.processes.subject_of(pid) if pid.node == self.node else None
        return RemoteRef(self, pid.node, pid) if subject is None else subject

    # --- Sending

    def send(self, ref: RemoteRef, message: Any, future: pykka.Future[Any] | None) -> None:
        """Send a message to a process of another node; with a future, as a call.

        A caller that sends faster than the other node reads has to wait, as for a busy port of
        Erlang, until the other node has read, or the connection is lost.
        """
        while (waiter := self.turn.run(self._send, ref, message, future)) is not None:
            waiter.wait()

    def _send(
        self, ref: RemoteRef, message: Any, future: pykka.Future[Any] | None
    ) -> Waiter | None:
        """Send the message and return `None`, or return a waiter to wait for before sending it."""
        can_wait = gevent.getcurrent() is not get_hub_if_exists()
        waiter = self.processes.room(ref.node) if can_wait else None
        if waiter is None:
            self._send_now(ref, message, future)
        return waiter

    def _send_now(self, ref: RemoteRef, message: Any, future: pykka.Future[Any] | None) -> None:
        term = self.terms(message)
        if future is not None:

            def told(answered: bool, answer: Any) -> None:
                error = self.errors.unraised(answer) if answered else _no_answer(ref, answer)
                if error is None:
                    future.set(self.values(answer))
                else:
                    future.set_exception((type(error), error, None))

            self.processes.call(ref.node, ref.target, term, told)
        elif isinstance(ref.target, Pid):
            self.processes.send(ref.target, etf.encode(term))
        else:
            self.processes.send_named(ref.node, ref.target, etf.encode(term))

    def terms(self, value: Any, depth: int = DEPTH) -> Any:
        """Convert a message for sending: references become pids. In the turn."""
        kind = type(value)
        if not depth:
            return value  # too deep to be sent: encoding refuses it
        depth -= 1
        if kind is tuple or kind is list:
            return kind([e if type(e) in PLAIN else self.terms(e, depth) for e in value])
        if kind is dict:
            return {self.terms(k, depth): self.terms(each, depth) for k, each in value.items()}
        if isinstance(value, (pykka.ActorRef, greenlet.greenlet, threading.Thread)):
            return self.pid_of(value)
        return value

    # --- Receiving

    def values(self, term: Any) -> Any:
        """Convert a received message: pids become references. In the turn."""
        kind = type(term)
        if kind is Pid:
            return self.client_of(term)
        if kind is tuple or kind is list:
            return kind([each if type(each) in PLAIN else self.values(each) for each in term])
        if kind is dict:
            return {self.values(key): self.values(each) for key, each in term.items()}
        return term

    def _delivery(self, subject: Client) -> Callable[[Any, Pid | None], object]:
        """A function that takes messages for an actor; greenlets and threads have no inbox."""

        def deliver(message: Any, sender: Pid | None) -> None:
            if not isinstance(subject, pykka.ActorRef):
                return
            call = parse_call(message)
            if call is None:
                self.executor.run_soon(_tell, subject, self.values(parse_cast(message)))
            else:
                caller, tag, request = call
                waiting = self._waiting.get(caller.node, 0) + 1
                check_budget(waiting, MOST_CALLS, "calls that wait for an answer")
                self._waiting[caller.node] = waiting
                self.executor.run_soon(self._ask, subject, self.values(request), caller, tag)

        return deliver

    def _ask(self, actor: pykka.ActorRef[Any], request: Any, caller: Pid, tag: Any) -> None:
        try:
            future = ask(actor, call_of(actor, request))
        except MisuseError as error:
            self.turn.post(self._answered, caller.node)
            self.turn.run(self.answer, caller, tag, error)
            return
        except BaseException:
            self.turn.post(self._answered, caller.node)
            raise
        self.executor.spawn(self._await_answer, future, caller, tag)

    def _await_answer(self, future: GeventFuture[Any], caller: Pid, tag: Any) -> None:
        try:
            self._answer_when_there(future, caller, tag)
        finally:
            self.turn.post(self._answered, caller.node)

    def _answered(self, node: str) -> None:
        self._waiting[node] = self._waiting.get(node, 1) - 1
        if not self._waiting[node]:
            del self._waiting[node]

    def _answer_when_there(self, future: GeventFuture[Any], caller: Pid, tag: Any) -> None:
        try:
            answer = future.get()
        except Exception as error:
            answer = error
        while (waiter := self.turn.run(self.processes.room, caller.node)) is not None:
            waiter.wait()
        self.turn.run(self.answer, caller, tag, answer)

    def answer(self, caller: Pid, tag: Any, answer: Any) -> None:
        """Answer a call from another node: with a value, or with an exception. In the turn."""
        if not isinstance(answer, Exception):
            try:
                answer = self.terms(answer)
            except LocksError as error:
                answer = error
        self.answer_term(caller, tag, answer)

    def answer_term(self, caller: Pid, tag: Any, answer: Any) -> None:
        """Answer a call with a term or an exception; an answer that can't be sent becomes an error.

        This never fails, because an answer may be due in the turn of an unrelated caller.
        """
        error: Exception | None = None
        if isinstance(answer, Exception):
            answer = self.errors.raised(answer)
        try:
            self.processes.answer(caller, tag, answer)
        except etf.EncodeError as refused:
            error = refused
        if error is not None:
            try:
                self.processes.answer(caller, tag, self.errors.raised(error))
            except etf.EncodeError:  # its own tag is too large
                text = "can't answer %s: %s"
                self.executor.run_soon(logger.warning, text, caller, error)


class Errors(NamedTuple):
    """Conversion of exceptions to terms and back.

    Attributes:
        pack: Returns an exception's attributes, as terms by name.
        unpack: Makes an exception from its class, text and attributes; `None` if it can't.
    """

    pack: Callable[[Exception], dict[str, Any]]
    unpack: Callable[[str, str, dict[Any, Any]], Exception | None]

    def raised(self, error: Exception) -> Any:
        """An exception as a term: class, text, and attributes."""
        return (RAISED, type(error).__name__, sendable_text(error), self.pack(error))

    def unraised(self, answer: Any) -> Exception | None:
        """The exception in an answer, or `None`."""
        if not (isinstance(answer, tuple) and len(answer) == 4 and answer[0] == RAISED):
            return None
        _, kind, text, about = answer
        if not isinstance(kind, str) or not isinstance(text, str) or not isinstance(about, dict):
            return None
        return self.unpack(kind, text, about) or RemoteError(f"{kind}: {text}", kind=kind)


def _tell(actor: pykka.ActorRef[Any], message: Any) -> None:
    """Deliver another node's message to an actor."""
    tell(actor, call_of(actor, message))


def _no_answer(ref: RemoteRef, reason: Any) -> Exception:
    return pykka.ActorDeadError(f"no answer from {ref}: {reason}")
