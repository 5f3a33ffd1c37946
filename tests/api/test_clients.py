"""Clients that die or give up, what they may be told, and the life of the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
import pykka
import pytest

import locks
from tests.api.clients import PATCHED, Client, Run
from tests.helpers import eventually

pytestmark = pytest.mark.every_kind

A, B = ("a",), ("b",)


# --- Clients that die ---------------------------------------------------------------------------


def finish(run: Run, client: Client) -> None:
    """The client ends as it should."""
    run.stop(client)


def crash(run: Run, client: Client) -> None:
    """The client is hit by an exception that ends it."""
    run.clients.remove(client)
    if "actors" in run.kind:
        client.subject.tell(_Bomb())
    else:
        answer = client.do(_raise, SystemExit)
        with pytest.raises(SystemExit):
            answer.get()


def kill(run: Run, client: Client) -> None:
    """The client is killed from outside, whatever it is doing."""
    if run.kind not in ("greenlets", "gevent_actors"):
        pytest.skip("a thread can't be killed")
    run.clients.remove(client)
    if run.kind == "gevent_actors":
        locks.actors.kill(client.subject)
    else:
        client.subject.kill(block=False)


class _Bomb:
    def __call__(self) -> None:
        raise KeyError("crashed on purpose")


def _raise(error: type[BaseException]) -> None:
    raise error


def quiet_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `SystemExit` of a greenlet goes to its hub's main greenlet, which is the test: not here."""
    monkeypatch.setattr(gevent.hub.Hub, "handle_system_error", lambda *args: None)


ENDS = pytest.mark.parametrize("end", [finish, crash, kill])


