"""Actors of other nodes: references to them, messages, monitors and links.

Theory of operation
-------------------
A `RemoteRef` is a Pykka actor reference: it supports `tell`, `ask`, proxies, monitors (`locks.actors.monitor`), links and exits, and can
be passed on. It stands for an actor, a greenlet or a thread of another node. An actor has a number there, assigned when it is first
needed and never used again, not even by a later program of the node's name; or a name under which it is registered.

* **A message** is packed (`locks.net.values`) and sent in the order of its link. Who sends faster than the other node reads waits, until
  it has read, or the connection is lost.
* **An ask** is a message with a number. The actor's answer, or its exception, comes back with this number; if the actor is not there,
  ends without an answer, or the connection is lost, the caller gets `ActorDeadError`.
* **A monitor** is told once why the actor has ended: by the actor's node, or `noconnection` when the connection is lost.
* **A link** is a monitor from either side that makes the own actor exit.

All is done in the node's turn. Foreign code (an actor's inbox, callbacks) is run by the node's executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import gevent
import pykka
from pykka._envelope import Envelope
from pykka.messages import ProxyCall, _ActorStop

from locks.errors import LimitExceeded, LocksError, MisuseError, OperatingError, assert_never
from locks.lock_ids import shown
from locks.net.budgets import MOST_CALLS, MOST_LINKS, MOST_MONITORS, check_budget
from locks.net.exchange import NOCONNECTION, Exchange
from locks.net.messages import (
    AboutActors,
    Answered,
    Ask,
    BadMessage,
    Demonitor,
    Down,
    Exit,
    Link,
    Monitor,
    Raised,
    StrangeMessage,
    Tell,
)
from locks.net.raised import about, error_in
from locks.net.values import Unsendable, Values, Where
from locks.ranges import LONGEST_NAME
from locks.runtime.actor import GeventFuture, ask, tell
from locks.runtime.addressed import OfAnotherNode, TurnActor
from locks.runtime.exits import exit_client
from locks.runtime.identity import ByClient
from locks.runtime.monitor import Client, DeathWatch, watch_end
from locks.runtime.monitor import Down as Ended
from locks.runtime.monitor import Monitor as Watching
from locks.runtime.waiter import Waiter, get_hub_if_exists

if TYPE_CHECKING:
    from locks.net.relay import AnyLink
    from locks.runtime.executor import Executor
    from locks.runtime.inline import Turn

__all__ = ["Actors", "Local", "RemoteError", "RemoteRef"]

logger = logging.getLogger("locks.nodes")

NOPROC: Final = "noproc"
LONGEST_TEXT: Final = 4096  # characters of an error
LARGEST_REASON: Final = 2**16  # bytes
OnDown = Callable[[Any], object]


class RemoteError(OperatingError):
    """An actor of another node has answered with an exception.

    Attributes:
        kind: The name of the exception's class there; `None` if the answer was not understood.
    """

    kind: str | None

    def __init__(self, message: str, *, kind: str | None = None) -> None:
        super().__init__(message, kind=kind)


# --- References ------------------------------------------------------------------------------------


class RemoteActor(TurnActor):
    """Stands for an actor of another node where Pykka needs an actor class."""

    _begun_by = "an actor on another node starts there"


class RemoteProxy(pykka.ActorProxy[Any]):
    """A proxy of an actor of another node: it has a method of every public name, which is checked there."""

    def __getattr__(self, name: str) -> Any:
        """A method of that name, whether or not the actor has one."""
        if name.startswith("_"):
            raise AttributeError(f"{self} has no attribute {name!r}")
        return pykka.CallableProxy(actor_ref=self.actor_ref, attr_path=(name,))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse: attributes of actors of other nodes are not accessible."""
        if name != "actor_ref" and not name.startswith("_"):
            raise MisuseError(
                f"{name} is an attribute of {self.actor_ref}, on another node; call a method"
            )
        super().__setattr__(name, value)


