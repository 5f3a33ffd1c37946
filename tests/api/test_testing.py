"""`locks.testing`: applications under simulated schedules, deaths and virtual time; nothing passes without being tested."""

from __future__ import annotations

import functools
import os
import pathlib
import queue
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import gevent
import gevent.event
import greenlet
import pytest

import locks
import locks.testing
import locks_leader
from locks.core.messages import Request
from locks.node.client import agent as client_agent
from locks.program.default import default_node
from locks.testing import Simulation, Summary, Violation, seeds, simulate
from locks.testing.scenarios import NothingHappened
from locks_lab.applications import nodes
from locks_leader import Behaviour, Election
from tests.warm import run_program

ROOT = pathlib.Path(__file__).parents[2]


Scenario = Callable[[Simulation], None]


class Bank:
    """Accounts, and transfers that lock one account after the other."""

    def __init__(self, simulation: Simulation, accounts: int = 4) -> None:
        self.simulation = simulation
        self.balances = dict.fromkeys(range(accounts), 100)

    @property
    def total(self) -> int:
        return sum(self.balances.values())

    def move(self, tx: locks.Transaction, source: int, target: int) -> None:
        tx.write_lock(("bank", source))
        left = self.balances[source] - 1
        tx.write_lock(("bank", target))
        self.balances[source] = left
        self.simulation.sleep(0.1)  # here money is missing
        self.balances[target] += 1

    def transfer(self, source: int, target: int) -> None:
        locks.run_transaction(lambda tx: self.move(tx, source, target))

    def audit(self) -> int:
        def count(tx: locks.Transaction) -> int:
            tx.read_lock(("bank",))
            return self.total

        return locks.run_transaction(count)


def ring(simulation: Simulation, clients: int = 4, **options: Any) -> Bank:
    """Transfers around a ring of accounts, under any schedule."""
    bank = Bank(simulation, clients)
    for n in range(clients):
        simulation.client(bank.transfer, n, (n + 1) % clients)
    simulation.run(**options)
    return bank


def trace_of(seed: int) -> list[str]:
    """The trace of a ring, and its deadlocks."""
    made = Simulation(seed)
    ring(made)
    return made.trace + [repr(report) for report in made.deadlocks]


def failing_seeds(scenario: Scenario, tries: int, kind: type[Exception]) -> list[int]:
    """The seeds under which a scenario fails in the way that is expected."""
    found = []
    for seed in range(tries):
        try:
            scenario(Simulation(seed))
        except kind:
            found.append(seed)
    return found


# --- Schedules ----------------------------------------------------------------------------------


def test_same_seed_same_trace() -> None:
    """A seed says everything: each run with it has the same trace, to the microsecond."""
    for seed in range(10):
        first = trace_of(seed)
        assert len(first) > 10
        assert first == trace_of(seed)


@pytest.mark.slow
def test_same_trace_in_another_process() -> None:
    """Neither the hashes of strings nor anything else of a process has a part in the schedule."""
    program = "from tests.api.test_testing import trace_of; print(*trace_of(17), sep='\\n')"
    found = {
        run_program(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)},
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert found == {"\n".join(trace_of(17)) + "\n"}


def test_any_call_lets_others_go_first() -> None:
    """Also at a call that waits for nothing, another client may go first, or not."""
    found = set()

    def scenario(simulation: Simulation) -> None:
        steps: list[str] = []

        def look(name: str) -> None:
            steps.append(name)
            locks.holders(("a",))
            steps.append(name)

        simulation.client(look, "a")
        simulation.client(look, "b")
        simulation.run()
        found.add("".join(steps))

    simulate(scenario, seeds=100)
    assert found == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}


