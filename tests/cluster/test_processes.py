"""Actors of one node in the hands of another one: messages, calls, monitors, links."""

from __future__ import annotations

import threading
from typing import Any

import gevent
import pykka
import pytest
from msgspec.msgpack import Ext

import locks
from locks.net.messages import Answered, Ask, Down, Link, Monitor, encode
from locks.net.values import LETTER
from locks.runtime.monitor import watch_of
from tests.cluster.nodes import ODD, A, B, Nodes, Peer, peer, until_connected, until_members
from tests.helpers import LIMIT, eventually


class Echo(locks.actors.GeventActor):
    """Answers with what it is told; or does what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.started = threading.Event()

    def on_receive(self, message: Any) -> Any:
        if message == "told":
            return list(self.told)
        if message == "fail":
            raise locks.errors.NotHeld("not this one", lock_id=("x", 1))
        if message == "break":
            raise ZeroDivisionError("by zero")
        if message == "die":
            raise SystemExit("by its own hand")
        if message == "wait":
            gevent.sleep(60)
        if message == "object":
            return object()
        self.told.append(message)
        return message


class Plain(pykka.ThreadingActor):
    """An actor of Pykka's own."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        return ("plain", message)


class Broken(pykka.ThreadingActor):
    """An actor of Pykka's own, which fails."""

    use_daemon_thread = True

    def on_receive(self, message: Any) -> Any:
        raise ZeroDivisionError("by zero")


class Patient(pykka.ThreadingActor):
    """An actor of Pykka's own, which answers when it may."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def on_receive(self, message: Any) -> Any:
        if not self.may.wait(LIMIT):
            raise TimeoutError("nobody has let it go on")
        return message


MESSAGES = [
    17,
    -(2**80),
    1.5,
    True,
    None,
    "text ✓",
    b"bytes \xff",
    (1, "two", (3.0,)),
    [1, [2], []],
    {"key": [1], 2: (None,)},
    "x" * 100_000,
]


def test_tell_and_ask(nodes: Nodes) -> None:
    """An actor of another node can be told and asked; what is sent arrives as it was, in order."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    b.register("echo", actor)
    ref = a.remote("echo", B)
    for message in MESSAGES:
        ref.tell(message)
    assert ref.ask("told", timeout=5) == MESSAGES
    for message in MESSAGES:
        assert ref.ask(message, timeout=5) == message
    assert ref.is_alive()


def test_references_in_messages(nodes: Nodes) -> None:
    """References can be sent: there they lead back, and who gets its own back has itself."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    b.register("echo", actor)
    mine = Echo.start()
    back = a.remote("echo", B).ask({"me": [mine]}, timeout=5)
    assert back == {"me": [mine]}  # it came home as what it was
    (told,) = actor.ask("told", timeout=5)
    there = told["me"][0]
    assert isinstance(there, locks.node.RemoteRef)
    assert there.ask("hello", timeout=5) == "hello"
    assert a.remote("echo", B).ask(mine, timeout=5) is mine
    a.remote("echo", B).tell(a.remote("other", B))  # by its name
    assert eventually(lambda: actor.ask("told", timeout=5))
    mine.stop()


def test_errors_of_calls(nodes: Nodes) -> None:
    """An exception there is an exception here: our own with all they carry, others by name."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    b.register("echo", actor)
    ref = a.remote("echo", B)
    with pytest.raises(locks.errors.NotHeld, match="not this one") as held:
        ref.ask("fail", timeout=5)
    assert held.value.lock_id == ("x", 1)
    b.register("echo2", Echo.start())
    with pytest.raises(locks.node.RemoteError, match="ZeroDivisionError: by zero") as broken:
        a.remote("echo2", B).ask("break", timeout=5)
    assert broken.value.kind == "ZeroDivisionError"
    with pytest.raises(locks.node.RemoteError, match="can't be sent"):  # of the answer
        ref.ask("object", timeout=5)


def test_calls_without_an_answer(nodes: Nodes) -> None:
    """Who is not there, ends, or is cut off does not answer: the caller is told; or time runs out."""
    a, b = nodes.meet(A, B)
    slow = Echo.start()
    b.register("slow", slow)
    with pytest.raises(pykka.ActorDeadError, match="noproc"):
        a.remote("nobody", B).ask(1, timeout=5)
    with pytest.raises(pykka.ActorDeadError, match="noconnection"):
        a.remote("nobody", "nowhere@127.0.0.1").ask(1, timeout=5)
    with pytest.raises(pykka.Timeout):
        a.remote("slow", B).ask("wait", timeout=0.1)
    future = a.remote("slow", B).ask("wait", block=False)
    locks.actors.kill(slow, "enough")
    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=5)
    another = Echo.start()
    b.register("slow", another)
    future = a.remote("slow", B).ask("wait", block=False)
    a.disconnect(B)
    with pytest.raises(pykka.ActorDeadError, match="noconnection"):
        future.get(timeout=5)
    locks.actors.kill(another, "enough")


