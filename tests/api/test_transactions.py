"""What programs use most: transactions in `with` blocks, `run_transaction`, `Lock` and `RWLock`."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import locks
from locks.model import SERIAL_BITS
from tests.api.clients import Client, Run
from tests.helpers import eventually

A, B, C = ("a",), ("b",), ("c",)


class Held:
    """A client that holds some locks in a `with` block until it is let go."""

    def __init__(self, client: Client, *write: tuple[Any, ...], read: tuple[Any, ...] = ()) -> None:
        self.client = client
        self.tx = locks.transaction()
        client.call(self.tx.__enter__)
        client.call(lambda: self.tx.lock_all(write, read))
        client.agent = self.tx.agent

    def leave(self) -> None:
        self.client.call(self.tx.__exit__, None, None, None)


# --- The block ----------------------------------------------------------------------------------


@pytest.mark.every_kind
def test_block_holds_and_releases(run: Run) -> None:
    """A transaction begins with its block, holds what it locked, and releases it at the end."""

    def work() -> None:
        with locks.transaction() as tx:
            token = tx.write_lock(A)
            assert tx.token(A) == token == locks.original.fencing_token(tx.agent, A)
            tx.read_lock(["b", 1])
            assert [c.mode for c in locks.holders(A)] == ["write"]
            assert [c.mode for c in locks.holders(B)] == ["read"]
            assert tx.deadlocks == ()
            assert tx.agent.is_alive()
        assert not tx.agent.is_alive()
        assert locks.queue(A).requests == ()

    run.client().call(work)


@pytest.mark.every_kind
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, locks.LockTimeout])
def test_exception_in_the_body_goes_on(run: Run, error: type[BaseException]) -> None:
    """An exception of the block releases everything and goes on unchanged."""
    raised = error("of the body")

    def fail() -> None:
        with locks.transaction() as tx:
            tx.lock(A)
            raise raised

    def work() -> None:
        with pytest.raises(error) as caught:
            fail()
        assert caught.value is raised
        assert locks.queue(A).requests == ()

    run.client().call(work)


def test_only_within_its_block(run: Run) -> None:
    """A transaction is of no use before its block, after it, and for a second one."""

    def work() -> None:
        tx = locks.transaction()
        with pytest.raises(locks.MisuseError, match="with statement"):
            tx.lock(A)
        with tx:
            with pytest.raises(locks.MisuseError, match="can't enter a transaction twice"), tx:
                pass
            tx.lock(A)
        with pytest.raises(locks.TransactionEnded, match="begin a new one"):
            tx.lock(A)
        with pytest.raises(locks.TransactionEnded):
            tx.unlock(A)
        with pytest.raises(locks.TransactionEnded):
            tx.token(A)
        with pytest.raises(locks.MisuseError, match="create a new one"), tx:
            pass

    run.client().call(work)


def test_nested_transaction_wants_what_the_outer_one_holds(run: Run) -> None:
    """A client that would wait for itself is told so, and the request is taken back."""

    def wait_for_itself() -> None:
        with locks.transaction() as outer:
            outer.lock(A)
            outer.read_lock(B)
            with locks.transaction() as inner:
                inner.lock(C)
                for wanted in (A, ("a", 1)):
                    with pytest.raises(
                        locks.errors.WaitsForItself, match="in another transaction"
                    ) as it:
                        inner.read_lock(wanted)
                    assert it.value.holder == outer.agent.id
                with pytest.raises(locks.errors.WaitsForItself):
                    inner.lock_all([("d",), B])
                inner.read_lock(B)  # nothing against reading twice
                assert {info.lock_id for info in locks.original.lock_info(inner.agent)} == {B, C}
                with pytest.raises(locks.errors.WaitsForItself):
                    locks.Lock(A).acquire()
            assert not locks.queue(A).waiting
        assert locks.statistics().agents == 0

    run.client().call(wait_for_itself)


# --- Locking several, unlocking, time limits --------------------------------------------------------


@pytest.mark.every_kind
def test_lock_all_or_nothing(run: Run) -> None:
    """When time runs out for one of several ids, none of them is locked or asked for any more."""
    held = Held(run.client(), B)

    def work() -> None:
        with locks.transaction() as tx:
            tx.lock(("before",))
            with pytest.raises(
                locks.LockTimeout, match=r"0\.01 s waiting for write b, held by"
            ) as caught:
                tx.lock_all(write=[A, B], read=[C, ("before",)], timeout=0.01)
            assert caught.value.lock_ids == (B,)
            assert [c.agent for c in caught.value.holders] == [held.tx.agent.id]
            assert [info.lock_id for info in locks.original.lock_info(tx.agent)] == [("before",)]
            assert not locks.queue(A).requests
            assert not locks.queue(C).requests
            assert len(locks.queue(B).requests) == 1
            tx.lock_all(write=[A], read=[C])
            assert tx.token(A) != tx.token(C)

    run.client().call(work)
    held.leave()


def test_lock_all_waits_for_all(run: Run) -> None:
    """Several ids are asked for at once; the call returns when the last one is granted."""
    first, second = Held(run.client(), A), Held(run.client(), B)
    client = run.client()

    def work() -> int:
        with locks.transaction(timeout=30) as tx:
            tx.lock_all([A, B, C])
            return len(locks.holders(A) + locks.holders(B) + locks.holders(C))

    answer = client.do(work)
    eventually(lambda: locks.queue(A).waiting and locks.queue(B).waiting)
    assert locks.holders(C)
    second.leave()
    eventually(lambda: not locks.queue(B).waiting)
    assert not answer.ready
    first.leave()
    assert answer.get() == 3


def test_time_limit_of_the_transaction(run: Run) -> None:
    """The limit of a transaction holds for each of its waits; that of a call comes first."""
    held = Held(run.client(), A)

    def work() -> None:
        with locks.transaction(timeout=0) as tx:
            with pytest.raises(locks.LockTimeout, match="without waiting"):
                tx.lock(A)
            with pytest.raises(locks.LockTimeout, match="without waiting"):
                tx.lock_all([A])
            with pytest.raises(locks.LockTimeout, match=r"after 0\.021 s"):
                tx.lock(A, timeout=0.0212345)
            with pytest.raises(TimeoutError):  # Python's own
                tx.read_lock(A)
            tx.lock(B)  # the transaction goes on

    run.client().call(work)
    held.leave()


def test_unlock(run: Run) -> None:
    """A lock that is released within the block goes to the next one; the others stay."""
    held = Held(run.client(), A, B)
    client = run.client()
    answer = client.do(_lock_and_end, A)
    eventually(lambda: locks.queue(A).waiting)
    held.client.call(held.tx.unlock, A)
    answer.get()
    assert locks.holders(B)
    with pytest.raises(locks.errors.NotHeld, match="has neither locked nor requested a"):
        held.client.call(held.tx.unlock, A)
    held.client.call(held.tx.lock, A)
    held.leave()


def _lock_and_end(*write: tuple[Any, ...]) -> int:
    with locks.transaction() as tx:
        tx.lock_all(write)
        return tx.token(write[0])


def test_tokens_rise_from_holder_to_holder(run: Run) -> None:
    """Each holder of a lock has a larger fencing token than all before it; so has an upgrade."""
    clients = [run.client() for _ in range(3)]
    tokens = [client.call(_lock_and_end, A) for _ in range(3) for client in clients]
    assert tokens == sorted(set(tokens))

    def upgrade() -> None:
        with locks.transaction() as tx:
            read = tx.read_lock(A)
            assert tx.write_lock(A) > read > tokens[-1]

    clients[0].call(upgrade)


# --- Deadlocks ----------------------------------------------------------------------------------


def cross(run: Run, older: Client, younger: Client, **options: Any) -> tuple[Any, Any]:
    """Two transactions in a deadlock; return what came of each: a result or an error."""
    transactions = [locks.transaction(**options) for _ in range(2)]
    for client, tx, lock_id in zip((older, younger), transactions, (A, B), strict=True):
        client.call(tx.__enter__)
        client.call(tx.lock, lock_id)
        client.agent = tx.agent

    def lock_and_leave(tx: locks.Transaction, lock_id: tuple[Any, ...]) -> Any:
        try:
            tx.lock(lock_id)
        except locks.DeadlockAborted as error:
            tx.__exit__(type(error), error, None)
            return error
        deadlocks = tx.deadlocks
        tx.__exit__(None, None, None)
        return deadlocks

    answer = older.do(lock_and_leave, transactions[0], B)
    run.until_waiting(older, B)
    other = younger.do(lock_and_leave, transactions[1], A)
    return answer.get(), other.get()


@pytest.mark.every_kind
def test_deadlock_aborts_the_younger(run: Run) -> None:
    """In a deadlock the younger transaction is aborted, by default; its error has the report."""
    older, younger = run.client("older"), run.client("younger")
    deadlocks, error = cross(run, older, younger)
    assert isinstance(error, locks.DeadlockAborted)
    report = error.deadlock
    assert deadlocks == (report,)
    assert (report.agent, report.action, report.lock_id) == (younger.agent.id, "aborted", B)
    assert report.agents == (older.agent.id, younger.agent.id)
    assert [str(edge.waiter.agent) in str(report) for edge in report.cycle] == [True, True]
    assert "waits for write b" in str(report)
    assert "waits for write a" in str(error)
    assert "youngest" in report.rule
    assert locks.statistics().aborted == 1
    assert locks.statistics().deadlocks == 1


def test_deadlock_aborted_survives_pickle(run: Run) -> None:
    """The error of an aborted transaction travels between processes with its report."""
    _, error = cross(run, run.client(), run.client())
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is locks.DeadlockAborted
    assert str(copy) == str(error)
    assert copy.deadlock == error.deadlock
    assert [type(edge) for edge in copy.deadlock.cycle] == [locks.values.Edge, locks.values.Edge]


@pytest.mark.every_kind
def test_deadlock_with_surrender(run: Run) -> None:
    """With `on_deadlock="surrender"` both go on, and both are told of it."""
    older, younger = run.client(), run.client()
    deadlocks, others = cross(run, older, younger, on_deadlock="surrender")
    assert deadlocks == others
    assert [(d.agent, d.action) for d in deadlocks] == [(younger.agent.id, "surrendered")]


def test_body_that_hides_the_abort(run: Run) -> None:
    """A block that catches `DeadlockAborted` and goes on as if nothing were gets it at its end."""
    older, younger = run.client(), run.client()
    held = Held(older, A)
    step: list[int] = []

    def work() -> None:
        with locks.transaction() as tx:
            tx.lock(B)
            step.append(1)
            with pytest.raises(locks.DeadlockAborted):
                tx.lock(A)
            with pytest.raises(locks.DeadlockAborted):
                tx.lock(C)
            step.append(2)

    answer = younger.do(work)
    eventually(lambda: locks.queue(A).waiting)
    older.call(held.tx.lock, B)
    with pytest.raises(locks.DeadlockAborted):
        answer.get()
    assert step == [1, 2]
    held.leave()


# --- run_transaction --------------------------------------------------------------------------------


def test_run_transaction_returns_the_value(run: Run) -> None:
    """What the function returns is returned, and its exceptions go on; it is run once."""
    client = run.client()
    calls = []

    def work(tx: locks.Transaction) -> int:
        calls.append(tx)
        return tx.lock(A)

    assert client.call(locks.run_transaction, work) > 0
    with pytest.raises(ZeroDivisionError):
        client.call(locks.run_transaction, lambda tx: 1 // 0)
    assert len(calls) == 1
    assert not calls[0].agent.is_alive()


@pytest.mark.every_kind
def test_run_transaction_runs_again(run: Run) -> None:
    """An aborted function is run again in a new transaction of the same age."""
    older, younger = run.client(), run.client()
    held = Held(older, A)
    tries: list[locks.values.AgentId] = []

    def work(tx: locks.Transaction) -> str:
        tries.append(tx.agent.id)
        tx.lock(B)
        tx.lock(A)
        return "done"

    answer = younger.do(locks.run_transaction, work)
    eventually(lambda: locks.queue(A).waiting)
    older.call(held.tx.lock, B)
    held.leave()
    assert answer.get() == "done"
    assert len(tries) == 2
    assert tries[0].created >> SERIAL_BITS == tries[1].created >> SERIAL_BITS
    assert tries[0] < tries[1]


@pytest.mark.parametrize("retries", [0, 2])
def test_run_transaction_gives_up(run: Run, retries: int) -> None:
    """After so many retries the error goes to the caller."""
    client, rival = run.client(), run.client()
    tries = []

    def work(tx: locks.Transaction) -> None:
        tries.append(tx)
        raise locks.DeadlockAborted("as if", deadlock=_report(tx))

    with pytest.raises(locks.DeadlockAborted, match="as if"):
        client.call(locks.run_transaction, work, retries=retries)
    assert len(tries) == retries + 1
    assert rival.call(locks.statistics).agents == 0


def _report(tx: locks.Transaction) -> locks.values.Deadlock:
    agent = tx.agent
    return locks.values.Deadlock(agent.id, A, agent.node.name, "aborted", (), "for a test")


def test_run_transaction_within_another(run: Run) -> None:
    """An inner transaction does not run again because an outer one was aborted: that one must."""
    older, younger = run.client(), run.client()
    held = Held(older, A)
    tries: list[str] = []

    def inner(tx: locks.Transaction, outer: locks.Transaction) -> None:
        tries.append("inner")
        tx.lock(C)
        outer.lock(A)

    def outer(tx: locks.Transaction) -> str:
        tries.append("outer")
        tx.lock(B)
        locks.run_transaction(lambda own: inner(own, tx))
        return "done"

    answer = younger.do(locks.run_transaction, outer)
    eventually(lambda: locks.queue(A).waiting)
    older.call(held.tx.lock, B)
    held.leave()
    assert answer.get() == "done"
    assert tries == ["outer", "inner"] * 2


# --- Lock and RWLock --------------------------------------------------------------------------------


def test_lock_like_threading_lock(run: Run) -> None:
    """A `Lock` is acquired and released; all `Lock`s of an id are the same lock."""
    lock, same = locks.Lock(A), locks.Lock(["a"])

    def work() -> None:
        assert not lock.locked()
        assert not lock.owned()
        assert lock.acquire() is True
        assert lock.locked()
        assert same.owned()
        assert same.locked()
        assert lock.token() == same.token()
        same.release()
        assert not lock.locked()
        assert not lock.owned()
        assert locks.statistics().agents == 0

    run.client().call(work)
    assert repr(lock) == "<Lock write a>"


@pytest.mark.every_kind
def test_lock_blocking_and_timeout(run: Run) -> None:
    """`blocking` and `timeout` mean what they mean for a `threading.Lock`."""
    lock = locks.Lock(A)
    one, two = run.client(), run.client()
    assert one.call(lock.acquire, False) is True

    def work() -> None:
        assert lock.acquire(False) is False
        assert lock.acquire(blocking=False) is False
        assert lock.acquire(timeout=0) is False
        assert lock.acquire(timeout=0.01) is False
        assert lock.acquire(True, 0.01) is False
        for bad in ({"blocking": False, "timeout": 1}, {"timeout": -2}, {"timeout": "1"}):
            with pytest.raises(locks.errors.InvalidOption, match="timeout"):
                lock.acquire(**bad)
        assert len(locks.queue(A).requests) == 1
        assert locks.statistics().agents == 1

    two.call(work)
    one.call(lock.release)
    assert two.call(lock.acquire, timeout=-1) is True
    two.call(lock.release)
    assert two.call(lock.acquire, timeout=None) is True
    two.call(lock.release)
    assert two.call(lock.acquire, timeout=1e12) is True
    two.call(lock.release)


def test_lock_is_not_reentrant(run: Run) -> None:
    """Acquiring a lock twice is an error instead of a wait for ever; with a limit it is a wait in vain. Nothing changes."""
    lock = locks.Lock(A)
    limited = locks.Lock(A, timeout=0.01)

    def work() -> None:
        with lock:
            with pytest.raises(locks.MisuseError, match="not re-entrant"):
                lock.acquire()
            with pytest.raises(locks.MisuseError, match="a: the caller already holds it"):
                lock.acquire(timeout=None)
            with pytest.raises(locks.MisuseError, match="not re-entrant"), limited:
                raise AssertionError("a block is not entered again, with a limit either")
            with pytest.raises(locks.MisuseError, match="not re-entrant"):
                locks.Lock(A, "read").acquire()
            assert lock.acquire(timeout=0.01) is False
            assert lock.acquire(timeout=0) is False
            assert limited.acquire() is False
            assert lock.acquire(blocking=False) is False
            assert lock.owned()
        assert not lock.locked()

    run.client().call(work)


def test_release_of_what_is_not_held_is_a_runtime_error(run: Run) -> None:
    """As that of a `threading.Lock` is: programs that catch that one go on."""
    with pytest.raises(RuntimeError, match="does not hold it") as caught:
        run.client().call(locks.Lock(A).release)
    assert type(caught.value) is locks.errors.NotHeld


def test_lock_is_released_by_its_owner_only(run: Run) -> None:
    """A lock that the caller doesn't hold can't be released."""
    lock = locks.Lock(A)
    one, two = run.client(), run.client()
    with pytest.raises(locks.errors.NotHeld, match="can't release a: the caller does not hold it"):
        one.call(lock.release)
    one.call(lock.acquire)
    with pytest.raises(locks.errors.NotHeld, match="can't release a: the caller does not hold it"):
        two.call(lock.release)
    with pytest.raises(locks.errors.NotHeld):
        two.call(lock.token)
    assert one.call(lock.owned)
    one.call(lock.release)
    with pytest.raises(locks.errors.NotHeld):
        one.call(lock.release)


def test_deadlock_goes_through_with_blocks(run: Run) -> None:
    """`DeadlockAborted` comes out of nested `with` blocks of `Lock`s as it is."""
    a, b = locks.Lock(A), locks.Lock(B)
    one, two = run.client(), run.client()
    one.call(a.acquire)

    def work() -> None:
        with b, a:
            pass

    answer = two.do(work)
    eventually(lambda: locks.queue(A).waiting)
    one.call(b.acquire)
    with pytest.raises(locks.DeadlockAborted):
        answer.get()
    one.call(a.release)
    one.call(b.release)


def test_block_that_hides_the_loss_of_its_lock(run: Run) -> None:
    """A block that hides `DeadlockAborted` is told `LockLost` where it ends."""
    a, b = locks.Lock(A), locks.Lock(B)
    one, two = run.client(), run.client()
    one.call(a.acquire)

    def work() -> None:
        with (
            pytest.raises(locks.LockLost, match="lost the lock b"),
            b,
            pytest.raises(locks.DeadlockAborted),
        ):
            a.acquire()

    answer = two.do(work)
    eventually(lambda: locks.queue(A).waiting)
    one.call(b.acquire)
    answer.get()
    one.call(a.release)
    one.call(b.release)


def test_rwlock(run: Run) -> None:
    """An `RWLock` has many readers or one writer."""
    lock = locks.RWLock(A)
    one, two, three = run.client(), run.client(), run.client()
    one.call(lock.read_lock().acquire)
    assert two.call(lock.read_lock().acquire, False) is True
    assert three.call(lock.write_lock().acquire, False) is False
    answer = three.do(lock.write_lock().acquire)
    eventually(lambda: locks.queue(A).waiting)
    one.call(lock.read_lock().release)
    two.call(lock.read_lock().release)
    assert answer.get() is True
    assert one.call(lock.read_lock().acquire, timeout=0.01) is False
    three.call(lock.write_lock().release)
    assert repr(lock) == "<RWLock a>"


def test_rwlock_in_with_statements(run: Run) -> None:
    """Its two sides are used in `with` statements; they can't be nested by one client."""
    lock = locks.RWLock(A)

    def work() -> None:
        with lock.read_lock() as reading:
            assert reading.owned()
            with pytest.raises(locks.MisuseError, match="not re-entrant"):
                lock.write_lock().acquire()
        with lock.write_lock():
            assert [c.mode for c in locks.holders(A)] == ["write"]

    run.client().call(work)