@seeds(30)
def test_calls_have_their_order(simulation: Simulation) -> None:
    """Who asks after another one has asked stands behind it, whatever messages do."""
    asked: list[str] = []

    def hold() -> None:
        with locks.transaction() as tx:
            tx.write_lock(("a",))
            for name in "bcde":
                asked.append(name)
                while asked:
                    simulation.sleep()
            assert [waiting.client for waiting in locks.queue(("a",)).waiting] == list("bcde")

    def ask(name: str) -> None:
        while asked != [name]:
            simulation.sleep()
        agent = locks.original.spawn_agent()
        locks.original.lock_nowait(agent, ("a",))
        asked.clear()
        locks.original.await_all_locks(agent)

    simulation.client(hold)
    for name in "edcb":
        simulation.client(ask, name, name=name)
    simulation.run(leaks=True)


@seeds(50)
def test_transfers(simulation: Simulation) -> None:
    """With `run_transaction` no money is lost, under no schedule; audits see all of it."""
    bank = Bank(simulation)
    for n in range(4):
        simulation.client(bank.transfer, n, (n + 1) % 4)
    audits = [simulation.client(bank.audit) for _ in range(2)]
    simulation.run()
    assert bank.total == 400
    assert [audit.value for audit in audits] == [400, 400]


# --- What is wrong with an application is found -------------------------------------------------


def test_lost_update_is_found() -> None:
    """A balance that was read under a lock that was surrendered since; with abort it is right."""

    def scenario(on_deadlock: Any) -> Scenario:
        def run(simulation: Simulation) -> None:
            bank = Bank(simulation, 3)

            def transfer(source: int, target: int) -> None:
                while True:
                    try:
                        with locks.transaction(on_deadlock=on_deadlock) as tx:
                            bank.move(tx, source, target)
                            return
                    except locks.DeadlockAborted:
                        continue

            for pair in ((0, 1), (1, 0), (1, 2)):
                simulation.client(transfer, *pair)
            simulation.run()
            assert bank.total == 300

        return run

    assert failing_seeds(scenario("surrender"), 50, AssertionError)
    simulate(scenario("abort"), seeds=50)


def test_stuck_clients_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a deadlock were not resolved, here of a `Lock` within a transaction, it says who waits."""
    monkeypatch.setattr(client_agent, "hold_up_others", lambda *args: None)

    def scenario(simulation: Simulation) -> None:
        log = locks.Lock(("log",))

        def pay() -> None:
            with locks.transaction() as tx:
                tx.write_lock(("bank", "ann"))
                with log:
                    pass

        def report() -> None:
            with log, locks.transaction() as tx:
                tx.read_lock(("bank",))

        simulation.client(pay, name="pay")
        simulation.client(report, name="report")
        simulation.run()

    found = failing_seeds(scenario, 50, Violation)
    with pytest.raises(Violation, match=r"^stuck: pay, report") as caught:
        simulate(scenario, seeds=found)
    lines = sorted(str(caught.value).splitlines())
    assert "pay (agent" in lines[0]
    assert "waits for write log" in lines[0]
    assert "pay waits at test_testing.py:" in lines[1]
    assert "report (agent" in lines[2]
    assert "waits for read bank" in lines[2]


def test_end_without_end_is_found(simulation: Simulation) -> None:
    """Clients that go round in circles are stopped."""

    def spin() -> None:
        while True:
            simulation.sleep(1)

    simulation.client(spin)
    with pytest.raises(Violation, match="no end after 50 events"):
        simulation.run(limit=50)


def test_leak_is_found(simulation: Simulation) -> None:
    """Nothing may be left in the lock table when all have ended."""

    def leak() -> None:
        nobody = locks.values.AgentId(1, "node@localhost", 1000)
        server = default_node().server
        server.machine.handle(Request(nobody, "nobody", ("a",), "write"))

    simulation.client(leak)
    with pytest.raises(Violation, match="left in node@localhost"):
        simulation.run()


def test_violation_is_not_swallowed(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with the locks fails the run, even if an application catches the error."""

    def wrong(host: object, server: object) -> None:
        raise Violation("wrong")

    def catch() -> None:
        try:
            with locks.transaction() as tx:
                tx.write_lock(("a",), timeout=0)
        except Exception:
            pass

    monkeypatch.setattr(nodes, "check_told", wrong)
    simulation.client(catch)
    with pytest.raises(Violation, match="wrong"):
        simulation.run()