def test_who_takes_its_time_holds_up_nobody_else(nodes: Nodes, capfd: Any) -> None:
    """However many calls wait for one actor, another one's answer comes; what an actor raises is no noise of its node."""
    a, b = nodes.meet(A, B)
    patient = Patient.start()
    b.register("patient", patient)
    b.register("plain", Plain.start())
    futures = [a.remote("patient", B).ask(number, block=False) for number in range(30)]
    assert a.remote("plain", B).ask(1, timeout=LIMIT) == ("plain", 1)
    patient._actor_weakref().may.set()
    assert [future.get(timeout=LIMIT) for future in futures] == list(range(30))
    b.register("broken", Broken.start())
    with pytest.raises(locks.node.RemoteError, match="ZeroDivisionError: by zero"):
        a.remote("broken", B).ask(1, timeout=LIMIT)
    assert "by zero" not in capfd.readouterr().err


def test_names(nodes: Nodes) -> None:
    """A name is taken while its actor lives, and only by one; those of locks' own are not given."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    b.register("echo", actor)
    with pytest.raises(locks.MisuseError, match=r"can't use the name 'echo': .* has it"):
        b.register("echo", actor)
    with pytest.raises(locks.errors.InvalidOption):
        b.register("thing", "no actor")  # type: ignore[arg-type]
    actor.stop()
    other = Echo.start()

    def registered() -> bool:
        try:
            b.register("echo", other)
        except locks.MisuseError:
            return False
        return True

    eventually(registered)
    assert a.remote("echo", B).ask(1, timeout=5) == 1
    other.stop()


# --- Monitors -----------------------------------------------------------------------------------


def _down(ref: Any) -> list[Any]:
    """Monitor something; why it is down will be in the list."""
    reasons: list[Any] = []
    locks.actors.monitor(ref, lambda down: reasons.append((down.subject, down.reason)))
    return reasons


def test_monitors(nodes: Nodes) -> None:
    """The end of an actor of another node is told with its reason, once, to each monitor."""
    a, b = nodes.meet(A, B)
    for end, reason in (
        (lambda ref: ref.stop(), "normal"),
        (lambda ref: locks.actors.kill(ref, "enough"), "enough"),
        (lambda ref: ref.tell("break"), ("ZeroDivisionError", "by zero")),
    ):
        actor = Echo.start()
        b.register("echo", actor)
        ref = a.remote("echo", B)
        assert ref.ask(1, timeout=5) == 1
        first, second = _down(ref), _down(ref)
        assert first == []
        assert ref.ask(2, timeout=5) == 2  # so the monitor is there, too
        end(actor)
        eventually(lambda first=first, second=second: first and second)  # type: ignore[misc]
        assert first == second == [(ref, reason)]
        eventually(lambda: b.cluster.actors.registered("echo") is None)  # type: ignore[union-attr]


def test_a_lost_connection_is_down(nodes: Nodes) -> None:
    """Whoever is behind a connection that breaks is down; a later monitor asks anew."""
    a, b = nodes.meet(A, B, mesh=False)
    actor = Echo.start()
    b.register("echo", actor)
    a.remote("echo", B).tell(Echo.start())
    (mine,) = eventually(lambda: actor.ask("told", timeout=5))
    here, there = _down(a.remote("echo", B)), _down(mine)
    a.disconnect(B)
    eventually(lambda: here and there)
    assert here[0][1] == there[0][1] == "noconnection"
    assert a.connect(peer(b))
    again = _down(a.remote("echo", B))
    assert a.remote("echo", B).ask(1, timeout=5) == 1
    assert again == []
    actor.stop()
    eventually(lambda: again)
    assert again[0][1] == "normal"


def test_a_pid_of_an_earlier_incarnation(nodes: Nodes) -> None:
    """A reference into a node that was restarted leads nowhere, and not to somebody else."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    a_actor = Echo.start()
    a.register("keeper", a_actor)
    b.remote("keeper", A).tell(actor)
    (old,) = eventually(lambda: a_actor.ask("told", timeout=5))
    b.stop()
    until_connected(a)
    again = nodes.start(B, listen=b.address)
    again.connect(peer(a))
    until_members(a, B)
    reasons = _down(old)
    eventually(lambda: reasons)
    assert reasons[0][1] == "noproc"
    with pytest.raises(pykka.ActorDeadError):
        old.ask(1, timeout=5)
    a_actor.stop()


def test_an_answer_that_can_not_be_read_is_one(nodes: Nodes) -> None:
    """Who asks is told so, and does not wait for ever; and who monitors is told that the actor is down."""
    a = nodes.start(A)
    strange = encode(Ext(LETTER, encode(["election", "newer", 1])))
    for payload in (strange, b"\xc1"):
        other = Peer(a.address, A)
        until_connected(a, ODD)
        ref = a.remote("somebody", ODD)
        reasons = _down(ref)
        future = ref.ask(1, block=False)
        said = iter(other.messages())
        monitor = next(each for each in said if isinstance(each, Monitor))
        asked = next(each for each in said if isinstance(each, Ask))
        other.say(Down(monitor.number, payload))
        other.say(Answered(asked.number, payload))
        with pytest.raises((locks.node.RemoteError, pykka.ActorDeadError)):
            future.get(timeout=5)
        eventually(lambda: reasons)  # noqa: B023
        other.close()
        until_connected(a)


