"""GeventActor and GeventFuture: Pykka's semantics, and deaths that harm nobody else."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pykka
import pytest

from locks.runtime.actor import GeventActor, GeventFuture, end_all, kill
from locks.runtime.monitor import Down, monitor
from locks.runtime.waiter import Event
from tests.helpers import eventually


class Strange(BaseException):
    """No `Exception`."""


class Actor(GeventActor):
    """Does what it is sent: a callable is called with the actor."""

    value = 17

    def __init__(self, log: list[Any] | None = None) -> None:
        super().__init__()
        self.log: list[Any] = [] if log is None else log

    def on_start(self) -> None:
        self.log.append("start")

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        self.log.append(("failure", exception_type))

    def on_receive(self, message: Any) -> Any:
        return message(self) if callable(message) else message

    def double(self, number: int) -> int:
        """Return twice the number."""
        return number * 2


class Threaded(pykka.ThreadingActor):
    """The same on Pykka's own thread."""

    def on_receive(self, message: Any) -> Any:
        return message(self) if callable(message) else message


def fail(_actor: object = None) -> None:
    """Fail."""
    raise ValueError("broken")


@pytest.fixture(autouse=True)
def bystanders() -> Iterator[None]:
    """Two actors that nothing must stop."""
    gevent.get_hub()
    refs = [Actor.start(), Threaded.start()]
    yield
    for ref in refs:
        assert ref.ask("alive", timeout=5) == "alive"
    pykka.ActorRegistry.stop_all(timeout=5)
    assert pykka.ActorRegistry.get_all() == []


def down_of(ref: pykka.ActorRef[Any]) -> list[Down]:
    """Return a list that will hold the ref's `Down`."""
    downs: list[Down] = []
    monitor(ref, downs.append)
    return downs


def assert_gone(ref: pykka.ActorRef[Any]) -> None:
    """Whoever asks a dead actor is told so, and it is in no list."""
    assert not ref.is_alive()
    assert ref not in pykka.ActorRegistry.get_all()
    with pytest.raises(pykka.ActorDeadError):
        ref.ask("x", timeout=5)
    with pytest.raises(pykka.ActorDeadError):
        ref.tell("x")
    assert ref.stop(timeout=5) is False


def test_ask_tell_proxy_and_stop() -> None:
    """The everyday uses of an actor work as with any Pykka actor."""
    log: list[Any] = []
    ref = Actor.start(log)
    downs = down_of(ref)
    assert ref.ask("hello", timeout=5) == "hello"
    ref.tell(lambda actor: actor.log.append("told"))
    proxy = ref.proxy()
    assert proxy.double(4).get(timeout=5) == 8
    assert proxy.value.get(timeout=5) == 17
    proxy.value = 3
    assert proxy.value.get(timeout=5) == 3
    assert ref.stop(timeout=5) is True
    assert log == ["start", "told", "stop"]
    eventually(lambda: downs == [Down(ref, "normal")])
    assert_gone(ref)


def test_messages_keep_their_order() -> None:
    """Messages of one sender, same hub or thread, are handled in order."""
    ref = Actor.start()
    seen: list[tuple[int, int]] = []

    def send(sender: int) -> None:
        for number in range(1000):
            ref.tell(lambda _, n=number: seen.append((sender, n)))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(3)]
    for thread in threads:
        thread.start()
    send(3)
    eventually(lambda: len(seen) == 4000)
    for sender in range(4):
        assert [n for s, n in seen if s == sender] == list(range(1000))


def test_actors_of_both_kinds_ask_each_other() -> None:
    """A ThreadingActor, a GeventActor and a thread ask a GeventActor, which asks a ThreadingActor."""
    green, threaded = Actor.start(), Threaded.start()
    replies: list[Any] = []
    # Not `ask`: Pykka's own future would block this thread, and with it the hub of `green`.
    threaded.tell(lambda _: replies.append(green.ask(20, timeout=5)))
    eventually(lambda: replies == [20])
    assert green.ask(lambda _: threaded.ask(21, timeout=5), timeout=5) == 21
    other = Actor.start()
    assert other.ask(lambda _: green.ask(lambda _: 22, timeout=5), timeout=5) == 22
    in_thread: list[Any] = []
    threading.Thread(target=lambda: in_thread.append(green.ask(23, timeout=5))).start()
    eventually(lambda: in_thread == [23])


