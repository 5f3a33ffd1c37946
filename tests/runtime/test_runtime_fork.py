"""A forked child finds everything as after an import; the parent notices nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

# What a child does. It says what it finds wrong, and "ok" when it is through.
CHILD = """
{prelude}
import logging, os, random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")  # from 3.12 on Python warns of forks of programs with threads
logging.getLogger("locks.deadlocks").setLevel(logging.ERROR)  # they are meant
from gevent import monkey
import locks
from locks.mvcc import LockTable, Request, TableStopped, Txn
from tests.helpers import eventually

native_fork = monkey.get_original("os", "fork")
start_thread = monkey.get_original("_thread", "start_new_thread")
native_sleep = monkey.get_original("time", "sleep")
# greenlet has a lock for threads that end. If one ends while another thread forks, the child may wait for it for ever.
no_thread_ends = monkey.get_original("_thread", "allocate_lock")()
locks.start(servers=locks.HERE)
table = LockTable()
found = []

def child(say):
    def end_if_stuck():
        native_sleep(50)
        os._exit(1)
    start_thread(end_if_stuck, ())
    try:
        signal.raise_signal(signal.SIGINT)
        say("Ctrl-C did nothing")
    except KeyboardInterrupt:
        pass
    with locks.transaction(timeout=30) as tx:
        tx.lock(("a", 1))
    with locks.Lock(("a", 2)):
        pass
    views = []
    locks.watch(("x",), watcher=views.append)
    with locks.transaction() as tx:
        tx.lock(("x",))
    eventually(lambda: len(views) == 3, limit=30)
    try:
        table.statistics()
        say("the parent's table goes on")
    except TableStopped:
        pass
    LockTable().scan_and_enqueue(Request(writes=[1]), Txn(1, 1))
    begun = time.monotonic()
    locks.stop()
    if time.monotonic() - begun > 4:
        say("the stop took its five seconds")

def fork(fork):
    reader, writer = os.pipe()
    with no_thread_ends:
        pid = fork()
    if not pid:
        said = []
        try:
            child(said.append)
        except BaseException as error:
            said.append(repr(error))
        os.write(writer, "; ".join(said or ["ok"]).encode())
        os._exit(0)
    os.close(writer)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # of a native thread: gevent's handler of SIGCHLD was faster
    found.append(os.read(reader, 4000).decode())
    os.close(reader)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "prelude", ["from gevent import monkey; monkey.patch_all()", "import gevent; gevent.get_hub()"]
)
def test_forks_of_a_program_with_a_hub(run_script: Callable[..., str], prelude: str) -> None:
    """Patched or not, by the main thread and by a native one, while greenlets lock."""
    script = (
        CHILD
        + """
import gevent
parent, stop = os.getpid(), []

def work(number):
    while os.getpid() == parent and not stop:
        try:
            with locks.transaction() as tx:
                tx.lock(("a", number % 3))
                gevent.sleep(0)
        except locks.TransactionEnded:
            assert os.getpid() != parent
        gevent.sleep(0)

def forker():
    for _ in range(8):
        fork(native_fork)
    stop.append(True)

greenlets = [gevent.spawn(work, number) for number in range(6)]
start_thread(forker, ())
while not stop:
    gevent.sleep(0.001)
    fork(os.fork)
gevent.joinall(greenlets)
print(set(found), locks.statistics().agents)
locks.stop()
"""
    )
    assert run_script(script.format(prelude=prelude)) == "{'ok'} 0\n"


def test_ctrl_c_in_a_child_of_another_thread(run_script: Callable[..., str]) -> None:
    """The main thread was in a turn when another one forked: in the child, that depth is nobody's."""
    script = """
        import os, signal, threading, warnings
        from locks.runtime import interrupts

        warnings.simplefilter("ignore")  # of a fork beside threads
        results = []

        def fork():
            reader, writer = os.pipe()
            if not os.fork():
                try:
                    signal.raise_signal(signal.SIGINT)
                    os.write(writer, b"nothing")
                except KeyboardInterrupt:
                    default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
                    os.write(writer, b"interrupted %d" % default)
                finally:
                    os._exit(0)
            os.wait()
            results.append(os.read(reader, 100))

        interrupts.install()
        token = interrupts.enter()
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        interrupts.leave(token)
        print(results, interrupts._shield.depth, interrupts._shield.installed)
    """
    assert run_script(script) == "[b'interrupted 1'] 0 1\n"


def test_a_fork_within_a_section(run_script: Callable[..., str]) -> None:
    """The child leaves a section that the parent has entered: its own shield is not touched."""
    script = """
        import os, signal, sys
        from locks.runtime import interrupts

        interrupts.install()
        token = interrupts.enter()
        child = os.fork()
        interrupts.leave(token)
        if not child:
            interrupts.install()
            inner = interrupts.enter()
            signal.raise_signal(signal.SIGINT)
            print("held back", interrupts._shield.depth, flush=True)
            try:
                interrupts.leave(inner)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            os._exit(0)
        os.wait()
    """
    assert run_script(script) == "held back 1\ninterrupted\n"


def test_threads_of_the_parent_do_not_end_in_the_child(run_script: Callable[..., str]) -> None:
    """The interpreter drops what they had: the ends of their transactions must not go to other nodes."""
    script = """
        import os, threading, warnings
        warnings.simplefilter("ignore")
        from locks.runtime.monitor import current_client, monitor
        from locks.runtime.waiter import Event

        told, ready, gate = [], Event(), Event()

        def client():
            monitor(current_client(), told.append)
            ready.open()
            gate.wait()

        thread = threading.Thread(target=client)
        thread.start()
        ready.wait()
        child = os.fork()
        if not child:
            print("child", told, flush=True)
            os._exit(0)
        os.wait()
        gate.open()
        thread.join()
        print("parent", len(told))
    """
    assert run_script(script) == "child []\nparent 1\n"


def test_who_waits_in_the_child_is_told(run_script: Callable[..., str]) -> None:
    """Greenlets of the thread that forks are in the child, too; what they wait for is in the parent."""
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent, os, locks
        from tests.helpers import eventually

        held, _ = locks.original.begin_transaction([(("a",), "write")])

        def wait():
            try:
                with locks.transaction() as tx:
                    tx.lock(("a",))
            except locks.TransactionEnded as error:
                print(str(error).partition(": ")[2], flush=True)

        waiting = gevent.spawn(wait)
        eventually(lambda: len(locks.queue(("a",)).requests) == 2)
        child = os.fork()
        if not child:
            waiting.join(30)
            os._exit(0)
        os.waitpid(child, 0)
        locks.original.end_transaction(held)
        waiting.join()
    """
    assert run_script(script) == "it belongs to the parent process; begin a new one here\n"


def test_a_fork_while_another_thread_imports_what_we_import_late(
    run_script: Callable[..., str],
) -> None:
    """It waits for the import: the child would get a lock of the module that nobody releases."""
    script = """
import faulthandler, os, sys, threading, time
import locks
begun = threading.Event()

class Slow:
    @staticmethod
    def find_spec(name, *_):
        if name == "multiprocessing.process":
            begun.set()
            time.sleep(0.2)  # what the import takes

sys.meta_path.insert(0, Slow)
thread = threading.Thread(target=__import__, args=("multiprocessing.process",))
thread.start()
begun.wait()
if not (pid := os.fork()):
    faulthandler.dump_traceback_later(10, exit=True)
    import multiprocessing.process
    os._exit(0)
print(os.waitpid(pid, 0)[1], "multiprocessing.process" in sys.modules)
thread.join()
"""
    assert run_script(script) == "0 True\n"