def test_an_answer_is_for_the_program_that_asked(nodes: Nodes) -> None:
    """A later program of the same name, which gives its questions the same numbers, does not get it."""
    a = nodes.start(A)
    patient = Patient.start()
    a.register("patient", patient)
    first = Peer(a.address, A)
    first.say(Ask(5, "patient", encode("old")))
    assert a.cluster is not None
    waiting = a.cluster.actors._waiting
    eventually(lambda: waiting.get(ODD))
    first.close()
    until_connected(a)
    later = Peer(a.address, A)
    later.say(Ask(5, "patient", encode("new")))
    eventually(lambda: waiting.get(ODD) == 2)
    patient._actor_weakref().may.set()
    answers = (each for each in later.messages() if isinstance(each, Answered))
    assert next(answers) == Answered(5, encode("new"))
    eventually(lambda: not waiting)


# --- Links --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", ["here", "there", "connection"])
def test_links(nodes: Nodes, dies: str) -> None:
    """Of two actors that are linked across nodes the one goes with the other, either way."""
    a, b = nodes.meet(A, B)
    mine, theirs = Echo.start(), Echo.start()
    b.register("theirs", theirs)
    a.register("mine", mine)
    b.remote("mine", A).tell(theirs)
    (ref,) = eventually(lambda: mine.ask("told", timeout=5))
    a.link(mine, ref)
    assert ref.ask(1, timeout=5) == 1  # so the link is known there
    ends_here, ends_there = _down(mine), _down(theirs)
    if dies == "connection":
        a.disconnect(B)
    else:
        locks.actors.kill(mine if dies == "here" else theirs, "enough")
    eventually(lambda: ends_here and ends_there)
    expected = "noconnection" if dies == "connection" else "enough"
    assert ends_here[0][1] == ends_there[0][1] == expected


def _watchers(actor: Any) -> int:
    """How many monitors an actor has."""
    watch = watch_of(actor)
    assert watch is not None
    return len(watch.monitors)


def test_links_that_have_ended_leave_nothing(nodes: Nodes) -> None:
    """However many there were."""
    a = nodes.start(A)
    mine = Echo.start()
    a.register("mine", mine)
    assert a.cluster is not None
    actors = a.cluster.actors
    other = Peer(a.address, A)
    said = iter(other.messages())
    number = a.turn.run(actors.number_of, mine)
    before = _watchers(mine)
    for sender in range(100):
        other.say(Link(number, sender))
        monitor = next(each for each in said if isinstance(each, Monitor))
        assert monitor.to == sender
        other.say(Down(monitor.number, encode("normal")))
    eventually(lambda: not actors._linked)
    assert mine.ask("hello", timeout=5) == "hello"
    eventually(lambda: _watchers(mine) == before)
    mine.stop()


def test_links_that_can_not_be(nodes: Nodes) -> None:
    """A thread can't be stopped, and so not be linked; nor can who is known by its name only."""
    a, _ = nodes.meet(A, B)
    mine = Echo.start()
    with pytest.raises(locks.MisuseError, match="only its name is known"):
        a.link(mine, a.remote("echo", B))
    with pytest.raises(locks.errors.InvalidOption, match="can't link"):
        a.link(threading.current_thread(), a.remote("echo", B))
    mine.stop()


def test_an_ask_is_one_message_and_so_is_its_answer(nodes: Nodes) -> None:
    """When the connection is lost, there is no answer."""
    a, b = nodes.meet(A, B)
    assert a.cluster is not None
    traffic = a.cluster.network.traffic
    b.register("echo", Echo.start())
    before, number = traffic.sent, 200
    ref = a.remote("echo", B)
    assert [ref.ask(each) for each in range(number)] == [*range(number)]
    assert number <= traffic.sent - before < 1.5 * number  # nodes tell each other a little besides
    with pytest.raises(pykka.ActorDeadError, match="noproc"):
        a.remote("nobody", B).ask(1)
    b.register("patient", Patient.start())
    future = a.remote("patient", B).ask(1, block=False)
    b.stop()
    with pytest.raises(pykka.ActorDeadError, match="noconnection"):
        future.get(timeout=LIMIT)


def test_killing_from_another_node(nodes: Nodes) -> None:
    """A reference with a pid can be killed and stopped; one with a name can't be."""
    a, b = nodes.meet(A, B)
    actor = Echo.start()
    mine = Echo.start()
    a.register("mine", mine)
    b.remote("mine", A).tell(actor)
    (ref,) = eventually(lambda: mine.ask("told", timeout=5))
    reasons = _down(ref)
    locks.actors.kill(ref, "enough")
    eventually(lambda: reasons)
    assert reasons == [(ref, "enough")]
    with pytest.raises(locks.MisuseError, match="only its name is known"):
        locks.actors.kill(a.remote("echo", B), "enough")
    mine.stop()
