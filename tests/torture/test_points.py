"""The faults that were once seen at the boundary to Python, one test for each.

Each of them is a small program of its own, in a fresh interpreter, and hits the same spot in every run: a tracer
(`tracing`) chooses it. A program that hangs ends with a traceback.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.helpers import run_script

SETUP = """
import faulthandler, gc, logging, os, signal, sys, threading
faulthandler.dump_traceback_later(20, exit=True)
import gevent, locks
from tests.helpers import eventually
from tests.torture.invariants import broken, broken_when_empty
from tests.torture.tracing import Tracer, trace
logging.getLogger("locks").addHandler(logging.NullHandler())
node = locks.start()
node.thin.pause = 1_000_000  # what is disturbed here is the usual way; test_thin.py has the other one

def within(file, function):
    # Where the tracer begins to count: in a machine, so in the middle of a turn.
    return lambda code: code.co_filename.endswith(file) and code.co_name == function

class Thrown(BaseException):
    pass

def in_thread(job):
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
"""


def run(script: str) -> str:
    """Run a script behind the set-up above."""
    return run_script(SETUP + "\n" + textwrap.dedent(script))


def test_point_1_the_end_of_the_stack_makes_no_second_holder() -> None:
    """A recursive function locks until `RecursionError`: another client's lock stays its own."""
    out = run(
        """
        me = locks.original.spawn_agent()
        locks.original.lock(me, ("account",))

        def walk(number):
            with locks.transaction() as tx:
                tx.lock(("node", number))
                walk(number + 1)

        def job():
            try:
                walk(0)
            except RecursionError:
                print("RecursionError")

        def other():
            with locks.transaction(timeout=0) as tx:
                try:
                    tx.lock(("account",))
                    print("two holders")
                except locks.LockTimeout:
                    print("one holder")

        in_thread(job)
        in_thread(other)
        locks.original.ensure_held(me, ("account",))
        print(node.running, locks.start() is node, broken(node))
        """
    )
    assert out == "RecursionError\none holder\nTrue True []\n"


@pytest.mark.parametrize("what", ["generator", "finaliser"])
def test_point_2_a_collection_within_a_turn_does_not_hang(what: str) -> None:
    """A generator inside `with transaction()` is closed, or a `__del__` releases: later, and not never."""
    out = run(
        f"""
        class Keeper:
            pass

        class Finaliser:
            def __init__(self):
                self.agent, _ = locks.original.begin_transaction([(("kept",), "write")])
            def __del__(self):
                locks.original.end_transaction(self.agent)

        def rows():
            with locks.transaction() as tx:
                tx.lock(("kept",))
                yield

        gc.disable()
        keeper = Keeper()
        keeper.me = keeper
        if {what!r} == "generator":
            keeper.kept = rows()
            next(keeper.kept)
        else:
            keeper.kept = Finaliser()
        del keeper

        def act():
            with locks.transaction() as tx:
                tx.lock(("other",))

        tracer = Tracer(5, gc.collect, within("server/table.py", "request"))
        trace(tracer, act)
        print(tracer.struck is not None, locks.holders(("kept",)), broken_when_empty(node))
        """
    )
    assert out == "True () []\n"


@pytest.mark.parametrize(
    "place",
    [
        ("server/table.py", "request"),
        ("agent/ledger.py", "add_told"),
        ("agent/machine.py", "end_transaction"),
    ],
    ids=["table", "ledger", "end"],
)
def test_point_3_a_signal_handler_that_uses_locks_does_not_hang(place: tuple[str, str]) -> None:
    """Within a turn it is told so when it asks for a lock; what it releases is released."""
    out = run(
        f"""
        kept, _ = locks.original.begin_transaction([(("kept",), "write")])
        told = []

        def handle(signum, frame):
            locks.original.end_transaction(kept)
            try:
                with locks.transaction() as tx:
                    tx.lock(("handler",))
                told.append("locked")
            except (RuntimeError, locks.LocksError) as error:
                told.append("refused")

        signal.signal(signal.SIGUSR1, handle)

        def act():
            with locks.transaction() as tx:
                tx.lock(("other",))

        strike = lambda: signal.raise_signal(signal.SIGUSR1)
        tracer = Tracer(5, strike, within(*{place!r}))
        trace(tracer, act)
        print(tracer.struck is not None, len(told), broken_when_empty(node))
        """
    )
    assert out == "True 1 []\n"