def test_an_exception_under_ask_goes_to_the_caller() -> None:
    """The caller gets the exception and the actor lives on."""
    ref = Actor.start()
    with pytest.raises(ValueError, match="broken"):
        ref.ask(fail, timeout=5)
    assert ref.ask(1, timeout=5) == 1


def test_an_exception_under_tell_ends_the_actor(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged by Pykka's logger, hooked, and the reason that monitors get."""
    log: list[Any] = []
    ref = Actor.start(log)
    downs = down_of(ref)
    ref.tell(fail)
    pending = ref.ask("pending", block=False)
    with pytest.raises(pykka.ActorDeadError):
        pending.get(timeout=5)
    assert log == ["start", ("failure", ValueError)]
    assert isinstance(downs[0].reason, ValueError)
    assert [r.name for r in caplog.records if r.levelno == logging.ERROR] == ["pykka"]
    assert_gone(ref)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(gevent.GreenletExit, "killed"), (Strange, Strange), (SystemExit, SystemExit)],
)
@pytest.mark.parametrize("idle", [True, False])
def test_whatever_is_raised_in_its_greenlet_ends_one_actor(
    error: type[BaseException], reason: Any, idle: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A `BaseException` thrown in, while idle or in the middle of a message, ends that actor only."""
    log: list[Any] = []
    ref = Actor.start(log)
    downs = down_of(ref)
    pending = []
    if not idle:
        pending = [ref.ask(lambda _: gevent.sleep(100), block=False), ref.ask(1, block=False)]
    gevent.sleep(0)
    greenlet = ref.actor_inbox.greenlet
    assert greenlet is not None
    greenlet.kill(error, block=False)
    eventually(lambda: downs)
    assert downs[0].reason == reason or type(downs[0].reason) is reason
    for future in pending:
        with pytest.raises(pykka.ActorDeadError):
            future.get(timeout=5)
    assert log == ["start", ("failure", error)]
    assert_gone(ref)
    assert len(downs) == 1
    assert capsys.readouterr().err == ""


def test_kill_gives_the_reason_and_is_silent(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """`kill` from here and from another thread: monitors get the reason, nothing is printed."""
    for from_thread in (False, True):
        ref = Actor.start()
        downs = down_of(ref)
        future = ref.ask(lambda _: gevent.sleep(100), block=False)
        gevent.sleep(0)
        if from_thread:
            threading.Thread(target=kill, args=(ref, "why")).start()
        else:
            kill(ref, "why")
        with pytest.raises(pykka.ActorDeadError):
            future.get(timeout=5)
        eventually(lambda ref=ref, downs=downs: downs == [Down(ref, "why")])
        kill(ref)
        assert_gone(ref)
    assert capfd.readouterr().err == ""
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_nobody_is_left_waiting_when_actors_die_under_load() -> None:
    """Asks from threads race with kills: each gets a reply or `ActorDeadError`."""
    outcomes: list[str] = []

    def ask(ref: pykka.ActorRef[Any]) -> None:
        try:
            while True:
                ref.ask(1, timeout=10)
        except pykka.ActorDeadError:
            outcomes.append("dead")
        except pykka.Timeout:
            outcomes.append("timeout")

    for _ in range(50):
        ref = Actor.start()
        threads = [threading.Thread(target=ask, args=(ref,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        gevent.sleep(0.001)
        kill(ref)
        eventually(lambda threads=threads: not any(t.is_alive() for t in threads))
    assert outcomes == ["dead"] * 150


def test_ctrl_c_in_an_actor_goes_to_the_main_greenlet(run_script: Callable[[str], str]) -> None:
    """`KeyboardInterrupt` ends the actor it hits and is raised in the main greenlet as well."""
    script = """
        import gevent, logging, signal, pykka
        from locks.runtime.actor import GeventActor
        logging.disable()
        gevent.get_hub().exception_stream = None
        class Hit(GeventActor):
            def on_receive(self, message):
                signal.raise_signal(signal.SIGINT)
        ref, other = Hit.start(), Hit.start()
        future = ref.ask(1, block=False)
        try:
            gevent.sleep(10)
        except KeyboardInterrupt:
            print("main", ref.is_alive(), other.is_alive())
        try:
            future.get(timeout=5)
        except pykka.ActorDeadError:
            print("dead")
    """
    assert run_script(script) == "main False True\ndead\n"


def test_actors_in_a_patched_program(run_script: Callable[[str], str]) -> None:
    """In a monkey-patched program both kinds of actors work together and stop."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import pykka
        from locks.runtime.actor import GeventActor, kill
        class Green(GeventActor):
            def on_receive(self, message):
                return message + 1
        class Threaded(pykka.ThreadingActor):
            def on_receive(self, message):
                return green.ask(message) + 1
        green = Green.start()
        threaded = Threaded.start()
        print(threaded.ask(1, timeout=5))
        kill(green)
        try:
            threaded.ask(1, timeout=5)
        except pykka.ActorDeadError:
            print("dead")
        pykka.ActorRegistry.stop_all()
    """
    assert run_script(script) == "3\ndead\n"


def test_a_future_is_set_once() -> None:
    """A value, an exception or a hook can be set once; the outcome can be got repeatedly."""
    future: GeventFuture[int] = GeventFuture()
    future.set(1)
    for again in (lambda: future.set(2), future.set_exception, lambda: future.set_get_hook(fail)):
        with pytest.raises(queue.Full):
            again()
    assert future.get() == future.get() == 1
    hooked: GeventFuture[int] = GeventFuture()
    hooked.set_get_hook(lambda _: 3)
    with pytest.raises(queue.Full):
        hooked.set(2)
    assert hooked.get() == 3


def test_a_future_has_many_getters() -> None:
    """Greenlets and threads that wait for one future all get its value, or its hook's, run once."""
    for hooked in (False, True):
        future: GeventFuture[int] = GeventFuture()
        got: list[int] = []
        calls: list[int] = []

        def get(future: GeventFuture[int] = future, got: list[int] = got) -> None:
            got.append(future.get(timeout=10))

        def hook(_: float | None, calls: list[int] = calls) -> int:
            calls.append(1)
            gevent.sleep(0.001)
            return 5

        for _ in range(4):
            gevent.spawn(get)
            threading.Thread(target=get).start()
        gevent.sleep(0.001)
        assert got == []
        if hooked:
            future.set_get_hook(hook)
        else:
            future.set(5)
        eventually(lambda got=got: got == [5] * 8)
        assert len(calls) == hooked


# --- Answers that come later --------------------------------------------------------------------


class Later(GeventActor):
    """Answers "later" with what it is told next."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Callable[[Any], None]] = []

    def on_receive(self, message: Any) -> Any:
        if message == "asked?":
            return self.asked
        if message in ("later", "fail later"):
            self.answers.append(self.defer())
            if message == "fail later":
                raise KeyError(message)
            return "not this"
        if message == "fail":
            self.fail(ValueError("not the asker's fault"))
            return "not this"
        if message == "at once":
            self.defer()("at once")
            return "not this"
        if self.answers:
            self.answers.pop(0)(message)
        return None


def test_an_answer_can_be_deferred() -> None:
    """The caller gets what is given later, once; what the handler returns is not it."""
    actor = Later.start()
    try:
        assert actor.ask("asked?") is True
        assert actor.ask("at once") == "at once"
        future = actor.ask("later", block=False)
        actor.tell("now")
        assert future.get(timeout=5) == "now"
        failing = actor.ask("later", block=False)
        actor.tell(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            failing.get(timeout=5)
    finally:
        actor.stop()


class Slow(GeventActor):
    """Takes its time to end, or does not end by itself."""

    def __init__(self, seconds: float, ended: list[float]) -> None:
        super().__init__()
        self.seconds = seconds
        self.ended = ended

    def on_stop(self) -> None:
        Event().wait(self.seconds)
        self.ended.append(self.seconds)


def test_actors_that_are_ended_together_are_waited_for() -> None:
    """Those that are still in `on_stop` as well; who does not end in time is killed."""
    ended: list[float] = []
    refs = [Slow.start(seconds, ended) for seconds in (0, 0.1, 0, 60)]
    end_all(refs, timeout=1)
    assert sorted(ended) == [0, 0, 0.1]
    assert not any(ref.is_alive() for ref in refs)