def test_failure_says_its_seed(caplog: pytest.LogCaptureFixture) -> None:
    """What a client raises comes out as it is, with its seed and its trace; others are killed."""
    ended: list[BaseException] = []

    def scenario(simulation: Simulation) -> None:
        def wait() -> None:
            try:
                with locks.transaction() as tx:
                    tx.write_lock(("a",))
                    simulation.sleep(10)
            except BaseException as error:
                ended.append(error)
                raise

        def fail() -> None:
            simulation.sleep(5)
            raise ZeroDivisionError("seventeen")

        simulation.client(wait, name="waiting")
        simulation.client(fail, name="failing")
        simulation.run()

    with pytest.raises(ZeroDivisionError, match="seventeen") as caught:
        simulate(scenario, seeds=[17, 18], shrink=False)
    told = "".join(getattr(caught.value, "__notes__", [])) or caplog.text
    assert "seed=17" in told
    assert "waiting asks for write a" in told
    assert "failing raises ZeroDivisionError" in told
    assert [type(error) for error in ended] == [greenlet.GreenletExit]


# --- Time ---------------------------------------------------------------------------------------


@seeds(10)
def test_timeout_in_virtual_time(simulation: Simulation) -> None:
    """A wait of an hour ends after an hour of the virtual clock; by the real one nobody waits."""

    def hold() -> None:
        with locks.transaction() as tx:
            tx.write_lock(("a",))
            simulation.sleep(7200)

    def late() -> float:
        simulation.sleep(60)
        asked = simulation.time
        with locks.transaction(timeout=3600) as tx, pytest.raises(locks.LockTimeout) as caught:
            tx.write_lock(("a",))
        assert [holder.client for holder in caught.value.holders] == ["hold-1"]
        return simulation.time - asked

    simulation.client(hold)
    client = simulation.client(late)
    simulation.run()
    assert 3600 <= client.value < 3601
    assert 7200 <= simulation.time < 7201


# --- Deaths -------------------------------------------------------------------------------------


@seeds(20)
def test_kill(simulation: Simulation) -> None:
    """A client that is killed leaves its blocks, where it waits; its locks become free."""
    left: list[str] = []

    def hold() -> None:
        try:
            with locks.transaction() as tx:
                tx.write_lock(("a",))
                simulation.sleep(1000)
        finally:
            left.append("hold")

    def wait() -> None:
        simulation.sleep(1)
        try:
            locks.original.lock(locks.original.spawn_agent(), ("a",))
        finally:
            left.append("wait")

    def last() -> float:
        simulation.sleep(10)
        with locks.Lock(("a",)):
            return simulation.time

    def kill() -> None:
        simulation.sleep(100)
        simulation.kill(waiting)
        simulation.sleep(100)
        simulation.kill(holding)
        simulation.kill(waiting)  # once more changes nothing
        simulation.kill(simulation.client(left.append, "never"))

    holding, waiting = simulation.client(hold), simulation.client(wait)
    client = simulation.client(last)
    simulation.client(kill)
    simulation.run()
    assert left == ["wait", "hold"]
    assert 200 < client.value < 201
    assert [each.killed for each in (holding, waiting, client)] == [True, True, False]