class RemoteRef(OfAnotherNode):
    """An actor of another node, as a Pykka actor reference. `Actors.ref` makes it.

    Attributes:
        node: The node's name.
        target: Its number, or the name under which it is registered there.
    """

    __slots__ = ("_actors", "node", "target")

    _behind = RemoteActor
    for_users = True

    def __init__(self, actors: Actors, node: str, target: int | str) -> None:
        super().__init__()
        self.node = node
        self.target = target
        self._actors = actors

    def __str__(self) -> str:
        return f"{self.target}@{self.node}"

    def __repr__(self) -> str:
        return f"<RemoteRef {self}>"

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """Its identity for Pykka."""
        return f"urn:locks:{self}"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RemoteRef) and self.target == other.target and self.node == other.node
        )

    def __hash__(self) -> int:
        return hash((self.node, self.target))

    def put(self, envelope: Envelope[Any]) -> None:
        """Send a message; see `pykka.ActorRef.tell` and `ask`.

        Raises:
            Unsendable: There is something in it that can't be sent.
        """
        message = envelope.message
        if isinstance(message, _ActorStop):
            self.kill("shutdown")
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)
        elif isinstance(message, ProxyCall):
            call = (CALLED, ".".join(message.attr_path), list(message.args), dict(message.kwargs))
            self._actors.send(self, call, envelope.reply_to)
        else:
            self._actors.send(self, message, envelope.reply_to)

    def proxy(self) -> RemoteProxy:
        """A proxy: it calls methods of the actor, if that is a Pykka actor; see `pykka.ActorProxy`."""
        return RemoteProxy(actor_ref=self)

    def kill(self, reason: object) -> None:
        """Make it exit. This needs its number; its name is not enough."""
        if isinstance(self.target, str):
            raise MisuseError(
                f"can't make {self} exit: only its name is known; ask it for a reference to itself",
                ref=repr(self),
            )
        self._actors.turn.run_surely(self._actors.exit, self, reason)

    @property
    def watch(self) -> DeathWatch:  # type: ignore[override]
        """Its monitors: one monitor on its node stands behind them."""
        watch = self._watch
        if watch is None:
            watch = self._watch = _RemoteWatch(self, self._actors)
        return watch

    def has_ended(self, reason: Any) -> None:
        """Note that its monitors were notified of its end. In the turn."""
        # A later monitor is a new one: the node may be back, or the name taken again.
        self._watch = None
        if isinstance(self.target, int) and reason != NOCONNECTION:
            self._stopped = True


class _RemoteWatch(DeathWatch):
    """The monitors of an actor of another node."""

    __slots__ = ("_actors", "_number", "_over", "_ref")

    def __init__(self, ref: RemoteRef, actors: Actors) -> None:
        super().__init__()
        self._ref = ref
        self._actors = actors
        self._number: int | None = None
        self._over = False

    def add(self, monitor: Watching, subject: object) -> None:
        """Monitor it on its node while there are monitors here; before later messages of the caller."""
        super().add(monitor, subject)
        self._actors.turn.run_surely(self._start)

    def forsaken(self) -> None:
        """End the monitor on its node, because no monitor is left here."""
        self._actors.turn.post(self._stop)

    def _start(self) -> None:
        if self.monitors and self._number is None and not self._over:
            self._number = self._actors.monitor(self._ref.node, self._ref.target, self._down)

    def _stop(self) -> None:
        if self._number is not None and not self.monitors:
            self._actors.demonitor(self._number)
            self._number = None

    def _down(self, reason: Any) -> None:
        self._over = True
        self._number = None
        self._ref.has_ended(reason)
        executor = self._actors.executor
        executor.run_soon(self.fire, self._ref, reason, reason, executor.tell)


# --- What other nodes can reach --------------------------------------------------------------------


class Local(NamedTuple):
    """Something of this node that other nodes can reach.

    Attributes:
        subject: The client that can be monitored; `None` if it lives as long as the node.
        deliver: Takes the payload of a message, and the node that it is of; in the turn. `None` if the subject is an actor,
            greenlet or thread like any other.
        closed: Why other nodes must not ask it, link with it, or make it exit; empty if they may.
    """

    subject: Client | None
    deliver: Callable[[bytes, str], object] | None = None
    closed: str = ""