# --- What others see of a client ----------------------------------------------------------------


@pytest.mark.parametrize("begin", ["transaction", "run_transaction", "spawn_agent"])
def test_a_label_is_shown_in_the_place_of_the_name(begin: str) -> None:
    """Wherever a client's name is, its label is, if it has one."""
    label = "nightly import"
    if begin == "transaction":
        with locks.transaction(label=label) as tx:
            tx.write_lock(A)
            (holder,) = locks.holders(A)
    elif begin == "run_transaction":

        def held(tx: locks.Transaction) -> locks.values.Contender:
            tx.write_lock(A)
            return locks.holders(A)[0]

        holder = locks.run_transaction(held, label=label)
    else:
        agent = locks.original.spawn_agent(label=label)
        locks.original.lock(agent, A)
        (holder,) = locks.holders(A)
        locks.original.end_transaction(agent)
    assert holder.client == label


@pytest.mark.parametrize("label", ["", 3, "two\nlines", "x" * 201])
def test_a_label_is_a_line_of_text(label: Any) -> None:
    """Others show it."""
    with pytest.raises(locks.errors.InvalidOption, match="label="):
        locks.transaction(label=label)


# --- Running it again ---------------------------------------------------------------------------


def test_what_failed_is_run_again_if_the_program_says_so() -> None:
    """After errors of the kinds that `retry_on` names; others are raised at once, and there is a limit."""
    tries = []

    def lose(tx: locks.Transaction) -> int:
        tries.append(tx.agent.id.created)
        if len(tries) < 3:
            raise locks.LockLost("as if a server was lost")
        return len(tries)

    assert locks.run_transaction(lose, retry_on=locks.errors.OperatingError) == 3
    assert len({created >> 12 for created in tries}) == 1  # it keeps its age
    tries.clear()
    with pytest.raises(locks.LockLost):
        locks.run_transaction(lose, retry_on=(locks.CannotServe,))
    assert len(tries) == 1
    tries.clear()
    with pytest.raises(locks.LockLost):
        locks.run_transaction(lose, retry_on=locks.LockLost, retries=1)
    assert len(tries) == 2
