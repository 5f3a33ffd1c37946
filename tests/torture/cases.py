"""The calls that are disturbed: each a small play of the client under test and others.

A case prepares a stage, makes one call, and says who holds what when the call has returned, and when it has
raised: the acquire that raises holds nothing, and what was held before is still held; a release has happened,
or not; a block that was left has let go.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

import pykka

import locks
from locks.runtime.monitor import current_client
from tests.helpers import eventually
from tests.torture.stage import Held, Stage, name_id

__all__ = ["CASES", "Case"]

A, B = name_id("a"), name_id("b")
NOTHING: Held = {}


def mine(*names: str, mode: str = "write") -> dict[tuple[str, str], str]:
    """The client under test holds these."""
    return {("me", name): mode for name in names}


def theirs(*names: str, mode: str = "write") -> dict[tuple[str, str], str]:
    """The other client holds these."""
    return {("other", name): mode for name in names}


class Case:
    """One call.

    Args:
        prepare: Sets the stage, undisturbed.
        act: The call under test.
        returned: Who holds what when it has returned.
        raised: Likewise when it was disturbed and has raised: one of these.
        expected: The error that it ends with if it is not disturbed.
        finish: What a program does afterwards, before its transactions end.
        check: Looks at what else must be so after the call.
        begin: Positions count from the first instruction of this code on; and there are none where something is
            missing (memory, stack).
        interlude: What another client does at that moment.
        kinds: The kinds of other clients that it is played with.
    """

    def __init__(
        self,
        prepare: Callable[[Stage], object],
        act: Callable[[Stage], object],
        returned: Held,
        *raised: Held,
        expected: type[Exception] | None = None,
        finish: Callable[[Stage], object] = lambda stage: None,
        check: Callable[[Stage], object] = lambda stage: None,
        begin: Callable[[CodeType], bool] | None = None,
        interlude: Callable[[Stage], object] | None = None,
        kinds: tuple[str, ...] = ("threads",),
    ) -> None:
        self.prepare = prepare
        self.act = act
        self.returned = returned
        self.raised = raised
        self.expected = expected
        self.finish = finish
        self.check = check
        self.begin = begin
        self.interlude = interlude
        self.kinds = kinds


BOTH = ("threads", "greenlets")


# --- Beginning ----------------------------------------------------------------------------------


def _spawn(stage: Stage) -> None:
    stage.begun = locks.original.spawn_agent()


def _begin_with_one(stage: Stage) -> None:
    stage.begun = locks.original.begin_transaction([(A, "write")])[0]


def _begin_with(stage: Stage) -> None:
    stage.begun = locks.original.begin_transaction([(A, "write"), (B, "read")])[0]


def _block(stage: Stage) -> None:
    with locks.transaction():
        pass


def _locking_block(stage: Stage) -> None:
    with locks.transaction() as tx:
        tx.lock(A)


def _block_beside(stage: Stage) -> None:
    with locks.transaction() as tx:
        tx.lock(B)


def _block_of_all(stage: Stage) -> None:
    with locks.transaction() as tx:
        tx.lock_all(write=[A], read=[B])


def _nothing(stage: Stage) -> None:
    pass


# --- Waiting ------------------------------------------------------------------------------------


def _busy(stage: Stage) -> None:
    """Another client holds `a` until we wait for it."""
    other = stage.other("a")
    stage.later(lambda: other.agent.end_transaction())
    stage.begin("b")


def _busy_for_locks(stage: Stage) -> None:
    other = stage.other("a")
    stage.later(lambda: other.agent.end_transaction())


def _held(stage: Stage) -> None:
    """Another client holds `a`, and goes on."""
    stage.other("a")
    stage.begin("b")


def _waited_for(stage: Stage) -> None:
    """Another client waits for what we hold."""
    stage.begin("a", "b")
    stage.other()
    stage.waiting("a")


def _two_readers(stage: Stage) -> None:
    stage.begin("a", mode="read")
    other = stage.other("a", mode="read")
    stage.later(lambda: other.agent.end_transaction())


def _victim(stage: Stage) -> None:
    """An older client holds `b`, and waits for our `a`."""
    stage.other("b", abort_on_deadlock=True)
    stage.begin("a", abort_on_deadlock=True)
    stage.waiting("a")


def _survivor(stage: Stage) -> None:
    """A younger client holds `b`, and waits for our `a`."""
    stage.begin("a", abort_on_deadlock=True)
    stage.other("b", abort_on_deadlock=True)
    stage.waiting("a", locks.DeadlockAborted)


def _ask(name: str, mode: str = "write", timeout: float | None = None) -> Callable[[Stage], object]:
    return lambda stage: locks.original.lock(stage.agents[0], name_id(name), mode, timeout=timeout)  # type: ignore[arg-type]


def _lock_all(stage: Stage) -> None:
    wanted = [(name_id(name), "write") for name in "ac"]
    locks.original.lock_objects(stage.agents[0], wanted)
    locks.original.await_all_locks(stage.agents[0])


# --- Lock ---------------------------------------------------------------------------------------


def _a_lock(stage: Stage) -> locks.Lock:
    lock: locks.Lock = stage.keep.setdefault("lock", locks.Lock(A))
    return lock


def _let_go(stage: Stage) -> None:
    """What the `finally` of a program does if it believes that it has the lock."""
    for lock in (_a_lock(stage), locks.Lock(B)):
        if lock.owned():
            lock.release()


def _acquired(stage: Stage) -> None:
    _a_lock(stage).acquire()


def _thick(stage: Stage) -> None:
    """The next locks are not thin, as if some had been inflated just now."""
    stage.node.thin.pause = 100


def _thick_acquired(stage: Stage) -> None:
    _thick(stage)
    _acquired(stage)


def _inflated(stage: Stage) -> None:
    """A thin lock was taken, and somebody has looked."""
    _acquired(stage)
    assert stage.held() == mine("a")


def _look_at_thin(stage: Stage) -> None:
    assert len(locks.holders(A)) == 1
    assert _a_lock(stage).owned()
    assert locks.statistics().agents >= 1


def _entered_transaction(stage: Stage) -> None:
    """A transaction has begun, and is thin."""
    tx = stage.keep["transaction"] = locks.transaction()
    tx.__enter__()


def _transaction_with_a(stage: Stage) -> None:
    _entered_transaction(stage)
    stage.keep["transaction"].lock(A)


def _in_transaction(act: Callable[[locks.Transaction], object]) -> Callable[[Stage], object]:
    return lambda stage: act(stage.keep["transaction"])


def _leave_transaction(tx: locks.Transaction) -> None:
    tx.__exit__(None, None, None)


def _look_at_transaction(tx: locks.Transaction) -> None:
    assert len(locks.holders(A)) == 1
    assert tx.agent.is_alive()
    assert tx.token(A) == locks.holders(A)[0].number


def _thick_with_b(stage: Stage) -> None:
    _thick(stage)
    stage.begin("b")


def _look_at_agent(stage: Stage) -> None:
    (agent,) = stage.agents
    assert agent.is_alive()
    assert [each.held for each in agent.lock_info()] == [True]
    assert locks.holders(A)[0].agent == agent.id


def _left_transaction(stage: Stage) -> None:
    with suppress(locks.errors.TransactionEnded):  # the act may have left it
        _leave_transaction(stage.keep["transaction"])
    assert not stage.keep["transaction"].agent.is_alive()


def _use_token(stage: Stage) -> None:
    with _a_lock(stage) as lock:
        token = lock.token()
        assert len(locks.holders(A)) == 1
        assert lock.token() == token


def _is_free_soon(stage: Stage) -> None:
    """Where there is no stack to inflate the lock, and to release it, the background does it, or who comes next."""
    _soon(stage, "the lock is released", lambda: not locks.holders(A))


def _with_lock(stage: Stage) -> None:
    with _a_lock(stage):
        pass


def _with_readers(stage: Stage) -> None:
    both = locks.RWLock(A)
    with both.read_lock():
        pass
    with both.write_lock():
        pass


def _with_owner(stage: Stage) -> None:
    with locks.Owner("me"):
        assert _a_lock(stage).acquire()


def _acting(stage: Stage) -> None:
    owner = stage.keep.setdefault("owner", locks.Owner("me"))
    with owner.acting():
        assert _a_lock(stage).acquire()


def _acts_for_itself(stage: Stage) -> None:
    if isinstance(current_client(), locks.Owner):
        stage.problems.append("it still acts for an owner")


def _owner_is_gone(stage: Stage) -> None:
    """Where there is no stack to release what it has, the background does it, or who comes next."""
    _acts_for_itself(stage)
    _soon(stage, "what the owner has is released", lambda: locks.statistics().agents == 0)


def _end_owner(stage: Stage) -> None:
    if "owner" in stage.keep:
        stage.keep["owner"].end()


def _second_lock(stage: Stage) -> None:
    assert locks.Lock(B).acquire()


def _try_lock(stage: Stage) -> None:
    assert not _a_lock(stage).acquire(timeout=0.0005)


def _try_at_once(stage: Stage) -> None:
    assert not _a_lock(stage).acquire(blocking=False)


def _an_rlock(stage: Stage) -> locks.RLock:
    lock: locks.RLock = stage.keep.setdefault("rlock", locks.RLock(A))
    return lock


def _entered(stage: Stage) -> None:
    _an_rlock(stage).acquire()


def _with_rlock(stage: Stage) -> None:
    with _an_rlock(stage):
        pass


def _let_rlock_go(stage: Stage) -> None:
    while _an_rlock(stage).owned():
        _an_rlock(stage).release()


# --- Looking ------------------------------------------------------------------------------------


def _look(stage: Stage) -> None:
    agent = stage.agents[0]
    locks.original.ensure_held(agent, A)
    locks.original.fencing_token(agent, A)
    locks.original.lock_info(agent)
    locks.original.transaction_status(agent)
    locks.holders(A)
    locks.statistics()


def _watcher(view: object) -> None:
    pass


def _watch(stage: Stage) -> None:
    locks.watch(A, watcher=_watcher)


def _unwatch(stage: Stage) -> None:
    locks.unwatch(A, watcher=_watcher)


# --- The end of others --------------------------------------------------------------------------


def _mortal(stage: Stage) -> None:
    """An actor holds `a`; we bring its end about."""

    class Mortal(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message: Any) -> Any:
            return message()

    ref = stage.keep["actor"] = Mortal.start()
    agent = ref.ask(lambda: locks.original.begin_transaction([(A, "write")])[0])
    stage.keep["agent"] = agent
    stage.names[agent.machine.client] = "other"


def _end_of_actor(stage: Stage) -> None:
    stage.keep["actor"].actor_stopped.set()


def _actor_is_gone(stage: Stage) -> None:
    actor = stage.keep["actor"]
    if not actor.is_alive():
        _soon(stage, "the dead actor's transaction ends", lambda: not stage.node.agents_by_id)


def _bury(stage: Stage) -> None:
    actor = stage.keep["actor"]
    actor.actor_stopped.clear()
    actor.stop(block=True)


def _soon(stage: Stage, what: str, condition: Callable[[], object]) -> None:
    try:
        eventually(condition, 1.0)
    except AssertionError:
        stage.problems.append(f"not within a second: {what}")


def _dies_meanwhile(stage: Stage) -> None:
    """Another client's thread ends while we are in the turn; it leaves that to us."""
    stage.forget().stop()