def test_deaths() -> None:
    """Clients die wherever they are, at most as many as may; the others do what they want."""
    killed: list[int] = []
    where: set[str] = set()

    def scenario(simulation: Simulation) -> None:
        done: list[str] = []

        def work(name: str) -> None:
            at = "before"
            try:
                with locks.RWLock(("a",)).read_lock():
                    at = "reading"
                    simulation.sleep()
                with locks.transaction() as tx:
                    tx.write_lock(("a",))
                    at = "writing"
                    simulation.sleep()
                done.append(name)
            except greenlet.GreenletExit:
                where.add(at)
                raise

        clients = [simulation.client(work, name, name=name) for name in "bcdef"]
        simulation.run(deaths=2)
        dead = [client.name for client in clients if client.killed]
        assert set("bcdef") - set(done) <= set(dead)
        killed.append(len(dead))

    simulate(scenario, seeds=100)
    assert set(killed) == {0, 1, 2}
    assert where == {"before", "reading", "writing"}


# --- The whole API ------------------------------------------------------------------------------


@seeds(10)
def test_notified(simulation: Simulation) -> None:
    """Watchers are told each view, and clients what happens to their transaction, in order."""
    views: list[int] = []
    notes: list[str] = []

    def work() -> None:
        locks.watch(("a",), watcher=lambda view: views.append(len(view.holders)))
        agent = locks.original.spawn_agent(notify=lambda note: notes.append(note.kind))
        locks.original.lock(agent, ("a", 1))
        locks.original.end_transaction(agent)
        simulation.sleep(1)
        assert len(locks.original.watchers(("a",))) == 1

    simulation.client(work)
    simulation.run()
    assert views == [0, 1, 0]
    assert notes[-1] == "have_all_locks"
    assert "lock_info" in notes


# --- Alone --------------------------------------------------------------------------------------


def test_real_node_is_left_alone() -> None:
    """A simulation neither sees nor touches what is locked on the real node, which is back then."""
    with locks.transaction() as tx:
        tx.write_lock(("bank",))
        before = locks.queue(("bank",))
        made = Simulation(3)
        assert ring(made).total == 400
        assert locks.queue(("bank",)) == before
        assert locks.statistics().transactions == 1
    with locks.transaction() as tx:
        tx.write_lock(("bank",), timeout=0)


def nested(simulation: Simulation) -> None:
    """A simulation within another one."""
    inner = Simulation()
    inner.client(print)
    inner.run()


def transaction_of_a_thread(simulation: Simulation) -> None:
    """A thread that a client starts, and that uses `locks`."""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            with locks.transaction():
                pass
        except locks.MisuseError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise caught[0]


@pytest.mark.parametrize(
    ("misuse", "complaint"),
    [
        (nested, "simulation runs already"),
        (lambda simulation: simulation.run(), "has run already"),
        (lambda simulation: locks.stop(), "can't be stopped"),
        (lambda simulation: simulation.client("transfer"), "is not a function"),
        (
            lambda simulation: locks.original.spawn_agent(client=threading.main_thread()),
            "can't have a tr",
        ),
        (transaction_of_a_thread, "is no client of the simulation"),
    ],
)
def test_misuse_within(simulation: Simulation, misuse: Scenario, complaint: str) -> None:
    """What can't be done within a simulation is refused; the simulation goes on."""

    def client() -> None:
        with pytest.raises(locks.MisuseError, match=complaint):
            misuse(simulation)
        with locks.transaction() as tx:
            tx.write_lock(("a",))

    simulation.client(client)
    simulation.run()
    assert any("client-1 asks for write a" in line for line in simulation.trace)