@ENDS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_death_frees_all_locks(
    run: Run, end: Callable[[Run, Client], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a client ends, its locks are free and whoever waits gets them."""
    quiet_hub(monkeypatch)
    one, two = run.begin(2)
    one.lock(A).get()
    one.lock(("b", 1), "read").get()
    one.call(locks.Lock(("c",)).acquire)
    answer = two.lock(A)
    run.until_waiting(two, A)
    end(run, one)
    assert answer.get().status == "have_all_locks"
    eventually(lambda: not one.agent.is_alive())
    assert not locks.holders(B)
    eventually(lambda: not locks.holders(("c",)))


@ENDS
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_death_takes_back_requests(
    run: Run, end: Callable[[Run, Client], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a client ends, what it waited for is not waited for any more."""
    quiet_hub(monkeypatch)
    one, two, three = run.begin(3)
    one.lock(A, "read").get()
    two.lock_nowait(A, "write")
    answer = three.lock(A, "read")
    run.until_waiting(three, A)
    end(run, two)
    assert answer.get().status == "have_all_locks"  # the writer stood between them
    assert not locks.queue(A).waiting


def test_death_in_a_blocking_call(run: Run) -> None:
    """A client that is killed while it waits leaves no contender behind."""
    one, two, three = run.begin(3)
    one.lock(A, "read").get()
    two.lock(A, "write")
    run.until_waiting(two, A)
    answer = three.lock(A, "read")
    run.until_waiting(three, A)
    kill(run, two)
    assert answer.get().status == "have_all_locks"
    assert len(locks.queue(A).requests) == 2


def test_killed_in_the_middle_of_a_message(run: Run) -> None:
    """A `GeventActor` that is killed in the middle of a message takes nobody with it."""
    if run.kind != "gevent_actors":
        pytest.skip("only a GeventActor")
    one, two, three = run.begin(3)
    one.lock(A).get()
    answer = two.lock(A)
    run.until_waiting(two, A)
    run.clients.remove(two)
    locks.actors.kill(two.subject, "enough")
    with pytest.raises(pykka.ActorDeadError):
        answer.get()
    eventually(lambda: not two.agent.is_alive())
    assert one.subject.is_alive()
    assert three.subject.is_alive()
    assert one.agent.is_alive()
    assert not locks.queue(A).waiting
    one.end()
    assert three.lock(A).get().status == "have_all_locks"


# --- Waits that are given up ----------------------------------------------------------------------


GIVE_UP = [
    lambda agent: locks.original.lock(agent, A, "write", timeout=0.02),
    lambda agent: locks.original.lock(agent, A, "write", timeout=0),
    lambda agent: locks.original.begin_transaction([(B, "read"), (A, "write")], timeout=0.02),
    lambda agent: locks.original.begin_transaction([(A, "write")], timeout=0),
    lambda agent: _transaction(agent),
]


def _transaction(agent: locks.actors.Agent) -> None:
    with locks.transaction(timeout=0.02) as tx:
        tx.lock(A)


@pytest.mark.parametrize("wait", GIVE_UP)
def test_timeout_leaves_no_contender(run: Run, wait: Callable[[locks.actors.Agent], Any]) -> None:
    """A wait that runs out of time withdraws its request, and only that."""
    one, two, three = run.begin(3)
    one.lock(A, "read").get()
    two.lock(("mine",)).get()
    with pytest.raises(locks.LockTimeout) as caught:
        two.call(wait, two.agent)
    assert caught.value.lock_ids == (A,)
    assert [c.agent for c in caught.value.holders] == [one.agent.id]
    assert one.agent.machine.client in str(caught.value)
    assert [c.agent for c in locks.queue(A).requests] == [one.agent.id]
    assert not locks.queue(B).requests
    assert two.holds(("mine",))
    assert three.lock(A, "read").get().status == "have_all_locks"


def test_timeout_of_gevent_leaves_no_contender(run: Run) -> None:
    """The same for a wait that `gevent.Timeout` ends."""
    if not run.can_kill:
        pytest.skip("gevent.Timeout needs a hub")
    one, two = run.begin(2)
    one.lock(A).get()

    def work() -> str:
        with gevent.Timeout(0.02, False):
            locks.original.lock(two.agent, A)
        with gevent.Timeout(0.02, False):
            locks.Lock(A).acquire()
        with gevent.Timeout(0.02, False), locks.transaction() as tx:
            tx.lock(A)
        return "given up"

    assert two.call(work) == "given up"
    assert not locks.queue(A).waiting
    assert locks.statistics().agents == 2


def test_wait_of_a_killed_greenlet_leaves_no_contender(run: Run) -> None:
    """The same for a greenlet that is killed in its wait but goes on living."""
    if run.kind != "greenlets":
        pytest.skip("only a greenlet")
    one, two = run.begin(2)
    one.lock(A).get()

    def work() -> str:
        try:
            locks.original.lock(two.agent, A)
        except gevent.GreenletExit:
            return "survived"
        return "granted"

    answer = two.do(work)
    run.until_waiting(two, A)
    two.subject.kill(block=False)
    assert answer.get() == "survived"
    assert not locks.queue(A).waiting
    assert two.agent.is_alive()


SIGINT = """
    {prelude}
    import os, threading, locks
    from gevent.monkey import get_original
    from locks.runtime.waiter import Event

    def other():
        with locks.transaction() as tx:
            tx.lock(("a",))
            held.open()
            done.wait()

    held, done = Event(), Event()
    {spawn}
    held.wait()
    def ready():
        while not locks.queue(("a",)).waiting:
            get_original("time", "sleep")(0.001)
        print("ready", flush=True)
    # In a native thread of its own: the signal is to come while the main one waits.
    get_original("_thread", "start_new_thread")(ready, ())
    agent, _ = locks.original.begin_transaction([(("b",), "read")])
    try:
        {wait}
        print("granted")
    except KeyboardInterrupt:
        print(len(locks.queue(("a",)).requests), "asked", flush=True)
    print(agent.is_alive(), len(locks.holders(("b",))), locks.statistics().agents)
    done.open()
    {join}
    locks.original.lock(agent, ("a",))
    locks.original.end_transaction(agent)
    print(locks.statistics().agents, flush=True)
    # What the interpreter does with a hub at its end is not the matter here.
    os._exit(0)
"""

PROGRAMS = {
    "plain": {
        "prelude": "import time",
        "spawn": "t = threading.Thread(target=other); t.start()",
        "join": "t.join()",
    },
    "gevent": {
        "prelude": "import gevent",
        "spawn": "g = gevent.spawn(other)",
        "join": "g.join()",
    },
    "patched": {
        "prelude": "from gevent import monkey; monkey.patch_all(); import time",
        "spawn": "t = threading.Thread(target=other); t.start()",
        "join": "t.join()",
    },
}

WAITS = {
    "lock": "locks.original.lock(agent, ('a',))",
    "lock_with_timeout": "locks.original.lock(agent, ('a',), timeout=60)",
    "Lock": "locks.Lock(('a',)).acquire()",
    "transaction": "locks.run_transaction(lambda tx: tx.lock(('a',)))",
}


@pytest.mark.skipif(PATCHED, reason="has its own processes")
@pytest.mark.parametrize(
    ("program", "wait"),
    [*(("plain", wait) for wait in WAITS), ("gevent", "lock"), ("patched", "lock")],
)
def test_ctrl_c_leaves_no_contender(
    run_script: Callable[..., str], program: str, wait: str
) -> None:
    """Ctrl-C ends a wait, takes the request back, and the program may go on."""
    out = run_script(SIGINT.format(**PROGRAMS[program], wait=WAITS[wait]), interrupt=True)
    assert out.splitlines() == ["1 asked", "True 1 2", "0"]


# --- Options --------------------------------------------------------------------------------------


def test_client_may_be_named(run: Run) -> None:
    """A transaction may be begun for another client: that one uses it, and it ends with that one."""
    one, two, three = run.client(), run.client(), run.client().begin()
    agent = one.call(locks.original.spawn_agent, client=two.subject)
    if not run.owned:
        with pytest.raises(locks.errors.NotClient):
            one.call(locks.original.lock, agent, A)
    assert two.call(locks.original.lock, agent, A).status == "have_all_locks"
    run.stop(one)
    assert agent.is_alive()
    answer = three.lock(A)
    run.until_waiting(three, A)
    run.stop(two)
    assert answer.get().status == "have_all_locks"


def test_link_stops_the_client(run: Run) -> None:
    """With `link` a transaction that ends abnormally takes its client with it; a normal end not."""
    client, other = run.client(), run.client()
    if run.kind == "threads" and not run.patched:
        with pytest.raises(locks.errors.InvalidOption, match="can't link"):
            client.call(locks.original.spawn_agent, link=True)
        return
    if run.kind == "threads":
        pytest.skip("a greenlet")
    client.begin(link=True)
    client.end()
    client.begin(link=True)
    client.agent.stop()
    client.begin(link=True)
    assert client.call(lambda: 1) == 1
    other.begin(link=True)
    other.lock(A).get()
    run.clients.remove(client)
    client.agent.kill("broken")
    subject = client.subject
    if run.owned:  # a task goes on; what it has ends
        eventually(lambda: subject.ended)
        client.stop()
    else:
        eventually(subject.ready if run.kind == "greenlets" else lambda: not subject.is_alive())
    assert other.holds(A)


def test_notify_a_callable(run: Run) -> None:
    """A callable is told status and lock infos, in order."""
    told: list[locks.values.Notification] = []
    other, client = run.client().begin(), run.client().begin(notify=told.append)
    other.lock(A).get()
    client.lock_nowait(A)
    eventually(lambda: "waiting" in [n.kind for n in told])
    other.end()
    eventually(lambda: "have_all_locks" in [n.kind for n in told])
    assert all(n.agent == client.agent.id for n in told)
    statuses = [(n.kind, n.value) for n in told if n.kind != "lock_info"]
    assert statuses == [("waiting", None), ("have_all_locks", ())]
    infos = [n.value for n in told if n.kind == "lock_info"]
    assert [(i.lock_id, i.state) for i in infos if i.agent == client.agent.id][-1] == (A, "granted")


def test_change_flag_abort_on_deadlock(run: Run) -> None:
    """Whether a transaction is aborted may be changed while it runs, also while it waits."""
    one, two = run.begin(2)
    two.call(locks.original.change_flag, two.agent, "abort_on_deadlock", True)
    one.lock(A).get()
    two.lock(B).get()
    one.lock_nowait(B)
    with pytest.raises(locks.DeadlockAborted):
        two.lock(A).get()
    two.begin(abort_on_deadlock=True)
    two.call(locks.original.change_flag, two.agent, "abort_on_deadlock", False)
    two.lock(("c",)).get()
    two.lock_nowait(A)
    one.lock(("c",)).get()
    assert one.status().deadlocks[-1].action == "surrendered"


# --- Watching -------------------------------------------------------------------------------------


def test_watch(run: Run) -> None:
    """A watcher is told the view of an id now, and after each change of it, above or below."""
    views: list[locks.values.View] = []
    one, two = run.begin(2)
    locks.watch(A, watcher=views.append)
    assert locks.original.watchers(A) == [views.append]
    assert locks.original.watchers(("a", 1)) == []
    eventually(lambda: len(views) == 1)
    one.lock(("a", 1)).get()
    two.lock_nowait(A)
    one.end()
    eventually(lambda: len(views) == 4)
    two.end()
    eventually(lambda: len(views) == 5)
    assert all(view.lock_id == A for view in views)
    shown = [[(c.agent, c.lock_id, c.granted) for c in view.requests] for view in views]
    first, second = one.agent.id, two.agent.id
    assert shown == [
        [],
        [(first, ("a", 1), True)],
        [(first, ("a", 1), True), (second, A, False)],
        [(second, A, True)],
        [],
    ]
    locks.unwatch(A, watcher=views.append)
    assert locks.original.watchers(A) == []


def test_unwatch(run: Run) -> None:
    """After `unwatch` nothing is told; to end what was not begun does no harm."""
    views: list[locks.values.View] = []
    others: list[locks.values.View] = []
    (one,) = run.begin(1)
    locks.watch(A, watcher=views.append)
    locks.watch(A, watcher=views.append)  # once more is the same as once
    locks.watch(A, watcher=others.append)
    assert locks.original.watchers(A) == [views.append, others.append]
    eventually(lambda: len(others) == 1)
    locks.unwatch(A, watcher=views.append)
    locks.unwatch(B, watcher=views.append)
    told = len(views)
    one.lock(A).get()
    eventually(lambda: len(others) == 2)
    assert len(views) == told
    locks.unwatch(A, watcher=others.append)


# --- Mixed and many -------------------------------------------------------------------------------


def test_every_kind_of_client_together(run: Run) -> None:
    """Threads, greenlets and actors contend for the same locks, each as what it is."""
    if run.kind != "greenlets":
        pytest.skip("once, where all kinds can live")
    counter = [0]

    def increment(tx: locks.Transaction) -> None:
        tx.lock(A)
        value = counter[0]
        run.pause()
        counter[0] = value + 1

    def work() -> int:
        for _ in range(50):
            locks.run_transaction(increment)
        return 50

    others = [Run(kind, run.patched).client() for kind in ("threads", "threading_actors")]
    run.clients += others
    run.clients.append(Run("gevent_actors", run.patched).client())
    run.client()
    answers = [client.do(work) for client in run.clients]
    assert sum(answer.get() for answer in answers) == counter[0] == 200


# --- The node -------------------------------------------------------------------------------------


def test_start_and_stop(run: Run) -> None:
    """A node starts with the first use, or by name; to start it again is no harm; it can be stopped."""
    node = locks.start()
    assert node.name == "node@localhost"
    assert locks.start() is node is locks.start("node@localhost")
    locks.stop()
    locks.stop()
    assert not node.running
    with pytest.raises(locks.errors.NodeNotRunning, match=r"locks\.start\(\)"):
        node.spawn_agent()
    other = locks.start("other@here")
    assert locks.start() is other
    with pytest.raises(locks.MisuseError, match="other@here is already running"):
        locks.start("node@localhost")
    assert locks.statistics().name == "other@here"
    (client,) = run.begin(1)
    client.lock(A).get()
    assert client.agent.id.node == "other@here"
    assert locks.queue(A).node == "other@here"
    locks.stop()
    assert run.client().begin().agent.id.node == "node@localhost"  # the first use starts it


def test_stop_wakes_those_who_wait(run: Run) -> None:
    """Stopping the node ends all transactions; whoever waits is told so, and nobody gets a lock."""
    one, two, three, four = run.begin(4)
    node = locks.start()
    one.lock(A).get()
    two_waits = two.lock(A)
    run.until_waiting(two, A)
    three.lock_nowait(A)
    three_waits = three.await_all()
    four_waits = four.do(locks.Lock(A).acquire)
    eventually(lambda: len(locks.queue(A).waiting) == 3)
    downs: list[locks.actors.Down] = []
    for client in (one, two):
        locks.actors.monitor(client.agent, downs.append)
    locks.stop()
    for answer in (two_waits, three_waits, four_waits):
        with pytest.raises(locks.TransactionEnded, match="node@localhost was stopped"):
            answer.get()
    with pytest.raises(locks.TransactionEnded):
        one.lock(B).get()
    eventually(lambda: len(downs) == 2)
    assert not node.view(A).requests
    assert not any(client.agent.is_alive() for client in (one, two, three, four))
    assert not four.call(locks.Lock(A).owned)


FORK = """
    {prelude}
    import os, sys, threading, time, locks

    locks.start(servers=locks.HERE)
    agent, _ = locks.original.begin_transaction([(("a",), "write")])
    held = locks.Lock(("b",))
    held.acquire()
    child = os.fork()
    if not child:
        assert not locks.holders(("a",)), "the child starts afresh"
        assert not held.locked()
        with locks.transaction(timeout=5) as tx:
            tx.lock(("a",))
        assert held.acquire(timeout=5)
        held.release()
        try:
            locks.original.lock(agent, ("c",), timeout=5)
        except (locks.TransactionEnded, locks.errors.NotClient):
            print("refused", flush=True)
        locks.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(locks.holders(("a",))) == 1
    assert held.owned()
    held.release()
    locks.original.end_transaction(agent)
    assert locks.statistics().agents == 0
    print("parent")
"""


@pytest.mark.skipif(PATCHED, reason="has its own processes")
@pytest.mark.parametrize("program", PROGRAMS)
def test_fork(run_script: Callable[..., str], program: str) -> None:
    """A forked child starts afresh; the parent goes on; the parent's agents are dead in the child."""
    out = run_script(FORK.format(prelude=PROGRAMS[program]["prelude"]))
    assert out.splitlines() == ["refused", "parent"]