def _is_buried(stage: Stage) -> None:
    _soon(stage, "the dead thread's transaction ends", lambda: len(stage.node.agents_by_id) <= 1)


def _two_with_b(stage: Stage) -> None:
    _thick(stage)
    stage.begin("b")
    stage.other("a")


def _in_watch(code: CodeType) -> bool:
    return code.co_filename.endswith("runtime/monitor.py") and code.co_name == "fire"


def _in_end(code: CodeType) -> bool:
    return code.co_filename.endswith("node/client/owner.py") and code.co_name == "end"


def _in_server(code: CodeType) -> bool:
    return code.co_filename.endswith("node/server.py")


CASES: dict[str, Case] = {
    "spawn_agent": Case(_nothing, _spawn, NOTHING, NOTHING),
    "spawn_agent, not thin": Case(_thick, _spawn, NOTHING, NOTHING),
    "begin_transaction of one": Case(_nothing, _begin_with_one, mine("a"), NOTHING),
    "begin_transaction of two": Case(
        _nothing, _begin_with, {("me", "a"): "write", ("me", "b"): "read"}, NOTHING
    ),
    "with transaction": Case(_nothing, _block, NOTHING, NOTHING),
    "with transaction, lock": Case(_nothing, _locking_block, NOTHING, NOTHING),
    "with transaction, lock, not thin": Case(_thick, _locking_block, NOTHING, NOTHING),
    "lock in a thin transaction": Case(
        _entered_transaction,
        _in_transaction(lambda tx: tx._lock(A, "write", None, None, None)),  # what `lock` returns
        mine("a"),
        NOTHING,
        finish=_left_transaction,
    ),
    "second lock in a thin transaction": Case(
        _transaction_with_a,
        _in_transaction(lambda tx: tx._lock(B, "write", None, None, None)),
        mine("a", "b"),
        mine("a"),
        finish=_left_transaction,
    ),
    "unlock in a thin transaction": Case(
        _transaction_with_a,
        _in_transaction(lambda tx: tx.unlock(A)),
        NOTHING,
        mine("a"),
        NOTHING,
        finish=_left_transaction,
    ),
    "end of a thin transaction": Case(
        _transaction_with_a,
        _in_transaction(_leave_transaction),
        NOTHING,
        mine("a"),
        NOTHING,
        finish=_left_transaction,
    ),
    "looking at a thin transaction": Case(
        _transaction_with_a,
        _in_transaction(_look_at_transaction),
        mine("a"),
        mine("a"),
        finish=_left_transaction,
    ),
    "with transaction, lock that waits": Case(
        _busy_for_locks, _locking_block, NOTHING, NOTHING, kinds=BOTH
    ),
    "with transaction, lock_all": Case(_nothing, _block_of_all, NOTHING, NOTHING),
    "lock": Case(_thick_with_b, _ask("a"), mine("a", "b"), mine("b")),
    "lock by a light agent": Case(lambda s: s.begin(), _ask("a"), mine("a"), NOTHING),
    "second lock by a light agent": Case(
        lambda s: s.begin("b"), _ask("a"), mine("a", "b"), mine("b")
    ),
    "unlock by a light agent": Case(
        lambda s: s.begin("a"),
        lambda s: locks.original.unlock(s.agents[0], A),
        NOTHING,
        mine("a"),
        NOTHING,
    ),
    "end of a light agent": Case(
        lambda s: s.begin("a"),
        lambda s: locks.original.end_transaction(s.agents[0]),
        NOTHING,
        mine("a"),
        NOTHING,
    ),
    "looking at a light agent": Case(lambda s: s.begin("a"), _look_at_agent, mine("a"), mine("a")),
    "lock that waits": Case(_busy, _ask("a"), mine("a", "b"), mine("b"), kinds=BOTH),
    "lock that is refused a wait": Case(
        _held,
        _ask("a", timeout=0),
        NOTHING,
        mine("b") | theirs("a"),
        expected=locks.LockTimeout,
    ),
    "lock that times out": Case(
        _held,
        _ask("a", timeout=0.0005),
        NOTHING,
        mine("b") | theirs("a"),
        expected=locks.LockTimeout,
        kinds=BOTH,
    ),
    "lock_objects, await_all_locks": Case(
        lambda s: s.begin("b"),
        _lock_all,
        mine("a", "b", "c"),
        mine("b"),
        mine("a", "b", "c"),  # asked for without waiting: that stays
    ),
    "upgrade": Case(
        lambda s: s.begin("a", mode="read"), _ask("a"), mine("a"), mine("a", mode="read")
    ),
    "upgrade that waits": Case(_two_readers, _ask("a"), mine("a"), mine("a", mode="read")),
    "unlock, another waits": Case(
        _waited_for,
        lambda s: locks.original.unlock(s.agents[0], A),
        mine("b") | theirs("a"),
        mine("a", "b"),
        mine("b") | theirs("a"),
    ),
    "end, another waits": Case(
        _waited_for,
        lambda s: locks.original.end_transaction(s.agents[0]),
        theirs("a"),
        mine("a", "b"),
        theirs("a"),
    ),
    "deadlock, we abort": Case(
        _victim,
        _ask("b"),
        NOTHING,
        mine("a") | theirs("b"),
        theirs("a", "b"),
        expected=locks.DeadlockAborted,
    ),
    "deadlock, another aborts": Case(
        _survivor, _ask("b"), mine("a", "b"), mine("a"), mine("a") | theirs("b")
    ),
    "Lock.acquire": Case(_nothing, _acquired, mine("a"), NOTHING, finish=_let_go),
    "Lock.acquire, second": Case(
        _second_lock, _acquired, mine("a", "b"), mine("b"), finish=_let_go
    ),
    "Lock.acquire that waits": Case(
        _busy_for_locks, _acquired, mine("a"), NOTHING, finish=_let_go, kinds=BOTH
    ),
    "Lock.acquire that times out": Case(
        lambda s: s.other("a"), _try_lock, theirs("a"), theirs("a"), finish=_let_go
    ),
    "Lock.acquire(blocking=False)": Case(
        lambda s: s.other("a"), _try_at_once, theirs("a"), theirs("a"), finish=_let_go
    ),
    "Lock.release": Case(
        _acquired, lambda s: _a_lock(s).release(), NOTHING, mine("a"), NOTHING, finish=_let_go
    ),
    "with Lock": Case(_nothing, _with_lock, NOTHING, NOTHING),
    "with Lock, not thin": Case(_thick, _with_lock, NOTHING, NOTHING),
    "with Lock, inflated": Case(_nothing, _use_token, NOTHING, NOTHING, check=_is_free_soon),
    "Lock.acquire, not thin": Case(_thick, _acquired, mine("a"), NOTHING, finish=_let_go),
    "Lock.release, not thin": Case(
        _thick_acquired, lambda s: _a_lock(s).release(), NOTHING, mine("a"), NOTHING, finish=_let_go
    ),
    "Lock.release, inflated": Case(
        _inflated, lambda s: _a_lock(s).release(), NOTHING, mine("a"), NOTHING, finish=_let_go
    ),
    "looking at a thin Lock": Case(
        lambda s: (locks.statistics(), _acquired(s)),
        _look_at_thin,
        mine("a"),
        mine("a"),
        finish=_let_go,
    ),
    "another Lock beside a thin one": Case(
        _acquired, _second_lock, mine("a", "b"), mine("a"), finish=_let_go
    ),
    "with transaction, beside a thin Lock": Case(
        _acquired, _block_beside, mine("a"), mine("a"), finish=_let_go
    ),
    "with Lock that waits": Case(_busy_for_locks, _with_lock, NOTHING, NOTHING, kinds=BOTH),
    "with RWLock": Case(_nothing, _with_readers, NOTHING, NOTHING),
    "with Owner": Case(_nothing, _with_owner, NOTHING, NOTHING, mine("a"), check=_owner_is_gone),
    "with Owner.acting": Case(
        _nothing, _acting, mine("a"), NOTHING, mine("a"), check=_acts_for_itself, finish=_end_owner
    ),
    "Owner.end": Case(
        _acting,
        _end_owner,
        NOTHING,
        mine("a"),
        NOTHING,
        begin=_in_end,  # without stack or memory the background does it
        finish=_end_owner,
    ),
    "with RLock": Case(_nothing, _with_rlock, NOTHING, NOTHING),
    "with RLock, not thin": Case(_thick, _with_rlock, NOTHING, NOTHING),
    "RLock.release, not thin": Case(
        lambda s: (_thick(s), _entered(s)),
        lambda s: _an_rlock(s).release(),
        NOTHING,
        mine("a"),
        NOTHING,
        finish=_let_rlock_go,
    ),
    "RLock beside a thin one": Case(
        _entered,
        lambda s: _an_rlock(s).acquire() and len(locks.holders(A)),
        mine("a"),
        mine("a"),
        finish=_let_rlock_go,
    ),
    "with RLock, again": Case(_entered, _with_rlock, mine("a"), mine("a"), finish=_let_rlock_go),
    "with RLock that waits": Case(_busy_for_locks, _with_rlock, NOTHING, NOTHING, kinds=BOTH),
    "RLock.release, once": Case(
        lambda s: (_entered(s), _entered(s)),
        lambda s: _an_rlock(s).release(),
        mine("a"),
        mine("a"),
        finish=_let_rlock_go,
    ),
    "RLock.release, the last": Case(
        _entered,
        lambda s: _an_rlock(s).release(),
        NOTHING,
        mine("a"),
        NOTHING,
        finish=_let_rlock_go,
    ),
    "watch": Case(lambda s: s.begin("a"), _watch, mine("a"), mine("a"), finish=_unwatch),
    "unwatch": Case(
        lambda s: (s.begin("a"), _watch(s)), _unwatch, mine("a"), mine("a"), finish=_unwatch
    ),
    "ensure_held, token, looking": Case(lambda s: s.begin("a"), _look, mine("a"), mine("a")),
    "an actor ends here": Case(
        _mortal,
        _end_of_actor,
        NOTHING,
        NOTHING,
        theirs("a"),
        begin=_in_watch,  # before it, `threading.Event` itself can be torn
        check=_actor_is_gone,
        finish=_bury,
    ),
    "work posted by a dying thread": Case(
        _two_with_b,
        _ask("c"),
        mine("b", "c"),
        mine("b"),
        begin=_in_server,
        interlude=_dies_meanwhile,
        check=_is_buried,
    ),
}