class _Caller(NamedTuple):
    """Who asks: a node, and the link over which it does."""

    node: str
    link: AnyLink | None


class Actors:
    """The actors that one node shows to others, and those of others that it refers to.

    Args:
        exchange: Sends frames.
        turn: The node's turn.
        executor: Runs foreign code.
        new_number: Makes the number of an actor.
        find: Finds what was not numbered here, by its number.
        number_of: Returns the number of such a client; `None` for any other one.

    Attributes:
        values: Packs and unpacks what is said.
    """

    def __init__(
        self,
        exchange: Exchange,
        turn: Turn,
        executor: Executor,
        *,
        new_number: Callable[[], int],
        find: Callable[[int], Local | None],
        number_of: Callable[[Client], int | None],
    ) -> None:
        self.node = exchange.name
        self.turn = turn
        self.executor = executor
        self.values = Values(self.where, self.client_at)
        self._exchange = exchange
        self._new_number = new_number
        self._find_elsewhere = find
        self._number_elsewhere = number_of
        self._names: dict[str, Local] = {}
        self._clients: dict[int, Client] = {}
        self._numbers: ByClient[int] = ByClient()
        self._monitors: dict[int, tuple[str, OnDown]] = {}  # ours, of actors of other nodes
        self._monitored: dict[str, dict[int, Watching | None]] = {}  # theirs, by node
        self._waiting: dict[str, int] = {}  # asks of others that wait for an answer, by node
        self._linked: dict[str, dict[tuple[int, int], tuple[int, Watching]]] = {}
        """By node, our actor and theirs: the monitor of theirs, and that of ours."""

    # --- References, in the turn ----------------------------------------------------------------

    def ref(self, node: str, target: int | str) -> RemoteRef:
        """A reference to an actor of another node."""
        return RemoteRef(self, node, target)

    def where(self, client: Any) -> Where:
        """Where other nodes find an actor, a greenlet or a thread."""
        if isinstance(client, RemoteRef):
            return (client.node, client.target)
        return (self.node, self.number_of(client))

    def client_at(self, node: str, target: int | str) -> Client:
        """What is there: an actor, greenlet or thread of this node, or a reference."""
        found = self._find(target) if node == self.node else None
        return (
            RemoteRef(self, node, target)
            if found is None or found.subject is None
            else found.subject
        )

    def number_of(self, client: Client) -> int:
        """The number of an actor, a greenlet or a thread of this node; assigned on first use."""
        number = self._number_elsewhere(client)
        if number is None:
            number = self._numbers.get(client)
        if number is None:
            number = self._numbers[client] = self._new_number()
            self._clients[number] = client
            watch_end(client, lambda _: self.turn.post(self._forget, client))
        return number

    def _forget(self, client: Client) -> None:
        number = self._numbers.pop(client)
        if number is not None:
            self._clients.pop(number, None)

    def register(self, name: str, local: Local) -> None:
        """Let something be reached under a name, for as long as it lives."""
        self._names[name] = local
        if local.subject is not None:
            watch_end(local.subject, lambda _: self.turn.post(self._names.pop, name, None))

    def registered(self, name: str) -> Local | None:
        """What has a name, or `None`."""
        return self._names.get(name)

    def _find(self, target: int | str) -> Local | None:
        if isinstance(target, str):
            return self._names.get(target)
        client = self._clients.get(target)
        return self._find_elsewhere(target) if client is None else Local(client)

    # --- From this node, in any thread ----------------------------------------------------------

    def send(self, ref: RemoteRef, message: Any, future: pykka.Future[Any] | None) -> None:
        """Send a message to an actor of another node; with a future, it is to be answered."""
        while (waiter := self.turn.run(self._send, ref, message, future)) is not None:
            waiter.wait()

    def _send(
        self, ref: RemoteRef, message: Any, future: pykka.Future[Any] | None
    ) -> Waiter | None:
        """Send the message and return `None`, or return a waiter to wait for before sending it."""
        can_wait = gevent.getcurrent() is not get_hub_if_exists()
        waiter = self._exchange.room(ref.node) if can_wait else None
        if waiter is not None:
            return waiter
        payload = self.values.pack(message)
        if future is None:
            self._exchange.send(ref.node, Tell(ref.target, payload))
            return None
        number = self._exchange.new_number()
        told = partial(self._outcome, ref, future)
        self._exchange.send_call(ref.node, number, Ask(number, ref.target, payload), told)
        return None

    def _outcome(self, ref: RemoteRef, future: pykka.Future[Any], there: bool, answer: Any) -> None:
        """Set the future of an ask."""
        error: Exception
        if not there:
            error = pykka.ActorDeadError(f"no answer from {ref}: {answer}")
        elif isinstance(answer, bytes):
            try:
                value = self.values.unpack(answer, ref.node)
            except BadMessage as wrong:
                text = f"the answer of {ref} can't be read: {wrong}"
                future.set_exception((RemoteError, RemoteError(text), None))
                raise
            future.set(value)
            return
        elif isinstance(answer, Raised) and answer.kind != pykka.ActorDeadError.__name__:
            text = f"{answer.kind}: {answer.text}"
            error = error_in(answer) or RemoteError(text, kind=answer.kind)
        else:
            error = pykka.ActorDeadError(f"no answer from {ref}: {getattr(answer, 'text', answer)}")
        future.set_exception((type(error), error, None))

    # --- From this node, in the turn ------------------------------------------------------------

    def monitor(self, node: str, target: int | str, told: OnDown) -> int:
        """Call `told(reason)` once, in the turn, when an actor of another node, or the connection, is down."""
        number = self._exchange.new_number()
        self._monitors[number] = (node, told)
        if not self._exchange.send(node, Monitor(number, target)):
            del self._monitors[number]
            self.turn.post(told, NOCONNECTION)
        return number

    def demonitor(self, number: int) -> None:
        """End a monitor."""
        node, _ = self._monitors.pop(number, ("", None))
        if node:
            self._exchange.send(node, Demonitor(number))

    def link(self, ours: Client, other: RemoteRef) -> None:
        """Link an actor of this node with one of another node.

        Raises:
            MisuseError: Only the other one's name is known.
        """
        if isinstance(other.target, str):
            raise MisuseError(f"can't link with {other!r}: only its name is known", ref=repr(other))
        number = self.number_of(ours)
        if self._hold(number, other.node, other.target):
            self._exchange.send(other.node, Link(other.target, number))

    def exit(self, ref: RemoteRef, reason: object) -> None:
        """Make an actor of another node exit."""
        assert isinstance(ref.target, int)
        self._exchange.send(ref.node, Exit(ref.target, self._reason(reason)))

    def _hold(self, ours: int, node: str, theirs: int) -> bool:
        """Make an actor of ours exit when theirs ends; return whether that is new."""
        linked, key = self._linked.setdefault(node, {}), (ours, theirs)
        if key in linked:
            return False

        def down(reason: Any) -> None:
            self._unlink(node, key)
            client = self._clients.get(ours)
            if client is not None and reason != "normal":
                self.executor.run_soon(exit_client, client, reason)

        ends = watch_end(self._clients[ours], lambda _: self.turn.post(self._let_go, node, key))
        linked[key] = (self.monitor(node, theirs, down), ends)
        return True

    def _unlink(self, node: str, key: tuple[int, int]) -> int | None:
        """Forget a link; return the monitor of the other one, if there was a link."""
        linked = self._linked.get(node, {})
        monitor, ends = linked.pop(key, (None, None))
        if not linked:
            self._linked.pop(node, None)
        if ends is not None:
            ends.cancel()
        return monitor

    def _let_go(self, node: str, key: tuple[int, int]) -> None:
        monitor = self._unlink(node, key)
        if monitor is not None:
            self.demonitor(monitor)

    def _reason(self, reason: Any) -> bytes:
        """The reason of an end; what can't be sent is shown as text, because it may be sent in the turn of an unrelated caller."""
        if isinstance(reason, BaseException):
            reason = (type(reason).__name__, text_of(reason))
        elif isinstance(reason, str):
            reason = text_of(reason)
        try:
            packed = self.values.pack(reason)
        except LocksError:
            packed = b""
        return (
            packed
            if 0 < len(packed) <= LARGEST_REASON
            else self.values.pack(text_of(shown(reason)))
        )

    # --- From others, in the turn ---------------------------------------------------------------

    def take(self, speaker: str, frame: AboutActors) -> None:
        """Take in a frame of another node."""
        match frame:
            case Tell():
                self._told(speaker, frame)
            case Ask():
                self._asked(speaker, frame)
            case Answered():
                self._exchange.answered(speaker, frame.number, True, frame.payload)
            case Raised():
                self._exchange.answered(speaker, frame.number, True, frame)
            case Monitor():
                self._monitor(speaker, frame)
            case Demonitor():
                self._forget_monitor(speaker, frame.number)
            case Down():
                node, told = self._monitors.get(frame.number, ("", None))
                if told is not None and node == speaker:
                    reason = self._reason_in(frame.reason, speaker)
                    del self._monitors[frame.number]
                    told(reason)
            case Link():
                local = self._find(frame.to)
                if local is not None and local.subject is not None:
                    self._check_exits(local)
                    check_budget(len(self._linked.get(speaker, ())) + 1, MOST_LINKS, "links")
                    self.number_of(local.subject)
                    self._hold(frame.to, speaker, frame.sender)
            case Exit():
                local = self._find(frame.to)
                if local is not None and local.subject is not None:
                    self._check_exits(local)
                    reason = self._reason_in(frame.reason, speaker)
                    self.executor.run_soon(exit_client, local.subject, reason)
            case _:
                assert_never(frame)

    def _reason_in(self, reason: bytes, speaker: str) -> Any:
        """The reason of an end; whoever waits for it is told, even if it is of a kind that is not known here."""
        try:
            return self.values.unpack(reason, speaker)
        except StrangeMessage as error:
            return str(error)

    def _check_exits(self, local: Local) -> None:
        if local.closed:
            raise BadMessage(local.closed)

    def _told(self, speaker: str, frame: Tell) -> None:
        local = self._find(frame.to)
        if local is None:
            return
        if local.deliver is not None:
            local.deliver(frame.payload, speaker)
        elif isinstance(local.subject, pykka.ActorRef):  # greenlets and threads have no inbox
            self.executor.run_soon(_tell, local.subject, self.values.unpack(frame.payload, speaker))

    def _asked(self, speaker: str, frame: Ask) -> None:
        number, local = frame.number, self._find(frame.to)
        if local is None or not isinstance(local.subject, pykka.ActorRef):
            self._fail(speaker, number, pykka.ActorDeadError(NOPROC))
            return
        if local.closed:
            self._fail(speaker, number, MisuseError(local.closed))
            return
        waiting = self._waiting.get(speaker, 0) + 1
        if waiting > MOST_CALLS:  # an actor hangs: its callers have done nothing wrong
            here, most = self.node, MOST_CALLS
            text = f"actors on {here} have not answered {most:,} asks of {speaker} yet; no more may wait: find out which actor does not answer"
            error = LimitExceeded(text, node=here, what="asks", limit=most, present=most)
            self._fail(speaker, number, error)
            return
        request = self.values.unpack(frame.payload, speaker)
        self._waiting[speaker] = waiting
        caller = _Caller(speaker, self._exchange.link_to(speaker))
        self.executor.run_soon(self._ask, local.subject, request, caller, number)

    def _ask(self, actor: pykka.ActorRef[Any], request: Any, caller: _Caller, number: int) -> None:
        """Put a question to an actor, outside of the turn."""
        try:
            future = ask(actor, call_of(actor, request))
        except (MisuseError, pykka.ActorDeadError) as error:
            self.turn.run(self._finish, caller, number, error)
            return
        except BaseException:
            self.turn.post(self._answered, caller.node)
            raise
        self.executor.spawn(self._await_answer, future, caller, number)

    def _await_answer(self, future: GeventFuture[Any], caller: _Caller, number: int) -> None:
        try:
            try:
                answer = future.get()
            except Exception as error:
                answer = error
            while (waiter := self.turn.run(self._exchange.room, caller.node)) is not None:
                waiter.wait()
        except BaseException:
            self.turn.post(self._answered, caller.node)
            raise
        self.turn.run(self._finish, caller, number, answer)

    def _answered(self, node: str) -> None:
        self._waiting[node] = self._waiting.get(node, 1) - 1
        if not self._waiting[node]:
            del self._waiting[node]

    def _finish(self, caller: _Caller, number: int, answer: Any) -> None:
        """Answer an ask: with a value, or with an exception, also if the value can't be sent. In the turn."""
        self._answered(caller.node)
        if self._exchange.link_to(caller.node) is not caller.link:
            return  # a later program of that name gives its asks the same numbers
        if not isinstance(answer, Exception):
            try:
                self._exchange.send(caller.node, Answered(number, self.values.pack(answer)))
                return
            except Unsendable as error:
                answer = error
        self._fail(caller.node, number, answer)

    def _fail(self, caller: str, number: int, error: Exception) -> None:
        kind = text_of(type(error).__name__)[:LONGEST_NAME]
        self._exchange.send(caller, Raised(number, kind, text_of(error), about(error)))

    def _monitor(self, speaker: str, frame: Monitor) -> None:
        local, number = self._find(frame.to), frame.number
        if local is None:
            self._exchange.send(speaker, Down(number, self._reason(NOPROC)))
            return
        monitored = self._monitored.setdefault(speaker, {})
        if number in monitored:
            raise BadMessage(f"{number} is already the number of another monitor")
        check_budget(len(monitored) + 1, MOST_MONITORS, "monitors")
        monitored[number] = None
        if local.subject is not None:

            def ended(down: Ended) -> None:
                self.turn.post(self._monitored_down, speaker, monitored, number, down.reason)

            watching = watch_end(local.subject, ended)
            if number in monitored:
                monitored[number] = watching

    def _monitored_down(
        self, node: str, monitored: dict[int, Watching | None], number: int, reason: Any
    ) -> None:
        if self._monitored.get(node) is monitored and number in monitored:
            self._forget_monitor(node, number)
            self._exchange.send(node, Down(number, self._reason(reason)))

    def _forget_monitor(self, node: str, number: int) -> None:
        monitored = self._monitored.get(node, {})
        watching = monitored.pop(number, None)
        if not monitored:
            self._monitored.pop(node, None)
        if watching is not None:
            watching.cancel()

    def lost(self, node: str) -> None:
        """The connection to a node is lost: tell monitors of actors there, and forget theirs here."""
        for number, (where, told) in list(self._monitors.items()):
            if where == node:
                del self._monitors[number]
                told(NOCONNECTION)
        for number in list(self._monitored.get(node, ())):
            self._forget_monitor(node, number)