@pytest.mark.parametrize(
    ("misuse", "complaint"),
    [
        (lambda made: made.run(), "nothing to run"),
        (lambda made: made.sleep(1), "only a client"),
        (lambda made: (made.client(print), made.run(deaths=-1)), "deaths=-1 is not a number >= 0"),
        (lambda made: (made.client(print), made.run(limit="x")), "limit='x' is not a number"),
        (lambda made: (made.client(int), made.run(), made.run()), "has run already"),
        (lambda made: (made.client(int), made.run(), made.client(int)), "can't have another"),
        (lambda made: simulate(lambda each: each.client(print)), "was not run"),
        (lambda made: simulate(lambda each: None), "was given no client"),
        (lambda made: simulate(lambda each: None, []), "there are no seeds"),
        (lambda made: simulate(print, expect="deadlock"), "expect='deadlock' is not known"),
        (lambda made: simulate(print, expect=["luck"]), "expect=.'luck'. is not known"),
        (lambda made: simulate(print, strategy="luck"), "strategy='luck' is unknown"),  # type: ignore[arg-type]
        (lambda made: Simulation("x"), "seed='x' is not a whole number"),  # type: ignore[arg-type]
        (lambda made: Simulation(schedule="1*x"), "is no schedule"),
        (lambda made: Simulation(schedule="without 1"), "is no schedule"),
        (
            lambda made: (made.client(print), made.run(watchdog=0)),
            "watchdog=0 is not a number of sec",
        ),
    ],
)
def test_misuse_outside(misuse: Callable[[Simulation], object], complaint: str) -> None:
    """What makes no sense is refused, and says why."""
    with pytest.raises(locks.MisuseError, match=complaint):
        misuse(Simulation())


TESTS = """
import locks
from locks.testing import seeds

def use():
    with locks.Lock(("a",)):
        pass

@seeds([3, 5])
def test_seeds(simulation):
    simulation.client(use)
    simulation.run()
    assert simulation.seed == 3

def test_forgotten(simulation):
    simulation.client(use)
"""


