"""Elections that are broken off: `run` and `start` leave no candidate behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.usefixtures("here")

SCRIPT = """
    import os, random, signal, sys, threading, time
    import locks, locks_leader, pykka
    from tests.helpers import eventually

    sys.setswitchinterval(0.0005)

    class Alarm(Exception):
        pass

    def alarm(*_):
        raise Alarm

    signal.signal(signal.SIGALRM, alarm)
    locks.start()
    election = locks_leader.Election("e")
    draw = random.Random(1)
    ready = got = 0

    def press():
        for number in range(100):
            while ready <= number:
                time.sleep(0.0002)
            time.sleep(draw.random() * 0.006)
            os.kill(os.getpid(), signal.{name})
            while got <= number:
                time.sleep(0.0002)

    def candidates():
        found = pykka.ActorRegistry.get_by_class_name("Instance")
        return [each for each in found if each.is_alive()]

    threading.Thread(target=press).start()
    while got < 100:
        try:
            ready = got + 1
            while True:
                election.run(lambda leadership: leadership.ensure_leading())
        except (KeyboardInterrupt, Alarm):
            got += 1
        eventually(lambda: not candidates())
    print(election.run(lambda leadership: "leads", timeout=30))
    locks.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGALRM"])
def test_a_run_that_is_broken_off_keeps_no_leadership(
    run_script: Callable[..., str], name: str
) -> None:
    """At random moments, by Ctrl-C or by a handler that raises: the candidate is gone, others can lead."""
    assert run_script(SCRIPT.format(name=name)) == "leads\n"


def test_a_start_that_is_broken_off_before_the_candidate_is_there(
    run_script: Callable[..., str],
) -> None:
    """The background is busy; the caller gives up; the candidate that comes later stops at once."""
    script = """
        import signal, threading, time
        import locks, locks_leader, pykka
        from locks.runtime.waiter import Event
        from tests.helpers import eventually

        node = locks.start()
        gate, reached = Event(), Event()
        node.executor.run_soon(lambda: (reached.open(), gate.wait()))
        reached.wait()
        main = threading.get_ident()
        pressed = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
        election = locks_leader.Election("e")
        pressed.start()
        try:
            election.start()
        except KeyboardInterrupt:
            print("interrupted")
        gate.open()
        node.executor.call(lambda: None)
        eventually(lambda: not pykka.ActorRegistry.get_by_class_name("Instance"))
        print(election.run(lambda leadership: "leads", timeout=30))
        locks.stop()
    """
    assert run_script(script) == "interrupted\nleads\n"