def test_point_4_an_acquire_that_raises_keeps_nothing() -> None:
    """`gevent.Timeout` around `with lock`: its time is over in the moment in which the holder lets go."""
    out = run(
        """
        import time
        lock = locks.Lock(("k",))

        def holder():
            with locks.transaction() as tx:
                tx.lock(("k",))
                gevent.sleep(0.002)

        left = interrupted = 0
        for _ in range(9):
            holding = gevent.spawn(holder)
            gevent.sleep(0)
            busy = gevent.spawn(time.sleep, 0.01)  # both times are over when the hub goes on
            try:
                with gevent.Timeout(0.004):
                    with lock:
                        pass
            except gevent.Timeout:
                interrupted += 1
            gevent.joinall([holding, busy])
            left += lock.owned()
            if lock.owned():
                lock.release()
        print(interrupted > 0, left, "left;", broken_when_empty(node))
        """
    )
    assert out == "True 0 left; []\n"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lock", "thin lock", "transaction"])
def test_point_4_ctrl_c_in_a_with_statement_keeps_nothing(form: str) -> None:
    """A real SIGINT at every ninth instruction of the block: when it is left, it has let go."""
    out = run(
        f"""
        lock = locks.Lock(("k",))

        def with_lock():
            with lock:
                pass

        def with_transaction():
            with locks.transaction() as tx:
                tx.lock(("k",))

        act = with_transaction if {form!r} == "transaction" else with_lock
        left = lost = number = 0
        while True:
            node.thin.pause = 0 if {form!r} == "thin lock" else 9
            tracer = Tracer(number, lambda: signal.raise_signal(signal.SIGINT))
            try:
                trace(tracer, act)
                lost += tracer.struck is not None
            except KeyboardInterrupt:
                pass
            if tracer.struck is None:
                break
            left += bool(node.agents_by_id or node.thin.held)
            for agent in list(node.agents_by_id.values()):
                agent.kill("left")
            number += 9
        print(left, "left,", lost, "lost;", number > (300 if {form!r} == "thin lock" else 1000), broken_when_empty(node))
        """
    )
    assert out == "0 left, 0 lost; True []\n"


def test_point_5_work_that_was_posted_meanwhile_is_not_left_lying() -> None:
    """A thread dies while another one makes a call that is refused: its lock is free, without any other call."""
    out = run(
        """
        go = threading.Event()
        ready = threading.Event()

        def dies():
            locks.original.begin_transaction([(("x",), "write")])
            ready.set()
            go.wait()

        mortal = threading.Thread(target=dies)
        mortal.start()
        ready.wait()
        mine = locks.original.spawn_agent()

        def die():
            go.set()
            mortal.join()

        def act():
            try:
                locks.original.unlock(mine, ("nothing",))
            except locks.errors.NotHeld:
                print("refused")

        tracer = Tracer(None, None, within("agent/ledger.py", "request"), die)
        trace(tracer, act)
        eventually(lambda: list(node.agents_by_id.values()) == [mine], 3)
        locks.original.end_transaction(mine)
        print(tracer.count > 0, broken_when_empty(node))
        """
    )
    assert out == "refused\nTrue []\n"


@pytest.mark.parametrize("how", ["SIGALRM", "PyThreadState_SetAsyncExc"])
def test_point_7_an_exception_thrown_into_a_turn_hurts_nobody(how: str) -> None:
    """At every ninth instruction of a lock that is granted: the caller sees it, once, and all is whole."""
    out = run(
        f"""
        import ctypes
        def handle(signum, frame):
            raise Thrown
        signal.signal(signal.SIGALRM, handle)
        def throw():
            if {how!r} == "SIGALRM":
                signal.raise_signal(signal.SIGALRM)
            else:
                ident = ctypes.c_ulong(threading.get_ident())
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Thrown))

        bystander = threading.Event()
        done = threading.Event()
        def other():
            agent, _ = locks.original.begin_transaction([(("precious",), "write")])
            bystander.set()
            done.wait()
            locks.original.ensure_held(agent, ("precious",))
            print("still held")
        beside = threading.Thread(target=other)
        beside.start()
        bystander.wait()
        seen = struck = number = 0
        bad = []
        while not bad:
            agent = locks.original.spawn_agent()
            tracer = Tracer(number, throw)
            try:
                trace(tracer, lambda: locks.original.lock(agent, ("a",)))
            except Thrown:
                seen += 1
            if tracer.struck is None:
                break
            struck += 1
            bad = broken(node)
            if not bad:
                locks.original.end_transaction(agent)
            number += 9
        print(seen == struck, number > 900, bad, locks.start() is node)
        done.set()
        beside.join()
        """
    )
    assert out == "True True [] True\nstill held\n"