# --- Proxies ---------------------------------------------------------------------------------------

CALLED: Final = "$proxy_call"


def call_of(actor: pykka.ActorRef[Any], message: Any) -> Any:
    """The call that a message from another node's proxy makes; other messages unchanged. Not in a turn.

    Raises:
        MisuseError: The actor has no such method, or it must not be called.
    """
    if type(message) is not tuple or len(message) != 4 or message[0] != CALLED:
        return message
    _, name, args, kwargs = message
    good = type(name) is str and type(args) is list and type(kwargs) is dict
    if not (good and all(type(each) is str for each in kwargs)):
        raise MisuseError("a call by a proxy must have a method's name, a list and a dictionary")
    found = actor._actor_weakref()
    is_hook = name != "stop" and hasattr(pykka.Actor, name)
    if name.startswith("_") or is_hook or not callable(getattr(type(found), name, None)):
        raise MisuseError(
            f"{actor} has no method {name!r:.100} that can be called from another node"
        )
    return ProxyCall((name,), tuple(args), kwargs)


def _tell(actor: pykka.ActorRef[Any], message: Any) -> None:
    """Deliver another node's message to an actor."""
    tell(actor, call_of(actor, message))


def text_of(value: object) -> str:
    """The text of a value, shortened, in a form that can be sent."""
    try:
        text = str.__str__(value if isinstance(value, str) else str(value))
    except Exception:
        text = f"<{type(value).__name__}>"
    text = text[: LONGEST_TEXT + 1].encode(errors="backslashreplace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