@pytest.mark.slow
def test_fixture(tmp_path: pathlib.Path) -> None:
    """A failing test has its seed in its name, and shows the trace; one that runs nothing fails."""
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["locks.testing"]\n'
    )  # as was needed once
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_program(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:cacheprovider",
            "-rfEp",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    out = done.stdout
    assert "PASSED test_it.py::test_seeds[3]" in out
    assert "FAILED test_it.py::test_seeds[5]" in out
    assert "in a simulation with seed=5" in out
    assert "use-1 asks for write a" in out
    assert "was given clients, but was not run" in out
    assert "1 failed, 2 passed, 1 error" in out
    assert "Warning" not in out


def test_pytest_is_not_needed() -> None:
    """Without pytest all works but the fixture; `import locks` imports none of it."""
    program = """
        import sys
        sys.modules["pytest"] = None
        import locks
        assert "locks.testing" not in sys.modules
        from locks import testing
        simulation = testing.Simulation()
        client = simulation.client(lambda: locks.Lock(("a",)).acquire())
        simulation.run(leaks=True)
        assert client.value is True
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, check=True)


# --- `locks.testing`: nothing passes without being tested, and what hangs says where. ---


A, B = ("a",), ("b",)


def transfers(simulation: Simulation) -> None:
    """Two transactions that lock in opposite order."""

    def transfer(*ids: tuple[str]) -> None:
        def move(tx: locks.Transaction) -> None:
            for lock_id in ids:
                tx.write_lock(lock_id)

        locks.run_transaction(move)

    simulation.client(transfer, A, B)
    simulation.client(transfer, B, A)
    simulation.run()


def alone(simulation: Simulation) -> None:
    """A client that has nobody to wait for."""
    simulation.client(lambda: locks.Lock(A).acquire())
    simulation.run(leaks=True)


# --- Nothing passes silently ------------------------------------------------------------------------


def test_summary_says_what_has_happened() -> None:
    """A summary counts schedules, deadlocks, aborts and waits, and says so where nobody waited."""
    summary = simulate(transfers, 50)
    assert summary.schedules == 50
    assert summary.deadlocks == summary.aborts > 5
    assert summary.waits >= summary.deadlocks
    assert str(summary).startswith("50 schedules, ")
    assert str(simulate(alone, 2)) == "2 schedules, nobody ever waited"
    assert str(Summary(1, 1)) == "1 schedule, 1 deadlock"


def test_expectations_are_checked() -> None:
    """A test that is to have deadlocks fails if there are none."""
    simulate(transfers, 50, expect=("deadlock", "abort"))
    with pytest.raises(NothingHappened, match="no deadlock and no abort has happened: 5 schedules"):
        simulate(alone, 5, expect=("deadlock", "abort"))


async def coroutine() -> None:
    """One that somebody has to await."""
    raise ZeroDivisionError


class Callable_:
    async def __call__(self) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), Callable_()],
    ids=["plain", "partial", "object"],
)
def test_async_functions_are_awaited(function: Callable[[], Any]) -> None:
    """However an `async def` function is given, it is run as a task."""

    def scenario(simulation: Simulation) -> None:
        simulation.client(function)
        simulation.run()

    with pytest.raises(ZeroDivisionError):
        simulate(scenario, 1)


def test_coroutine_that_nobody_awaits_is_refused() -> None:
    """A function that makes a coroutine and does not await it has done nothing; it is named."""

    def scenario(simulation: Simulation) -> None:
        simulation.client(lambda: coroutine(), name="idle")
        simulation.run()

    with pytest.raises(locks.MisuseError, match="client idle has made a coroutine that nobody awa"):
        simulate(scenario, 1)


def test_error_in_a_thread_fails_the_run() -> None:
    """What a thread within a client raises, its refusal by the simulation above all, is seen."""

    def scenario(simulation: Simulation) -> None:
        def client() -> None:
            thread = threading.Thread(target=locks.Lock(A).acquire)
            thread.start()
            thread.join()

        simulation.client(client)
        simulation.run()

    hook = threading.excepthook
    with pytest.raises(locks.MisuseError, match="is no client of the simulation"):
        simulate(scenario, 1)
    assert threading.excepthook is hook


# --- What is not simulated is refused by its name ---------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Election("x", nodes=["a@b", "c@d", "e@f"]).run(print), "[Ee]lection.run"),
        (lambda: locks_leader.start(Behaviour, name="x"), "start"),
        (lambda: locks.program.default.default_node().connect("a@localhost:1"), "connect"),
    ],
)
def test_what_is_not_simulated_is_refused_by_its_name(call: Callable[[], Any], name: str) -> None:
    """At once, and with words that say what it was; the simulation goes on."""

    def scenario(simulation: Simulation) -> None:
        def client() -> None:
            with pytest.raises(locks.MisuseError, match=rf"^locks.*{name} is not simulated"):
                call()

        simulation.client(client)
        simulation.run()

    simulate(scenario, 1)


# --- Virtual time, and what hangs -------------------------------------------------------------------


@pytest.mark.parametrize(
    "hang",
    [threading.Lock().acquire, queue.Queue[int]().get, gevent.event.Event().wait],
    ids=["lock", "queue", "gevent"],
)
def test_what_hangs_says_where(hang: Callable[[], object]) -> None:
    """After a while of real time without an event, the run ends; it names each client's line."""

    def scenario(simulation: Simulation) -> None:
        def wait() -> None:
            with locks.transaction() as tx:
                tx.write_lock(A)
                simulation.sleep(1)

        def stand() -> None:
            hang()
            hang()  # the one that nobody ends

        simulation.client(wait, name="waits")
        simulation.client(stand, name="stands")
        gevent.get_hub()  # one that is made by the client raises `LoopExit` there at once
        simulation.run(watchdog=0.1)

    with pytest.raises(Violation) as caught:
        simulate(scenario, [1])
    text = str(caught.value)
    assert text.startswith("stands has not come back for 0.1 s of real time")
    assert "test_testing.py:" in text
    assert "in stand." in text
    assert "waits waits at test_testing.py:" in text or "waits has not begun" in text


def test_slow_client_is_left_alone() -> None:
    """One that comes back now and then is not taken for one that hangs, whatever the patience."""

    def scenario(simulation: Simulation) -> None:
        def work() -> None:
            for _ in range(20):
                threading.Event().wait(0.01)
                locks.holders(A)

        simulation.client(work)
        simulation.run(watchdog=60)

    simulate(scenario, 1)
